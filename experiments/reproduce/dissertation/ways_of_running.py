"""Fig. 4.10, 4.12, 4.16, 4.17 and 4.18: ways of running one model, by costs from data sheets.

ZeRO-3 beside pipelines, interleaving, sizes of a micro-batch, recomputation, and what is sent between nodes.
What the figures show was measured; the conclusions of the text are held against ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from experiments.reproduce.dissertation.parameters_and_days import gpt, iteration_flops
from experiments.reproduce.dissertation.published import SEQUENCE_LENGTH, SHAPES, TABLE_4_2
from experiments.reproduce.dissertation.throughput import (
    GAIN_OF_LARGE,
    TFLOPS,
    Configuration,
    Gpt,
    tflops_per_gpu,
)
from experiments.reproduce.item import CaseOptions, Claim, Item, Row, Trend, cases_in, chosen_cases
from placements.cluster import read_cluster
from placements.models.costs import layer_cost
from placements.models.parallel import Cost, LayerStrategy, Recompute
from schedsearch.figures.panels import Panel, Point, draw_panels

SEQUENCES, BEST = "sequences_per_s", "best_micro_batch_size"

GPT_3 = Gpt(96, 12_288, 96)

_FP16_BYTES = 2


@dataclass(frozen=True)
class Way:
    """How an iteration of a pipeline runs.

    Attributes:
        recomputes: Whether all activations are computed again.
        num_chunks: Pieces of each device, v; above 1 interleaved.
        is_scattered: Whether each GPU of a node sends its own part of what goes to the next node.
    """

    recomputes: bool = True
    num_chunks: int = 1
    is_scattered: bool = True


@dataclass(frozen=True)
class Iteration:
    """What an iteration takes.

    Attributes:
        time_ms: Of all of it.
        memory_gib: That a GPU of the first stage holds.
        memory_limit_gib: That it has.
    """

    time_ms: float
    memory_gib: float
    memory_limit_gib: float

    @property
    def fits(self) -> bool:
        """Whether the first stage has the memory."""
        return self.memory_gib <= self.memory_limit_gib


def iteration(model: Gpt, how: Configuration, batch_size: int, way: Way) -> Iteration:
    """Return what an iteration of micro-batches of one sequence takes.

    Devices wait for what they send to the next node and receive from it. Each device holds what it keeps of
    as many micro-batches as there are stages.

    Args:
        model: Its shape.
        how: On A100, eight in a node, a stage in each.
        batch_size: Sequences.
        way: Of running.
    """
    cluster = read_cluster(f"a100_{how.num_gpus}")
    nodes = [cluster.group(first, how.tensor_parallel) for first in (0, how.tensor_parallel)]
    cost = _stage_cost(model, how, batch_size // how.data_parallel, way)
    sent = SEQUENCE_LENGTH * model.hidden_size * _FP16_BYTES
    own = sent / how.tensor_parallel if way.is_scattered else sent
    hop_ms = nodes[0].next_transfer_ms(nodes[1], own)
    if way.is_scattered:
        hop_ms += nodes[0].all_gather_ms(sent, how.tensor_parallel)
    num_micro_batches = batch_size // how.data_parallel
    stage_ms = cost.forward.time_ms + cost.backward.time_ms
    hops_ms = 2 * way.num_chunks * hop_ms  # there and back
    rounds = num_micro_batches + (how.num_stages - 1) / way.num_chunks
    kept = min(num_micro_batches, how.num_stages) * cost.kept_bytes
    held = cost.static_bytes + max(cost.forward_bytes, cost.backward_bytes) + kept
    return Iteration(rounds * (stage_ms + hops_ms) + cost.update_ms, held / 2**30, nodes[0].memory_gib)


def _stage_cost(model: Gpt, how: Configuration, num_micro_batches: int, way: Way) -> Cost:
    """Return the cost of a stage's layers; all stages have as many."""
    shape = gpt(model.num_layers, model.hidden_size, model.num_heads)
    group = read_cluster(f"a100_{how.num_gpus}").group(0, how.tensor_parallel * how.data_parallel)
    again: Recompute = "full" if way.recomputes else "none"
    strategy = LayerStrategy(how.tensor_parallel, how.data_parallel, recompute=again)
    layer = layer_cost(shape.layers[1], strategy, how.data_parallel, num_micro_batches, group)
    return sum((layer for _ in range(model.num_layers // how.num_stages)), Cost())


def zero_3_tflops(model: Gpt, num_gpus: int, micro_batch_size: int, batch_size: int) -> float:
    """Return the throughput of each GPU where all share all weights and none a layer (ZeRO-3).

    Args:
        model: Its shape.
        num_gpus: A100, eight in a node.
        micro_batch_size: Sequences of each GPU.
        batch_size: Sequences; a multiple of the product of both.
    """
    shape = gpt(model.num_layers, model.hidden_size, model.num_heads)
    group = read_cluster(f"a100_{num_gpus}").group(0, num_gpus)
    strategy = LayerStrategy(1, num_gpus, zero=3, recompute="full")
    number = batch_size // (num_gpus * micro_batch_size)
    layer, output = (
        layer_cost(each, strategy, num_gpus * micro_batch_size, number, group)
        for each in (shape.layers[1], shape.layers[-1])
    )
    costs = [(model.num_layers, layer), (1, output)]
    time_ms = sum(
        count * (number * (cost.forward.time_ms + cost.backward.time_ms) + cost.update_ms)
        for count, cost in costs
    )
    flops = iteration_flops(model.num_layers, model.hidden_size, batch_size)
    return flops / (time_ms * 1e-3 * num_gpus) / 1e12


_MODELS = {174.6: GPT_3, 529.6: Gpt(105, 20_480, 128)}
_SIDES = {174.6: (8, 12), 529.6: (8, 35)}
"""Of Table 4.2: t and p by the billions of parameters."""

assert all(SHAPES[size] == (model.num_layers, model.hidden_size) for size, model in _MODELS.items())


def _zero_cases(options: CaseOptions) -> list[str]:
    return chosen_cases([f"{size:g}b" for size in _MODELS], options.only)


def _zero_rows(_: CaseOptions, case: str) -> list[Row]:
    size = float(case.removesuffix("b"))
    model, (t, p) = _MODELS[size], _SIDES[size]
    rows = []
    for each in TABLE_4_2:
        if each.parameters_b != size:
            continue
        if each.scheme == "ZeRO-3":
            ours = zero_3_tflops(model, each.num_gpus, each.micro_batch_size, each.batch_size)
        else:
            how = Configuration(t, p, each.num_gpus // (t * p))
            ours = tflops_per_gpu(model, how, each.batch_size, each.micro_batch_size)
        rows.append(Row(case, f"{each.scheme}, {each.num_gpus} GPUs", TFLOPS, ours, each.tflops, 0))
    return rows


def _zero_trends(rows: Sequence[Row]) -> list[Trend]:
    kept, most = {}, {}
    for case in cases_in(rows):
        curves = {
            scheme: [row.ours or 0.0 for row in rows if row.case == case and row.label.startswith(scheme)]
            for scheme in ("PTD-P", "ZeRO-3")
        }
        kept[case] = {scheme: curve[-1] / curve[0] for scheme, curve in curves.items()}
        most[case] = [a / b for a, b in zip(curves["PTD-P"], curves["ZeRO-3"], strict=True)]
    shown = "; ".join(
        f"{case}: " + ", ".join(f"{scheme} keeps {100 * share:.0f} %" for scheme, share in each.items())
        for case, each in kept.items()
    )
    ratios = "; ".join(
        f"{case}: {', '.join(f'{each:.2f}' for each in found)}" for case, found in most.items()
    )
    return [
        Trend(
            "pipelines scale better than ZeRO-3",
            all(each["PTD-P"] > each["ZeRO-3"] for each in kept.values()),
            shown,
        ),
        Trend(
            "with doubled GPUs pipelines have 1.7 times its throughput, and more with four times as many",
            all(found[1] >= 1.7 and found[2] > found[1] for found in most.values()),
            f"{ratios} times",
        ),
    ]


_INTERLEAVED = Way(num_chunks=2)
_WAYS_4_12 = {"interleaved": _INTERLEAVED, "default": Way()}
_WAYS_4_18 = {"scattered": _INTERLEAVED, "not scattered": Way(num_chunks=2, is_scattered=False)}
_BATCHES_96 = (12, 24, 36, 48, 60)
_ON_96 = Configuration(8, 12, 1)


def _way_cases(ways: dict[str, Way], options: CaseOptions) -> list[str]:
    return chosen_cases(list(ways), options.only)


def _way_rows(ways: dict[str, Way], _: CaseOptions, case: str) -> list[Row]:
    rows = []
    for batch_size in _BATCHES_96:
        found = iteration(GPT_3, _ON_96, batch_size, ways[case])
        flops = iteration_flops(GPT_3.num_layers, GPT_3.hidden_size, batch_size)
        tflops = flops / (found.time_ms * 1e-3 * _ON_96.num_gpus) / 1e12
        rows.append(Row(case, f"B={batch_size}", TFLOPS, tflops, digits=1))
    return rows


def _ratios(rows: Sequence[Row]) -> list[float]:
    """Return the values of the first case over those of the second; none where there is one case."""
    curves = [[row.ours or 0.0 for row in rows if row.case == case] for case in cases_in(rows)]
    return [a / b for a, b in zip(*curves, strict=True)] if len(curves) == 2 else []


def _interleaved_trends(rows: Sequence[Row]) -> list[Trend]:
    ratios = _ratios(rows)
    shown = ", ".join(f"{ratio:.3f}" for ratio in ratios)
    return [
        Trend("interleaved is faster", all(ratio > 1 for ratio in ratios), f"{shown} times"),
        Trend("the gap closes with the batch", sorted(ratios, reverse=True) == ratios, f"{shown} times"),
    ]


def _scattered_trends(rows: Sequence[Row]) -> list[Trend]:
    ratios = _ratios(rows)
    shown = ", ".join(f"{100 * ratio - 100:.1f} %" for ratio in ratios)
    says = "scattering helps, by up to 11 %"
    return [Trend(says, all(1 < ratio <= 1.11 for ratio in ratios), f"{shown}")]


_ON_64 = Configuration(8, 8, 1)
_GPT_91B = Gpt(48, 12_288, 96)
_SIZES_4_16 = (1, 2, 4, 8)


def _micro_cases(options: CaseOptions) -> list[str]:
    return chosen_cases(["batch_128", "batch_512"], options.only)


def _micro_rows(_: CaseOptions, case: str) -> list[Row]:
    batch_size = int(case.removeprefix("batch_"))
    tflops = {b: _with_fixed_part(batch_size, b) for b in _SIZES_4_16}
    best = max(tflops, key=tflops.__getitem__)
    rows = [Row(case, f"b={b}", TFLOPS, value, digits=1) for b, value in tflops.items()]
    return [*rows, Row(case, "best b", BEST, best, 2, 0)]


def _with_fixed_part(batch_size: int, micro_batch_size: int) -> float:
    """Return the throughput where a micro-batch takes a constant besides, as on one GPU (Fig. 4.7)."""
    per_sequence = 1 + (GAIN_OF_LARGE - 1) / micro_batch_size
    return tflops_per_gpu(_GPT_91B, _ON_64, batch_size, micro_batch_size) / per_sequence


def _micro_trends(rows: Sequence[Row]) -> list[Trend]:
    best = {row.case: int(row.ours or 0) for row in rows if row.metric == BEST}
    shown = ", ".join(f"{case}: b={b}" for case, b in best.items())
    inside = all(_SIZES_4_16[0] < b < _SIZES_4_16[-1] for b in best.values())
    return [
        Trend("neither the smallest nor the largest micro-batch is best", inside, shown),
        Trend("the best micro-batch size is 2", set(best.values()) == {2}, shown),
    ]


_ON_128 = Configuration(8, 16, 1)
_GPT_145B = Gpt(80, 12_288, 96)
_WAYS_4_17 = {"recomputed": Way(), "kept": Way(recomputes=False)}
_BATCHES_4_17 = tuple(2**i for i in range(9))
DOES_NOT_FIT = "does not fit"


def _again_rows(_: CaseOptions, case: str) -> list[Row]:
    rows = []
    for batch_size in _BATCHES_4_17:
        found = iteration(_GPT_145B, _ON_128, batch_size, _WAYS_4_17[case])
        speed = batch_size / (found.time_ms * 1e-3)
        note = f"{found.memory_gib:.0f} GiB on each GPU" + ("" if found.fits else f": {DOES_NOT_FIT}")
        rows.append(
            Row(case, f"B={batch_size}", SEQUENCES, speed if found.fits else None, digits=2, note=note)
        )
    return rows


def _again_trends(rows: Sequence[Row]) -> list[Trend]:
    again, kept = (
        {row.label: row.ours for row in rows if row.case == case and row.ours is not None}
        for case in _WAYS_4_17
    )
    if not again or not kept:
        return []
    lost = [1 - again[label] / speed for label, speed in kept.items() if label in again]
    gain = max(again.values()) / max(kept.values())
    return [
        Trend(
            "computing again costs up to a third of the throughput",
            all(0 < share <= 0.33 for share in lost),
            f"{100 * min(lost):.0f} to {100 * max(lost):.0f} %",
        ),
        Trend("only with it do all batches fit", len(again) > len(kept), f"{len(again)} and {len(kept)}"),
        Trend("it reaches up to twice the best throughput without", 1 < gain <= 2.1, f"{gain:.2f} times"),
    ]


def _draw(x_label: str, y_label: str, title: str, rows: Sequence[Row]) -> Any:
    """Draw a curve for each case, by the number that ends a label."""
    curves = {
        case: [
            Point(float(row.label.rpartition("=")[2]), row.ours)
            for row in rows
            if row.case == case and row.ours is not None and "best" not in row.label
        ]
        for case in cases_in(rows)
    }
    return draw_panels([Panel(title, curves)], x_label, y_label, title)


def _draw_zero(rows: Sequence[Row]) -> Any:
    panels = []
    for case in cases_in(rows):
        curves: dict[str, list[Point]] = {}
        for row in (row for row in rows if row.case == case):
            scheme, _, gpus = row.label.partition(", ")
            curves.setdefault(scheme, []).append(Point(float(gpus.split()[0]), row.ours or 0.0))
        panels.append(Panel(case, curves))
    return draw_panels(panels, "GPUs", "teraFLOP/s of each GPU", "ZeRO-3 and pipelines")


_MEASURED = "The figure's values are measured and not in the text; ours come from data sheets. "
_BATCH = "batch size B"
_OF_EACH = "teraFLOP/s of each GPU"

_Cases = Callable[[CaseOptions], Sequence[str]]
_Rows = Callable[[CaseOptions, str], Sequence[Row]]


def _item(
    number: str,
    title: str,
    made: tuple[_Cases, _Rows, Callable[[Sequence[Row]], Sequence[Trend]]],
    draw: Callable[[Sequence[Row]], Any],
    because: str,
) -> Item:
    return Item(
        f"dissertation_figure{number.replace('.', '_')}",
        f"Narayanan's dissertation, Fig. {number}",
        title,
        Claim.TREND,
        CaseOptions,
        CaseOptions(),
        *made,
        draw,
        because=because,
    )


WAY_ITEMS = (
    _item(
        "4.10",
        "Pipelines with tensor parallelism, and ZeRO-3",
        (_zero_cases, _zero_rows, _zero_trends),
        _draw_zero,
        "Published are the throughputs of Table 4.2, which the figure shows. Ours come from data sheets: "
        "ZeRO-3 gathers weights by rings at the links' whole speed, beside the products of the layer before, "
        "so that it loses a sixth with four times the GPUs, where two thirds were measured.",
    ),
    _item(
        "4.12",
        "Interleaved and default schedules of GPT-3 on 96 GPUs",
        (partial(_way_cases, _WAYS_4_12), partial(_way_rows, _WAYS_4_12), _interleaved_trends),
        partial(_draw, _BATCH, _OF_EACH, "Interleaved and default schedule"),
        _MEASURED + "Two pieces on each device are taken, and devices that wait for what they send.",
    ),
    _item(
        "4.16",
        "Micro-batch sizes of 91 billion on 64 GPUs",
        (_micro_cases, _micro_rows, _micro_trends),
        partial(_draw, "micro-batch size b", _OF_EACH, "Micro-batch size"),
        _MEASURED + "A micro-batch takes a constant besides, of the size that Fig. 4.7 shows of one GPU; "
        "batch sizes and 48 layers of 12 288 are taken. For the larger batch the best size is then 4.",
    ),
    _item(
        "4.17",
        "Recomputation of activations of 145 billion on 128 GPUs",
        (partial(_way_cases, _WAYS_4_17), _again_rows, _again_trends),
        partial(_draw, _BATCH, "sequences/s", "Recomputation"),
        _MEASURED
        + "Memory is that of the first stage, with micro-batches of one sequence, and all batches fit "
        "without recomputation, while the measured ones did not. A batch of 256 with it has 2.0 times the "
        "throughput of a batch of 8 without.",
    ),
    _item(
        "4.18",
        "Scattered transfers of GPT-3 on 96 GPUs, interleaved",
        (partial(_way_cases, _WAYS_4_18), partial(_way_rows, _WAYS_4_18), _scattered_trends),
        partial(_draw, _BATCH, _OF_EACH, "Scatter and gather"),
        _MEASURED + "Two pieces on each device are taken, and devices that wait for what they send.",
    ),
)
