"""Fig. 4.8 and 4.10 to 4.18: throughput by configuration, micro-batch size and way of running.

What the figures show was measured; only what the text concludes is held against ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from experiments.reproduce.dissertation.figure import figure
from experiments.reproduce.dissertation.published import SHAPES, TABLE_4_2
from experiments.reproduce.dissertation.throughput import (
    GPT_3,
    Gpt,
    IterationWay,
    ParallelConfiguration,
    iteration,
    tflops_per_gpu,
    zero_3_tflops,
)
from experiments.reproduce.item import CaseOptions, Claim, Item, Row, Trend
from experiments.reproduce.rows import curves, falls, grouped, numbers, rows_with, value_of
from schedsearch.figures.panels import CurvePoint, Panel, draw_panels

TFLOPS, SEQUENCES = "tflops_per_gpu", "sequences_per_s"
NORMALISED, BEST = "normalised_throughput", "best_micro_batch_size"

_OF_EACH = "teraFLOP/s of each GPU"
_MEASURED = "The figure's values are measured and not in the text; ours come from data sheets. "

GAIN_OF_LARGE = 1.3
"""Throughput of large micro-batches over that of one sequence, on one GPU (Sec. 4.3.4, of Fig. 4.7)."""


def _draw(metric: str, x_label: str, y_label: str, title: str, panel: str, rows: Sequence[Row]) -> Any:
    """Draw a curve of each series, or of each case where there are none."""
    own = rows_with(rows, metric=metric)
    return draw_panels(
        [Panel(panel, curves(own, lambda row: row.series or row.case))], x_label, y_label, title
    )


class DissertationFigure(NamedTuple):
    """A figure: configurations along its axis, and a curve for each batch size.

    Attributes:
        number: Number of the figure.
        title: What it shows.
        batch_sizes: Batch sizes of its curves.
        points: Model and configuration by the place on the axis.
        x_label: Label of the axis.
        conclude: What the text concludes, from the curves by name.
    """

    number: str
    title: str
    batch_sizes: tuple[int, ...]
    points: Mapping[int, tuple[Gpt, ParallelConfiguration]]
    x_label: str
    conclude: Callable[[Mapping[str, Sequence[CurvePoint]]], Trend]

    def rows(self, _: CaseOptions, batch_size: int) -> Iterator[Row]:
        """Yield the throughput of each configuration."""
        for place, (model, how) in self.points.items():
            ours = tflops_per_gpu(model, how, batch_size)
            yield Row(str(how), TFLOPS, ours, digits=1, series=f"B={batch_size}", at=place)

    def item(self) -> Item:
        """Return the figure as an item."""
        return figure(
            self.number,
            self.title,
            Claim.TREND,
            {f"batch_{size}": size for size in self.batch_sizes},
            self.rows,
            lambda rows: (self.conclude(curves(rows)),),
            partial(_draw, TFLOPS, self.x_label, _OF_EACH, self.title, f"Fig. {self.number}"),
            small=CaseOptions((f"batch_{self.batch_sizes[-1]}",)),
            because="The figure's values are measured and not in the text; ours come from data sheets and "
            "assumed shares of the peak. Batch sizes and configurations are taken where the text has none.",
        )


def _falls(name: str, found: Mapping[str, Sequence[CurvePoint]]) -> Trend:
    falling = [all(b.value < a.value for a, b in itertools.pairwise(curve)) for curve in found.values()]
    ends = (f"{size}: {curve[0].value:.0f} to {curve[-1].value:.0f}" for size, curve in found.items())
    return Trend(f"throughput falls with {name}, for each batch size", all(falling), "; ".join(ends))


def _weak_scaling(found: Mapping[str, Sequence[CurvePoint]]) -> Trend:
    kept = {size: curve[-1].value / curve[0].value for size, curve in found.items()}
    smallest, *_, largest = *kept.values(), *kept.values()
    shown = ", ".join(f"{size} keeps {100 * share:.0f} %" for size, share in kept.items())
    return Trend("the larger batch scales better", largest > smallest, shown)


def _within_a_node(found: Mapping[str, Sequence[CurvePoint]]) -> Trend:
    best = {size: max(curve, key=lambda point: point.value).place for size, curve in found.items()}
    shown = ", ".join(f"{size}: t={t:g}" for size, t in best.items())
    says = "tensor parallelism over the GPUs of a node is best (t = 8)"
    return Trend(says, set(best.values()) == {8}, shown)


_SIZES = (2, 4, 8, 16, 32)
_LARGE, _SMALL = Gpt(32, 20_480, 128), Gpt(32, 3840, 32)

SWEEPS = (
    DissertationFigure(
        "4.11",
        "Pipelines in weak scaling: 3 layers of 15 billion in each stage",
        (8, 128),
        {p: (Gpt(3 * p, 20_480, 128), ParallelConfiguration(8, p, 1)) for p in (1, 2, 4, 8)},
        "stages p",
        _weak_scaling,
    ),
    DissertationFigure(
        "4.13",
        "Tensor and pipeline parallelism of 162 billion on 64 GPUs",
        (32, 128),
        {t: (_LARGE, ParallelConfiguration(t, 64 // t, 1)) for t in _SIZES},
        "tensor-parallel size t",
        _within_a_node,
    ),
    DissertationFigure(
        "4.14",
        "Data and pipeline parallelism of 5.9 billion on 64 GPUs",
        (32, 128, 512),
        {p: (_SMALL, ParallelConfiguration(1, p, 64 // p)) for p in _SIZES},
        "stages p",
        partial(_falls, "more stages"),
    ),
    DissertationFigure(
        "4.15",
        "Data and tensor parallelism of 5.9 billion on 64 GPUs",
        (32, 128, 512),
        {t: (_SMALL, ParallelConfiguration(t, 1, 64 // t)) for t in _SIZES},
        "tensor-parallel size t",
        partial(_falls, "a larger tensor-parallel size"),
    ),
)


_BATCHES = {"batch_128": 128, "batch_512": 512}


def _by_micro_batch(
    metric: str, digits: int, published: int, sizes: Sequence[int], throughput: Callable[[int, int], float]
) -> Callable[[CaseOptions, int], Iterator[Row]]:
    """Return what makes the rows of a batch size: the throughput by micro-batch size b, and the best b."""

    def rows(_: CaseOptions, batch_size: int) -> Iterator[Row]:
        values = {b: throughput(batch_size, b) for b in sizes}
        for b, value in values.items():
            yield Row(f"b={b}", metric, value, digits=digits, at=b)
        yield Row("best b", BEST, max(values, key=values.__getitem__), published, 0)

    return rows


def _best_is_inside(sizes: Sequence[int], rows: Sequence[Row]) -> Iterator[Trend]:
    best = value_of(rows_with(rows, metric=BEST), "case")
    inside = all(sizes[0] < b < sizes[-1] for b in best.values())
    yield Trend("neither the smallest nor the largest micro-batch is best", inside, _shown(best))


def _shown(best: Mapping[str, float]) -> str:
    return ", ".join(f"{case}: b={b:g}" for case, b in best.items())


NUM_STAGES_4_8 = 8
_SIZES_4_8, _SIZES_4_16 = (1, 2, 4, 8, 16), (1, 2, 4, 8)
_ON_64 = ParallelConfiguration(8, 8, 1)
_GPT_91B = Gpt(48, 12_288, 96)


def normalised_throughput(batch_size: int, micro_batch_size: int) -> float:
    """Return ideal over estimated time (eq. 4.1), where a micro-batch takes a constant and a part for each.

    >>> normalised_throughput(512, 4) > max(normalised_throughput(512, 2), normalised_throughput(512, 8))
    True
    """
    per_micro_batch = GAIN_OF_LARGE - 1 + micro_batch_size
    return batch_size / ((batch_size / micro_batch_size + NUM_STAGES_4_8 - 1) * per_micro_batch)


def _with_fixed_part(batch_size: int, micro_batch_size: int) -> float:
    """Return the throughput where a micro-batch takes a constant besides, as on one GPU (Fig. 4.7)."""
    per_sequence = 1 + (GAIN_OF_LARGE - 1) / micro_batch_size
    return tflops_per_gpu(_GPT_91B, _ON_64, batch_size, micro_batch_size) / per_sequence


def _best_is_two(rows: Sequence[Row]) -> Iterator[Trend]:
    yield from _best_is_inside(_SIZES_4_16, rows)
    best = value_of(rows_with(rows, metric=BEST), "case")
    yield Trend("the best micro-batch size is 2", set(best.values()) == {2}, _shown(best))


_MODELS = {174.6: (GPT_3, (8, 12)), 529.6: (Gpt(105, 20_480, 128), (8, 35))}
"""Of Table 4.2 by the billions of parameters, with t and p."""

assert all(SHAPES[size] == (model.num_layers, model.hidden_size) for size, (model, _) in _MODELS.items())


def _zero_rows(_: CaseOptions, size: float) -> Iterator[Row]:
    model, (t, p) = _MODELS[size]
    for each in TABLE_4_2:
        if each.parameters_b == size:
            if each.scheme == "ZeRO-3":
                ours = zero_3_tflops(model, each.num_gpus, each.micro_batch_size, each.batch_size)
            else:
                how = ParallelConfiguration(t, p, each.num_gpus // (t * p))
                ours = tflops_per_gpu(model, how, each.batch_size, each.micro_batch_size)
            label = f"{each.scheme}, {each.num_gpus} GPUs"
            yield Row(label, TFLOPS, ours, each.tflops, 0, series=each.scheme, at=each.num_gpus)


def _zero_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    found = {
        case: {scheme: numbers(rows_with(own, series=scheme)) for scheme in ("PTD-P", "ZeRO-3")}
        for case, own in grouped(rows).items()
    }
    kept = {
        case: {scheme: curve[-1] / curve[0] for scheme, curve in each.items()} for case, each in found.items()
    }
    shown = "; ".join(
        f"{case}: " + ", ".join(f"{scheme} keeps {100 * share:.0f} %" for scheme, share in each.items())
        for case, each in kept.items()
    )
    scales = all(each["PTD-P"] > each["ZeRO-3"] for each in kept.values())
    yield Trend("pipelines scale better than ZeRO-3", scales, shown)
    most = {case: [a / b for a, b in zip(*each.values(), strict=True)] for case, each in found.items()}
    ratios = "; ".join(f"{case}: {', '.join(f'{each:.2f}' for each in all_)}" for case, all_ in most.items())
    yield Trend(
        "with doubled GPUs pipelines have 1.7 times its throughput, and more with four times as many",
        all(each[1] >= 1.7 and each[2] > each[1] for each in most.values()),
        f"{ratios} times",
    )


def _draw_zero(rows: Sequence[Row]) -> Any:
    panels = [Panel(case, curves(own)) for case, own in grouped(rows).items()]
    return draw_panels(panels, "GPUs", _OF_EACH, "ZeRO-3 and pipelines")


_INTERLEAVED = IterationWay(num_chunks=2)
_WAYS_4_12 = {"interleaved": _INTERLEAVED, "default": IterationWay()}
_WAYS_4_17 = {"recomputed": IterationWay(), "kept": IterationWay(recomputes=False)}
_WAYS_4_18 = {"scattered": _INTERLEAVED, "not scattered": IterationWay(num_chunks=2, is_scattered=False)}
_BATCHES_96 = (12, 24, 36, 48, 60)
_BATCHES_4_17 = tuple(2**i for i in range(9))
_ON_96, _ON_128 = ParallelConfiguration(8, 12, 1), ParallelConfiguration(8, 16, 1)
_GPT_145B = Gpt(80, 12_288, 96)


def _way_rows(_: CaseOptions, way: IterationWay) -> Iterator[Row]:
    for batch_size in _BATCHES_96:
        time_ms = iteration(GPT_3, _ON_96, batch_size, way).time_ms
        ours = GPT_3.tflops(batch_size, time_ms, _ON_96.num_gpus)
        yield Row(f"B={batch_size}", TFLOPS, ours, digits=1, at=batch_size)


def _ratios(rows: Sequence[Row]) -> list[float]:
    """Return the values of the first case over those of the second; none where there is one case."""
    both = [numbers(own) for own in grouped(rows).values()]
    return [a / b for a, b in zip(*both, strict=True)] if len(both) == 2 else []


def _interleaved_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    ratios = _ratios(rows)
    shown = ", ".join(f"{ratio:.3f}" for ratio in ratios)
    yield Trend("interleaved is faster", all(ratio > 1 for ratio in ratios), f"{shown} times")
    yield Trend("the gap closes with the batch", falls(ratios), f"{shown} times")


def _scattered_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    ratios = _ratios(rows)
    shown = ", ".join(f"{100 * ratio - 100:.1f} %" for ratio in ratios)
    yield Trend("scattering helps, by up to 11 %", all(1 < ratio <= 1.11 for ratio in ratios), shown)


def _again_rows(_: CaseOptions, way: IterationWay) -> Iterator[Row]:
    for batch_size in _BATCHES_4_17:
        found = iteration(_GPT_145B, _ON_128, batch_size, way)
        ours = batch_size / (found.time_ms * 1e-3) if found.fits else None
        note = f"{found.memory_gib:.0f} GiB on each GPU" + ("" if found.fits else ": does not fit")
        yield Row(f"B={batch_size}", SEQUENCES, ours, digits=2, note=note, at=batch_size)


def _again_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    again, kept = (value_of(rows_with(rows, case=case), "at") for case in _WAYS_4_17)
    if not again or not kept:
        return
    lost = [1 - again[size] / speed for size, speed in kept.items() if size in again]
    gain = max(again.values()) / max(kept.values())
    yield Trend(
        "computing again costs up to a third of the throughput",
        all(0 < share <= 0.33 for share in lost),
        f"{100 * min(lost):.0f} to {100 * max(lost):.0f} %",
    )
    yield Trend("only with it do all batches fit", len(again) > len(kept), f"{len(again)} and {len(kept)}")
    yield Trend("it reaches up to twice the best throughput without", 1 < gain <= 2.1, f"{gain:.2f} times")


FIGURE_4_8_ITEM = figure(
    "4.8",
    "Estimated throughput by micro-batch size",
    Claim.TREND,
    _BATCHES,
    _by_micro_batch(NORMALISED, 4, 4, _SIZES_4_8, normalised_throughput),
    partial(_best_is_inside, _SIZES_4_8),
    partial(
        _draw,
        NORMALISED,
        "micro-batch size b",
        "normalised throughput",
        "Micro-batch size",
        "(t, p) = (8, 8)",
    ),
    because=(
        "The times by micro-batch size are measured (Fig. 4.7) and not in the text, which says that "
        "throughput grows up to 1.3 times: taken for a constant time of each micro-batch. Batch sizes are "
        "taken. The best size for the smaller batch is then 2 and not 4, with 4 close by."
    ),
)


def _way(
    number: str, title: str, parts: tuple[Any, ...], axes: tuple[str, str, str, str], because: str
) -> Item:
    """Return the figure of ways to run a model, or of micro-batch sizes; its panel has the figure's title."""
    return figure(
        number, title, Claim.TREND, *parts, partial(_draw, *axes, axes[-1]), because=_MEASURED + because
    )


SWEEP_ITEMS = (
    FIGURE_4_8_ITEM,
    *(sweep.item() for sweep in SWEEPS),
    figure(
        "4.10",
        "Pipelines with tensor parallelism, and ZeRO-3",
        Claim.TREND,
        {f"{size:g}b": size for size in _MODELS},
        _zero_rows,
        _zero_trends,
        _draw_zero,
        because="Published are the throughputs of Table 4.2, which the figure shows. Ours come from data "
        "sheets: ZeRO-3 gathers weights by rings at the links' whole speed, beside the products of the layer "
        "before, so that it loses a sixth with four times the GPUs, where two thirds were measured.",
    ),
    _way(
        "4.12",
        "Interleaved and default schedules of GPT-3 on 96 GPUs",
        (_WAYS_4_12, _way_rows, _interleaved_trends),
        (TFLOPS, "batch size B", _OF_EACH, "Interleaved and default schedule"),
        "Two pieces on each device are taken, and devices that wait for what they send.",
    ),
    _way(
        "4.16",
        "Micro-batch sizes of 91 billion on 64 GPUs",
        (_BATCHES, _by_micro_batch(TFLOPS, 1, 2, _SIZES_4_16, _with_fixed_part), _best_is_two),
        (TFLOPS, "micro-batch size b", _OF_EACH, "Micro-batch size"),
        "A micro-batch takes a constant besides, of the size that Fig. 4.7 shows of one GPU; "
        "batch sizes and 48 layers of 12 288 are taken. For the larger batch the best size is then 4.",
    ),
    _way(
        "4.17",
        "Recomputation of activations of 145 billion on 128 GPUs",
        (_WAYS_4_17, _again_rows, _again_trends),
        (SEQUENCES, "batch size B", "sequences/s", "Recomputation"),
        "Memory is that of the first stage, with micro-batches of one sequence, and all batches fit "
        "without recomputation, while the measured ones did not. A batch of 256 with it has 2.0 times the "
        "throughput of a batch of 8 without.",
    ),
    _way(
        "4.18",
        "Scattered transfers of GPT-3 on 96 GPUs, interleaved",
        (_WAYS_4_18, _way_rows, _scattered_trends),
        (TFLOPS, "batch size B", _OF_EACH, "Scatter and gather"),
        "Two pieces on each device are taken, and devices that wait for what they send.",
    ),
)
"""In the order of the page: Fig. 4.8, the sweeps, then ways of running."""
