"""AdaPtis: division, placement and order together, for models whose layers differ in kind.

Nemotron-H has layers of Mamba-2, of attention and of a feed-forward part, and an output layer as long as
several of them. Beside even divisions in 1F1B, interleaved 1F1B and ZB-V stands the best searched order of
the best divisions, in the memory of interleaved 1F1B.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from experiments.plan.inputs import plan_inputs
from experiments.plan.options import PlanQuestion
from experiments.reproduce.ahead import ITERATION, SEARCHED, AheadOptions, schedule_rows
from experiments.reproduce.item import Row, Trend, described
from experiments.reproduce.rows import listed, rows_with, uninterrupted, value_of
from placements import Placement
from placements.planners.hybrid.uniform import Degrees, Layout, uniform_plan
from placements.stages.stage_chain import Stage, StageChain, place
from placements.trainers.layers import ModelLayer, ModelLayers
from placements.trainers.layout import EMBEDDING, LAYER, LOSS, PARTS
from schedsearch.baselines import interleaved_one_f_one_b, one_f_one_b, zb_v
from schedsearch.layouts.layouts import layout
from schedsearch.searches.search import search

_INTERLEAVED = "interleaved 1F1B, even"

_BASELINES = {
    "1F1B, even": ("v_shape", one_f_one_b, False),
    _INTERLEAVED: ("loop_shape", interleaved_one_f_one_b, False),
    "ZB-V, even": ("wave_shape", zb_v, True),
}
"""Shape, rule, and whether the backward is split."""

Case = tuple[str, int, int, int]
"""Model, GPUs that share a layer, devices of the pipeline, and micro-batches."""

CASES: dict[str, Case] = {
    "nemotron_h_8b": ("nemotron_h_8b", 2, 4, 16),
    "nemotron_h_56b": ("nemotron_h_56b", 8, 8, 32),
    "nemotron_8b": ("nemotron_8b", 2, 4, 16),
}


def priced(case: Case) -> ModelLayers:
    """Return the layers with times (to 10 us) and memory (to MiB) on H100 for one sample."""
    model, shared, devices, number = case
    inputs = plan_inputs(PlanQuestion(batch=1, model=model, cluster=f"h100_{shared * devices}"))
    plan = uniform_plan(inputs.model, inputs.cluster, Layout(Degrees(shared, devices), 1, number))
    letters = EMBEDDING + LAYER * (len(inputs.model.layers) - 2) + LOSS
    rows = []
    for i, (letter, layer) in enumerate(zip(letters, inputs.model.layers, strict=True)):
        cost = inputs.costs.cost(layer, plan.strategies[i], 1, number, plan.group(0))
        times_ms = (round(cost_pass.time_ms, 2) for cost_pass in (cost.forward, cost.backward))
        held_mib = (round(num_bytes / 2**20) for num_bytes in (cost.kept_bytes, cost.static_bytes))
        rows.append(ModelLayer(f"{letter}{i}", PARTS[letter], *times_ms, *held_mib))
    return ModelLayers(tuple(rows))


def _placed(
    layers: ModelLayers, sizes: Sequence[int], devices: int, shape: str, split: bool, mib: float | None = None
) -> Placement:
    """Return chunks of given numbers of layers on the devices of a shape, with a memory in MiB."""
    chunks = []
    for first, end in pairwise(accumulate(sizes, initial=0)):
        forward, backward, held, weights = (
            sum(getattr(layer, name) for layer in layers.layers[first:end])
            for name in ("forward_ms", "backward_ms", "activation_mib", "weight_mib")
        )
        halves = {"input_gradient_ms": backward / 2, "weight_gradient_ms": backward / 2}
        times = halves if split else {"backward_ms": backward}
        chunks.append(Stage(forward, activation_mib=held, weight_mib=weights, **times))
    return place(StageChain(tuple(chunks), devices, mib), shape, split, len(chunks) // devices).placement


def _make(options: AheadOptions, case: Case) -> Iterator[Row]:
    layers, devices, number, mib = priced(case), case[2], case[3], None
    for name, (shape, rule, split) in _BASELINES.items():
        num_chunks = devices * (1 if shape == "v_shape" else 2)
        size, left = divmod(layers.num_layers, num_chunks)
        even = [size + (i < left) + (i in (0, num_chunks - 1)) for i in range(num_chunks)]
        made = rule(_placed(layers, even, devices, shape, split), number)
        time, memory = schedule_rows(name, made)
        mib = memory.ours if name == _INTERLEAVED else mib
        yield from (time, memory)
    scheduled = []
    divided = layout(layers, devices, number, (1, 2), mib, work_limit=options.work_limit)
    for row in divided.rows:
        if row.pipeline is not None:
            shape = "v_shape" if row.num_chunks == 1 else "loop_shape"
            placement = _placed(layers, row.pipeline.sizes, devices, shape, True, mib)
            answer = uninterrupted(search(placement, number, work_limit=options.work_limit))
            note = f"{shape}, layers of each chunk: {','.join(map(str, row.pipeline.sizes))}; {answer.proved}"
            scheduled += [] if answer.schedule is None else [(answer.schedule, note)]
    best, note = min(scheduled, key=lambda option: option[0].placement.ms(option[0].makespan))
    work_ms = sum(layer.forward_ms + layer.backward_ms for layer in layers.layers)
    yield from schedule_rows(SEARCHED, best, note=note, bound=number * work_ms / devices)


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    ms = value_of(rows_with(rows, metric=ITERATION), "case", "label")
    searched_ms = {case: time for (case, label), time in ms.items() if label == SEARCHED}
    for name in _BASELINES:
        faster = {case: ms[case, name] / time for case, time in searched_ms.items()}
        yield Trend(f"faster than {name} division", min(faster.values(), default=0.0) > 1, listed(faster))


ITEMS = (described("adaptis", CASES, _make, _trends, small=AheadOptions(("nemotron_8b",), work_limit=1.0)),)
