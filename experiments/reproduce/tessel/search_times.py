"""Fig. 9: CPU seconds of the time-optimal search, beside Tessel's search.

Seconds of another machine are no claim; their growth is. Seconds are measured here, and these searches count
no work, so their limits are of time. A search that does not end in its time has no value, and its note says
so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from experiments.reproduce.item import CaseOptions, Row, Trend, described
from experiments.reproduce.rows import by_series, draw_metric, grouped, in_all, numbers, rows_with
from experiments.reproduce.tessel.bubbles import FIGURE_SHAPES, MAX_MICRO_BATCHES, NUM_DEVICES, shape_title
from placements.forms.meaning import option
from placements.shapes import SHAPES
from schedsearch.core.answer import Answer, Status
from schedsearch.metrics import bubble_rate
from schedsearch.tessel import tessel, time_optimal

NN_SHAPE_BUBBLE_RATE = 0.20
"""Bubble of Tessel's six micro-batches of an NN-shape, with warmup and cooldown (Sec. VI-B)."""

_SEARCH_S, _OVER_TESSEL = "search_s", "over_tessels_search_s"
_NEARLY_ALL = 0.97
"""Share of its time that a search which ran out of it has taken, at the least."""


@dataclass(frozen=True)
class SearchTimeOptions(CaseOptions):
    """Sizes and limits of the searches."""

    micro_batches: tuple[int, ...] = option(
        (2, 4, 6, 8, 10, 12),
        "numbers of micro-batches of the time-optimal search; it stops after one that takes long",
        min=1,
    )
    tessel_time_limit_s: float = option(300.0, "time limit of Tessel's search, in s", above=0)
    time_limit_s: float = option(120.0, "time limit of each time-optimal search, in s", above=0)


def _timed(search: Callable[[], Answer]) -> tuple[Answer, float]:
    """Return the result of a search, and its CPU seconds."""
    began_s = time.process_time()
    return search(), time.process_time() - began_s


def _time_row(label: str, cpu_s: float, ended: bool, at: float | None = None) -> Row:
    """Return the row of a search's time, without a value where it did not end within its limit."""
    note = "" if ended else f"more than {cpu_s:.3g} s"
    return Row(label, _SEARCH_S, cpu_s if ended else None, digits=1, note=note, at=at)


def _rows(options: SearchTimeOptions, case: str) -> Iterator[Row]:
    placement, limit_s, most = SHAPES[case](NUM_DEVICES), options.time_limit_s, MAX_MICRO_BATCHES
    tessel_limit_s = options.tessel_time_limit_s
    theirs, tessel_s = _timed(
        partial(tessel, placement, most, max_in_flight=most, time_limit_s=tessel_limit_s)
    )
    tessel_ends = theirs.seconds < _NEARLY_ALL * tessel_limit_s
    yield _time_row("Tessel", tessel_s, tessel_ends)
    for number in sorted(options.micro_batches):
        bar = f"{number} micro-batches"
        label = f"time-optimal, {bar}"
        optimal, cpu_s = _timed(partial(time_optimal, placement, number, time_limit_s=limit_s))
        ends = optimal.status is Status.OPTIMAL
        yield _time_row(label, cpu_s, ends, at=number)
        if tessel_ends:
            ratio = cpu_s / tessel_s
            ours, bound = (ratio, None) if ends else (None, ratio)
            note = "" if ends else f"more than {ratio:.3g}"
            yield Row(label, _OVER_TESSEL, ours, digits=2, note=note, series=bar, at=number, bound=bound)
        if not ends:
            break
    rate = None if theirs.schedule is None else bubble_rate(theirs.schedule)
    published = NN_SHAPE_BUBBLE_RATE if case == "nn_shape" else None
    yield Row(f"Tessel, {most} micro-batches", "found_bubble_rate", rate, published, digits=2)


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    ratios = grouped(rows_with(rows, metric=_OVER_TESSEL))
    most = [group[-1] for group in ratios.values()]
    least = [row.ours if row.ours is not None else row.bound or 0.0 for row in most]
    yield Trend(
        "for the most micro-batches that were tried the time-optimal search takes longer than Tessel's",
        bool(least) and all(ratio > 1 for ratio in least),
        ", ".join(f"{_shape(row)} {row.note or f'{row.ours:.3g}'}" for row in most) + " times",
    )
    grows = []
    for group in ratios.values():
        known = numbers(group)
        ended_first = [row.ours for row in group[: len(known)]] == known
        grows.append(ended_first and all(after > before for before, after in pairwise(known)))
    yield in_all("the ratio grows with the micro-batches", grows, "placements")


def _shape(row: Row) -> str:
    return shape_title(row.case)


def _draw(rows: Sequence[Row]) -> Any:
    return draw_metric(rows, _OVER_TESSEL, "time-optimal / Tessel", _shape, by_series, logarithmic=True)


_SMALL = SearchTimeOptions(("k_shape",), micro_batches=(2, 4))

ITEMS = (described("tessel_figure9", FIGURE_SHAPES, _rows, _trends, _draw, _SMALL),)
