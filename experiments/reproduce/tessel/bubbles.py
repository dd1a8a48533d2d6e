"""Table II and Fig. 11: bubble rates of steady states, by Tessel's search and ours.

Hand-made schedules show theirs by the ticks that more micro-batches add, searches by their repetends. Blocks
take the paper's times: one tick forward, three backward, and one each way on all devices. Published values
are in ``bubbles.csv``; nothing was read off a picture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from experiments.reproduce.item import CaseOptions, Row, Trend, described
from experiments.reproduce.rows import curves, draw_curves, published_table, rows_with, uninterrupted
from placements import Placement
from placements.forms.meaning import option
from placements.shapes import SHAPES, v_shape, x_shape
from schedsearch.baselines import chimera, one_f_one_b, one_f_one_b_plus
from schedsearch.core.answer import Answer
from schedsearch.figures.canvas import COLUMN_INCHES
from schedsearch.proof.load_and_path import period_bound
from schedsearch.schedule import Schedule
from schedsearch.searches.search import search
from schedsearch.tessel import tessel

NUM_DEVICES = 4
"""Devices of all placements in the figures."""

FIGURE_SHAPES = ("v_shape", "x_shape", "m_shape", "nn_shape", "k_shape")
"""Placements of Fig. 9 to 11."""

MAX_MICRO_BATCHES = 6
"""Micro-batches of a repetend in Fig. 8 to 10 (Sec. VI-B)."""

LEAST_IN_FLIGHT = {"v_shape": 4, "m_shape": 6, "nn_shape": 6}
"""Fewest micro-batches with which a repetend has no bubble (Sec. VI-C, of Fig. 11)."""

_MOST_IN_FLIGHT = NUM_DEVICES + 3
"""Where the curves of Fig. 11 end: Tessel's placements need up to two more than there are devices."""

_STEADY_AFTER = 32
"""Micro-batches after which a hand-made schedule is in its steady state; whole units of Chimera."""

_RATE, _LEAST = "bubble_rate", "min_in_flight_without_bubble"
_TESSEL = "Tessel"


class PublishedBubbles(NamedTuple):
    """Bubble rates of the schedules of a model (Table II); None is a cross.

    Chimera-direct has an X-shape, 1F1B a V-shape, 1F1B+ and Tessel the shape of Fig. 8.
    """

    model: str
    name: str
    shape: str
    chimera: float
    one_f_one_b: float
    tessel: float
    one_f_one_b_plus: float | None = None


MODELS = {row.model: row for row in published_table(__file__, "bubbles.csv", PublishedBubbles)}


@dataclass(frozen=True)
class TesselOptions(CaseOptions):
    """Limit of Tessel's searches."""

    tessel_time_limit_s: float = option(300.0, "time limit of each of Tessel's searches, in s", above=0)


@dataclass(frozen=True)
class BubbleOptions(TesselOptions):
    """Limits of Tessel's searches and of ours."""

    work_limit: float = option(
        20.0, "work limit of each of our searches, in units of about 1 s of one core", above=0
    )


def shape_title(shape: str) -> str:
    """Return the name of a shape as people write it.

    >>> shape_title("nn_shape")
    'NN-shape'
    """
    letters = shape.removesuffix("_shape")
    return f"{letters.upper() if len(letters) <= 2 else letters.capitalize()}-shape"


def _by_tessel(placement: Placement, most: int, options: TesselOptions) -> Answer:
    """Return Tessel's search: one for all numbers in flight, as each comes after the last."""
    limit_s = options.tessel_time_limit_s
    return uninterrupted(tessel(placement, most, max_in_flight=most, time_limit_s=limit_s))


def added_bubble_rate(
    make: Callable[[Placement, int], Schedule], placement: Placement, num_micro_batches: int = _STEADY_AFTER
) -> float:
    """Return the idle share of the ticks that twice as many micro-batches add to a schedule.

    Args:
        make: A hand-made schedule.
        placement: Its placement.
        num_micro_batches: Enough for the steady state; a multiple of the micro-batches that it repeats.
    """
    once, twice = (make(placement, number * num_micro_batches).makespan for number in (1, 2))
    work = num_micro_batches * sum(placement.load(device) for device in range(placement.num_devices))
    return 1 - work / (placement.num_devices * (twice - once))


def _table_rows(options: BubbleOptions, model: PublishedBubbles) -> Iterator[Row]:
    placement = SHAPES[model.shape](NUM_DEVICES)

    def row(name: str, ours: float | None, published: float | None, note: str = "") -> Row:
        return Row(name, _RATE, ours, published, digits=2, note=note)

    yield row("1F1B", added_bubble_rate(one_f_one_b, v_shape(NUM_DEVICES)), model.one_f_one_b)
    yield row("Chimera-direct", added_bubble_rate(chimera, x_shape(NUM_DEVICES)), model.chimera)
    if model.one_f_one_b_plus is None:
        yield row("1F1B+", None, None, "a cross in the paper, too")
    else:
        yield row("1F1B+", added_bubble_rate(one_f_one_b_plus, placement), model.one_f_one_b_plus)
    limit_s, work = options.tessel_time_limit_s, options.work_limit
    ours = uninterrupted(search(placement, 1, objectives=("period", "memory"), work_limit=work))
    for name, answer, limit in (
        (_TESSEL, _by_tessel(placement, MAX_MICRO_BATCHES, options), f"{limit_s:g} s"),
        ("our search", ours, f"{work:g} units of work"),
    ):
        rate = None if answer.repetend is None else answer.repetend.bubble_rate
        yield row(name, rate, model.tessel, f"none found in {limit}" if rate is None else "")


def _curve_row(in_flight: int, result: Answer, placement: Placement) -> Row:
    """Return the best repetend of Tessel's search with up to a number of micro-batches, open or proved."""
    *_, last = [None, *(best for best in result.by_in_flight if best.in_flight <= in_flight)]
    row = partial(Row, f"{_TESSEL} at {in_flight}", _RATE, series=_TESSEL, at=in_flight)
    if last is None or last.repetend is None:
        return row(note="none found within the limit")
    refuted = last.bound if last.in_flight == in_flight else 0
    bound = None
    if last.repetend.period > max(refuted, result.period_bound):
        work = sum(placement.load(device) for device in range(placement.num_devices))
        bound = 1 - work / (placement.num_devices * float(period_bound(placement)))
    note = "" if bound is None else f"open: at least {bound:.4f}"
    return row(last.repetend.bubble_rate, note=note, bound=bound)


def _in_flight_rows(options: TesselOptions, case: str) -> Iterator[Row]:
    placement = SHAPES[case](NUM_DEVICES)
    result = _by_tessel(placement, _MOST_IN_FLIGHT, options)
    rows = [_curve_row(number, result, placement) for number in range(1, _MOST_IN_FLIGHT + 1)]
    yield from rows
    least = min((point.place for point in curves(rows)[_TESSEL] if point.value == 0), default=None)
    note = f"none up to {_MOST_IN_FLIGHT}" if least is None else ""
    yield Row(_TESSEL, _LEAST, least, LEAST_IN_FLIGHT.get(case), digits=0, note=note)


def _in_flight_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    least = {shape_title(row.case): row.ours for row in rows_with(rows, metric=_LEAST)}
    yield Trend(
        "every placement has no bubble with enough micro-batches in flight",
        bool(least) and None not in least.values(),
        ", ".join(f"{shape} {number or math.inf:g}" for shape, number in least.items()),
    )


def _draw(rows: Sequence[Row]) -> Any:
    labels = "micro-batches in flight", "bubble rate"
    shown = rows_with(rows, metric=_RATE)
    return draw_curves(shown, *labels, panel=lambda row: shape_title(row.case), width=COLUMN_INCHES)


ITEMS = (
    described("tessel_table2", MODELS, _table_rows, small=BubbleOptions(("gpt",))),
    described(
        "tessel_figure11",
        FIGURE_SHAPES,
        _in_flight_rows,
        _in_flight_trends,
        _draw,
        TesselOptions(("v_shape", "m_shape")),
    ),
)
