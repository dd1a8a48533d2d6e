"""Fig. 9 and 10: CPU seconds of the time-optimal search and of the parts of Tessel's search.

Seconds of another machine are no claim; how they grow is. Seconds are measured here, and these searches count
no work, so their limits are of time. A search that does not end in its time has no value, and its note says
so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from experiments.reproduce.item import CaseOptions, Row, Trend, described
from experiments.reproduce.rows import (
    by_series,
    cases_in,
    draw_metrics,
    grouped,
    in_all,
    numbers,
    rows_with,
    value_of,
)
from experiments.reproduce.tessel.published import FIGURE_SHAPES, MAX_MICRO_BATCHES, NUM_DEVICES, shape_title
from placements import Placement
from placements.forms.meaning import option
from placements.shapes import SHAPES
from schedsearch.core.answer import Answer, SearchProgress
from schedsearch.metrics import bubble_rate
from schedsearch.tessel import tessel, time_optimal
from schedsearch.tessel.candidates import Indices
from schedsearch.tessel.phases import cooldown, shortened, warmup
from schedsearch.tessel.queries import Budget

NN_SHAPE_BUBBLE_RATE = 0.20
"""Bubble of six micro-batches of an NN-shape, warmup and cooldown included, by both searches (Sec. VI-B)."""

MEAN_SEARCH_S = 147.3
"""Mean time of Tessel's searches (Sec. VI-B, of Fig. 10)."""

_SEARCH_S, _OVER_TESSEL = "search_s", "over_tessels_search_s"
_SHARE, _RATIO = "share_of_search_s", "ratio_of_search_s"
_NEARLY_ALL = 0.97
"""Share of its time that a search which ran out of it has taken, at the least."""

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class BreakdownOptions(CaseOptions):
    """Options of Fig. 10."""

    time_limit_s: float = option(300.0, "time limit of each search, in s", above=0)


@dataclass(frozen=True)
class SearchCostOptions(CaseOptions):
    """Options of Fig. 9."""

    micro_batches: tuple[int, ...] = option(
        (2, 4, 6, 8, 10, 12),
        "numbers of micro-batches of the time-optimal search; it stops after one that takes long",
        min=1,
    )
    tessel_time_limit_s: float = option(300.0, "time limit of Tessel's search, in s", above=0)
    time_limit_s: float = option(120.0, "time limit of each time-optimal search, in s", above=0)


class _Searched(NamedTuple):
    """A search, its CPU seconds, and whether it ended in its time.

    Tessel's also has the repetends that were the best so far: the micro-batch of each block.
    """

    result: Answer
    seconds: float
    ended: bool
    repetends: tuple[Indices, ...] = ()

    def row(self, label: str, limit_s: float, at: float | None = None) -> Row:
        """Return the row of its time, without a value where it did not end."""
        note = "" if self.ended else f"more than {self.seconds:.3g} s, which it had of {limit_s:g} s"
        return Row(label, _SEARCH_S, self.seconds if self.ended else None, digits=1, note=note, at=at)


def _measured(call: Callable[[], _Answer]) -> tuple[_Answer, float]:
    """Return a call's answer, and its CPU seconds."""
    began = time.process_time()
    answer = call()
    return answer, time.process_time() - began


def _time_optimal(placement: Placement, num_micro_batches: int, limit_s: float) -> _Searched:
    """Search the least makespan; it ends when its own questions prove it, whatever our bounds say."""
    last: list[SearchProgress] = []
    result, seconds = _measured(
        lambda: time_optimal(
            placement, num_micro_batches, time_limit_s=limit_s, on_progress=lambda each: last.append(each)
        )
    )
    ended = bool(last) and last[-1].best is not None and last[-1].bound >= last[-1].best
    return _Searched(result, seconds, ended)


def _by_tessel(placement: Placement, limit_s: float, lazy: bool = True) -> _Searched:
    best: list[Indices] = []
    result, seconds = _measured(
        lambda: tessel(
            placement,
            MAX_MICRO_BATCHES,
            max_in_flight=MAX_MICRO_BATCHES,
            lazy=lazy,
            time_limit_s=limit_s,
            on_repetend=lambda indices, _: best.append(indices),
        )
    )
    return _Searched(result, seconds, result.seconds < _NEARLY_ALL * limit_s, tuple(best))


def _cost_rows(options: SearchCostOptions, case: str) -> Iterator[Row]:
    placement, limit_s = SHAPES[case](NUM_DEVICES), options.time_limit_s
    theirs = _by_tessel(placement, options.tessel_time_limit_s)
    yield theirs.row("Tessel", options.tessel_time_limit_s)
    ends, is_nn = True, case == "nn_shape"
    for number in sorted(options.micro_batches):
        bar = f"{number} micro-batches"
        label = f"time-optimal, {bar}"
        if not ends:
            note = "not tried, as fewer took too long"
            yield Row(label, _SEARCH_S, None, note=note, series=bar, at=number)
            continue
        optimal = _time_optimal(placement, number, limit_s)
        ends = optimal.ended
        yield optimal.row(label, limit_s, at=number)
        if theirs.ended:
            ratio = optimal.seconds / theirs.seconds
            ours, bound = (ratio, None) if ends else (None, ratio)
            note = "" if ends else f"more than {ratio:.3g}"
            yield Row(label, _OVER_TESSEL, ours, digits=2, note=note, series=bar, at=number, bound=bound)
        if optimal.result.schedule is not None:  # warmup and cooldown included
            published = NN_SHAPE_BUBBLE_RATE if is_nn and number == MAX_MICRO_BATCHES else None
            note = "" if ends else "the best until the time was over"
            rate = bubble_rate(optimal.result.schedule)
            yield Row(label, "bubble_rate", rate, published, digits=2, note=note, at=number)
    schedule, published = theirs.result.schedule, NN_SHAPE_BUBBLE_RATE if is_nn else None
    found = None if schedule is None else bubble_rate(schedule)
    yield Row(f"Tessel, {MAX_MICRO_BATCHES} micro-batches", "found_bubble_rate", found, published, digits=2)


def _cost_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    ratios = grouped(rows_with(rows, metric=_OVER_TESSEL))
    most = [own[-1] for own in ratios.values()]
    shown = [f"{_shape(row)} {row.note or f'{row.ours:.3g}'}" for row in most]
    least = [row.ours if row.ours is not None else row.bound or 0.0 for row in most]
    yield Trend(
        "for the most micro-batches that were tried the time-optimal search takes longer than Tessel's",
        bool(least) and all(ratio > 1 for ratio in least),
        ", ".join(shown) + " times",
    )
    grows = []
    for own in ratios.values():
        known = numbers(own)
        ended_first = [row.ours for row in own[: len(known)]] == known
        grows.append(ended_first and all(after > before for before, after in pairwise(known)))
    yield in_all("the ratio grows with the micro-batches", grows, "placements")


def _shape(row: Row) -> str:
    return shape_title(row.case)


def _draw_costs(rows: Sequence[Row]) -> Any:
    return draw_metrics(
        rows, "time-optimal / Tessel", {_OVER_TESSEL: ""}, _shape, by_series, logarithmic=True
    )


FIGURE_9 = described(
    "tessel_figure9",
    FIGURE_SHAPES,
    _cost_rows,
    conclude=_cost_trends,
    draw=_draw_costs,
    small=SearchCostOptions(("k_shape",), micro_batches=(2, 4)),
)


def completions(placement: Placement, indices: Indices, limit_s: float) -> dict[str, tuple[float, int]]:
    """Search warmup and cooldown of a repetend once more alone: their CPU seconds and numbers of blocks.

    The repetend is given by the micro-batch of each block; both have so many seconds together.
    """
    budget, in_flight = Budget(time.monotonic() + limit_s, seed=0), 1 + max(indices.values())
    before, before_s = _measured(lambda: shortened(warmup(placement, indices, budget)))
    after, after_s = _measured(lambda: shortened(cooldown(placement, indices, in_flight, budget)))
    return {"warmup": (before_s, len(before.blocks)), "cooldown": (after_s, len(after.blocks))}


def _breakdown_rows(options: BreakdownOptions, case: str) -> Iterator[Row]:
    placement, limit_s = SHAPES[case](NUM_DEVICES), options.time_limit_s
    lazy, eager = (_by_tessel(placement, limit_s, is_lazy) for is_lazy in (True, False))
    yield lazy.row("lazy", limit_s)
    yield eager.row("not lazy", limit_s)
    if lazy.ended and eager.ended:
        yield Row("lazy / not lazy", _RATIO, lazy.seconds / eager.seconds, digits=2)
    if not lazy.repetends:
        return
    yield Row("repetends completed if not lazy", "num_repetends", float(len(lazy.repetends)), digits=0)
    found = completions(placement, lazy.repetends[-1], limit_s)
    before_s, after_s = (seconds for seconds, _ in found.values())
    repetend_s = max(lazy.seconds - before_s - after_s, 0.0)
    whole_s = before_s + repetend_s + after_s
    for phase, seconds in (("warmup", before_s), ("repetend", repetend_s), ("cooldown", after_s)):
        yield Row(phase, _SHARE, seconds / whole_s, digits=2)
    for phase, (_, num_blocks) in found.items():
        yield Row(f"blocks of the {phase}", "num_blocks", float(num_blocks), digits=0)


def _breakdown_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    value, cases = value_of(rows, "case", "label"), cases_in(rows)
    split = [case for case in cases if (case, "cooldown") in value]
    for says, start in (
        ("the cooldown tends to take longer than the warmup", ""),
        ("the cooldown mostly has more blocks than the warmup", "blocks of the "),
    ):
        more = sum(value[case, f"{start}cooldown"] > value[case, f"{start}warmup"] for case in split)
        yield Trend(says, 2 * more > len(split), f"in {more} of {len(split)} placements")
    ended = [case for case in cases if (case, "lazy / not lazy") in value]
    lazy_s, eager_s = (sum(value[case, label] for case in ended) for label in ("lazy", "not lazy"))
    shown = f"{lazy_s:.3g} for {eager_s:.3g} s in {len(ended)} placements"
    yield Trend("the lazy search takes less time on the whole", lazy_s < eager_s, shown)
    mean_s = fmean(value[case, "lazy"] for case in ended) if ended else math.inf
    says = f"a search takes no longer than the paper's {MEAN_SEARCH_S:g} s on average"
    yield Trend(says, mean_s <= MEAN_SEARCH_S, f"{mean_s:.3g} s on average")


def _draw_breakdown(rows: Sequence[Row]) -> Any:
    return draw_metrics(rows, "share of time", {_SHARE: "(a) phases", _RATIO: "(b) lazy search"}, _shape)


FIGURE_10 = described(
    "tessel_figure10",
    FIGURE_SHAPES,
    _breakdown_rows,
    conclude=_breakdown_trends,
    draw=_draw_breakdown,
    small=BreakdownOptions(("v_shape", "k_shape")),
)

ITEMS = (FIGURE_9, FIGURE_10)
