"""The lines of a search, in ms, percent and units of memory, by hand from a case of unlike units."""

from __future__ import annotations

from dataclasses import replace

from quarter_ms import RESULT, SCHEDULE

from experiments.search.problem import unit_in_words
from experiments.search.search_step import figures
from schedsearch.core.answer import EndedBy

UNIT = "units of 512 MiB"


def test_lines_of_a_search_are_in_ms_with_their_bounds() -> None:
    """Bounds of 34, 90, 94 and 90 ticks of 0.25 ms; a period of 80 ticks for two micro-batches."""
    found = dict(figures(SCHEDULE, RESULT, UNIT))
    for name, *parts in (
        ("period", "10 ms per micro-batch", "not proved", "bound 8.5 ms", f"{1 - 112 / 160:.1%}"),
        ("span", "24.5 ms", "bound 22.5 ms"),
        ("makespan", "24.5 ms", "not proved", "bound 23.5 ms"),
        ("device span", "24.5 ms", "bound 22.5 ms"),
        ("bubble", "42.9%"),
        ("peak memory", "6, 4 of 8, 5 units of 512 MiB"),
        ("search", "1.50 s"),
    ):
        assert all(part in found[name] for part in parts), f"{name}: {found[name]} has not all of {parts}"
    assert "cut" not in found
    cut = dict(figures(SCHEDULE, replace(RESULT, ended_by=EndedBy.TIME_LIMIT), UNIT))
    assert "time limit" in cut["cut"]


def test_memory_is_in_the_unit_of_the_placement() -> None:
    for unit_mib, text in (
        (512.0, "6, 4 of 8, 5 units of 512 MiB"),
        (1.0, "6, 4 of 8, 5 MiB"),
        (None, "6, 4 of 8, 5 units of the placement"),
    ):
        found = dict(figures(SCHEDULE, None, unit_in_words(unit_mib)))
        assert found["peak memory"] == text
    assert found["makespan"] == "24.5 ms"
