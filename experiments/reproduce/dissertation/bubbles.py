"""Idle time of pipelines: Fig. 4.6, Sec. 4.3.2 and the schemes of Table 7.1, from schedules themselves.

The bubble is idle time over the time of computing, not over the whole iteration, as in the dissertation. Ours
is that of a schedule that is made and simulated; published is the formula that is printed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from experiments.reproduce.item import CaseOptions, Claim, Item, Row, Trend, cases_in, chosen_cases
from placements import Placement
from placements.shapes import loop_shape, v_shape
from schedsearch.baselines import gpipe, interleaved_one_f_one_b, one_f_one_b
from schedsearch.figures.panels import Panel, Point, draw_panels
from schedsearch.metrics import bubble_rate, peak_memory
from schedsearch.schedule import Schedule

BUBBLE, STASHES = "bubble_over_ideal", "activation_stashes"

FIGURE_4_6 = ((32, 32), (32, 128), (128, 128), (128, 512))
"""GPUs n and batch over micro-batch size b' of its curves."""

_CURVES = {f"n{n}_b{batch}": (n, batch) for n, batch in FIGURE_4_6}

TENSOR_GPUS, TENSOR_MICRO_BATCHES = 64, 64
"""Of Sec. 4.3.2, which names none."""

SCHEMES = ((4, 8), (8, 32))
"""Stages and micro-batches for which Table 7.1's formulas are held against schedules."""

CHUNKS = 2


def bubble_over_ideal(schedule: Schedule) -> float:
    """Return idle time over the time of computing (Sec. 4.2.2).

    >>> round(bubble_over_ideal(one_f_one_b(v_shape(4), 8)), 12)  # (p - 1) / m
    0.375
    """
    rate = bubble_rate(schedule)
    return rate / (1 - rate)


def _powers_of_two(most: int) -> list[int]:
    return [2**i for i in range(most.bit_length()) if 2**i <= most]


def _figure_4_6_cases(options: CaseOptions) -> list[str]:
    return chosen_cases(list(_CURVES), options.only)


def _figure_4_6_rows(_: CaseOptions, case: str) -> list[Row]:
    """Return a row for each data-parallel size d: p = n / d stages run b' / d micro-batches."""
    n, batch = _CURVES[case]
    rows = []
    for d in _powers_of_two(min(n, batch)):
        schedule = one_f_one_b(v_shape(n // d), batch // d)
        rows.append(Row(case, f"d={d}", BUBBLE, bubble_over_ideal(schedule), (n - d) / batch))
    return rows


def _figure_4_6_trends(rows: Sequence[Row]) -> list[Trend]:
    curves = [[row.ours or 0.0 for row in rows if row.case == case] for case in cases_in(rows)]
    falling = [all(b < a for a, b in itertools.pairwise(curve)) for curve in curves]
    return [
        Trend("the bubble shrinks with more data parallelism", all(falling), f"on all {len(falling)} curves")
    ]


def _draw_figure_4_6(rows: Sequence[Row]) -> Any:
    curves = {
        "n = {}, b' = {}".format(*_CURVES[case]): [
            Point(float(row.label[2:]), row.ours or 0.0) for row in rows if row.case == case
        ]
        for case in cases_in(rows)
    }
    return draw_panels(
        [Panel("1F1B", curves)], "data-parallel size d", "idle time / computing", "Size of the bubble"
    )


def _tensor_cases(options: CaseOptions) -> list[str]:
    return chosen_cases([f"t{t}" for t in _powers_of_two(TENSOR_GPUS)], options.only)


def _tensor_rows(_: CaseOptions, case: str) -> list[Row]:
    t = int(case[1:])
    schedule = one_f_one_b(v_shape(TENSOR_GPUS // t), TENSOR_MICRO_BATCHES)
    published = (TENSOR_GPUS / t - 1) / TENSOR_MICRO_BATCHES
    return [Row(case, f"n={TENSOR_GPUS}, t={t}", BUBBLE, bubble_over_ideal(schedule), published)]


_MAKERS: dict[str, tuple[Callable[[Placement, int], Schedule], int]] = {
    "gpipe": (gpipe, 1),
    "pipedream_flush": (one_f_one_b, 1),
    "interleaved": (interleaved_one_f_one_b, CHUNKS),
}


def _scheme_cases(options: CaseOptions) -> list[str]:
    return chosen_cases(list(_MAKERS), options.only)


def _scheme_rows(_: CaseOptions, case: str) -> list[Row]:
    make, chunks = _MAKERS[case]
    rows = []
    for p, m in SCHEMES:
        placement = v_shape(p) if chunks == 1 else loop_shape(p, chunks)
        schedule = make(placement, m)
        stashes = float(peak_memory(schedule).max()) / chunks
        exact = chunks == 1
        note = (
            ""
            if exact
            else "the first device holds p + (p - 1) / v stages' activations; the table rounds to p"
        )
        rows += [
            Row(case, f"p={p}, m={m}", BUBBLE, bubble_over_ideal(schedule), (p - 1) / (chunks * m)),
            Row(
                case,
                f"p={p}, m={m}",
                STASHES,
                stashes,
                m if case == "gpipe" else p,
                note=note,
                claim=None if exact else Claim.TREND,
            ),
        ]
    return rows


def _scheme_trends(rows: Sequence[Row]) -> list[Trend]:
    held = {row.case: row.ours or 0.0 for row in rows if row.metric == STASHES}
    return [
        Trend(
            "1F1B holds fewer activations than GPipe",
            all(value < held["gpipe"] for case, value in held.items() if case != "gpipe")
            if "gpipe" in held
            else True,
            ", ".join(f"{case} {value:g}" for case, value in held.items()),
        )
    ]


FIGURE_4_6_ITEM = Item(
    "dissertation_figure4_6",
    "Narayanan's dissertation, Fig. 4.6",
    "Bubble by data-parallel size",
    Claim.EXACT,
    CaseOptions,
    CaseOptions(only=("n32_b32",)),
    _figure_4_6_cases,
    _figure_4_6_rows,
    _figure_4_6_trends,
    _draw_figure_4_6,
    because="The figure's own n and b' are not in the text; published values are its formula, (n - d) / b'.",
)

TENSOR_ITEM = Item(
    "dissertation_section4_3_2",
    "Narayanan's dissertation, Sec. 4.3.2",
    "Bubble by tensor-parallel size",
    Claim.EXACT,
    CaseOptions,
    CaseOptions(only=("t8",)),
    _tensor_cases,
    _tensor_rows,
    because="The text has no values; published are its formula, (n / t - 1) / m.",
)

TABLE_7_1_ITEM = Item(
    "dissertation_table7_1",
    "Narayanan's dissertation, Tables 1.1 and 7.1",
    "Bubbles and activations of pipelining schemes",
    Claim.EXACT,
    CaseOptions,
    CaseOptions(),
    _scheme_cases,
    _scheme_rows,
    _scheme_trends,
    because=(
        "Published values are the tables' formulas. Schemes without a flush repeat for ever, and are left "
        "out. An interleaved schedule holds somewhat more than the table says."
    ),
)
