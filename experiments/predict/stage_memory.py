"""Memory of a stage of a run, tensor by tensor, at the time when it holds most.

The module prices nothing: sizes are those of `placements.models.costing`, orders those of the run's schedule.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import accumulate
from typing import NamedTuple

from placements import Kind
from placements.models.costing.layer_costs import layer_memory
from placements.models.memory import STATE_KINDS, MemoryItem
from schedsearch.planning.uniform_run import UniformRun

_KINDS = (*STATE_KINDS, "kept", "backward", "buffer")
"""Kinds of tensors, in the order of the table."""


_Key = tuple[str, str, str]
"""Kind, name and rule of tensors."""


class StageTensor(NamedTuple):
    """Tensors of one name on a GPU of a stage, with their size in GiB.

    Attributes:
        kind: See `placements.models.memory.MemoryKind`.
        name: Name of the tensors.
        gib: GiB of all of them together.
        held: Micro-batches of which they are held, of several chunks the most; 1 of states.
        rule: The rule in words by which they are counted.
    """

    kind: str
    name: str
    gib: float
    held: int
    rule: str


def stage_memory(run: UniformRun, stage: int) -> list[StageTensor]:
    """Return the tensors of a stage by kind, largest first in each.

    What its chunks keep is counted for as many micro-batches as each holds when the stage holds most.
    Where that is in a backward, layers whose backward has run already keep nothing of its micro-batch.
    """
    plan, held, running = run.plan, *_at_peak(run, stage)
    sizes, most = defaultdict[_Key, float](float), Counter[_Key]()
    where = plan.micro_batch_size, plan.num_micro_batches, plan.group(stage), run.costs.options
    for chunk in run.chunks_on(stage):
        layers = [layer_memory(layer, how, *where) for layer, how in run.layers_of(run.chunks[chunk])]
        last = _last_at_peak(layers) if chunk == running else -1
        for i, items in enumerate(layers):
            for kind, name, num_bytes, rule in items:
                count = held[chunk] + (i <= last) if kind == "kept" else 1
                if not count * num_bytes or (kind == "backward" and i != last):
                    continue
                key = kind, name, rule
                sizes[key] = count * num_bytes + (sizes[key] if kind != "buffer" else 0.0)
                most[key] = max(most[key], count)
    ordered = sorted(sizes, key=lambda key: (_KINDS.index(key[0]), -sizes[key]))
    return [StageTensor(key[0], key[1], sizes[key] / 2**30, most[key], key[2]) for key in ordered]


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
    kept = accumulate(_num_bytes(items, "kept") for items in layers)
    peaks = [before + _num_bytes(items, "backward") for before, items in zip(kept, layers, strict=True)]
    return peaks.index(max(peaks))


def _num_bytes(items: tuple[MemoryItem, ...], kind: str) -> float:
    return sum(item.num_bytes for item in items if item.kind == kind)
