"""Time and memory of a layout by their parts, and how far two layouts differ in each.

The parts add up to the time of an iteration, and to what a GPU of the fullest stage holds. The module does
not know why a layout was chosen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from placements.models.costing.layer_costs import TIME_PARTS, layer_times
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
    """Return the GiB that a GPU of a stage holds when it holds most, by part, in order.

    Blocks have whole MiB, rounded up, which is the last part; the sum is that of `UniformRun.gib_by_stage`.
    """
    found = defaultdict[str, float](float)
    for tensor in run.memory(stage):
        found[memory_part(tensor)] += tensor.gib
    found["rounding"] = run.gib_by_stage[stage] - sum(found.values())
    return {part: found[part] for part in MEMORY_PARTS}


def time_by_part(run: UniformRun) -> dict[str, float]:
    """Return the ms of an iteration by part, of the stage that computes longest; their sum is all of it.

    Parts of a pass are as long as its block in the schedule. The ends of the pipeline are what the stage
    waits for before its first block, and at the end for slower stages. Exchanges run beside the pipeline.
    """
    placement, stage = run.placement, busiest_stage(run)
    found = dict.fromkeys(TIME_PARTS, 0.0)
    for chunk in run.chunks_on(stage):
        for ticks, parts in zip(_ticks(run, chunk), _passes(run, stage, chunk), strict=True):
            share = run.layout.num_micro_batches * placement.ms(ticks) / sum(parts.values())
            for part, part_ms in parts.items():
                found[part] += share * part_ms
    end = run.ends[stage]
    first_ms = placement.ms(run.schedule.start_of[run.schedule.order(stage)[0]])
    others = (
        first_ms + run.iteration_ms - sum(end),
        end.backward_ms - first_ms - sum(found.values()),
        *(end.scatter_ms, end.step_ms, end.gather_ms, end.slowdown_ms),
    )
    return found | dict(zip(PIPELINE_PARTS, others, strict=True))


def busiest_stage(run: UniformRun) -> int:
    """Return the stage that computes longest, the first of several."""
    busy = [sum(sum(_ticks(run, i)) for i in run.chunks_on(stage)) for stage in range(run.plan.num_stages)]
    return busy.index(max(busy))


def _ticks(run: UniformRun, chunk: int) -> tuple[int, int]:
    """Return the ticks of a chunk's forward and of its backward, of which a schedule may split the latter."""
    times = {name: block.time for name, block in run.placement.by_name.items()}
    return times[f"F{chunk}"], sum(times.get(f"{kind}{chunk}", 0) for kind in "BIW")


def _passes(run: UniformRun, stage: int, chunk: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return the modelled times of a chunk's forward and backward by part."""
    plan, found = run.plan, (defaultdict[str, float](float), defaultdict[str, float](float))
    for (layer, strategy), count in Counter(run.layers_of(run.chunks[chunk])).items():
        times = layer_times(layer, strategy, plan.micro_batch_size, plan.group(stage), run.costs.options)
        for of_chunk, of_layer in zip(found, (times.forward, times.backward), strict=True):
            for part, part_ms in of_layer.items():
                of_chunk[part] += count * part_ms
    return found


class PartRow(NamedTuple):
    """A part of two layouts: its name, the unit of the figures, ms or GiB, and what each layout has."""

    part: str
    unit: str
    best: float
    own: float

    @property
    def more(self) -> float:
        """How much more the other has."""
        return self.own - self.best


def beside(best: UniformRun, own: UniformRun) -> Iterator[PartRow]:
    """Yield the parts of two layouts side by side: of time, and of memory of their fullest stages."""
    runs = best, own
    stages = [run.gib_by_stage.index(max(run.gib_by_stage)) for run in runs]
    memories = [memory_by_part(run, stage) for run, stage in zip(runs, stages, strict=True)]
    for unit, (one, other), total in (
        ("ms", [time_by_part(run) for run in runs], "iteration"),
        ("GiB", memories, "memory of a GPU"),
    ):
        for part in one:
            if one[part] or other[part]:
                yield PartRow(part, unit, one[part], other[part])
        yield PartRow(total, unit, sum(one.values()), sum(other.values()))
