"""Blocks are measured, and the next search and frontier take the measurement."""

import csv
import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from modes_and_streams import recomputing

from experiments.profile.task import measured, one_after_another
from placements import Placement
from placements.forms.texts import write_text
from placements.placement_file import placement_to_yaml, read_placement
from placements.shapes import v_shape
from runtime.codegen.script import read_script
from runtime.execution.measurement import Measurement
from runtime.profiling.profiler import DeviceProfile, MeasuredCost
from schedsearch.schedule_file import read_schedule
from schedsearch.validate import validate

SMALL = ["runtime.hidden_size=8", "runtime.sequence_length=8", "search.num_micro_batches=3"]


def save(placement: Placement, run: Measurement, directory: Path) -> None:
    result = measured(placement, [(one_after_another(placement.per_micro_batch, 1), run)], directory)
    result.write(directory)
    result.show(directory)


@pytest.mark.always
def test_profile_then_search(ran, tmp_path: Path) -> None:
    options = ["placement=m_shape", "placement.num_devices=2", "runtime.launcher=fork"]
    done = ran("profile", *options, "profiling.iterations=2", *SMALL)
    assert "no GPU: times at the current clock of the processor, no energy\n" in done.stdout
    output = tmp_path / "measured"
    (tmp_path / "out").rename(output)
    rows = list(csv.DictReader((output / "profile.csv").open()))
    assert [row["block"] for row in rows] == ["E", "F0", "F1", "B1", "B0", "EB"] or len(rows) == 6
    assert {row["energy"] for row in rows} == {""}, "no meter, no energy"
    placement = read_placement(output / "placement.yaml")
    for row in rows:
        ticks = placement.by_name[row["block"]].time
        assert ticks * placement.tick_ms == pytest.approx(1000 * float(row["time"]), rel=1e-5)
    facts = json.loads((output / "profile.json").read_text())
    assert (facts["energy"], facts["blocking_power_w"], facts["iterations"]) == (False, None, 3)
    options = ["placement=profiled", f"placement.path={output}", "search.work_limit=2.5"]
    ran("search", *options, "search.num_micro_batches=5")
    assert validate(read_schedule(tmp_path / "out/schedule.json")).placement == placement


def test_each_mode_is_measured_and_searched(ran, tmp_path: Path) -> None:
    write_text(tmp_path / "placement.yaml", placement_to_yaml(recomputing()))
    options = ["placement=file", f"placement.path={tmp_path / 'placement.yaml'}", "profiling.iterations=2"]
    ran("profile", *options, "runtime.launcher=in_process", *SMALL)
    output = tmp_path / "measured"
    (tmp_path / "out").rename(output)
    rows = {row["block"]: float(row["time"]) for row in csv.DictReader((output / "profile.csv").open())}
    placement = read_placement(output / "placement.yaml")
    assert rows.keys() == placement.runs.keys() and {"B0", "B0@recompute"} <= rows.keys()
    for name, block in placement.runs.items():
        assert placement.ms(block.time) == pytest.approx(1000 * rows[name], rel=1e-5)
    assert placement.decisions[0].names == ("keep", "recompute")
    again = read_script(output / "scripts_1" / "device_0.py").calls.runs
    assert {run.mode for run in again if run.block == "F0"} == {"recompute"}
    options = ["placement=profiled", f"placement.path={output}", "search.work_limit=1"]
    ran("search", *options, "search.num_micro_batches=3")
    assert read_schedule(tmp_path / "out/schedule.json").chosen


def measurement(energy: bool) -> Measurement:
    """Return the measurement of a made-up run on two GPUs with clocks."""
    profiles = []
    for device in range(2):
        costs = [
            MeasuredCost(
                f"{letter}{device}", mhz, scale * 14100 / mhz, scale * (mhz / 100) ** 2 if energy else None
            )
            for mhz in (1410, 1200, 990)
            for letter, scale in (("F", 1.0), ("B", 2.0))
        ]
        profiles.append(DeviceProfile(tuple(costs), ((1410, 55.0),) if energy else (), "made up"))
    return Measurement("nccl", (1.0,), ((1.0,),), None, {}, "none", ("a GPU", "a GPU"), tuple(profiles))


def test_waiting_by_clock_feeds_the_frontier(ran, tmp_path: Path) -> None:
    """The written files are the next command's input."""
    output = tmp_path / "measured"
    output.mkdir()
    run = measurement(energy=True)
    waits = ((1410, 80.0), (990, 50.0)), ((1410, 84.0), (990, 54.0))
    profiles = tuple(
        profile._replace(blocking_w=power_w) for profile, power_w in zip(run.profiles, waits, strict=True)
    )
    save(v_shape(2), replace(run, profiles=profiles), output)
    facts = json.loads((output / "profile.json").read_text())
    assert facts["blocking_power_w"] == {"1410": 82, "990": 52}
    small = ["search.num_micro_batches=4", "energy.num_plans=5", "energy.baselines=[]"]
    ran("frontier", "placement=profiled", f"placement.path={output}", *small)
    frontier = json.loads((tmp_path / "out/frontier.json").read_text())
    assert frontier["blocking_power_by_clock"] == {"990": 52, "1410": 82}
    assert frontier["all_maximum"]["time_ms"] == pytest.approx(4 * 30 + 30)
    assert {mhz for plan in frontier["plans"] for mhz in plan["clock_mhz"]["B0"]} <= {1410, 1200, 990}
    assert (tmp_path / "out/profile.csv").read_text() == (output / "profile.csv").read_text()


def test_optimizer_blocks_keep_their_times(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = (
        "{name: o, num_devices: 2, tick_ms: 2, blocks: [{name: F0, kind: F, devices: [0], time: 1},"
        " {name: F1, kind: F, devices: [1], time: 1, after: [F0]},"
        " {name: B1, kind: B, devices: [1], time: 1, after: [F1]},"
        " {name: B0, kind: B, devices: [0], time: 1, after: [B1]},"
        " {name: O0, kind: O, devices: [0], time: 4, after: [B0]}]}"
    )
    (tmp_path / "placement.yaml").write_text(text)
    with caplog.at_level(logging.INFO):
        save(read_placement(tmp_path / "placement.yaml"), measurement(energy=True), tmp_path)
    placement = read_placement(tmp_path / "placement.yaml")
    times = {block.name: block.time * placement.tick_ms for block in placement.blocks}
    assert times == pytest.approx({"F0": 10, "F1": 10, "B1": 20, "B0": 20, "O0": 8})
    assert (
        "not run: O0; their times stay as they are, and placement=profiled will use no measured energies"
        in caplog.text
    )
    assert json.loads((tmp_path / "profile.json").read_text())["energy"] is False


WRONG = [
    ("profile", ["profiling.iterations=0"], "profiling.iterations: 0 is not a whole number of 1 or more"),
    ("search", ["placement=profiled"], "placement.path: has no value"),
    ("search", ["placement=profiled", "placement.path=tests"], "profile.json: cannot be read"),
]


@pytest.mark.parametrize(
    ("name", "overrides", "message"), WRONG, ids=[" ".join(overrides) for _, overrides, _ in WRONG]
)
def test_wrong_input_is_one_line(name: str, overrides: list[str], message: str, refused) -> None:
    assert message in refused(name, *overrides)
