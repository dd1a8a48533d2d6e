"""Time and memory of a layout by their parts, and how far two layouts differ in each.

The parts add up to the time of an iteration, and to what a GPU of the fullest stage holds. The module does
not know why a layout was chosen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from placements.models.costing.layer_costs import layer_times
from placements.models.costing.layer_times import TIME_PARTS
from schedsearch.planning.uniform_run import StageTensor, UniformRun

_OF_KIND = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "backward": "one backward",
    "buffer": "buffers",
}
"""Part of tensors whose kind says it."""

_OF_WORDS = {
    "checkpoints": ("input of the layer",),
    "attention": ("attention", "key", "queries", "scores"),
    "feed-forward": ("activation", "feed-forward", "routed"),
    "state space": ("convolution", "first projection", "last projection", "state space", "states between"),
    "logits": ("input of the output layer", "logits"),
}
"""Part of tensors that a micro-batch keeps, by words of their names; the rest are other activations."""

MEMORY_PARTS = (
    *("weights", "gradients", "optimizer", "attention", "feed-forward", "state space", "checkpoints"),
    *("logits", "other activations", "one backward", "buffers", "rounding"),
)
"""Parts of memory, in the order in which they are told."""

PIPELINE_PARTS = (
    *("ends of the pipeline", "waits inside the pipeline", "gradient reduction", "optimizer step"),
    *("gathering of weights", "slowdown by exchanges"),
)
"""Parts of an iteration besides those of the passes."""


def memory_part(tensor: StageTensor) -> str:
    """Return the part that a tensor belongs to; see `MEMORY_PARTS`."""
    if tensor.kind != "kept":
        return _OF_KIND[tensor.kind]
    parts = (part for part, words in _OF_WORDS.items() if any(word in tensor.name for word in words))
    return next(parts, "other activations")


def memory_by_part(run: UniformRun, stage: int) -> dict[str, float]:
    """Return what a GPU of a stage holds when it holds most, by part.

    Blocks have whole MiB, rounded up, which is the last part.

    Args:
        run: A layout with its schedule.
        stage: Number of the stage.

    Returns:
        GiB of all parts in order; their sum is that of `UniformRun.gib_by_stage`.
    """
    found = defaultdict[str, float](float)
    for tensor in run.memory(stage):
        found[memory_part(tensor)] += tensor.gib
    found["rounding"] = run.gib_by_stage[stage] - sum(found.values())
    return {part: found[part] for part in MEMORY_PARTS}


def time_by_part(run: UniformRun) -> dict[str, float]:
    """Return an iteration by part, of the stage that computes longest.

    Parts of a pass are as long as its block in the schedule. The ends of the pipeline are what the stage
    waits for before its first block, and at the end for slower stages.

    Args:
        run: A layout with its schedule, whose exchanges run beside the pipeline.

    Returns:
        Milliseconds by part; their sum is `UniformRun.iteration_ms`.
    """
    placement, m = run.placement, run.layout.num_micro_batches
    stage = busiest_stage(run)
    found = dict.fromkeys(TIME_PARTS, 0.0)
    for chunk in (i for i, device in enumerate(run.devices) if device == stage):
        for blocks, parts in zip(_blocks(run, chunk), _passes(run, stage, chunk), strict=True):
            time_ms = m * placement.ms(sum(placement.by_name[name].time for name in blocks))
            whole_ms = sum(parts.values())
            for part, part_ms in parts.items():
                found[part] += time_ms * part_ms / whole_ms
    end = run.ends[stage]
    first_ms = placement.ms(run.schedule.start_of[run.schedule.order(stage)[0]])
    others = (
        first_ms + run.iteration_ms - end.ms,
        end.backward_ms - first_ms - sum(found.values()),
        *(end.scatter_ms, end.step_ms, end.gather_ms, end.slowdown_ms),
    )
    return found | dict(zip(PIPELINE_PARTS, others, strict=True))


def busiest_stage(run: UniformRun) -> int:
    """Return the stage that computes longest, the first of several."""
    placement = run.placement
    busy = [0] * run.plan.num_stages
    for chunk, stage in enumerate(run.devices):
        busy[stage] += sum(placement.by_name[name].time for names in _blocks(run, chunk) for name in names)
    return busy.index(max(busy))


def _blocks(run: UniformRun, chunk: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of a chunk's blocks in a forward and in a backward."""
    backward = tuple(f"{kind}{chunk}" for kind in "BW" if f"{kind}{chunk}" in run.placement.by_name)
    return (f"F{chunk}",), backward


def _passes(run: UniformRun, stage: int, chunk: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return the modelled times of a chunk's forward and backward by part."""
    plan = run.plan
    forward, backward = defaultdict[str, float](float), defaultdict[str, float](float)
    for (layer, strategy), count in Counter(run.layers_of(run.chunks[chunk])).items():
        times = layer_times(
            *(layer, strategy, plan.micro_batch_size, plan.num_micro_batches, plan.group(stage)),
            run.costs.options,
        )
        for found, of_pass in ((forward, times.forward), (backward, times.backward)):
            for part, part_ms in of_pass.items():
                found[part] += count * part_ms
    return dict(forward), dict(backward)


class PartRow(NamedTuple):
    """A part of two layouts.

    Attributes:
        part: Its name.
        unit: Of the figures: ms, or GiB.
        best: Of the one.
        own: Of the other.
    """

    part: str
    unit: str
    best: float
    own: float

    @property
    def more(self) -> float:
        """How much more the other has."""
        return self.own - self.best


def beside(best: UniformRun, own: UniformRun) -> Iterator[PartRow]:
    """Yield the parts of two layouts side by side: of time, its sum, of memory, its sum.

    Args:
        best: The one.
        own: The other.
    """
    times = time_by_part(best), time_by_part(own)
    stages = (run.gib_by_stage.index(max(run.gib_by_stage)) for run in (best, own))
    memories = tuple(memory_by_part(run, stage) for run, stage in zip((best, own), stages, strict=True))
    for unit, (one, other), parts, total in (
        ("ms", times, (*TIME_PARTS, *PIPELINE_PARTS), "iteration"),
        ("GiB", memories, MEMORY_PARTS, "memory of a GPU"),
    ):
        for part in parts:
            row = PartRow(part, unit, one[part], other[part])
            if row.best or row.own:
                yield row
        yield PartRow(total, unit, sum(one.values()), sum(other.values()))
