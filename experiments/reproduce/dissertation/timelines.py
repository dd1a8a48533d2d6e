"""Fig. 2.3, 3.3, 4.3 and 4.4: GPipe, PipeDream-Flush and interleaved 1F1B, drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from experiments.reproduce.dissertation.bubbles import bubble_over_ideal
from experiments.reproduce.item import CaseOptions, Claim, Item, Row, Trend, cases_in, chosen_cases
from placements.shapes import loop_shape, v_shape
from schedsearch.baselines import gpipe, interleaved_one_f_one_b, one_f_one_b
from schedsearch.figures.comparison import draw_timelines
from schedsearch.metrics import peak_memory
from schedsearch.schedule import Schedule

MAKESPAN, BUBBLE, STASHES = "makespan_ticks", "bubble_over_ideal", "activation_stashes"

CHUNKS = 2

_TITLES = {
    "gpipe": "GPipe",
    "pipedream_flush": "PipeDream-Flush",
    "one_f_one_b": "1F1B",
    "interleaved": "interleaved 1F1B",
}


def _pipeline(make: Callable[..., Schedule], num_devices: int, num_micro_batches: int) -> Schedule:
    """Return a schedule of stages that take 2 ticks forward and 4 backward: two chunks of 1 and 2."""
    return make(v_shape(num_devices, forward_time=CHUNKS, backward_time=2 * CHUNKS), num_micro_batches)


def _interleaved(num_devices: int, num_micro_batches: int) -> Schedule:
    placement = loop_shape(num_devices, CHUNKS, forward_time=1, backward_time=2)
    return interleaved_one_f_one_b(placement, num_micro_batches)


_FIGURES: Mapping[str, Mapping[str, tuple[Callable[[], Schedule], int, int, int]]] = {
    "2.3": {"gpipe": (partial(_pipeline, gpipe, 4, 4), 4, 4, 1)},
    "3.3": {
        "gpipe": (partial(_pipeline, gpipe, 2, 4), 2, 4, 1),
        "pipedream_flush": (partial(_pipeline, one_f_one_b, 2, 4), 2, 4, 1),
    },
    "4.3": {"gpipe": (partial(_pipeline, gpipe, 4, 8), 4, 8, 1)},
    "4.4": {
        "one_f_one_b": (partial(_pipeline, one_f_one_b, 4, 8), 4, 8, 1),
        "interleaved": (partial(_interleaved, 4, 8), 4, 8, CHUNKS),
    },
}
"""For each figure its schedules, with devices, micro-batches and chunks of each device."""


def _rows(number: str, _: CaseOptions, case: str) -> list[Row]:
    make, p, m, chunks = _FIGURES[number][case]
    schedule = make()
    ideal = 3 * CHUNKS * m
    whole = ideal + 3 * CHUNKS * (p - 1) / chunks
    return [
        Row(
            case, case, MAKESPAN, schedule.makespan, whole, 0, note="published: (m + (p - 1) / v) (t_f + t_b)"
        ),
        Row(case, _TITLES[case], BUBBLE, bubble_over_ideal(schedule), (p - 1) / (chunks * m)),
        Row(case, _TITLES[case], STASHES, float(peak_memory(schedule).max()) / chunks),
    ]


def _cases(number: str, options: CaseOptions) -> list[str]:
    return chosen_cases(list(_FIGURES[number]), options.only)


def _trends(rows: Sequence[Row]) -> list[Trend]:
    """Return what the figures show beside each other, where there are two schedules."""
    found = {(row.case, row.metric): row.ours or 0.0 for row in rows}
    cases = cases_in(rows)
    if len(cases) < 2:
        return []
    first, second = cases
    if second == "pipedream_flush":
        return [
            Trend(
                "PipeDream-Flush takes as long as GPipe, with fewer activations",
                found[first, MAKESPAN] == found[second, MAKESPAN]
                and found[second, STASHES] < found[first, STASHES],
                f"{found[second, STASHES]:g} instead of {found[first, STASHES]:g}",
            )
        ]
    return [
        Trend(
            "the flush comes sooner with interleaving",
            found[second, MAKESPAN] < found[first, MAKESPAN],
            f"after {found[second, MAKESPAN]:g} instead of {found[first, MAKESPAN]:g} ticks",
        )
    ]


def _draw(number: str, rows: Sequence[Row]) -> Any:
    drawn = cases_in(rows)
    return draw_timelines({_TITLES[name]: _FIGURES[number][name][0]() for name in drawn})


def _item(number: str, title: str) -> Item:
    return Item(
        f"dissertation_figure{number.replace('.', '_')}",
        f"Narayanan's dissertation, Fig. {number}",
        title,
        Claim.EXACT,
        CaseOptions,
        CaseOptions(),
        partial(_cases, number),
        partial(_rows, number),
        _trends,
        partial(_draw, number),
        because=(
            "The figure prints no values; published are the text's formulas. "
            "A tick, half a forward, is drawn as 1 ms."
        ),
    )


TIMELINE_ITEMS = (
    _item("2.3", "GPipe with four workers"),
    _item("3.3", "GPipe and PipeDream-Flush with two stages"),
    _item("4.3", "GPipe with four devices and eight micro-batches"),
    _item("4.4", "1F1B and interleaved 1F1B"),
)
