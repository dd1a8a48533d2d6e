"""The examples of the playground: valid, as good as they say, and what a search finds again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from docs.playground_data import EXAMPLES, FILE, Example, from_script, page_data, solve, to_script
from schedsearch.metrics import peak_memory
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import schedule_from_dict, schedule_to_dict

MOST_BYTES = 120_000

KEPT = {row["title"]: row["schedules"] for row in from_script(FILE.read_text(encoding="utf-8"))}


def searched(example: Example) -> dict[str, Any]:
    kept: dict[str, Any] = KEPT[example.title]["searched"]
    return kept


def schedule_of(example: Example, row: dict[str, Any]) -> Schedule:
    """Return the schedule of a row, valid without the limit of memory, which some by hand do not keep."""
    placement = {key: value for key, value in row["placement"].items() if key != "memory"}
    return schedule_from_dict(row | {"placement": placement}).under(example.placement())


def test_the_file_is_small_and_what_the_script_would_write() -> None:
    assert FILE.stat().st_size < MOST_BYTES
    assert to_script(page_data(searched)) == FILE.read_text(encoding="utf-8")


def test_every_example_is_valid_and_no_schedule_by_hand_that_fits_is_shorter() -> None:
    for example in EXAMPLES:
        best = searched(example)
        for row in KEPT[example.title].values():
            schedule = schedule_of(example, row)
            whole, names = json.loads(json.dumps(schedule_to_dict(schedule))), row.keys() - {"makespan_bound"}
            assert {name: whole[name] for name in names} == {name: row[name] for name in names}
            if peak_memory(schedule).max() <= example.memory:
                assert schedule.makespan >= best["makespan"] >= best["makespan_bound"]
        assert peak_memory(schedule_of(example, best)).max() <= example.memory


def test_it_opens_where_the_search_saves_15_percent() -> None:
    first, *by_hand = (row["makespan"] for row in KEPT[EXAMPLES[0].title].values())
    assert first == searched(EXAMPLES[0])["makespan_bound"] and first / min(by_hand) == pytest.approx(
        0.844, abs=1e-3
    )


@pytest.mark.parametrize("number", [1, 3])
def test_a_search_again_finds_the_same_makespan(number: int) -> None:
    """Where the makespan is proved, whatever time a busy machine needs for that."""
    again, kept = solve(EXAMPLES[number]), searched(EXAMPLES[number])
    assert kept["makespan"] == kept["makespan_bound"]
    assert (again["makespan"], again["makespan_bound"]) == (kept["makespan"], kept["makespan_bound"])
