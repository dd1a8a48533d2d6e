"""Galvatron-BMW's division of layers into stages: from balanced memory toward balanced times.

The module does not know whether another division would be better; `exact_division` does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from placements.planners.stage_search.division import (
    Division,
    StageCost,
    StageCosts,
    StageSolutions,
    iteration_ms,
)
from placements.planners.stage_search.stage_problem import StageError


def bi_objective_partition(
    costs: StageCosts,
    memory_start: Sequence[int],
    time_start: Sequence[int],
    num_micro_batches: int,
    sync_at_once: bool = False,
) -> Division | None:
    """Return the best division on the way from balanced memory to balanced times (Galvatron-BMW, Alg. 2).

    The slowest stage gives a layer to one of its neighbors as long as no stage then takes longer than the
    slowest did (1), all fit (2), and none holds more than a stage of the division of balanced times (3). That
    last limit is left out where that division does not fit.

    Args:
        costs: Costs of a stage, by its first layer and the layer after its last; asked once each at most.
        memory_start: Layers of each stage with balanced memory; see `memory_balanced`.
        time_start: With balanced times.
        num_micro_batches: Micro-batches of an iteration.
        sync_at_once: See `iteration_ms`.

    Returns:
        The division of the shortest iteration among those tried; None where the first does not fit.

    Raises:
        StageError: The two starts do not divide as many layers among as many stages, at least one each.
    """
    _check_starts(memory_start, time_start)
    solved = StageSolutions(costs)
    balanced = _fitting(solved.of(time_start))
    max_mib = max(stage.peak_mib for stage in balanced) if balanced else float("inf")
    best: Division | None = None
    queue, seen = deque([tuple(memory_start)]), {tuple(memory_start)}
    while queue:
        division = queue.popleft()
        stages = _fitting(solved.of(division))
        if stages is None:
            continue
        time_ms = iteration_ms(stages, num_micro_batches, sync_at_once)
        if best is None or time_ms < best.time_ms:
            best = Division(division, tuple(stages), time_ms, 0)
        slowest = max(range(len(stages)), key=lambda stage: _whole_ms(stages[stage]))
        for moved in _moves(division, slowest):
            after = _fitting(solved.of(moved)) if moved not in seen else None
            seen.add(moved)
            if after is not None and all(
                _whole_ms(stage) <= _whole_ms(stages[slowest]) and stage.peak_mib <= max_mib
                for stage in after
            ):
                queue.append(moved)
    if best is None:
        return None
    return Division(best.stage_layers, best.stages, best.time_ms, len(solved))


def _check_starts(memory_start: Sequence[int], time_start: Sequence[int]) -> None:
    alike = len(memory_start) == len(time_start) and sum(memory_start) == sum(time_start)
    if not alike or min(*memory_start, *time_start, 1) < 1 or not memory_start:
        raise StageError(
            f"memory_start: {list(memory_start)} does not divide the layers of time_start {list(time_start)} "
            "among as many stages; give each stage a layer in both"
        )


def _fitting(stages: Sequence[StageCost | None]) -> list[StageCost] | None:
    """Return the stages if all fit."""
    found = [stage for stage in stages if stage is not None]
    return found if len(found) == len(stages) else None


def _whole_ms(stage: StageCost) -> float:
    return stage.time_ms + stage.sync_ms


def _moves(division: tuple[int, ...], stage: int) -> Iterator[tuple[int, ...]]:
    """Yield the divisions in which a stage gives a layer to one of its neighbors."""
    for neighbor in (stage - 1, stage + 1):
        if 0 <= neighbor < len(division) and division[stage] > 1:
            moved = list(division)
            moved[stage] -= 1
            moved[neighbor] += 1
            yield tuple(moved)
