"""Fig. 11 and 12: the bubble rate by micro-batches in flight, and by memory.

The searches are those of `experiments.bubble_by_in_flight` and `experiments.bubble_by_memory`; here their
rows stand beside what the paper prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from experiments.config.options import require_limits
from experiments.figures import bubble_by_in_flight, bubble_by_memory
from experiments.figures.cases import Case, ours
from experiments.figures.cases import Row as Searched
from experiments.figures.options import MemorySweepOptions, SweepOptions
from experiments.figures.sweep import shape_title
from experiments.reproduce.item import Claim, Item, Row, Trend, cases_in
from experiments.reproduce.item_options import check_names
from experiments.reproduce.tessel.published import (
    FIGURE_SHAPES,
    LEAST_IN_FLIGHT,
    MAX_MICRO_BATCHES,
    NUM_DEVICES,
)
from placements.meaning import option
from schedsearch.figures.canvas import COLUMN_INCHES
from schedsearch.figures.panels import Panel, Point, draw_shares

_RATE, _LEAST = "bubble_rate", "least_in_flight_without_bubble"
_SEVERAL = 3
"""Micro-batches of our repetends, at most."""


@dataclass(frozen=True)
class BubbleSweepOptions:
    """Which placements, and how long a search may take."""

    shapes: tuple[str, ...] = option(FIGURE_SHAPES, "shapes of placements")
    tessel_time_limit_s: float = option(300.0, "time limit of Tessel's search for each point, in s")
    work_limit: float = option(
        20.0, "work limit of our search for each shape and memory, in units of about 1 s of one core"
    )


def _cases(options: BubbleSweepOptions) -> Sequence[str]:
    check_names("shapes", options.shapes, FIGURE_SHAPES)
    require_limits(options)
    return options.shapes


def _sweep(options: BubbleSweepOptions) -> SweepOptions:
    """Return the options as those of the commands that draw these figures."""
    return SweepOptions(
        stages=None,
        shapes=list(options.shapes),
        num_devices=NUM_DEVICES,
        max_in_flight=None,
        tessel_time_limit_s=options.tessel_time_limit_s,
        work_limit=options.work_limit,
        solver="portfolio",
        seed=0,
        num_processes=1,
        cache_dir=None,
    )


def _row(case: str, searched: Searched, place: float) -> Row:
    note = "" if searched.decided else f"open: at least {searched.least_bubble_rate:.4f}"
    if searched.bubble_rate is None:
        note = "one micro-batch does not fit" if searched.decided else "none found within the limit"
    return Row(case, f"{searched.searched_by} at {place:g}", _RATE, searched.bubble_rate, note=note)


def _in_flight_rows(options: BubbleSweepOptions, case: str) -> Iterator[Row]:
    most = NUM_DEVICES + bubble_by_in_flight.MORE_THAN_DEVICES
    searched = Case(bubble_by_in_flight.NAME, case, most, _sweep(options))
    found = [
        *bubble_by_in_flight.tessel_search(searched, None).rows,
        *bubble_by_in_flight.several_search(searched, None).rows,
    ]
    for each in found:
        assert each.in_flight is not None
        yield _row(case, each, each.in_flight)
    for name in dict.fromkeys(each.searched_by for each in found):
        least = [each.in_flight for each in found if each.searched_by == name and each.bubble_rate == 0]
        published = LEAST_IN_FLIGHT.get(case) if name == bubble_by_in_flight.TESSEL else None
        least_value = float(min(number for number in least if number is not None)) if least else None
        note = "" if least else f"none up to {most}"
        yield Row(case, name, _LEAST, least_value, published, digits=0, note=note)


def _in_flight_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    least = {row.case: row.ours for row in rows if row.metric == _LEAST and row.label == "Tessel"}
    yield Trend(
        "every placement has no bubble with enough micro-batches in flight",
        bool(least) and None not in least.values(),
        ", ".join(f"{shape_title(case)} {number}" for case, number in _shown(least)),
    )
    yield _never_worse(rows, "our repetends of up to three micro-batches are not worse")


def _shown(least: dict[str, float | None]) -> list[tuple[str, str]]:
    return [(case, "none" if number is None else f"{number:g}") for case, number in least.items()]


def _curves(rows: Sequence[Row], case: str) -> dict[str, dict[float, Row]]:
    """Return the rows of a case by the name of the search and by place."""
    curves: dict[str, dict[float, Row]] = {}
    for row in rows:
        if row.case == case and row.metric == _RATE:
            name, _, place = row.label.rpartition(" at ")
            curves.setdefault(name, {})[float(place)] = row
    return curves


def _never_worse(rows: Sequence[Row], says: str) -> Trend:
    """Return whether our search is at most Tessel's everywhere."""
    pairs = []
    for case in cases_in(rows):
        curves = _curves(rows, case)
        mine = curves.get(ours(_SEVERAL), {})
        theirs = [points for name, points in curves.items() if name.startswith("Tessel")]
        for place, row in mine.items():
            for points in theirs:
                rate = points[place].ours if place in points else None
                if row.ours is not None and rate is not None:
                    pairs.append((row.ours, rate))
    better = sum(a < b - 1e-9 for a, b in pairs)
    return Trend(
        f"not in the paper: {says}",
        bool(pairs) and all(a <= b + 1e-9 for a, b in pairs),
        f"better at {better} of {len(pairs)} places",
    )


def _draw(rows: Sequence[Row], x_label: str) -> Any:
    panels = []
    for case in cases_in(rows):
        curves = {
            name: [
                Point(place, row.ours, _least(row))
                for place, row in sorted(points.items())
                if row.ours is not None
            ]
            for name, points in _curves(rows, case).items()
        }
        panels.append(Panel(shape_title(case), curves))
    return draw_shares(panels, x_label, "bubble rate", "", width=COLUMN_INCHES)


def _least(row: Row) -> float | None:
    """Return the least that an open value may be; None where it is proved."""
    return float(row.note.rpartition(" ")[2]) if row.note.startswith("open") else None


FIGURE_11 = Item(
    name="tessel_figure11",
    source="Tessel, Fig. 11",
    title="Bubble rate by micro-batches in a repetend",
    claim=Claim.EXACT,
    options=BubbleSweepOptions,
    small=BubbleSweepOptions(shapes=("v_shape", "m_shape")),
    cases=_cases,
    make=lambda options, case: tuple(_in_flight_rows(options, case)),
    trends=lambda rows: tuple(_in_flight_trends(rows)),
    draw=lambda rows: _draw(rows, "micro-batches in flight"),
    because="The paper prints where the bubble ends, for three placements; its curves are only drawn.",
)
"""Tessel's search, and ours with several micro-batches in a repetend."""


def _memory_rows(options: BubbleSweepOptions, case: str) -> Iterator[Row]:
    sweep = MemorySweepOptions(
        **vars(_sweep(options)), memories=None, max_micro_batches_per_repetend=_SEVERAL
    )
    for memory in bubble_by_memory.memories(case, sweep):
        searched = Case(bubble_by_memory.NAME, case, MAX_MICRO_BATCHES, sweep, memory)
        for each in (
            *bubble_by_memory.tessel_search(searched, None).rows,
            *bubble_by_memory.own_search(searched, None, 1).rows,
            *bubble_by_memory.own_search(searched, None, _SEVERAL).rows,
        ):
            yield _row(case, each, memory)


def _memory_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    falls, ends = [], []
    for case in cases_in(rows):
        for name, points in _curves(rows, case).items():
            if name != ours(_SEVERAL):
                rates = [row.ours for _, row in sorted(points.items()) if row.ours is not None]
                falls.append(all(after <= before + 1e-9 for before, after in pairwise(rates)))
                ends.append(rates[-1] if rates else 1.0)
    yield Trend(
        "less memory means a larger bubble rate, or the same",
        bool(falls) and all(falls),
        f"in {sum(falls)} of {len(falls)} curves",
    )
    yield Trend(
        "with enough memory there is no bubble",
        bool(ends) and all(rate == 0 for rate in ends),
        f"in {sum(rate == 0 for rate in ends)} of {len(ends)} curves",
    )
    yield _never_worse(rows, "our search is not worse with as much memory")


FIGURE_12 = Item(
    name="tessel_figure12",
    source="Tessel, Fig. 12",
    title="Bubble rate by memory",
    claim=Claim.TREND,
    options=BubbleSweepOptions,
    small=BubbleSweepOptions(shapes=("v_shape",)),
    cases=_cases,
    make=lambda options, case: tuple(_memory_rows(options, case)),
    trends=lambda rows: tuple(_memory_trends(rows)),
    draw=lambda rows: _draw(rows, "memory (activations)"),
    because="The paper's curves are only drawn, so there are no values to compare with.",
)
"""Tessel's search with as many micro-batches as memory suggests and with six, and ours with one and three."""
