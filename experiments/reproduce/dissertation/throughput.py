"""Fig. 4.8, 4.11, 4.13, 4.14 and 4.15: throughput of parallel configurations, by costs from data sheets.

An iteration takes (m + p - 1) times the longest stage, and once the exchange of gradients. What the figures
show was measured; only what the text concludes is held against ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from experiments.reproduce.dissertation.parameters_and_days import gpt, iteration_flops
from experiments.reproduce.item import CaseOptions, Claim, Item, Row, Trend, cases_in, chosen_cases
from placements.cluster import read_cluster
from placements.models.costs import layer_cost
from placements.models.parallel import LayerStrategy
from schedsearch.figures.panels import Panel, Point, draw_panels

TFLOPS = "tflops_per_gpu"

_BATCH = "batch_"
"""What the cases of a batch size begin with."""


@dataclass(frozen=True)
class Gpt:
    """A model of chapter 4.

    Attributes:
        num_layers: Transformer layers.
        hidden_size: Width.
        num_heads: Attention heads.
    """

    num_layers: int
    hidden_size: int
    num_heads: int


@dataclass(frozen=True)
class Configuration:
    """How GPUs share a model.

    Attributes:
        tensor_parallel: t.
        num_stages: p.
        data_parallel: d.
    """

    tensor_parallel: int
    num_stages: int
    data_parallel: int

    @property
    def num_gpus(self) -> int:
        """All of them, n."""
        return self.tensor_parallel * self.num_stages * self.data_parallel

    def __str__(self) -> str:
        """Name it as the dissertation does."""
        return f"(t, p, d) = ({self.tensor_parallel}, {self.num_stages}, {self.data_parallel})"


def tflops_per_gpu(model: Gpt, how: Configuration, batch_size: int, micro_batch_size: int = 1) -> float:
    """Return the throughput of each GPU, in eq. 4.2's operations, with all activations computed again.

    Args:
        model: Its shape.
        how: On A100, eight in a node; a stage's GPUs are neighbours.
        batch_size: Sequences, B; a multiple of d b.
        micro_batch_size: Sequences of one pipeline, b.
    """
    shape = gpt(model.num_layers, model.hidden_size, model.num_heads)
    num_micro_batches = batch_size // (how.data_parallel * micro_batch_size)
    cluster = read_cluster(f"a100_{how.num_gpus}")
    group = cluster.group(0, how.tensor_parallel * how.data_parallel)
    strategy = LayerStrategy(how.tensor_parallel, how.data_parallel, recompute="full")
    samples = micro_batch_size * how.data_parallel
    layer, output = (
        layer_cost(each, strategy, samples, num_micro_batches, group)
        for each in (shape.layers[1], shape.layers[-1])
    )
    layers = model.num_layers / how.num_stages
    stage_ms = layers * (layer.forward.time_ms + layer.backward.time_ms)
    last_ms = output.forward.time_ms + output.backward.time_ms
    time_ms = (num_micro_batches + how.num_stages - 1) * stage_ms + num_micro_batches * last_ms
    time_ms += layers * layer.update_ms
    flops = iteration_flops(model.num_layers, model.hidden_size, batch_size)
    return flops / (time_ms * 1e-3 * how.num_gpus) / 1e12


@dataclass(frozen=True)
class Sweep:
    """A figure: configurations along its axis, and a curve for each batch size.

    Attributes:
        number: Of the figure.
        title: What it shows.
        batch_sizes: Of its curves.
        points: Model and configuration by the place on the axis.
        x_label: Of the axis.
        trends: What the text concludes, from values by batch size and place.
        because: What is assumed.
    """

    number: str
    title: str
    batch_sizes: tuple[int, ...]
    points: dict[int, tuple[Gpt, Configuration]]
    x_label: str
    trends: Callable[[dict[int, list[float]]], list[Trend]]
    because: str = ""


def _falls(name: str, curves: dict[int, list[float]]) -> Trend:
    falling = [all(b < a for a, b in itertools.pairwise(curve)) for curve in curves.values()]
    ends = "; ".join(f"B={size}: {curve[0]:.0f} to {curve[-1]:.0f}" for size, curve in curves.items())
    return Trend(f"throughput falls with {name}, for each batch size", all(falling), ends)


def _weak_scaling(curves: dict[int, list[float]]) -> list[Trend]:
    kept = {size: curve[-1] / curve[0] for size, curve in curves.items()}
    smallest, largest = min(kept), max(kept)
    return [
        Trend(
            "the larger batch scales better",
            kept[largest] > kept[smallest],
            ", ".join(f"B={size} keeps {100 * share:.0f} %" for size, share in kept.items()),
        )
    ]


def _within_a_node(curves: dict[int, list[float]]) -> list[Trend]:
    best = {size: _TENSOR_SIZES[curve.index(max(curve))] for size, curve in curves.items()}
    shown = ", ".join(f"B={size}: t={t}" for size, t in best.items())
    return [
        Trend("tensor parallelism over the GPUs of a node is best (t = 8)", set(best.values()) == {8}, shown)
    ]


_TENSOR_SIZES = (2, 4, 8, 16, 32)
_LARGE, _SMALL = Gpt(32, 20_480, 128), Gpt(32, 3840, 32)
_UNKNOWN = (
    "The figure's values are measured and not in the text; ours come from data sheets and assumed shares of "
    "the peak. Batch sizes and configurations are taken where the text has none."
)

SWEEPS = (
    Sweep(
        "4.11",
        "Pipelines in weak scaling: 3 layers of 15 billion in each stage",
        (8, 128),
        {p: (Gpt(3 * p, 20_480, 128), Configuration(8, p, 1)) for p in (1, 2, 4, 8)},
        "stages p",
        _weak_scaling,
    ),
    Sweep(
        "4.13",
        "Tensor and pipeline parallelism of 162 billion on 64 GPUs",
        (32, 128),
        {t: (_LARGE, Configuration(t, 64 // t, 1)) for t in _TENSOR_SIZES},
        "tensor-parallel size t",
        _within_a_node,
    ),
    Sweep(
        "4.14",
        "Data and pipeline parallelism of 5.9 billion on 64 GPUs",
        (32, 128, 512),
        {p: (_SMALL, Configuration(1, p, 64 // p)) for p in (2, 4, 8, 16, 32)},
        "stages p",
        lambda curves: [_falls("more stages", curves)],
    ),
    Sweep(
        "4.15",
        "Data and tensor parallelism of 5.9 billion on 64 GPUs",
        (32, 128, 512),
        {t: (_SMALL, Configuration(t, 1, 64 // t)) for t in _TENSOR_SIZES},
        "tensor-parallel size t",
        lambda curves: [_falls("a larger tensor-parallel size", curves)],
    ),
)


def _sweep_cases(sweep: Sweep, options: CaseOptions) -> list[str]:
    return chosen_cases([f"{_BATCH}{size}" for size in sweep.batch_sizes], options.only)


def _sweep_rows(sweep: Sweep, _: CaseOptions, case: str) -> list[Row]:
    batch_size = int(case.removeprefix(_BATCH))
    return [
        Row(case, str(how), TFLOPS, tflops_per_gpu(model, how, batch_size), digits=1)
        for model, how in sweep.points.values()
    ]


def _curves(rows: Sequence[Row]) -> dict[int, list[float]]:
    curves: dict[int, list[float]] = {}
    for row in rows:
        curves.setdefault(int(row.case.removeprefix(_BATCH)), []).append(row.ours or 0.0)
    return curves


def _draw_sweep(sweep: Sweep, rows: Sequence[Row]) -> Any:
    curves = {
        f"B={size}": [Point(*pair) for pair in zip(sweep.points, values, strict=True)]
        for size, values in _curves(rows).items()
    }
    panel = Panel(f"Fig. {sweep.number}", curves)
    return draw_panels([panel], sweep.x_label, "teraFLOP/s of each GPU", sweep.title)


def _sweep_item(sweep: Sweep) -> Item:
    return Item(
        f"dissertation_figure{sweep.number.replace('.', '_')}",
        f"Narayanan's dissertation, Fig. {sweep.number}",
        sweep.title,
        Claim.TREND,
        CaseOptions,
        CaseOptions(only=(f"{_BATCH}{sweep.batch_sizes[-1]}",)),
        partial(_sweep_cases, sweep),
        partial(_sweep_rows, sweep),
        lambda rows: sweep.trends(_curves(rows)),
        partial(_draw_sweep, sweep),
        because=_UNKNOWN,
    )


SWEEP_ITEMS = tuple(_sweep_item(sweep) for sweep in SWEEPS)

GAIN_OF_LARGE = 1.3
"""Throughput of large micro-batches over that of one sequence, on one GPU (Sec. 4.3.4, of Fig. 4.7)."""

NUM_STAGES_4_8 = 8
MICRO_BATCH_SIZES = (1, 2, 4, 8, 16)
BATCH_SIZES_4_8 = (128, 512)
NORMALISED, BEST = "normalised_throughput", "best_micro_batch_size"


def normalised_throughput(batch_size: int, micro_batch_size: int) -> float:
    """Return ideal over estimated time (eq. 4.1), where a micro-batch takes a constant and a part for each.

    >>> normalised_throughput(512, 4) > max(normalised_throughput(512, 2), normalised_throughput(512, 8))
    True
    """
    per_micro_batch = GAIN_OF_LARGE - 1 + micro_batch_size
    return batch_size / ((batch_size / micro_batch_size + NUM_STAGES_4_8 - 1) * per_micro_batch)


def _figure_4_8_cases(options: CaseOptions) -> list[str]:
    return chosen_cases([f"{_BATCH}{size}" for size in BATCH_SIZES_4_8], options.only)


def _figure_4_8_rows(_: CaseOptions, case: str) -> list[Row]:
    batch_size = int(case.removeprefix(_BATCH))
    values = {b: normalised_throughput(batch_size, b) for b in MICRO_BATCH_SIZES}
    best = max(values, key=values.__getitem__)
    rows = [Row(case, f"b={b}", NORMALISED, value) for b, value in values.items()]
    return [*rows, Row(case, "best b", BEST, best, 4, 0)]


def _figure_4_8_trends(rows: Sequence[Row]) -> list[Trend]:
    best = {row.case: int(row.ours or 0) for row in rows if row.metric == BEST}
    inside = all(MICRO_BATCH_SIZES[0] < b < MICRO_BATCH_SIZES[-1] for b in best.values())
    shown = ", ".join(f"{case}: b={b}" for case, b in best.items())
    return [Trend("neither the smallest nor the largest micro-batch is best", inside, shown)]


def _draw_figure_4_8(rows: Sequence[Row]) -> Any:
    curves = {
        case: [
            Point(float(row.label[2:]), row.ours or 0.0)
            for row in rows
            if (row.case, row.metric) == (case, NORMALISED)
        ]
        for case in cases_in(rows)
    }
    return draw_panels(
        [Panel("(t, p) = (8, 8)", curves)], "micro-batch size b", "normalised throughput", "Micro-batch size"
    )


FIGURE_4_8_ITEM = Item(
    "dissertation_figure4_8",
    "Narayanan's dissertation, Fig. 4.8",
    "Estimated throughput by micro-batch size",
    Claim.TREND,
    CaseOptions,
    CaseOptions(),
    _figure_4_8_cases,
    _figure_4_8_rows,
    _figure_4_8_trends,
    _draw_figure_4_8,
    because=(
        "The times by micro-batch size are measured (Fig. 4.7) and not in the text, which says that "
        "throughput grows up to 1.3 times: taken for a constant time of each micro-batch. Batch sizes are "
        "taken. The best size for the smaller batch is then 2 and not 4, with 4 close by."
    ),
)
