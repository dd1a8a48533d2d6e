"""Fig. 16 and 17: how long blocks run and devices wait, and the cost of blocking transfers.

Programs with transfers are played in virtual time. All times are modelled from data sheets, so only what the
paper concludes from its own is claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from experiments.reproduce.item import Row, Trend, described
from experiments.reproduce.rows import cases_in, draw_metrics, numbers, rows_with, span, value_of
from experiments.reproduce.tessel.vocabulary_plans import (
    CASES,
    PLAIN,
    PLUS,
    TESSEL,
    PlanPlacement,
    VocabularyOptions,
    planned,
    scheduled,
)
from runtime.program.deadlock import check
from runtime.program.lower import lower
from runtime.program.prefetch import prefetch_receives
from runtime.virtual.play import play
from runtime.virtual.rules import Communication
from schedsearch.schedule import Schedule

WAIT_OVERHEAD = 0.06
"""Largest wait of devices above the theory's share (Sec. VI-E, of Fig. 16)."""

BLOCK_TIME_RATIO = 4.0
"""Time of the slowest stage's blocks of GPT on 16 GPUs, 1F1B over Tessel: "almost 400" over "around 100"
seconds (Sec. VI-E, of Fig. 16)."""

NON_BLOCKING_SPEED_UP = 1.9
"""Largest speedup of non-blocking communication (Sec. VI-E, of Fig. 17)."""

_RECEIVE_AHEAD = 2
"""Blocks of its device that a receive is posted ahead of."""

_BLOCK_S, _WAIT, _PLANNED_WAIT = "block_s", "wait_share", "planned_wait_share"
_RATIO, _ITERATION_S = "blocking_over_non_blocking", "iteration_s"
_NO_SCHEDULE = "not defined, as a device has stages on both sides of an embedding, or does not fit in memory"


def played_s(found: PlanPlacement, schedule: Schedule, communication: Communication) -> float:
    """Return the seconds of an iteration with transfers; receives that do not block are posted early."""
    programs = check(lower(schedule))
    if communication is not Communication.BLOCKING:
        programs = check(prefetch_receives(programs, _RECEIVE_AHEAD))
    transfer_time: Callable[[str, str], float] = found.placement.transfer_time
    return found.seconds(play(programs, communication, transfer_time=transfer_time).time)


def _breakdown_rows(options: VocabularyOptions, case: str) -> Iterator[Row]:
    for label, (found, schedule) in scheduled(CASES[case], options.work_limit).items():
        if found is None or schedule is None:
            note = "no plan fits in memory" if found is None else _NO_SCHEDULE
            yield Row(label, _BLOCK_S, None, note=note)
        else:
            yield from _system_rows(label, found, schedule)


def _system_rows(label: str, found: PlanPlacement, schedule: Schedule) -> Iterator[Row]:
    """Yield the time of the busiest device's blocks, and its share of waiting with and without transfers."""
    placement = found.without_transfers
    busy = max(
        sum(placement.by_name[name].time for name, _ in schedule.order(device))
        for device in range(placement.num_devices)
    )
    block_s = found.seconds(busy)
    yield Row(label, _BLOCK_S, block_s, digits=1, note=found.in_words)
    yield Row(label, _PLANNED_WAIT, 1 - block_s / found.seconds(schedule.makespan), digits=3)
    yield Row(label, _WAIT, 1 - block_s / played_s(found, schedule, Communication.DIRECTED), digits=3)


def _breakdown_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    blocks, waits, by_plan = (
        value_of(rows_with(rows, metric=metric), "label", "case")
        for metric in (_BLOCK_S, _WAIT, _PLANNED_WAIT)
    )
    above = max((wait - by_plan[key] for key, wait in waits.items()), default=None)
    says = f"devices wait less than {WAIT_OVERHEAD:.0%} above what the schedule says"
    yield Trend(says, above is not None and above < WAIT_OVERHEAD, f"at most {above or 0:.1%}")
    cases = [case for case in cases_in(rows) if (TESSEL, case) in blocks]
    ratios = [blocks[PLAIN, case] / blocks[TESSEL, case] for case in cases if (PLAIN, case) in blocks]
    yield Trend(
        "1F1B's slowest stage has more to compute than Tessel's",
        bool(ratios) and min(ratios) > 1,
        f"{span(ratios)}; the paper: {BLOCK_TIME_RATIO:g} times for GPT on 16 GPUs",
    )
    pairs = [(waits[TESSEL, case], waits[PLUS, case]) for case in cases if (PLUS, case) in waits]
    yield Trend(
        "devices wait less than in 1F1B+",
        bool(pairs) and all(ours < plus for ours, plus in pairs),
        "; ".join(f"{ours:.1%} for {plus:.1%}" for ours, plus in pairs),
    )


def _draw_breakdown(rows: Sequence[Row]) -> Any:
    titles = {
        _BLOCK_S: "(a) time of the slowest stage's blocks (s)",
        _WAIT: "(b) share of waiting",
        _PLANNED_WAIT: "(c) share of waiting by the schedule alone",
    }
    return draw_metrics(rows, "", titles, same_axis=False)


FIGURE_16 = described(
    "tessel_figure16",
    tuple(CASES),
    _breakdown_rows,
    conclude=_breakdown_trends,
    draw=_draw_breakdown,
    small=VocabularyOptions(("gpt_11b",)),
)


def _transfer_rows(options: VocabularyOptions, case: str) -> Iterator[Row]:
    _, shared = planned(CASES[case])
    schedule = None if shared is None else shared.searched(options.work_limit)
    if shared is None or schedule is None:
        yield Row(TESSEL, _RATIO, None, note="no plan or no schedule was found")
        return
    blocking_s = played_s(shared, schedule, Communication.BLOCKING)
    non_blocking_s = played_s(shared, schedule, Communication.DIRECTED)
    yield Row("blocking", _ITERATION_S, blocking_s, digits=1, note=shared.in_words)
    yield Row("non-blocking", _ITERATION_S, non_blocking_s, digits=1)
    yield Row(TESSEL, _RATIO, blocking_s / non_blocking_s, digits=2)


def _transfer_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    ratios = numbers(rows_with(rows, metric=_RATIO))
    shown = f"up to {max(ratios, default=0):.2f} times; the paper: up to {NON_BLOCKING_SPEED_UP:g}"
    yield Trend("non-blocking communication is faster", bool(ratios) and min(ratios) > 1, shown)


FIGURE_17 = described(
    "tessel_figure17",
    tuple(CASES),
    _transfer_rows,
    conclude=_transfer_trends,
    draw=lambda rows: draw_metrics(rows, "iteration (s)", {_ITERATION_S: ""}),
    small=VocabularyOptions(("mt5_1.8b",)),
)

ITEMS = (FIGURE_16, FIGURE_17)
