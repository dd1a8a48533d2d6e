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
    iteration_ms,
    spans,
)


def bi_objective_partition(
    costs: StageCosts,
    memory_start: Sequence[int],
    time_start: Sequence[int],
    num_micro_batches: int,
) -> Division | None:
    """Return the best division on the way from balanced memory to balanced times (Galvatron-BMW, Alg. 2).

    The slowest stage gives a layer to one of its neighbors as long as no stage then takes longer than the
    slowest did (1), all fit (2), and none holds more than a stage of the division of balanced times (3). That
    last limit is left out where that division does not fit.

    Args:
        costs: Costs of a stage, by its first layer and the layer after its last.
        memory_start: Layers of each stage with balanced memory; see `memory_balanced`.
        time_start: With balanced times, of as many layers and stages.
        num_micro_batches: Micro-batches of an iteration.

    Returns:
        The division of the shortest iteration among those tried; None where the first does not fit.
    """
    balanced = _fitting(costs, time_start)
    max_mib = max(stage.peak_mib for stage in balanced) if balanced else float("inf")
    best: Division | None = None
    queue, seen = deque([tuple(memory_start)]), {tuple(memory_start)}
    while queue:
        division = queue.popleft()
        stages = _fitting(costs, division)
        if stages is None:
            continue
        times_ms, syncs_ms = [each.time_ms for each in stages], [each.sync_ms for each in stages]
        time_ms = iteration_ms(times_ms, syncs_ms, num_micro_batches)
        if best is None or time_ms < best.time_ms:
            best = Division(division, time_ms)
        slowest = max(range(len(stages)), key=lambda stage: _whole_ms(stages[stage]))
        for moved in _moves(division, slowest):
            after = _fitting(costs, moved) if moved not in seen else None
            seen.add(moved)
            if after is not None and all(
                _whole_ms(stage) <= _whole_ms(stages[slowest]) and stage.peak_mib <= max_mib
                for stage in after
            ):
                queue.append(moved)
    return best


def _fitting(costs: StageCosts, division: Sequence[int]) -> list[StageCost] | None:
    """Return the stages of a division if all fit."""
    stages = [costs(*stage) for stage in spans(division)]
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
