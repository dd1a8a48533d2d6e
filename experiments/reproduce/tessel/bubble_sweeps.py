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
from experiments.figures.cases import FigureCase, ours
from experiments.figures.cases import SteadyStateRow as Searched
from experiments.figures.options import MemorySweepOptions, SweepOptions
from experiments.figures.sweep import shape_title
from experiments.reproduce.item import Claim, Item, Row, Trend
from experiments.reproduce.item_options import check_names
from experiments.reproduce.rows import curves, grouped, in_all, rows_with, value_of
from experiments.reproduce.tessel.published import (
    FIGURE_SHAPES,
    LEAST_IN_FLIGHT,
    MAX_MICRO_BATCHES,
    NUM_DEVICES,
)
from placements.meaning import option
from schedsearch.figures.canvas import COLUMN_INCHES
from schedsearch.figures.panels import Panel, draw_shares

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


def _row(searched: Searched, place: float) -> Row:
    name, rate, is_open = searched.searched_by, searched.bubble_rate, not searched.decided
    note = f"open: at least {searched.least_bubble_rate:.4f}" if is_open else ""
    if rate is None:
        note = "none found within the limit" if is_open else "one micro-batch does not fit"
    bound = searched.least_bubble_rate if is_open and rate is not None else None
    return Row(f"{name} at {place:g}", _RATE, rate, note=note, series=name, at=place, bound=bound)


def _in_flight_rows(options: BubbleSweepOptions, case: str) -> Iterator[Row]:
    most = NUM_DEVICES + bubble_by_in_flight.MORE_THAN_DEVICES
    searched = FigureCase(bubble_by_in_flight.NAME, case, most, _sweep(options))
    found = [
        *bubble_by_in_flight.tessel_search(searched, None).rows,
        *bubble_by_in_flight.several_search(searched, None).rows,
    ]
    for each in found:
        assert each.in_flight is not None
        yield _row(each, each.in_flight)
    for name in dict.fromkeys(each.searched_by for each in found):
        numbers = [each.in_flight for each in found if each.searched_by == name and each.bubble_rate == 0]
        least = min((float(number) for number in numbers if number is not None), default=None)
        published = LEAST_IN_FLIGHT.get(case) if name == bubble_by_in_flight.TESSEL else None
        note = f"none up to {most}" if least is None else ""
        yield Row(name, _LEAST, least, published, digits=0, note=note, series=name)


def _in_flight_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    least = rows_with(rows, metric=_LEAST, series=bubble_by_in_flight.TESSEL)
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
    mine = ours(_SEVERAL)
    pairs = [
        (rate[case, place, mine], theirs)
        for (case, place, name), theirs in rate.items()
        if name not in (mine, ours(1)) and (case, place, mine) in rate
    ]
    better = sum(a < b - 1e-9 for a, b in pairs)
    return Trend(
        f"not in the paper: {says}",
        bool(pairs) and all(a <= b + 1e-9 for a, b in pairs),
        f"better at {better} of {len(pairs)} places",
    )


def _draw(rows: Sequence[Row], x_label: str) -> Any:
    found = grouped(rows_with(rows, metric=_RATE))
    panels = [Panel(shape_title(case), curves(own)) for case, own in found.items()]
    return draw_shares(panels, x_label, "bubble rate", "", width=COLUMN_INCHES)


FIGURE_11 = Item(
    name="tessel_figure11",
    paper="Tessel",
    part="Fig. 11",
    title="Bubble rate by micro-batches in a repetend",
    claim=Claim.EXACT,
    known=_cases,
    make=_in_flight_rows,
    conclude=_in_flight_trends,
    draw=lambda rows: _draw(rows, "micro-batches in flight"),
    small=BubbleSweepOptions(shapes=("v_shape", "m_shape")),
    because="The paper prints where the bubble ends, for three placements; its curves are only drawn.",
)
"""Tessel's search, and ours with several micro-batches in a repetend."""


def _memory_rows(options: BubbleSweepOptions, case: str) -> Iterator[Row]:
    sweep = MemorySweepOptions(
        **vars(_sweep(options)), memories=None, max_micro_batches_per_repetend=_SEVERAL
    )
    for memory in bubble_by_memory.memories(case, sweep):
        searched = FigureCase(bubble_by_memory.NAME, case, MAX_MICRO_BATCHES, sweep, memory)
        for each in (
            *bubble_by_memory.tessel_search(searched, None).rows,
            *bubble_by_memory.own_search(searched, None, 1).rows,
            *bubble_by_memory.own_search(searched, None, _SEVERAL).rows,
        ):
            yield _row(each, memory)


def _memory_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    rates = [
        [point.value for point in curve]
        for own in grouped(rows).values()
        for name, curve in curves(own).items()
        if name != ours(_SEVERAL)
    ]
    less = [all(after <= before + 1e-9 for before, after in pairwise(curve)) for curve in rates]
    yield in_all("less memory means a larger bubble rate, or the same", less, "curves")
    ends = [curve[-1:] == [0.0] for curve in rates]
    yield in_all("with enough memory there is no bubble", ends, "curves")
    yield _never_worse(rows, "our search is not worse with as much memory")


FIGURE_12 = Item(
    name="tessel_figure12",
    paper="Tessel",
    part="Fig. 12",
    title="Bubble rate by memory",
    claim=Claim.TREND,
    known=_cases,
    make=_memory_rows,
    conclude=_memory_trends,
    draw=lambda rows: _draw(rows, "memory (activations)"),
    small=BubbleSweepOptions(shapes=("v_shape",)),
    because="The paper's curves are only drawn, so there are no values to compare with.",
)
"""Tessel's search with as many micro-batches as memory suggests and with six, and ours with one and three."""
