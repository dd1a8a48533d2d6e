"""Fig. 11 and 12: the bubble rate by micro-batches in flight and by memory, by Tessel's search and ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from experiments.reproduce.item import CaseOptions, Row, Trend, described
from experiments.reproduce.rows import (
    curves,
    draw_curves,
    grouped,
    in_all,
    rows_with,
    uninterrupted,
    value_of,
)
from experiments.reproduce.tessel.published import FIGURE_SHAPES, MAX_MICRO_BATCHES, NUM_DEVICES, shape_title
from placements import Placement
from placements.forms.meaning import option
from placements.shapes import SHAPES
from schedsearch.core.answer import Answer, Status
from schedsearch.figures.canvas import COLUMN_INCHES
from schedsearch.proof.load_and_path import period_bound
from schedsearch.proof.memory_need import minimum_memory
from schedsearch.repetend import Repetend
from schedsearch.searches.search import search
from schedsearch.tessel import tessel
from schedsearch.tessel.candidates import max_in_flight

_RATE, _LEAST = "bubble_rate", "least_in_flight_without_bubble"

LEAST_IN_FLIGHT = {"v_shape": 4, "m_shape": 6, "nn_shape": 6}
"""Micro-batches with which a repetend has no bubble, at the least (Sec. VI-C, of Fig. 11)."""

_SEVERAL = 3
"""Micro-batches of our repetends, at most."""

_TESSEL = "Tessel"
"""Its curve in Fig. 11."""

_MOST_IN_FLIGHT = NUM_DEVICES + 3
"""Where the curves of Fig. 11 end: Tessel's placements need up to two more than there are devices."""


@dataclass(frozen=True)
class BubbleSweepOptions(CaseOptions):
    """Limits of the searches."""

    tessel_time_limit_s: float = option(300.0, "time limit of Tessel's search for each point, in s", above=0)
    work_limit: float = option(
        20.0, "work limit of our search for each shape and memory, in units of about 1 s of one core", above=0
    )


def _row(
    name: str, place: float, repetend: Repetend | None, placement: Placement, bound: float, is_decided: bool
) -> Row:
    """Return the row of the best steady state of a curve, if one was found.

    No period of its kind is below so many ticks; `is_decided` says whether none is better, which is proved.
    """
    rate = repetend.bubble_rate if repetend is not None else None
    work = sum(placement.load(device) for device in range(placement.num_devices))
    least = 1 - work / (placement.num_devices * bound)
    note = "" if is_decided else f"open: at least {least:.4f}"
    if rate is None:
        note = "none found within the limit"
    open_bound = least if not is_decided and rate is not None else None
    return Row(f"{name} at {place:g}", _RATE, rate, note=note, series=name, at=place, bound=open_bound)


def _tessel(placement: Placement, most: int, options: BubbleSweepOptions) -> Answer:
    """Return Tessel's search: one for all numbers in flight, as each comes after the last."""
    limit_s = options.tessel_time_limit_s
    return uninterrupted(tessel(placement, most, max_in_flight=most, time_limit_s=limit_s))


def _tessel_row(name: str, place: float, in_flight: int, result: Answer, placement: Placement) -> Row:
    """Return the result of Tessel's search when it had tried repetends of up to a number of micro-batches."""
    *_, last = [None, *(found for found in result.by_in_flight if found.in_flight <= in_flight)]
    repetend = last.repetend if last is not None else None
    refuted = last.bound if last is not None and last.in_flight == in_flight else 0
    is_decided = repetend is not None and repetend.period <= max(refuted, result.period_bound)
    return _row(name, place, repetend, placement, float(period_bound(placement)), is_decided)


def _ours(most: int) -> str:
    """Return the name of our curve with at most this number of micro-batches per repetend."""
    return f"ours, 1 to {most} micro-batches per repetend" if most > 1 else "ours, 1 micro-batch per repetend"


def _our_row(most: int, place: float, searched: Placement, placement: Placement, work_limit: float) -> Row:
    """Return our search's bubble in a placement with up to a number of micro-batches per repetend.

    The placement that is searched has the limit on memory.
    """
    result = uninterrupted(
        search(
            searched, 1, max_micro_batches_per_repetend=most, objectives=("period",), work_limit=work_limit
        )
    )
    is_decided = result.status is Status.OPTIMAL
    return _row(_ours(most), place, result.repetend, placement, result.period_bound, is_decided)


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


def _in_flight_rows(options: BubbleSweepOptions, case: str) -> Iterator[Row]:
    placement = SHAPES[case](NUM_DEVICES)
    result = _tessel(placement, _MOST_IN_FLIGHT, options)
    numbers = range(1, _MOST_IN_FLIGHT + 1)
    found = [_tessel_row(_TESSEL, number, number, result, placement) for number in numbers]
    for number in numbers:
        if (limited := in_flight_as_memory(placement, number)) is not None:
            share = options.work_limit / _MOST_IN_FLIGHT
            found.append(_our_row(_SEVERAL, number, limited, placement, share))
    yield from found
    for name in dict.fromkeys(row.series for row in found):
        ends = [row.at for row in found if row.series == name and row.ours == 0 and row.at is not None]
        least = min(ends, default=None)
        published = LEAST_IN_FLIGHT.get(case) if name == _TESSEL else None
        note = f"none up to {_MOST_IN_FLIGHT}" if least is None else ""
        yield Row(name, _LEAST, least, published, digits=0, note=note, series=name)


def _in_flight_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    least = rows_with(rows, metric=_LEAST, series=_TESSEL)
    yield Trend(
        "every placement has no bubble with enough micro-batches in flight",
        bool(least) and all(row.ours is not None for row in least),
        ", ".join(
            f"{shape_title(row.case)} {'none' if row.ours is None else f'{row.ours:g}'}" for row in least
        ),
    )
    yield _never_worse(rows, "our repetends of up to three micro-batches are not worse")


def _never_worse(rows: Sequence[Row], says: str) -> Trend:
    """Return whether our search is at most Tessel's everywhere."""
    rate = value_of(rows_with(rows, metric=_RATE), "case", "at", "series")
    mine = _ours(_SEVERAL)
    pairs = [
        (rate[case, place, mine], theirs)
        for (case, place, name), theirs in rate.items()
        if name not in (mine, _ours(1)) and (case, place, mine) in rate
    ]
    better = sum(a < b - 1e-9 for a, b in pairs)
    return Trend(
        f"not in the paper: {says}",
        bool(pairs) and all(a <= b + 1e-9 for a, b in pairs),
        f"better at {better} of {len(pairs)} places",
    )


def _draw(rows: Sequence[Row], x_label: str) -> Any:
    shown = rows_with(rows, metric=_RATE)
    return draw_curves(
        shown, x_label, "bubble rate", panel=lambda row: shape_title(row.case), width=COLUMN_INCHES
    )


FIGURE_11 = described(
    "tessel_figure11",
    FIGURE_SHAPES,
    _in_flight_rows,
    conclude=_in_flight_trends,
    draw=lambda rows: _draw(rows, "micro-batches in flight"),
    small=BubbleSweepOptions(("v_shape", "m_shape")),
)


def _memory_rows(options: BubbleSweepOptions, case: str) -> Iterator[Row]:
    whole, most = SHAPES[case](NUM_DEVICES), MAX_MICRO_BATCHES
    least = max(minimum_memory(whole, device) for device in range(NUM_DEVICES))
    for memory in range(least, NUM_DEVICES * 3 // 2 + 1):
        placement = whole.with_memory(memory)
        result = _tessel(placement, most, options)
        by_memory = min(most, max_in_flight(placement, most))
        yield _tessel_row("Tessel, N_R up to the memory (Alg. 1)", memory, by_memory, result, placement)
        yield _tessel_row(f"Tessel, N_R up to {most} (Fig. 12)", memory, most, result, placement)
        for number in (1, _SEVERAL):
            yield _our_row(number, memory, placement, placement, options.work_limit)


def _memory_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    rates = [
        [point.value for point in curve]
        for own in grouped(rows).values()
        for name, curve in curves(own).items()
        if name != _ours(_SEVERAL)
    ]
    less = [all(after <= before + 1e-9 for before, after in pairwise(curve)) for curve in rates]
    yield in_all("less memory means a larger bubble rate, or the same", less, "curves")
    ends = [curve[-1:] == [0.0] for curve in rates]
    yield in_all("with enough memory there is no bubble", ends, "curves")
    yield _never_worse(rows, "our search is not worse with as much memory")


FIGURE_12 = described(
    "tessel_figure12",
    FIGURE_SHAPES,
    _memory_rows,
    conclude=_memory_trends,
    draw=lambda rows: _draw(rows, "memory (activations)"),
    small=BubbleSweepOptions(("v_shape",)),
)

ITEMS = (FIGURE_11, FIGURE_12)
