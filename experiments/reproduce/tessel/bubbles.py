"""Table II and Fig. 11: bubble rates of steady states, by Tessel's search and ours.

Hand-made schedules show theirs by the ticks that more micro-batches add, searches by their repetends. Blocks
take the paper's times: one tick forward, three backward, and one each way on all devices. Published values
are in ``bubbles.csv``; nothing was read off a picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from experiments.reproduce.item import CaseOptions, Row, Trend, described
from experiments.reproduce.rows import (
    curves,
    draw_curves,
    grouped,
    published_table,
    rows_with,
    uninterrupted,
    value_of,
)
from placements import Placement
from placements.forms.meaning import option
from placements.shapes import SHAPES, v_shape, x_shape
from schedsearch.baselines import chimera, one_f_one_b, one_f_one_b_plus
from schedsearch.core.answer import Answer, Status
from schedsearch.figures.canvas import COLUMN_INCHES
from schedsearch.proof.load_and_path import period_bound
from schedsearch.repetend import Repetend
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

_RATE, _PEAK, _LEAST = "bubble_rate", "peak_activations", "min_in_flight_without_bubble"
_TESSEL, _OURS = "Tessel", "our search"
_OURS_OF_3 = "ours, 1 to 3 micro-batches per repetend"


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
class BubbleOptions(CaseOptions):
    """Limits of the searches."""

    tessel_time_limit_s: float = option(300.0, "time limit of each of Tessel's searches, in s", above=0)
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


def _by_tessel(placement: Placement, most: int, options: BubbleOptions) -> Answer:
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
        return Row(f"{model.name}, {name}", _RATE, ours, published, digits=2, note=note, series=name)

    yield row("1F1B", added_bubble_rate(one_f_one_b, v_shape(NUM_DEVICES)), model.one_f_one_b)
    yield row("Chimera-direct", added_bubble_rate(chimera, x_shape(NUM_DEVICES)), model.chimera)
    if model.one_f_one_b_plus is None:
        yield row("1F1B+", None, None, "a cross in the paper: a K-shape is not 1F1B's, here neither")
    else:
        yield row("1F1B+", added_bubble_rate(one_f_one_b_plus, placement), model.one_f_one_b_plus)
    limit_s, work = options.tessel_time_limit_s, options.work_limit
    ours = uninterrupted(search(placement, 1, objectives=("period", "memory"), work_limit=work))
    for name, answer, limit in (
        (_TESSEL, _by_tessel(placement, MAX_MICRO_BATCHES, options), f"{limit_s:g} s"),
        (_OURS, ours, f"{work:g} units of work"),
    ):
        if answer.repetend is None:
            yield row(name, None, model.tessel, f"none found in {limit}")
        else:
            yield row(name, answer.repetend.bubble_rate, model.tessel)
            peak = float(max(answer.repetend.peak_memory))
            yield Row(f"{model.name}, {name}", _PEAK, peak, digits=0, series=name)


def _table_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    peak = value_of(rows_with(rows, metric=_PEAK), "case", "series")
    both = [case for case in grouped(rows) if {(case, _OURS), (case, _TESSEL)} <= peak.keys()]
    pairs = [(peak[case, _OURS], peak[case, _TESSEL]) for case in both]
    yield Trend(
        "not in the paper: our search needs no more activations than Tessel's for the same bubble rate",
        bool(pairs) and all(ours <= theirs for ours, theirs in pairs),
        "; ".join(f"{ours:g} for {theirs:g}" for ours, theirs in pairs),
    )


def _curve_row(
    name: str, at: float, repetend: Repetend | None, placement: Placement, bound: float, is_least: bool
) -> Row:
    """Return the row of the best steady state at a place of a curve, if one was found.

    No period of the curve's kind is below the bound, in ticks; `is_least` says whether it is proved the best.
    """
    if repetend is None:
        note = "none found within the limit"
        return Row(f"{name} at {at:g}", _RATE, None, note=note, series=name, at=at)
    work = sum(placement.load(device) for device in range(placement.num_devices))
    least = None if is_least else 1 - work / (placement.num_devices * bound)
    note = "" if least is None else f"open: at least {least:.4f}"
    rate = repetend.bubble_rate
    return Row(f"{name} at {at:g}", _RATE, rate, note=note, series=name, at=at, bound=least)


def _tessel_row(in_flight: int, result: Answer, placement: Placement) -> Row:
    """Return the result of Tessel's search when it had tried repetends of up to a number of micro-batches."""
    *_, last = [None, *(best for best in result.by_in_flight if best.in_flight <= in_flight)]
    repetend = last.repetend if last is not None else None
    refuted = last.bound if last is not None and last.in_flight == in_flight else 0
    is_least = repetend is not None and repetend.period <= max(refuted, result.period_bound)
    return _curve_row(_TESSEL, in_flight, repetend, placement, float(period_bound(placement)), is_least)


def _our_row(at: float, placement: Placement, work_limit: float) -> Row:
    """Return our search's result with up to three micro-batches per repetend."""
    answer = uninterrupted(
        search(placement, 1, max_micro_batches_per_repetend=3, objectives=("period",), work_limit=work_limit)
    )
    is_least = answer.status is Status.OPTIMAL
    return _curve_row(_OURS_OF_3, at, answer.repetend, placement, answer.period_bound, is_least)


def in_flight_as_memory(placement: Placement, in_flight: int) -> Placement | None:
    """Return the placement with room for a number of micro-batches in flight and no other limit on memory.

    A micro-batch allocates one unit when a block that waits for none starts, and releases it with one that
    none waits for, of the same devices. Branches with a first and a last block each count on their own.
    None where such blocks are not on the same devices. It counts over all time, so it holds for any number
    of micro-batches per repetend.
    """
    placement = placement.per_micro_batch
    first = {block.devices: block.name for block in placement.blocks if not block.after}
    last = {block.devices: block.name for block in placement.blocks if not placement.successors[block.name]}
    if set(first) != set(last) or set(first.values()) & set(last.values()):
        return None
    change = dict.fromkeys(first.values(), 1) | dict.fromkeys(last.values(), -1)
    blocks = (replace(block, memory=change.get(block.name, 0), transient=0) for block in placement.blocks)
    room = (in_flight,) * placement.num_devices
    return replace(placement, blocks=tuple(blocks), memory=room, static_memory=())


def _in_flight_rows(options: BubbleOptions, case: str) -> Iterator[Row]:
    placement, numbers = SHAPES[case](NUM_DEVICES), range(1, _MOST_IN_FLIGHT + 1)
    result, work_limit = _by_tessel(placement, _MOST_IN_FLIGHT, options), options.work_limit / _MOST_IN_FLIGHT
    rows = [_tessel_row(number, result, placement) for number in numbers]
    for number in numbers:
        if (limited := in_flight_as_memory(placement, number)) is not None:
            rows.append(_our_row(number, limited, work_limit))
    yield from rows
    for name, curve in curves(rows).items():
        least = min((point.place for point in curve if point.value == 0), default=None)
        published = LEAST_IN_FLIGHT.get(case) if name == _TESSEL else None
        note = f"none up to {_MOST_IN_FLIGHT}" if least is None else ""
        yield Row(name, _LEAST, least, published, digits=0, note=note, series=name)


def _in_flight_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    least = {shape_title(row.case): row.ours for row in rows_with(rows, metric=_LEAST, series=_TESSEL)}
    yield Trend(
        "every placement has no bubble with enough micro-batches in flight",
        bool(least) and None not in least.values(),
        ", ".join(
            f"{shape} {'none' if number is None else f'{number:g}'}" for shape, number in least.items()
        ),
    )
    rate = value_of(rows_with(rows, metric=_RATE), "at", "case", "series")
    pairs = [
        (rate[at, case, _OURS_OF_3], theirs)
        for (at, case, name), theirs in rate.items()
        if name == _TESSEL and (at, case, _OURS_OF_3) in rate
    ]
    better = sum(ours < theirs - 1e-9 for ours, theirs in pairs)
    yield Trend(
        "not in the paper: our repetends of up to three micro-batches are not worse",
        bool(pairs) and all(ours <= theirs + 1e-9 for ours, theirs in pairs),
        f"better at {better} of {len(pairs)} places",
    )


def _draw(rows: Sequence[Row]) -> Any:
    labels = "micro-batches in flight", "bubble rate"
    shown = rows_with(rows, metric=_RATE)
    return draw_curves(shown, *labels, panel=lambda row: shape_title(row.case), width=COLUMN_INCHES)


ITEMS = (
    described("tessel_table2", MODELS, _table_rows, _table_trends, small=BubbleOptions(("gpt",))),
    described(
        "tessel_figure11",
        FIGURE_SHAPES,
        _in_flight_rows,
        _in_flight_trends,
        _draw,
        BubbleOptions(("v_shape", "m_shape")),
    ),
)
