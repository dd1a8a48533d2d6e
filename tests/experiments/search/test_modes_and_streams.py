"""Commands with a placement of modes or streams: a search, or one line that says what cannot take them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import refusal
from modes_and_streams import communicated, communicating, offloaded, offloading, recomputed, recomputing

from experiments.search.profile_reading import CostSource
from experiments.search.report import schedule_sections
from experiments.search.results import SearchStepResult
from experiments.search.search_step import figures
from placements import Placement, PlacementError
from placements.files import write_json, write_text
from placements.placement_file import placement_to_yaml
from schedsearch.energy import instance_graph
from schedsearch.modulo.search import search
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import read_schedule, schedule_to_dict
from schedsearch.searches.methods import SearchRequest, find
from schedsearch.simulation.iterations import simulate

NAMES = {
    "recomputing": "recomputing has modes of B0, B1, F0, F1, which",
    "communicating": "communicating has the stream communication, which",
    "offloading": "offloading has modes of I0, O0 and the streams copy_in, copy_out, which",
}

each_placement = pytest.mark.parametrize(
    "placement", [recomputing(), communicating(), offloading()], ids=lambda placement: placement.name
)


def options_for(placement: Placement, folder: Path) -> list[str]:
    path = folder / "placement.yaml"
    write_text(path, placement_to_yaml(placement))
    return ["placement=file", f"placement.path={path}", "search.num_micro_batches=2"]


@each_placement
@pytest.mark.parametrize(
    ("command", "more", "message"),
    [
        ("frontier", [], "schedsearch frontier cannot take yet; use schedsearch search, or leave them out"),
        ("run", [], "schedsearch run cannot take yet; use schedsearch search"),
        ("profile", [], "schedsearch profile cannot take yet; give the times of its blocks by hand"),
        (
            "search",
            ["search.method=tessel"],
            "search.method=tessel cannot take yet; use search.method=",
        ),
    ],
)
def test_what_cannot_take_them_says_so(
    placement: Placement, command: str, more: list[str], message: str, tmp_path: Path
) -> None:
    error = refusal(command, [*options_for(placement, tmp_path), *more], tmp_path / "out")
    assert error.startswith(NAMES[placement.name]) and message in error


@pytest.mark.parametrize(
    ("placement", "period"), [(recomputing(), 6), (communicating(), 9), (offloading(), 10)]
)
def test_a_period_with_modes_or_streams_is_proved_again(
    command, placement: Placement, period: int, tmp_path: Path
) -> None:
    done = command("search", *options_for(placement, tmp_path), "search.work_limit=2.5")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out" / "schedule.json").read_text())["certificate"]
    checked = command("check", f"schedule={tmp_path / 'out' / 'schedule.json'}")
    assert f"period proved: {period} ms per micro-batch is the least" in checked.stdout, checked.stderr


def test_a_check_knows_a_schedule_whose_streams_are_slow_alone(tmp_path: Path) -> None:
    path, schedule = tmp_path / "schedule.json", offloaded(1.5)
    write_json(path, schedule_to_dict(schedule))
    error = refusal("check", [f"schedule={path}"], tmp_path / "out")
    assert f"the schedule is valid and ends at {schedule.makespan} ms; " in error
    assert "bounds where streams slow each other down cannot be checked" in error


def test_a_schedule_by_hand_chooses_modes_as_people_do_and_knows_no_streams(command, tmp_path: Path) -> None:
    by_hand = "schedule=one_f_one_b"
    done = command("search", *options_for(recomputing(), tmp_path), by_hand)
    assert done.returncode == 0, done.stderr
    assert read_schedule(tmp_path / "out" / "schedule.json").chosen
    error = refusal("search", [*options_for(communicating(), tmp_path), by_hand], tmp_path / "other")
    assert "schedule=one_f_one_b cannot take yet; use schedule=searched" in error


def test_a_search_of_modes_is_no_worse_than_what_it_begins_with(command, tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    write_json(path, schedule_to_dict(recomputed()))
    options = [*options_for(recomputing(), tmp_path), f"search.begin_with={path}", "search.work_limit=1"]
    done = command("search", *options)
    assert done.returncode == 0, done.stderr
    assert read_schedule(tmp_path / "out" / "schedule.json").makespan <= recomputed().makespan


def test_a_profile_has_no_times_of_modes(tmp_path: Path) -> None:
    rows = [f"{stage},{what},1000,0.1,1" for stage in (0, 1) for what in ("forward", "backward")]
    profile = tmp_path / "profile.csv"
    write_text(profile, "\n".join(["stage,instruction,frequency,time,energy", *rows]) + "\n")
    options = [*options_for(recomputing(), tmp_path), f"profile.path={profile}"]
    assert "profile.path: a profile has no times of modes" in refusal("search", options, tmp_path / "out")


@pytest.mark.parametrize("schedule", [recomputed(), communicated(), offloaded()])
def test_functions_refuse_likewise(schedule: Schedule) -> None:
    name = schedule.placement.name
    for refused in (
        lambda: simulate(schedule),
        lambda: instance_graph(schedule),
        lambda: find(SearchRequest(schedule.placement, 2, method="time_optimal")),
    ):
        with pytest.raises(PlacementError) as error:
            refused()
        assert str(error.value).startswith(NAMES[name]) and "\n" not in str(error.value)


def test_the_lines_of_a_search_say_how_often_each_mode_is_chosen() -> None:
    lines = dict(figures(recomputed(), None, ""))
    assert lines["modes"] == "3 keep, 1 recompute, for 2 decisions in each of 2 micro-batches"
    assert "host memory" not in lines
    lines = dict(figures(offloaded(), None, "MiB"))
    assert lines["modes"] == "2 keep, 1 offload, for 1 decision in each of 3 micro-batches"
    assert lines["peak memory"] == "8 of 12 MiB" and lines["host memory"] == "4 of 40 MiB"
    assert "modes" not in dict(figures(communicated(), None, ""))


def test_the_report_has_the_modes_of_each_decision_and_the_hosts() -> None:
    def sections(schedule: Schedule) -> dict[str, list[str]]:
        costs = CostSource("by hand", "none", "none", False)
        found = SearchStepResult(schedule.placement, None, schedule, None, costs, "MiB")
        facts = {section.title: section.facts for section in schedule_sections(found)}
        return {title: [f"{fact.label}: {fact.value}" for fact in each] for title, each in facts.items()}

    assert sections(recomputed())["Modes"] == ["F0, B0: 1 keep, 1 recompute", "F1, B1: 2 keep, 0 recompute"]
    assert sections(offloaded())["Memory"] == ["Device 0: 8 of 12 MiB", "Host of device 0: 4 of 40 MiB"]
    assert "Modes" not in sections(communicated())


def test_a_search_decides_the_modes_and_proves_the_period() -> None:
    result = search(recomputing(), 4, work_limit=200)
    assert result.proved.startswith("period")
    assert result.schedule is not None and len(result.schedule.chosen) == 4
