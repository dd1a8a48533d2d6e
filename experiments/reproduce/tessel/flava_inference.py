"""Fig. 15: latency and throughput of Flava's inference on four GPUs, by the samples of a micro-batch.

Tensor parallelism shares every layer among all GPUs; 1F1B, of which only the forward is left, has the layers
in four stages, one encoder after another; the K-shape has the image's and the text's encoder side by side,
and the layers that join them on all GPUs. Times are modelled from data sheets: a matrix product reaches the
same share of the peak however small it is, which favours tensor parallelism.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.reproduce.item import Row, Trend, described
from experiments.reproduce.rows import cases_in, draw_curves, rows_with, span, value_of
from placements import Placement
from placements.cluster import read_cluster
from placements.forms.meaning import option
from placements.models.layers import Layer
from placements.models.parallel import LayerStrategy
from placements.models.zoo import read_model
from placements.pieces import Piece, blocks_of, transfers_of
from placements.planners.division import min_largest, spans
from placements.planners.hybrid.shape_costs import ShapeCosts
from schedsearch.baselines import gpipe
from schedsearch.figures.canvas import COLUMN_INCHES
from schedsearch.metrics import latency
from schedsearch.schedule import Schedule
from schedsearch.searches.search import search

LATENCY_BUDGET_MS = 400.0
"""Latency of an inference (Sec. VI-D)."""

OVER_TENSOR_PARALLEL = 1.5
"""Tessel's throughput within the budget over that of tensor parallelism (Sec. VI-D, of Fig. 15)."""

OVER_ONE_F_ONE_B_FOR_FEW = 2.0
"""Largest throughput of Tessel over 1F1B's for few micro-batches (likewise)."""

LATENCY_SAVED = 0.38
"""Largest share of an inference's latency that Tessel saves (abstract)."""

_NUM_GPUS = 4
_TICK_MS = 0.01
_FEW, _MANY = 4, 128
"""Micro-batches that come at once."""

_TENSOR, _ONE_F_ONE_B, _TESSEL = "tensor parallelism", "1F1B", "Tessel's placement, our search"
_LATENCY = "latency_ms"


@dataclass(frozen=True)
class FlavaOptions:
    """Sizes of micro-batches, and the limit of a search."""

    micro_batch_sizes: tuple[int, ...] = option((1, 2, 4, 8, 16), "samples of a micro-batch", min=1)
    work_limit: float = option(
        10.0, "work limit of the search for each schedule, in units of about 1 s of one core", above=0
    )


class Flava:
    """Forwards of Flava on V100 with 32 GB, for the samples of a micro-batch."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.model = read_model("flava")
        self.cluster = read_cluster(f"v100_{_NUM_GPUS}", gpus_per_node=_NUM_GPUS)
        self.costs = ShapeCosts(self.model)

    def forward_ms(self, layers: Sequence[Layer], num_gpus: int = 1) -> float:
        """Return the time of layers one after another, each shared by a number of GPUs."""
        group, how = self.cluster.group(0, num_gpus), LayerStrategy(num_gpus)
        costs = (self.costs.cost(layer, how, self.samples, 1, group) for layer in layers)
        return sum(cost.forward.time_ms for cost in costs)

    def v_shape(self) -> Placement:
        """Return the whole model in four stages, of which the longest is as short as can be."""
        return self._placement("v_shape", self._stages(self.model.chained.layers, range(_NUM_GPUS)))

    def k_shape(self) -> Placement:
        """Return the encoders side by side, on as many GPUs each as make their longest stage shortest.

        The layers that join them are shared by all GPUs (Tessel, Fig. 8g).
        """
        image, text = (branch.layers for branch in self.model.branches)
        divisions = [
            [*self._stages(image, range(first)), *self._stages(text, range(first, _NUM_GPUS))]
            for first in range(1, _NUM_GPUS)
        ]
        encoders = min(divisions, key=lambda stages: max(stage.times for stage in stages))
        joined = Piece(
            f"F{_NUM_GPUS}",
            tuple(range(_NUM_GPUS)),
            (_ticks(self.forward_ms(self.model.layers, _NUM_GPUS)),),
            after=(divisions.index(encoders), _NUM_GPUS - 1),
            transfer=(max(self._transfer_ticks(layers[-1]) for layers in (image, text)), 0),
        )
        return self._placement("k_shape", [*encoders, joined])

    def _stages(self, layers: Sequence[Layer], devices: range) -> list[Piece]:
        """Return a chain of stages, one on each device and named by it."""
        each_ms = [self.forward_ms([layer]) for layer in layers]
        return [
            Piece(
                f"F{device}",
                (device,),
                (_ticks(sum(each_ms[first:end])),),
                after=(device - 1,) if first else (),
                transfer=(self._transfer_ticks(layers[first - 1]) if first else 0, 0),
            )
            for device, (_, first, end) in zip(
                devices, spans(min_largest(each_ms, len(devices))), strict=True
            )
        ]

    def _transfer_ticks(self, layer: Layer) -> int:
        groups = self.cluster.group(0, 1), self.cluster.group(1, 1)
        return math.ceil(self.costs.transfer_ms(layer, self.samples, *groups) / _TICK_MS)

    def _placement(self, shape: str, pieces: Sequence[Piece]) -> Placement:
        blocks = tuple(blocks_of(pieces))
        return Placement(f"flava {shape}", _NUM_GPUS, blocks, _TICK_MS, transfer=transfers_of(pieces))


def _ticks(time_ms: float) -> int:
    return max(1, round(time_ms / _TICK_MS))


def _cases(options: FlavaOptions) -> dict[str, int]:
    return {f"{size} sample{'s' * (size > 1)}": size for size in sorted(options.micro_batch_sizes)}


def _rows(options: FlavaOptions, samples: int) -> Iterator[Row]:
    flava = Flava(samples)
    shared_ms = flava.forward_ms(flava.model.chained.layers, _NUM_GPUS)
    yield from _system_rows(_TENSOR, shared_ms, dict.fromkeys((_FEW, _MANY), 1e3 * samples / shared_ms))

    def searched(placement: Placement, number: int) -> Schedule:
        schedule = search(placement, number, work_limit=options.work_limit).schedule
        assert schedule is not None, "without a limit on memory there is a schedule"
        return schedule

    for label, placement, make in (
        (_ONE_F_ONE_B, flava.v_shape(), gpipe),
        (_TESSEL, flava.k_shape(), searched),
    ):
        alone_ms = placement.ms(max(latency(make(placement, 1))))
        per_s = {
            number: 1e3 * samples * number / placement.ms(make(placement, number).makespan)
            for number in (_FEW, _MANY)
        }
        yield from _system_rows(label, alone_ms, per_s, "of one micro-batch alone")


def _system_rows(label: str, alone_ms: float, per_s: dict[int, float], note: str = "") -> Iterator[Row]:
    yield Row(label, _LATENCY, alone_ms, digits=1, note=note)
    for number, value in per_s.items():
        yield Row(label, _throughput(number), value, digits=1, series=label, at=alone_ms)


def _throughput(number: int) -> str:
    return f"samples_per_s_of_{number}"


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    value, cases = value_of(rows), cases_in(rows)

    def ratios(metric: str, label: str) -> list[float]:
        return [value[case, _TESSEL, metric] / value[case, label, metric] for case in cases]

    saved = [1 - ratio for ratio in ratios(_LATENCY, _ONE_F_ONE_B)]
    shown = f"{span(saved, '.0%', ' less')}; the paper: up to {LATENCY_SAVED:.0%}"
    yield Trend("the K-shape has a shorter latency than 1F1B", min(saved) > 0, shown)
    slower = ratios(_LATENCY, _TENSOR)
    shown = span(slower, unit=" times the latency with the K-shape")
    yield Trend("tensor parallelism has the shortest latency", min(slower) > 1, shown)
    few, many = (ratios(_throughput(number), _ONE_F_ONE_B) for number in (_FEW, _MANY))
    says = f"for {_FEW} micro-batches the K-shape's throughput is above 1F1B's"
    shown = f"{span(few)}; the paper: up to {OVER_ONE_F_ONE_B_FOR_FEW:g} for few"
    yield Trend(says, min(few) > 1, shown)
    yield Trend(f"for {_MANY} micro-batches it is slightly below", max(many) < 1, span(many))
    over = [
        ratio
        for case, ratio in zip(cases, ratios(_throughput(_MANY), _TENSOR), strict=True)
        if value[case, _TESSEL, _LATENCY] <= LATENCY_BUDGET_MS
    ]
    yield Trend(
        f"within {LATENCY_BUDGET_MS:g} ms the K-shape's throughput is above tensor parallelism's",
        bool(over) and max(over) > 1,
        f"up to {max(over, default=0):.2f} times; the paper: {OVER_TENSOR_PARALLEL:g}",
    )


def _draw(rows: Sequence[Row]) -> Any:
    titles = {_throughput(number): f"{number} micro-batches" for number in (_FEW, _MANY)}
    shown = [row for metric in titles for row in rows_with(rows, metric=metric)]
    labels = "latency (ms)", "samples per second"
    return draw_curves(shown, *labels, panel=lambda row: titles[row.metric], width=COLUMN_INCHES)


FIGURE_15 = described("tessel_figure15", _cases, _rows, _trends, _draw, FlavaOptions(micro_batch_sizes=(4,)))

ITEMS = (FIGURE_15,)
