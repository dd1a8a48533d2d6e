"""Idle time of pipelines from schedules themselves: Fig. 4.6, Sec. 4.3.2, Table 7.1, and drawn schedules.

The bubble is idle time over the time of computing, not over the whole iteration, as in the dissertation. Ours
is that of a schedule that is made and simulated; published is the formula that is printed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from experiments.reproduce.dissertation.figure import SOURCE, figure
from experiments.reproduce.item import Basis, CaseOptions, Claim, Item, Row, Trend
from experiments.reproduce.rows import cases_in, curves, grouped, numbers, rows_with, value_of
from placements import Placement
from placements.shapes import loop_shape, v_shape
from schedsearch.baselines import gpipe, interleaved_one_f_one_b, one_f_one_b
from schedsearch.figures.comparison import draw_timelines
from schedsearch.figures.panels import Panel, draw_panels
from schedsearch.metrics import bubble_rate, peak_memory
from schedsearch.schedule import Schedule

BUBBLE, STASHES, MAKESPAN = "bubble_over_ideal", "activation_stashes", "makespan_ticks"

FIGURE_4_6 = ((32, 32), (32, 128), (128, 128), (128, 512))
"""GPUs n and batch over micro-batch size b' of its curves."""

TENSOR_GPUS, TENSOR_MICRO_BATCHES = 64, 64
"""Of Sec. 4.3.2, which names none."""

SIZES = ((4, 8), (8, 32))
"""Stages and micro-batches for which Table 7.1's formulas are held against schedules."""

CHUNKS = 2
"""Of each device, in interleaved schedules."""


class Scheme(NamedTuple):
    """A way of pipelining.

    Attributes:
        title: In words.
        make: Its schedule.
        chunks: Parts of the model on each device.
    """

    title: str
    make: Callable[[Placement, int], Schedule]
    chunks: int = 1

    def schedule(self, p: int, m: int) -> Schedule:
        """Return the schedule of p devices and m micro-batches; a stage takes 2 ticks forward, 4 backward."""
        if self.chunks == 1:
            return self.make(v_shape(p, forward_time=CHUNKS, backward_time=2 * CHUNKS), m)
        return self.make(loop_shape(p, self.chunks, forward_time=1, backward_time=2), m)

    def stashes(self, schedule: Schedule) -> float:
        """Return the most micro-batches whose activations a device holds."""
        return float(peak_memory(schedule).max()) / self.chunks


SCHEMES = {
    "gpipe": Scheme("GPipe", gpipe),
    "pipedream_flush": Scheme("PipeDream-Flush", one_f_one_b),
    "one_f_one_b": Scheme("1F1B", one_f_one_b),
    "interleaved": Scheme("interleaved 1F1B", interleaved_one_f_one_b, CHUNKS),
}

DRAWN = {
    "2.3": (4, 4, ("gpipe",)),
    "3.3": (2, 4, ("gpipe", "pipedream_flush")),
    "4.3": (4, 8, ("gpipe",)),
    "4.4": (4, 8, ("one_f_one_b", "interleaved")),
}
"""For each figure of schedules its devices, micro-batches and schemes."""


def bubble_over_ideal(schedule: Schedule) -> float:
    """Return idle time over the time of computing (Sec. 4.2.2).

    >>> round(bubble_over_ideal(one_f_one_b(v_shape(4), 8)), 12)  # (p - 1) / m
    0.375
    """
    rate = bubble_rate(schedule)
    return rate / (1 - rate)


def _powers_of_two(most: int) -> list[int]:
    return [2**i for i in range(most.bit_length()) if 2**i <= most]


def _figure_4_6_rows(_: CaseOptions, case: tuple[int, int]) -> Iterator[Row]:
    """Yield a row for each data-parallel size d: p = n / d stages run b' / d micro-batches."""
    n, batch = case
    for d in _powers_of_two(min(n, batch)):
        ours = bubble_over_ideal(one_f_one_b(v_shape(n // d), batch // d))
        yield Row(f"d={d}", BUBBLE, ours, (n - d) / batch, series=f"n = {n}, b' = {batch}", at=d)


def _figure_4_6_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    falling = [all(b < a for a, b in itertools.pairwise(numbers(curve))) for curve in grouped(rows).values()]
    says = "the bubble shrinks with more data parallelism"
    yield Trend(says, all(falling), f"on all {len(falling)} curves")


def _draw_figure_4_6(rows: Sequence[Row]) -> Any:
    panel = Panel("1F1B", curves(rows))
    return draw_panels([panel], "data-parallel size d", "idle time / computing", "Size of the bubble")


def _tensor_rows(_: CaseOptions, t: int) -> Iterator[Row]:
    ours = bubble_over_ideal(one_f_one_b(v_shape(TENSOR_GPUS // t), TENSOR_MICRO_BATCHES))
    yield Row(f"n={TENSOR_GPUS}, t={t}", BUBBLE, ours, (TENSOR_GPUS / t - 1) / TENSOR_MICRO_BATCHES)


def _scheme_rows(_: CaseOptions, scheme: Scheme) -> Iterator[Row]:
    note = "the first device holds p + (p - 1) / v stages' activations; the table says p"
    for p, m in SIZES:
        schedule, label = scheme.schedule(p, m), f"p={p}, m={m}"
        yield Row(label, BUBBLE, bubble_over_ideal(schedule), (p - 1) / (scheme.chunks * m))
        yield Row(
            label,
            STASHES,
            scheme.stashes(schedule),
            m if scheme.make is gpipe else p,
            note=note * (scheme.chunks > 1),
        )


def _scheme_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    held = value_of(rows_with(rows, metric=STASHES), "case")
    fewer = [value < held["gpipe"] for case, value in held.items() if case != "gpipe" and "gpipe" in held]
    shown = ", ".join(f"{case} {value:g}" for case, value in held.items())
    yield Trend("1F1B holds fewer activations than GPipe", all(fewer), shown)


def _drawn_rows(p: int, m: int, _: CaseOptions, name: str) -> Iterator[Row]:
    scheme = SCHEMES[name]
    schedule, ideal = scheme.schedule(p, m), 3 * CHUNKS * m
    whole = ideal + 3 * CHUNKS * (p - 1) / scheme.chunks
    note = "published: (m + (p - 1) / v) (t_f + t_b)"
    yield Row(name, MAKESPAN, schedule.makespan, whole, 0, note=note)
    yield Row(scheme.title, BUBBLE, bubble_over_ideal(schedule), (p - 1) / (scheme.chunks * m))
    yield Row(scheme.title, STASHES, scheme.stashes(schedule))


def _drawn_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    """Yield what the figures show beside each other, where there are two schedules."""
    ticks, held = (value_of(rows_with(rows, metric=metric), "case") for metric in (MAKESPAN, STASHES))
    if len(ticks) < 2:
        return
    first, second = ticks
    if second == "pipedream_flush":
        yield Trend(
            "PipeDream-Flush takes as long as GPipe, with fewer activations",
            ticks[first] == ticks[second] and held[second] < held[first],
            f"{held[second]:g} instead of {held[first]:g}",
        )
    else:
        shown = f"after {ticks[second]:g} instead of {ticks[first]:g} ticks"
        yield Trend("the flush comes sooner with interleaving", ticks[second] < ticks[first], shown)


def _draw_schedules(p: int, m: int, rows: Sequence[Row]) -> Any:
    schemes = [SCHEMES[name] for name in cases_in(rows)]
    return draw_timelines({scheme.title: scheme.schedule(p, m) for scheme in schemes})


def _drawn(number: str, title: str) -> Item:
    p, m, names = DRAWN[number]
    return figure(
        number,
        title,
        Claim.EXACT,
        names,
        partial(_drawn_rows, p, m),
        _drawn_trends,
        partial(_draw_schedules, p, m),
        basis=Basis.FORMULA,
        because="The figure prints no values; published are the text's formulas. "
        "A tick, half a forward, is drawn as 1 ms.",
    )


BUBBLE_ITEMS = (
    Item(
        "dissertation_table7_1",
        SOURCE,
        "Tables 1.1 and 7.1",
        "Bubbles and activations of pipelining schemes",
        Claim.EXACT,
        {name: scheme for name, scheme in SCHEMES.items() if name != "one_f_one_b"},
        _scheme_rows,
        _scheme_trends,
        basis=Basis.FORMULA,
        because="Published values are the tables' formulas. Schemes without a flush repeat for ever, and are "
        "left out. An interleaved schedule holds the activations of p + (p - 1) / v stages on its first "
        "device, 38 and 44 % more than the p of the table.",
        supported_by="test_interleaving_holds_more_than_the_table_says",
    ),
    _drawn("2.3", "GPipe with four workers"),
    _drawn("3.3", "GPipe and PipeDream-Flush with two stages"),
    _drawn("4.3", "GPipe with four devices and eight micro-batches"),
    _drawn("4.4", "1F1B and interleaved 1F1B"),
)

DATA_AND_TENSOR_ITEMS = (
    figure(
        "4.6",
        "Bubble by data-parallel size",
        Claim.EXACT,
        {f"n{n}_b{batch}": (n, batch) for n, batch in FIGURE_4_6},
        _figure_4_6_rows,
        _figure_4_6_trends,
        _draw_figure_4_6,
        small=CaseOptions(("n32_b32",)),
        basis=Basis.FORMULA,
        because="The figure's own n and b' are not in the text; published values are its formula, "
        "(n - d) / b'.",
    ),
    Item(
        "dissertation_section4_3_2",
        SOURCE,
        "Sec. 4.3.2",
        "Bubble by tensor-parallel size",
        Claim.EXACT,
        {f"t{t}": t for t in _powers_of_two(TENSOR_GPUS)},
        _tensor_rows,
        small=CaseOptions(("t8",)),
        basis=Basis.FORMULA,
        because="The text has no values; published are its formula, (n / t - 1) / m.",
    ),
)
