"""The lines of a search, in ms, percent and units of memory, by hand from a case of unlike units."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from quarter_ms import RESULT, SCHEDULE

from experiments.search.search_step import beside_hand_made, figures, made_by_hand
from placements.shapes import v_shape
from schedsearch.core.answer import EndedBy


def test_lines_of_a_search_are_in_ms_with_their_bounds() -> None:
    """Bounds of 34, 90, 94 and 90 ticks of 0.25 ms; a period of 80 ticks for two micro-batches."""
    lines = dict(figures(SCHEDULE, RESULT))
    for name, *parts in (
        ("repetend", "10 ms per micro-batch", "not proved", "bound 8.5 ms", f"{1 - 112 / 160:.1%}"),
        ("span", "24.5 ms", "bound 22.5 ms"),
        ("makespan", "24.5 ms", "not proved", "bound 23.5 ms"),
        ("device span", "24.5 ms", "bound 22.5 ms"),
        ("bubble", "42.9%"),
        ("peak memory", "3,072, 2,048 of 4,096, 2,560 MiB"),
        ("search", "1.50 s"),
    ):
        assert all(part in lines[name] for part in parts), f"{name}: {lines[name]} has not all of {parts}"
    assert "cut" not in lines
    cut = dict(figures(SCHEDULE, replace(RESULT, ended_by=EndedBy.TIME_LIMIT)))
    assert "time limit" in cut["cut"]


def test_memory_is_in_the_unit_of_the_placement() -> None:
    for unit_mib, text in (
        (512.0, "3,072, 2,048 of 4,096, 2,560 MiB"),
        (0.5, "3, 2 of 4, 2 MiB"),
        (None, "6, 4 of 8, 5 units of the placement"),
    ):
        placement = replace(SCHEDULE.placement, memory_unit_mib=unit_mib)
        lines = dict(figures(replace(SCHEDULE, placement=placement), None))
        assert lines["peak memory"] == text
    assert lines["makespan"] == "24.5 ms"


def test_a_period_is_the_schedules_own_and_the_repetends_has_its_own_line() -> None:
    lines = dict(figures(SCHEDULE, RESULT))
    assert lines["repetend"].startswith("10 ms per micro-batch: not proved")
    assert lines["period"] == "none, as no pattern repeats"


def test_a_searched_schedule_stands_beside_those_by_hand_that_fit() -> None:
    placement = replace(v_shape(4).with_memory(4), memory_unit_mib=1.0)
    problem: Any = SimpleNamespace(placement=placement, batch=None)
    made = made_by_hand(problem, 8)
    assert list(made) == ["one_f_one_b"], "GPipe needs eight"
    title, searched, best, last = beside_hand_made(made["one_f_one_b"], made)
    assert title.split()[-3:] == ["bubble", "peak", "memory"]
    assert searched.split()[2:] == best.split()[1:] == ["44", "ms", "27.3%", "4", "MiB"]
    assert last == "the schedule takes as long as one_f_one_b, the best by hand that fits (44 ms and 4 MiB)"
