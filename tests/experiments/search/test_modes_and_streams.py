"""Commands with a placement of modes or streams: a search, or one line about the option against it."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from commands import refusal
from modes_and_streams import (
    communicated,
    communicating,
    offloaded,
    offloading,
    options_for,
    recomputed,
    recomputing,
)
from one_line_errors import raises_line

from experiments.search.profile_reading import CostSource
from experiments.search.report import schedule_page
from experiments.search.results import SearchStepResult
from experiments.search.search_step import figures
from placements import Placement, PlacementError, Profile
from placements.forms.texts import write_json, write_text
from schedsearch.core.problem import Problem
from schedsearch.energy import Frontier, simulate_at_clocks
from schedsearch.schedule_file import read_schedule, schedule_to_dict
from schedsearch.searches.search import find

NAMES = {
    "recomputing": "recomputing has modes of B0, B1, F0, F1, which",
    "communicating": "communicating has the stream communication, which",
    "offloading": "offloading has modes of I0, O0 and the streams copy_in, copy_out, which",
}

each_placement = pytest.mark.parametrize(
    "placement", [recomputing(), communicating(), offloading()], ids=lambda placement: placement.name
)


@each_placement
def test_tessel_says_that_it_cannot_take_them(placement: Placement, tmp_path: Path) -> None:
    options = [*options_for(placement, tmp_path, 2), "search.method=tessel"]
    error = refusal("search", options, tmp_path / "out")
    assert error.startswith(NAMES[placement.name])
    assert "search.method=tessel cannot take yet; use search.method=" in error


@pytest.mark.parametrize(
    ("command", "placement", "more", "message"),
    [
        ("frontier", offloading(1.5), [], "slowdown: streams of offloading slow each other down"),
        ("frontier", recomputing(), ["energy.periodic=1"], f"{NAMES['recomputing']} energy.periodic cannot"),
        ("frontier", communicating(), ["energy.dwell_ms=1"], f"{NAMES['communicating']} energy.dwell_ms and"),
        ("run", communicating(), [], "blocks (mlp).stream: is 'compute', and 'communication' for dispatch"),
        ("run", offloading(), [], "blocks (O0).stream: 'copy_out' cannot be run yet; leave the copies out"),
    ],
)
def test_what_cannot_take_them_says_so(
    command: str, placement: Placement, more: list[str], message: str, tmp_path: Path
) -> None:
    error = refusal(command, [*options_for(placement, tmp_path, 2), *more], tmp_path / "out")
    assert error.startswith(message)


@pytest.mark.parametrize(
    ("placement", "period"), [(recomputing(), 6), (communicating(), 9), (offloading(), 10)]
)
def test_a_period_with_modes_or_streams_is_proved_again(
    command, ran, placement: Placement, period: int, tmp_path: Path
) -> None:
    ran("search", *options_for(placement, tmp_path, 2), "search.work_limit=2.5")
    assert json.loads((tmp_path / "out" / "schedule.json").read_text())["certificate"]
    checked = command("check", f"schedule={tmp_path / 'out' / 'schedule.json'}")
    assert f"period proved: {period} ms per micro-batch is the least" in checked.stdout, checked.stderr


def test_a_check_knows_a_schedule_whose_streams_are_slow_alone(tmp_path: Path) -> None:
    path, schedule = tmp_path / "schedule.json", offloaded(1.5)
    write_json(path, schedule_to_dict(schedule))
    error = refusal("check", [f"schedule={path}"], tmp_path / "out")
    assert f"the schedule is valid and ends at {schedule.makespan} ms; " in error
    assert "bounds where streams slow each other down cannot be checked" in error


def test_a_schedule_by_hand_chooses_modes_as_people_do_and_knows_no_streams(ran, tmp_path: Path) -> None:
    by_hand = "schedule=one_f_one_b"
    ran("search", *options_for(recomputing(), tmp_path, 2), by_hand)
    assert read_schedule(tmp_path / "out" / "schedule.json").chosen
    error = refusal("search", [*options_for(communicating(), tmp_path, 2), by_hand], tmp_path / "other")
    assert "schedule=one_f_one_b cannot take yet; use schedule=searched" in error


def test_a_search_of_modes_is_no_worse_than_what_it_begins_with(ran, tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    write_json(path, schedule_to_dict(recomputed()))
    options = [*options_for(recomputing(), tmp_path, 2), f"search.begin_with={path}", "search.work_limit=1"]
    ran("search", *options)
    assert read_schedule(tmp_path / "out" / "schedule.json").makespan <= recomputed().makespan


def profile_of_stages(path: Path, more: tuple[str, ...] = ()) -> str:
    """Write a profile of forwards of 0.02 s and backwards of 0.04 s at two clocks; return the option."""
    rows = [
        f"{kind}{stage},{mhz},{time_s * 1200 / mhz},{time_s * power_w}"
        for stage in (0, 1)
        for kind, time_s in (("F", 0.02), ("B", 0.04))
        for mhz, power_w in ((900, 250), (1200, 300))
    ]
    write_text(path, "\n".join(["block,frequency,time,energy", *rows, *more]) + "\n")
    return f"profile.path={path}"


def test_a_search_takes_the_times_of_modes_from_a_profile(ran, tmp_path: Path) -> None:
    row = "B1@recompute,1200,0.055,16"
    options = [*options_for(recomputing(), tmp_path, 2), profile_of_stages(tmp_path / "profile.csv", (row,))]
    ran("search", *options, "search.work_limit=1")
    placement = read_schedule(tmp_path / "out" / "schedule.json").placement
    times_ms = {name: placement.ms(block.time) for name, block in placement.runs.items()}
    assert times_ms["B0"] == pytest.approx(40) and times_ms["F1@recompute"] == pytest.approx(20)
    assert times_ms["B0@recompute"] == pytest.approx(20 + 40), "a forward and a backward"
    assert times_ms["B1@recompute"] == pytest.approx(55), "as its own row says"


def test_a_frontier_of_modes_and_what_it_writes(ran, tmp_path: Path) -> None:
    placement = replace(recomputing(), memory=(12, 12))
    options = [*options_for(placement, tmp_path, 2), profile_of_stages(tmp_path / "profile.csv")]
    out = tmp_path / "out"
    done = ran(
        "frontier", *options, "energy.num_plans=10", "search.work_limit=1", "energy.orders=8", draws=True
    )
    schedule = read_schedule(out / "schedule.json")
    assert schedule.chosen
    frontier = Frontier.from_json(out / "frontier.json")
    profile = Profile.from_csv(out / "profile.csv", blocking_power_w=frontier.blocking_power_w)
    assert {"B0", "B0@recompute"} <= profile.points.keys()
    for plan in frontier.plans:
        again = simulate_at_clocks(schedule, profile, plan.clock_mhz)
        assert (again.time_ms, again.energy_mj) == pytest.approx((plan.time_ms, plan.energy_mj), rel=1e-6)
    rows = list(csv.DictReader((out / "frequencies.csv").read_text().splitlines()))
    modes = {(row["block"], int(row["micro_batch"])): row["mode"] for row in rows}
    assert modes == {(name, n): schedule.mode(name, n) for name, n in schedule.start_of}
    assert "no order" in done.stdout


@pytest.mark.parametrize("placement", [communicating(), offloading()], ids=lambda placement: placement.name)
def test_a_frontier_of_streams(placement: Placement, ran, tmp_path: Path) -> None:
    options = [*options_for(placement, tmp_path, 2), "energy.num_plans=10", "search.work_limit=1"]
    ran("frontier", *options)
    plans = Frontier.from_json(tmp_path / "out" / "frontier.json").plans
    assert plans[-1].time_ms > plans[0].time_ms and all(plan.gap < 0.1 for plan in plans)


@each_placement
def test_a_search_for_the_least_time_refuses_likewise(placement: Placement) -> None:
    with raises_line(PlacementError, NAMES[placement.name]):
        find(Problem(placement, 2, method="time_optimal"))


def test_the_lines_of_a_search_say_how_often_each_mode_is_chosen() -> None:
    lines = dict(figures(recomputed(), None))
    assert lines["modes"] == "3 keep, 1 recompute, for 2 decisions in each of 2 micro-batches"
    assert "host memory" not in lines
    lines = dict(figures(offloaded(), None))
    assert lines["modes"] == "2 keep, 1 offload, for 1 decision in each of 3 micro-batches"
    assert lines["peak memory"][:8] == "8 of 12 " and lines["host memory"][:8] == "4 of 40 "
    assert "modes" not in dict(figures(communicated(), None))


def test_the_report_has_the_memory_of_hosts() -> None:
    costs = CostSource("by hand", "none", "none", False)
    result = SearchStepResult(offloaded().placement, None, offloaded(), None, costs, "MiB")
    page = schedule_page(result, ())
    assert "8 of 12 units" in page and "4 of 40 units" in page and "Host memory" in page
