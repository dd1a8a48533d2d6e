"""AdaPtis: division, placement and order together, for models whose layers differ in kind.

Nemotron-H has layers of Mamba-2, of attention and of a feed-forward part, and an output layer as long as
several of them. Beside even divisions in 1F1B, interleaved 1F1B and ZB-V stands the best searched order of
several divisions and placements, in the memory of interleaved 1F1B.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from experiments.plan.inputs import inputs_of
from experiments.plan.options import PlanQuestion
from experiments.reproduce.ahead import ITERATION, SEARCHED, AheadOptions
from experiments.reproduce.item import Row, Trend, described
from experiments.reproduce.rows import listed, rows_with, uninterrupted, value_of
from placements import Placement
from placements.planners.division import min_largest
from placements.planners.hybrid.uniform import Degrees, Layout, uniform_plan
from placements.stages.stage_chain import Stage, StageChain, place
from placements.trainers.layers import ModelLayer, ModelLayers
from placements.trainers.layout import EMBEDDING, LAYER, LOSS, PARTS
from schedsearch.baselines import interleaved_one_f_one_b, one_f_one_b, zb_v
from schedsearch.layouts.layouts import layout
from schedsearch.metrics import peak_memory
from schedsearch.schedule import Schedule
from schedsearch.searches.search import search

_BASELINES = {
    "1F1B, even": ("v_shape", one_f_one_b, False),
    "interleaved 1F1B, even": ("loop_shape", interleaved_one_f_one_b, False),
    "ZB-V, even": ("wave_shape", zb_v, True),
}
"""Placement, schedule, and whether the backward is split."""

_INTERLEAVED, _MEMORY = "interleaved 1F1B, even", "peak_mib"


class UnequalCase(NamedTuple):
    """GPUs that share a layer, devices of the pipeline, and micro-batches of a model."""

    model: str
    tensor_parallel: int
    num_devices: int
    num_micro_batches: int

    def layers(self) -> ModelLayers:
        """Return the layers with times (to 10 us) and memory (to MiB) on H100 for one sample."""
        num_gpus = self.tensor_parallel * self.num_devices
        inputs = inputs_of(PlanQuestion(batch=1, model=self.model, cluster=f"h100_{num_gpus}"))
        degrees = Degrees(self.tensor_parallel, self.num_devices)
        plan = uniform_plan(inputs.model, inputs.cluster, Layout(degrees, 1, self.num_micro_batches))
        letters = EMBEDDING + LAYER * (len(inputs.model.layers) - 2) + LOSS
        rows = []
        for i, (letter, layer) in enumerate(zip(letters, inputs.model.layers, strict=True)):
            cost = inputs.costs.cost(layer, plan.strategies[i], 1, self.num_micro_batches, plan.group(0))
            times_ms = (round(each.time_ms, 2) for each in (cost.forward, cost.backward))
            held_mib = (round(each / 2**20) for each in (cost.kept_bytes, cost.static_bytes))
            rows.append(ModelLayer(f"{letter}{i}", PARTS[letter], *times_ms, *held_mib))
        return ModelLayers(tuple(rows))


CASES = {
    "nemotron_h_8b": UnequalCase("nemotron_h_8b", 2, 4, 16),
    "nemotron_h_56b": UnequalCase("nemotron_h_56b", 8, 8, 32),
    "nemotron_8b": UnequalCase("nemotron_8b", 2, 4, 16),
}


def _placed(
    case: UnequalCase,
    layers: ModelLayers,
    sizes: Sequence[int],
    shape: str,
    split: bool,
    memory_mib: float | None = None,
) -> Placement:
    """Return chunks of so many layers on the devices of a shape."""
    chunks = []
    for first, end in pairwise(accumulate(sizes, initial=0)):
        forward, backward, held, weights = (
            sum(getattr(each, name) for each in layers.layers[first:end])
            for name in ("forward_ms", "backward_ms", "activation_mib", "weight_mib")
        )
        halves = {"input_gradient_ms": backward / 2, "weight_gradient_ms": backward / 2}
        times = halves if split else {"backward_ms": backward}
        chunks.append(Stage(forward, activation_mib=held, weight_mib=weights, **times))
    chain = StageChain(tuple(chunks), case.num_devices, memory_mib)
    return place(chain, shape, split, len(chunks) // case.num_devices).placement


def _even(layers: ModelLayers, number: int) -> tuple[int, ...]:
    """Return the parts of each stage: layers divided evenly, the embedding and the loss on the ends."""
    size, left = divmod(layers.num_layers, number)
    sizes = [size + (i < left) for i in range(number)]
    sizes[0] += 1
    sizes[-1] += 1
    return tuple(sizes)


def _divisions(
    case: UnequalCase, layers: ModelLayers, memory_mib: float | None, work_limit: float
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield shapes with divisions: the best of 1F1B and of interleaved 1F1B, and the least longest chunk."""
    devices, number = case.num_devices, case.num_micro_batches
    found = layout(layers, devices, number, (1, 2), memory_mib, work_limit=work_limit)
    for row, shape in zip(found.rows, ("v_shape", "loop_shape"), strict=True):
        if row.found is not None:
            yield shape, row.found.sizes
    times_ms = [each.forward_ms + each.backward_ms for each in layers.layers]
    yield "wave_shape", min_largest(times_ms, 2 * devices)


def _make(options: AheadOptions, case: UnequalCase) -> Iterator[Row]:
    layers, number, memory_mib = case.layers(), case.num_micro_batches, None
    for name, (shape, rule, split) in _BASELINES.items():
        sizes = _even(layers, case.num_devices * (1 if shape == "v_shape" else 2))
        made = rule(_placed(case, layers, sizes, shape, split), number)
        memory_mib = _peak_mib(made) if name == _INTERLEAVED else memory_mib
        yield from _rows(name, made)
    answers = []
    for shape, sizes in _divisions(case, layers, memory_mib, options.work_limit):
        placement = _placed(case, layers, sizes, shape, True, memory_mib)
        answer = uninterrupted(search(placement, number, work_limit=options.work_limit))
        if answer.schedule is not None:
            note = f"{shape}, layers of each chunk: {','.join(map(str, sizes))}"
            answers.append((_ms(answer.schedule), note, answer.schedule))
    work_ms = sum(each.forward_ms + each.backward_ms for each in layers.layers)
    _, note, best = min(answers, key=lambda each: each[0])
    yield from _rows(SEARCHED, best, note, number * work_ms / case.num_devices)


def _rows(label: str, schedule: Schedule, note: str = "", bound: float | None = None) -> Iterator[Row]:
    yield Row(label, ITERATION, _ms(schedule), note=note, bound=bound)
    yield Row(label, _MEMORY, _peak_mib(schedule))


def _ms(schedule: Schedule) -> float:
    return schedule.placement.ms(schedule.makespan)


def _peak_mib(schedule: Schedule) -> float | None:
    return schedule.placement.mib(int(peak_memory(schedule).max()))


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    ms = value_of(rows_with(rows, metric=ITERATION), "case", "label")
    own = {case: time for (case, label), time in ms.items() if label == SEARCHED}
    for name in _BASELINES:
        faster = {case: ms[case, name] / time for case, time in own.items()}
        yield Trend(f"faster than {name} division", min(faster.values(), default=0.0) > 1, listed(faster))
    bounds = {row.case: row.bound or 0.0 for row in rows_with(rows, label=SEARCHED, metric=ITERATION)}
    above = {case: 100 * (time / bounds[case] - 1) for case, time in own.items()}
    says = "not in the paper: within a tenth of the time of GPUs that never wait"
    yield Trend(says, max(above.values(), default=0.0) < 10, listed(above, ".1f", " % above"))


ITEMS = (described("adaptis", CASES, _make, _trends, small=AheadOptions(("nemotron_8b",), work_limit=1.0)),)
