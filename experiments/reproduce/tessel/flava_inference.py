"""Fig. 15: latency and throughput of Flava's inference on four GPUs, by the samples of a micro-batch.

Tensor parallelism shares every layer among all GPUs; 1F1B, of which only the forward is left, has the layers
in four stages, one encoder after another; the K-shape has the image's and the text's encoder side by side,
and what joins them on all GPUs. Times are modelled from data sheets: a matrix product reaches the same share
of the peak however small it is, which favours tensor parallelism.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from experiments.reproduce.item import Row, Trend, described
from experiments.reproduce.rows import cases_in, span, value_of
from placements import Placement
from placements.cluster import read_cluster
from placements.forms.meaning import option
from placements.models.layers import Layer
from placements.models.parallel import LayerStrategy
from placements.models.zoo import read_model
from placements.pieces import Piece, blocks_of, transfers_of
from placements.planners.division import min_largest, stage_times
from placements.planners.hybrid.shape_costs import ShapeCosts
from schedsearch.baselines import HAND_MADE
from schedsearch.figures.canvas import COLUMN_INCHES
from schedsearch.figures.panels import CurvePoint, Panel, draw_panels
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
    """Which micro-batches, and how long a search may take."""

    micro_batch_sizes: tuple[int, ...] = option((1, 2, 4, 8, 16), "samples of a micro-batch", min=1)
    work_limit: float = option(
        10.0, "work limit of the search for each schedule, in units of about 1 s of one core", above=0
    )


class FlavaTimes:
    """Forward times of Flava's layers on V100 with 32 GB, for the samples of a micro-batch."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.model = read_model("flava")
        self.cluster = read_cluster(f"v100_{_NUM_GPUS}", gpus_per_node=_NUM_GPUS)
        self.costs = ShapeCosts(self.model)

    def forward_ms(self, layer: Layer, num_gpus: int = 1) -> float:
        """Return the time of a layer's forward that a number of GPUs share."""
        group = self.cluster.group(0, num_gpus)
        return self.costs.cost(layer, LayerStrategy(num_gpus), self.samples, 1, group).forward.time_ms

    def sum_ms(self, layers: Sequence[Layer], num_gpus: int = 1) -> float:
        """Return the time of layers one after another."""
        return sum(self.forward_ms(layer, num_gpus) for layer in layers)

    def transfer_ms(self, layer: Layer) -> float:
        """Return the time to send a layer's output to another GPU."""
        groups = self.cluster.group(0, 1), self.cluster.group(1, 1)
        return self.costs.transfer_ms(layer, self.samples, *groups)


class _Stage(NamedTuple):
    """Layers on some devices, after other stages."""

    devices: tuple[int, ...]
    time_ms: float
    arrival_ms: float
    after: tuple[int, ...]


def v_shape_placement(times: FlavaTimes) -> Placement:
    """Return the whole model in four stages, of which the longest is as short as can be."""
    return _placement("flava v_shape", list(_in_stages(times, times.model.chained.layers, range(_NUM_GPUS))))


def k_shape_placement(times: FlavaTimes) -> Placement:
    """Return the encoders side by side, on as many GPUs each as make their longest stage shortest.

    What joins them is shared by all GPUs (Tessel, Fig. 8g).
    """
    image, text = (branch.layers for branch in times.model.branches)
    sides = []
    for first in range(1, _NUM_GPUS):
        left = list(_in_stages(times, image, range(first)))
        right = list(_in_stages(times, text, range(first, _NUM_GPUS), before=len(left)))
        sides.append((max(stage.time_ms for stage in left + right), left, right))
    _, left, right = min(sides, key=lambda side: side[0])
    arrival_ms = max(times.transfer_ms(image[-1]), times.transfer_ms(text[-1]))
    joined = _Stage(
        tuple(range(_NUM_GPUS)),
        times.sum_ms(times.model.layers, _NUM_GPUS),
        arrival_ms,
        (len(left) - 1, len(left) + len(right) - 1),
    )
    return _placement("flava k_shape", [*left, *right, joined])


def _in_stages(
    times: FlavaTimes, layers: Sequence[Layer], devices: range, before: int = 0
) -> Iterator[_Stage]:
    """Yield a chain of stages on the devices; a number of stages come before them."""
    each_ms = [times.forward_ms(layer) for layer in layers]
    sizes = min_largest(each_ms, len(devices))
    ends = list(itertools.accumulate(sizes))
    for i, (device, time_ms) in enumerate(zip(devices, stage_times(each_ms, sizes), strict=True)):
        arrival_ms = times.transfer_ms(layers[ends[i - 1] - 1]) if i else 0.0
        yield _Stage((device,), time_ms, arrival_ms, (before + i - 1,) if i else ())


def _placement(name: str, stages: Sequence[_Stage]) -> Placement:
    pieces = [
        Piece(
            f"F{i}",
            stage.devices,
            (max(1, round(stage.time_ms / _TICK_MS)),),
            after=stage.after,
            transfer=(math.ceil(stage.arrival_ms / _TICK_MS), 0),
        )
        for i, stage in enumerate(stages)
    ]
    return Placement(name, _NUM_GPUS, tuple(blocks_of(pieces)), _TICK_MS, transfer=transfers_of(pieces))


def latency_ms(schedule: Schedule) -> float:
    """Return the longest time from a micro-batch's first start to its last end."""
    placement = schedule.placement
    starts: dict[int, int] = {}
    ends: dict[int, int] = {}
    for (name, n), start in schedule.start_of.items():
        starts[n] = min(starts.get(n, start), start)
        ends[n] = max(ends.get(n, 0), start + placement.by_name[name].time)
    return placement.ms(max(ends[n] - starts[n] for n in starts))


def _cases(options: FlavaOptions) -> dict[str, int]:
    return {f"{size} sample{'s' * (size > 1)}": size for size in sorted(options.micro_batch_sizes)}


def _rows(options: FlavaOptions, samples: int) -> Iterator[Row]:
    times = FlavaTimes(samples)
    shared_ms = times.sum_ms(times.model.chained.layers, _NUM_GPUS)
    yield Row(_TENSOR, _LATENCY, shared_ms, digits=1)
    for number in (_FEW, _MANY):
        yield Row(_TENSOR, _throughput(number), 1e3 * samples / shared_ms, digits=1)

    def searched(placement: Placement, number: int) -> Schedule:
        found = search(placement, number, work_limit=options.work_limit)
        assert found.schedule is not None, "without a limit on memory there is a schedule"
        return found.schedule

    for label, placement, make in (
        (_ONE_F_ONE_B, v_shape_placement(times), HAND_MADE["gpipe"]),
        (_TESSEL, k_shape_placement(times), searched),
    ):
        alone_ms = latency_ms(make(placement, 1))
        yield Row(label, _LATENCY, alone_ms, digits=1, note="of one micro-batch alone")
        for number in (_FEW, _MANY):
            per_s = 1e3 * samples * number / placement.ms(make(placement, number).makespan)
            yield Row(label, _throughput(number), per_s, digits=1)


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
    value, cases = value_of(rows), cases_in(rows)
    panels = []
    for number in (_FEW, _MANY):
        drawn = {
            label: [
                CurvePoint(*(value[case, label, each] for each in (_LATENCY, _throughput(number))))
                for case in cases
            ]
            for label in (_TENSOR, _ONE_F_ONE_B, _TESSEL)
        }
        panels.append(Panel(f"{number} micro-batches", drawn, "", {"budget": LATENCY_BUDGET_MS}))
    return draw_panels(panels, "latency (ms)", "samples per second", "", width=COLUMN_INCHES)


FIGURE_15 = described(
    "tessel_figure15",
    _cases,
    _rows,
    conclude=_trends,
    draw=_draw,
    small=FlavaOptions(micro_batch_sizes=(4,)),
)

ITEMS = (FIGURE_15,)
