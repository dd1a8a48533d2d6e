"""`experiments.replan`: its table, its schedules, and refused input."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from commands import refusal

from schedsearch.schedule_file import read_schedule
from schedsearch.validate import validate

USUAL = [
    *("placement=v_shape", "placement.num_devices=3", "placement.split_backward=true"),
    *("search.num_micro_batches=4", "replicas=3", "search.work_limit=0.3"),
]


@pytest.mark.always
def test_a_lost_device_has_a_table_of_ways_and_their_schedules(ran, tmp_path: Path) -> None:
    done = ran("replan", *USUAL, "lost=[1@2]", "objective=makespan", "schedule=zb_h1")
    out = tmp_path / "out"
    text = (out / "replan.csv").read_text().splitlines()
    assert text[0] == "way,iteration_ms,throughput,bound_ms,status"
    rows = {row["way"]: row for row in csv.DictReader(text)}
    assert list(rows) == ["before", "unchanged", "reordered", "rule", "rerouted", "restaged", "dropped"]
    assert rows["unchanged"]["iteration_ms"] == ""
    assert rows["dropped"]["status"] == "micro-batches 6, 6"
    assert float(rows["rerouted"]["bound_ms"]) <= float(rows["rerouted"]["iteration_ms"])
    assert float(rows["rerouted"]["iteration_ms"]) <= float(rows["rule"]["iteration_ms"])
    schedule = validate(read_schedule(out / "rerouted.json"))
    assert schedule.placement.ms(schedule.makespan) <= float(rows["rerouted"]["iteration_ms"])
    assert schedule.num_micro_batches == 12
    assert all(chosen[1] != 2 for chosen in schedule.chosen)
    assert "unchanged: not possible; a device is lost" in done.stdout


def test_slow_devices_and_links_take_longer(ran, tmp_path: Path) -> None:
    ran("replan", *USUAL, "slow=[1@0:2,0@1-1@1:3]")
    text = (tmp_path / "out/replan.csv").read_text()
    ways = {row["way"]: float(row["iteration_ms"]) for row in csv.DictReader(text.splitlines())}
    assert ways["before"] < ways["rerouted"] <= ways["rule"] < ways["unchanged"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([], "lost: names no device, and slow neither; give one of them"),
        (["lost=[3@0]"], "lost: 3@0 is not there; devices are 0 to 2, copies 0 to 2"),
        (["lost=[F1]"], "lost: 'F1' is not a copy of a device; write 1@2"),
        (["slow=[1@0]"], "slow: '1@0' does not say how slow; write 1@2:1.5"),
        (["slow=[1@0:0.5]"], "slow: 0.5 for (1, 0) is less than 1"),
        (["lost=[1@0]", "placement=m_shape"], "m_shape has block"),
    ],
)
def test_what_is_refused(overrides: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    usual = [option for option in USUAL if "m_shape" not in str(overrides) or "split" not in option]
    assert refusal("replan", [*usual, *overrides], tmp_path / "out").startswith(message)
