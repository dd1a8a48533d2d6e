"""Fig. 3, 9 and 10: what the searches take, in seconds of this machine's processor.

The time-optimal search by micro-batches, its time over that of Tessel's search, and what parts of Tessel's
search take. Seconds of another machine are no claim; how they grow is. Seconds are what is measured here, and
these searches count no work, so their limits are of time. A search that does not end in its time has no
value, and its note says so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from experiments.config.options import require_limits
from experiments.reproduce.item import Claim, Item, Row, Trend
from experiments.reproduce.item_options import check_names, check_numbers
from experiments.reproduce.rows import (
    bars,
    by_label,
    by_series,
    cases_in,
    curves,
    grouped,
    in_all,
    numbers,
    rows_with,
    value_of,
)
from experiments.reproduce.tessel.published import (
    FIGURE_SHAPES,
    MAX_MICRO_BATCHES,
    MEAN_SEARCH_S,
    NN_SHAPE_BUBBLE_RATE,
    NUM_DEVICES,
    TIME_OPTIMAL_S,
    shape_title,
)
from placements import Placement
from placements.forms.meaning import option
from placements.shapes import SHAPES
from schedsearch.core.answer import Answer, SearchProgress
from schedsearch.figures.bars import BarPanel, draw_bars
from schedsearch.figures.canvas import COLUMN_INCHES
from schedsearch.figures.panels import Panel, draw_panels
from schedsearch.metrics import bubble_rate
from schedsearch.tessel import tessel, time_optimal
from schedsearch.tessel.candidates import Indices
from schedsearch.tessel.phases import cooldown, shortened, warmup
from schedsearch.tessel.queries import Budget

_SEARCH_S, _OVER_TESSEL = "search_s", "over_tessels_search_s"
_SHARE, _RATIO = "share_of_search_s", "ratio_of_search_s"
_NEARLY_ALL = 0.97
"""Share of its time that a search which ran out of it has taken, at the least."""

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class TimeOptimalOptions:
    """Of Fig. 3."""

    micro_batches: tuple[int, ...] = option((2, 4, 6, 8, 10, 12, 14, 16), "numbers of micro-batches")
    time_limit_s: float = option(60.0, "time limit of each search, in s")


@dataclass(frozen=True)
class SearchCostOptions:
    """Of Fig. 9."""

    shapes: tuple[str, ...] = option(FIGURE_SHAPES, "shapes of placements")
    micro_batches: tuple[int, ...] = option(
        (2, 4, 6, 8, 10, 12),
        "numbers of micro-batches of the time-optimal search; it stops after one that takes long",
    )
    tessel_time_limit_s: float = option(300.0, "time limit of Tessel's search, in s")
    time_limit_s: float = option(120.0, "time limit of each time-optimal search, in s")


@dataclass(frozen=True)
class BreakdownOptions:
    """Of Fig. 10."""

    shapes: tuple[str, ...] = option(FIGURE_SHAPES, "shapes of placements")
    time_limit_s: float = option(300.0, "time limit of each search, in s")


def measured(call: Callable[[], _Answer]) -> tuple[_Answer, float]:
    """Return what a call returns, and the seconds that the processor spent on it."""
    began = time.process_time()
    answer = call()
    return answer, time.process_time() - began


class _Searched(NamedTuple):
    """A search, the processor's seconds for it, and whether it ended in its time.

    Tessel's also has the repetends that were the best so far: the micro-batch of each block.
    """

    result: Answer
    seconds: float
    ended: bool
    repetends: tuple[Indices, ...] = ()

    def row(self, label: str, limit_s: float, published: float | None = None, at: float | None = None) -> Row:
        """Return the row of its time, without a value where it did not end."""
        note = "" if self.ended else f"more than {self.seconds:.3g} s, which it had of {limit_s:g} s"
        ours = self.seconds if self.ended else None
        return Row(label, _SEARCH_S, ours, published, digits=1, note=note, at=at)


def _time_optimal(placement: Placement, num_micro_batches: int, limit_s: float) -> _Searched:
    """Search the least makespan; it ends when its own questions prove it, whatever our bounds say."""
    last: list[SearchProgress] = []
    result, seconds = measured(
        lambda: time_optimal(
            placement, num_micro_batches, time_limit_s=limit_s, on_progress=lambda each: last.append(each)
        )
    )
    ended = bool(last) and last[-1].best is not None and last[-1].bound >= last[-1].best
    return _Searched(result, seconds, ended)


def _time_optimal_cases(options: TimeOptimalOptions) -> dict[str, int]:
    check_numbers("micro_batches", options.micro_batches)
    require_limits(options)
    return {f"{number} micro-batches": number for number in sorted(options.micro_batches)}


def _time_optimal_rows(options: TimeOptimalOptions, number: int) -> Iterator[Row]:
    searched = _time_optimal(SHAPES["v_shape"](NUM_DEVICES, 1, 2), number, options.time_limit_s)
    yield searched.row("time-optimal", options.time_limit_s, TIME_OPTIMAL_S.get(number), number)
    if searched.result.schedule is not None:
        makespan = float(searched.result.schedule.makespan)
        note = "" if searched.ended else "not proved in time"
        yield Row("time-optimal", "makespan_ticks", makespan, digits=0, note=note)


def _time_optimal_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    times = rows_with(rows, metric=_SEARCH_S)
    found = numbers(times)
    given_up = [row.case for row in times if row.ours is None]
    last = f"{found[-1]:.3g} s for {times[len(found) - 1].case}" if found else "none ended"
    yield Trend(
        "the search takes longer the more micro-batches there are, and soon too long",
        bool(found) and found[-1] == max(found) and [row.case for row in times[len(found) :]] == given_up,
        last + (f"; not in time from {given_up[0]} on" if given_up else ""),
    )


def _draw_time_optimal(rows: Sequence[Row]) -> Any:
    panel = Panel("V-Shape, four devices", curves(rows_with(rows, metric=_SEARCH_S), by_label))
    return draw_panels([panel], "micro-batches", "search (CPU s)", "", logarithmic=True, width=COLUMN_INCHES)


FIGURE_3 = Item(
    name="tessel_figure3",
    paper="Tessel",
    part="Fig. 3",
    title="Time-optimal search of a V-shape by micro-batches",
    claim=Claim.TREND,
    known=_time_optimal_cases,
    make=_time_optimal_rows,
    conclude=_time_optimal_trends,
    draw=_draw_time_optimal,
    small=TimeOptimalOptions(micro_batches=(2, 4, 6)),
    because="Seconds of this machine, with a later Z3; a search that does not end in its time has no value.",
)
"""The time-optimal search."""


def _by_tessel(placement: Placement, limit_s: float, lazy: bool = True) -> _Searched:
    best: list[Indices] = []
    result, seconds = measured(
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


def _shape_cases(options: SearchCostOptions | BreakdownOptions) -> Sequence[str]:
    check_names("shapes", options.shapes, FIGURE_SHAPES)
    require_limits(options)
    return options.shapes


def _cost_cases(options: SearchCostOptions) -> Sequence[str]:
    check_numbers("micro_batches", options.micro_batches)
    return _shape_cases(options)


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
    shown = [f"{shape_title(row.case)} {row.note or f'{row.ours:.3g}'}" for row in most]
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


def _draw_costs(rows: Sequence[Row]) -> Any:
    groups = bars(rows_with(rows, metric=_OVER_TESSEL), _shape, by_series)
    return draw_bars([BarPanel("", groups)], "time-optimal / Tessel", logarithmic=True)


def _shape(row: Row) -> str:
    return shape_title(row.case)


FIGURE_9 = Item(
    name="tessel_figure9",
    paper="Tessel",
    part="Fig. 9",
    title="Time of the time-optimal search over that of Tessel's",
    claim=Claim.TREND,
    known=_cost_cases,
    make=_cost_rows,
    conclude=_cost_trends,
    draw=_draw_costs,
    small=SearchCostOptions(shapes=("k_shape",), micro_batches=(2, 4)),
    because="Seconds of this machine. A cross is a search that does not end in its time; the paper's is 10k.",
)
"""Two searches of the same placements."""


class Completion(NamedTuple):
    """What a warmup or a cooldown takes: seconds of the processor, and the blocks that it has."""

    seconds: float
    num_blocks: int


def completions(placement: Placement, indices: Indices, limit_s: float) -> dict[str, Completion]:
    """Search warmup and cooldown of a repetend once more alone, and return what each took.

    Args:
        placement: What runs where.
        indices: The micro-batch of each block in the repetend that Tessel's search found.
        limit_s: Seconds for both.
    """
    budget, in_flight = Budget(time.monotonic() + limit_s, seed=0), 1 + max(indices.values())
    before, before_s = measured(lambda: shortened(warmup(placement, indices, budget)))
    after, after_s = measured(lambda: shortened(cooldown(placement, indices, in_flight, budget)))
    return {
        "warmup": Completion(before_s, len(before.blocks)),
        "cooldown": Completion(after_s, len(after.blocks)),
    }


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
    before_s, after_s = found["warmup"].seconds, found["cooldown"].seconds
    repetend_s = max(lazy.seconds - before_s - after_s, 0.0)
    whole_s = before_s + repetend_s + after_s
    for phase, seconds in (("warmup", before_s), ("repetend", repetend_s), ("cooldown", after_s)):
        yield Row(phase, _SHARE, seconds / whole_s, digits=2)
    for phase, each in found.items():
        yield Row(f"blocks of the {phase}", "num_blocks", float(each.num_blocks), digits=0)


def _breakdown_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    value, cases = value_of(rows, "case", "label"), cases_in(rows)
    split = [case for case in cases if (case, "cooldown") in value]
    more = [case for case in split if value[case, "cooldown"] > value[case, "warmup"]]
    yield Trend(
        "the cooldown tends to take longer than the warmup",
        2 * len(more) > len(split),
        f"in {len(more)} of {len(split)} placements",
    )
    blocks = [(case, f"blocks of the {phase}") for case in split for phase in ("warmup", "cooldown")]
    fewer = [value[before] < value[after] for before, after in zip(blocks[::2], blocks[1::2], strict=True)]
    yield Trend(
        "the cooldown mostly has more blocks than the warmup",
        2 * sum(fewer) > len(split),
        f"in {sum(fewer)} of {len(split)} placements",
    )
    ended = [case for case in cases if (case, "lazy / not lazy") in value]
    lazy_s, eager_s = (sum(value[case, label] for case in ended) for label in ("lazy", "not lazy"))
    yield Trend(
        "the lazy search takes less time on the whole",
        lazy_s < eager_s,
        f"{lazy_s:.3g} for {eager_s:.3g} s in {len(ended)} placements",
    )
    mean_s = fmean(value[case, "lazy"] for case in ended) if ended else math.inf
    says = f"a search takes no longer than the paper's {MEAN_SEARCH_S:g} s on average"
    yield Trend(says, mean_s <= MEAN_SEARCH_S, f"{mean_s:.3g} s on average")


def _draw_breakdown(rows: Sequence[Row]) -> Any:
    panels = [
        BarPanel(title, bars(rows_with(rows, metric=metric), _shape))
        for title, metric in (("(a) phases", _SHARE), ("(b) lazy search", _RATIO))
    ]
    return draw_bars(panels, "share of time")


FIGURE_10 = Item(
    name="tessel_figure10",
    paper="Tessel",
    part="Fig. 10",
    title="What the phases of Tessel's search take, and what its lazy search saves",
    claim=Claim.TREND,
    known=_shape_cases,
    make=_breakdown_rows,
    conclude=_breakdown_trends,
    draw=_draw_breakdown,
    small=BreakdownOptions(shapes=("v_shape", "k_shape")),
    because=(
        "Seconds of this machine. Warmup and cooldown are searched once more alone, and repetends are what "
        "is left of the search. Here every candidate is refuted by one question, so that repetends mostly "
        "take most of the time. A search that is not lazy completes only the few repetends that are better "
        "than all before them, in hundredths of a second each: the lazy one has nothing to save here, and "
        "what the two differ by is the spread of their seconds"
    ),
    supported_by="test_phases_have_the_blocks_of_tessels_micro_batches",
)
"""Parts of a search."""
