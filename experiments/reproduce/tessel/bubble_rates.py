"""Table II: the bubble rate of each schedule's steady state, for very many micro-batches.

Hand-made schedules give it by what more micro-batches add to them; searches by their repetends. Blocks take
the paper's times: one tick forward, three backward, and one each way on all devices. Knows no GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from experiments.reproduce.item import CaseOptions, Row, Trend, described
from experiments.reproduce.rows import cases_in, rows_with, value_of
from experiments.reproduce.tessel.published import MAX_MICRO_BATCHES, MODELS, NUM_DEVICES
from placements import Placement
from placements.forms.meaning import option
from placements.shapes import SHAPES
from schedsearch.baselines import HAND_MADE
from schedsearch.schedule import Schedule
from schedsearch.searches.search import search
from schedsearch.tessel import tessel

_TESSEL, _OURS, _PEAK = "Tessel", "our search", "peak_activations"

_MICRO_BATCHES = 32
"""After which a hand-made schedule is in its steady state; whole units of Chimera."""


@dataclass(frozen=True)
class BubbleRateOptions(CaseOptions):
    """Limits of the searches."""

    tessel_time_limit_s: float = option(600.0, "time limit of each of Tessel's searches, in s", above=0)
    work_limit: float = option(
        80.0, "work limit of each of our searches, in units of about 1 s of one core", above=0
    )


def added_bubble_rate(
    make: Callable[[Placement, int], Schedule], placement: Placement, num_micro_batches: int = _MICRO_BATCHES
) -> float:
    """Return the idle share of the ticks that twice as many micro-batches add to a schedule.

    Args:
        make: A hand-made schedule.
        placement: What runs where.
        num_micro_batches: Enough for the steady state; a multiple of what the schedule repeats.
    """
    once, twice = (make(placement, number * num_micro_batches).makespan for number in (1, 2))
    work = num_micro_batches * sum(placement.load(device) for device in range(placement.num_devices))
    return 1 - work / (placement.num_devices * (twice - once))


def _rows(options: BubbleRateOptions, case: str) -> Iterator[Row]:
    model = MODELS[case]
    placement = SHAPES[model.shape](NUM_DEVICES)
    v_shape, x_shape = SHAPES["v_shape"](NUM_DEVICES), SHAPES["x_shape"](NUM_DEVICES)

    def row(name: str, ours: float | None, published: float | None, note: str = "") -> Row:
        return Row(f"{model.name}, {name}", "bubble_rate", ours, published, digits=2, note=note, series=name)

    yield row("1F1B", added_bubble_rate(HAND_MADE["one_f_one_b"], v_shape), model.one_f_one_b)
    yield row("Chimera-direct", added_bubble_rate(HAND_MADE["chimera"], x_shape), model.chimera)
    if model.one_f_one_b_plus is None:
        yield row("1F1B+", None, None, "a cross in the paper: a K-shape is not 1F1B's, here neither")
    else:
        plus = added_bubble_rate(HAND_MADE["one_f_one_b_plus"], placement)
        yield row("1F1B+", plus, model.one_f_one_b_plus)
    limit_s, work = options.tessel_time_limit_s, options.work_limit
    number = MAX_MICRO_BATCHES
    theirs = tessel(placement, number, max_in_flight=number, time_limit_s=limit_s).repetend
    ours = search(placement, 1, objectives=("period", "memory"), work_limit=work).repetend
    for name, repetend, within in (
        (_TESSEL, theirs, f"{limit_s:g} s"),
        (_OURS, ours, f"{work:g} units of work"),
    ):
        missing = "" if repetend else f"none found in {within}"
        yield row(name, None if repetend is None else repetend.bubble_rate, model.tessel, missing)
        if repetend is not None:
            peak = float(max(repetend.peak_memory))
            yield Row(f"{model.name}, {name}", _PEAK, peak, digits=0, series=name)


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    peak = value_of(rows_with(rows, metric=_PEAK), "case", "series")
    both = [case for case in cases_in(rows) if {(case, _OURS), (case, _TESSEL)} <= peak.keys()]
    known = [(peak[case, _OURS], peak[case, _TESSEL]) for case in both]
    yield Trend(
        "not in the paper: our search needs no more activations than Tessel's for the same bubble rate",
        bool(known) and all(ours <= theirs for ours, theirs in known),
        "; ".join(f"{ours:g} for {theirs:g}" for ours, theirs in known),
    )


TABLE_2 = described(
    "tessel_table2",
    tuple(MODELS),
    _rows,
    conclude=_trends,
    small=BubbleRateOptions(("gpt",)),
)

ITEMS = (TABLE_2,)
