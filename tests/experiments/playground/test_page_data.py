"""The kept schedules of the playground: valid, as good as they say, and what the command finds again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from javascript import PLAYGROUND

from experiments.playground import __main__ as command
from experiments.playground.orders import in_turn, orders_to_text, schedule_from_text
from experiments.playground.page_data import page_data, read_page_data, write_page_data
from experiments.playground.problems import PlaygroundProblem, problems
from schedsearch.baselines import zb_h1
from schedsearch.metrics import bubble_rate, peak_memory
from schedsearch.validate import validate

FILE = PLAYGROUND / "schedules.js"
MOST_BYTES = 500_000
AGAIN = ("v-split", 4, 8), ("x-kept", 2, 8), ("nn-recomputed", 2, 8), ("loop-kept", 2, 8), ("k-kept", 2, 8)


def kept() -> Iterator[tuple[PlaygroundProblem, dict[str, Any]]]:
    found = {preset["name"]: preset for preset in read_page_data(FILE)["presets"]}
    for problem in problems():
        size = found[problem.preset.name]["devices"][str(problem.num_devices)]
        yield problem, size["micro_batches"][str(problem.num_micro_batches)]


def test_the_file_is_small_and_what_the_command_would_write(tmp_path: Path) -> None:
    assert FILE.stat().st_size < MOST_BYTES
    data = read_page_data(FILE)
    assert page_data(kept()) == data
    write_page_data(tmp_path / "schedules.js", data)
    assert (tmp_path / "schedules.js").read_text(encoding="utf-8") == FILE.read_text(encoding="utf-8")


def test_every_kept_schedule_is_valid_and_as_good_as_it_says() -> None:
    for problem, found in kept():
        assert found["searched"], problem
        for each in [*found["searched"], *found["hand_made"].values()]:
            placement = problem.placement.with_memory(each.get("memory"))
            schedule = schedule_from_text(placement, problem.num_micro_batches, each["orders"])
            assert (
                schedule.makespan == each["makespan"] >= each.get("bound", found["bound"]) >= found["bound"]
            )
            assert each["peak_memory"] == peak_memory(schedule).max()
            assert each["bubble_rate"] == pytest.approx(bubble_rate(schedule), abs=1e-6)


def test_none_made_by_hand_that_fits_is_shorter_than_a_searched_one() -> None:
    for problem, found in kept():
        for searched in found["searched"]:
            fits = [e for e in found["hand_made"].values() if e["peak_memory"] <= searched["memory"]]
            assert all(searched["makespan"] <= each["makespan"] for each in fits), problem


@pytest.mark.parametrize(("name", "num_devices", "number"), AGAIN)
def test_a_search_again_finds_the_same_makespan(
    name: str, num_devices: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the makespan is proved, whatever time a busy machine needs for that."""
    monkeypatch.setattr("experiments.playground.problems.TIME_LIMIT_S", 120.0)
    ((problem, found),) = (
        (problem, found)
        for problem, found in kept()
        if (problem.preset.name, problem.num_devices, problem.num_micro_batches)
        == (name, num_devices, number)
    )
    proved = next(each for each in found["searched"] if each["makespan"] == each["bound"])
    again = problem.search(proved["memory"])
    assert again is not None
    assert (again["makespan"], again["bound"]) == (proved["makespan"], proved["bound"])
    assert problem.hand_made() == found["hand_made"]


def test_orders_as_text_are_the_same_schedule() -> None:
    placement = next(p for p in problems() if p.preset.name == "v-split").placement
    schedule = zb_h1(placement, 5)
    assert validate(in_turn(schedule)) == schedule_from_text(placement, 5, orders_to_text(schedule))


def test_an_output_that_cannot_be_written_is_refused_first(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--output", "/nowhere/schedules.js"])
    assert "is not a directory" in capsys.readouterr().err
