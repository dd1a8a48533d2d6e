"""Memory of a stage of a run, tensor by tensor, at the time when it holds most.

The module prices nothing: sizes are those of `placements.models.costing`, orders those of the run's schedule.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from placements import Kind
from placements.models.costing.layer_costs import layer_memory
from placements.models.memory import STATE_KINDS, MemoryItem
from schedsearch.planning.uniform_run import UniformRun

_KINDS = (*STATE_KINDS, "kept", "backward", "buffer")
"""Kinds of tensors, in the order of the table."""


class StageTensor(NamedTuple):
    """Tensors of one name on a GPU of a stage of a run, with their size in GiB.

    Attributes:
        run: Name of the run.
        stage: Number of the stage, from 0.
        kind: See `placements.models.memory.MemoryKind`.
        tensor: Name of the tensors.
        gib: GiB of all of them together.
        held: Micro-batches of which they are held, of several chunks the most; 1 of states.
        rule: The rule in words by which they are counted.
    """

    run: str
    stage: int
    kind: str
    tensor: str
    gib: float
    held: int
    rule: str


def stage_memory(run: UniformRun, stage: int, name: str = "") -> list[StageTensor]:
    """Return the tensors of a stage by kind, largest first in each; the run has this name.

    What its chunks keep is counted for as many micro-batches as each holds when the stage holds most.
    Where that is in a backward, layers whose backward has run already keep nothing of its micro-batch.
    """
    plan, held, running = run.plan, *_at_peak(run, stage)
    where = plan.micro_batch_size, plan.num_micro_batches, plan.group(stage), run.costs.options
    found = dict[tuple[str, ...], StageTensor]()
    for chunk in run.chunks_on(stage):
        layers = [layer_memory(layer, how, *where) for layer, how in run.layers_of(run.chunks[chunk])]
        last = _last_at_peak(layers) if chunk == running else -1
        for i, items in enumerate(layers):
            for kind, tensor, num_bytes, rule in items:
                count = held[chunk] + (i <= last) if kind == "kept" else 1
                if not count * num_bytes or (kind == "backward" and i != last):
                    continue
                empty = StageTensor(name, stage, kind, tensor, 0.0, 0, rule)
                same = found.get((kind, tensor, rule), empty)
                gib = (same.gib if kind != "buffer" else 0.0) + count * num_bytes / 2**30
                found[kind, tensor, rule] = same._replace(gib=gib, held=max(same.held, count))
    ordered = sorted(found.values(), key=lambda each: (_KINDS.index(each.kind), -each.gib))
    return [each._replace(gib=round(each.gib, 6)) for each in ordered]


def _at_peak(run: UniformRun, stage: int) -> tuple[Counter[int], int | None]:
    """Return the micro-batches that each chunk of a stage holds at the stage's memory peak.

    Returns:
        Micro-batches whose tensors each chunk keeps, without the one whose backward runs; and the chunk
        of this backward, None if a forward runs.
    """
    held, most = Counter[int](), -1.0
    found: tuple[Counter[int], int | None] = Counter(), None
    for name, _ in run.schedule.order(stage):
        kind, chunk = run.placement.by_name[name].kind, int(name[1:])
        if kind in (Kind.O, Kind.I):
            continue
        cost, is_backward = run.pieces[chunk].cost, kind is not Kind.F
        held[chunk] += -1 if is_backward else 1
        total = sum(count * run.pieces[i].cost.kept_bytes for i, count in held.items())
        total += cost.backward_peak_bytes if is_backward else cost.forward_bytes
        if total > most:
            most, found = total, (Counter(held), chunk if is_backward else None)
    return found


def _last_at_peak(layers: list[tuple[MemoryItem, ...]]) -> int:
    """Return the layer whose backward has the chunk's memory peak; see `Cost.backward_peak_bytes`."""
    kept, peaks = 0.0, list[float]()
    for items in layers:
        kept += sum(item.num_bytes for item in items if item.kind == "kept")
        peaks.append(kept + sum(item.num_bytes for item in items if item.kind == "backward"))
    return peaks.index(max(peaks))
