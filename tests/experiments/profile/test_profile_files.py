"""Files and lines of a measured profile: seconds and joules in the table, ms and mJ elsewhere."""

from __future__ import annotations

import csv
import json
import logging
from pathlib import Path

import pytest
from quarter_ms import PLACEMENT

from experiments.profile.task import measured, one_after_another, with_measured_times
from placements.placement_file import read_placement
from runtime.execution.measurement import Measurement
from runtime.profiling.profiler import DeviceProfile, MeasuredCost, blocking_by_clock

FIRST = DeviceProfile(
    (
        *(MeasuredCost("F0", 1100, 2.25, 750.0), MeasuredCost("F0", 700, 3.0, 610.0)),
        *(MeasuredCost("B0", 1100, 4.0, 1270.0), MeasuredCost("B0", 700, 6.0, 1110.0)),
    ),
    ((1100, 80.0), (700, 50.0)),
    "times and energies, made up",
)
SECOND = DeviceProfile(
    (
        *(MeasuredCost("F1", 1100, 3.0, 880.0), MeasuredCost("F1", 700, 4.0, 530.0)),
        *(MeasuredCost("B1", 1100, 5.0, 1340.0), MeasuredCost("B1", 700, 6.5, 970.0)),
    ),
    ((1100, 90.0), (700, 56.0)),
    "times and energies, made up",
)

MEASUREMENT = Measurement(
    "nccl", (30.0,) * 7, (), None, {}, "set", ("a GPU", "another"), profiles=(FIRST, SECOND)
)


def test_the_power_of_waiting_is_the_mean_of_the_devices() -> None:
    assert blocking_by_clock([FIRST, SECOND]) == {1100: 85.0, 700: 53.0}


def test_files_have_seconds_and_joules_by_clock_and_times_of_the_highest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        result = measured(PLACEMENT, [(one_after_another(PLACEMENT, 1), MEASUREMENT)], tmp_path)
        result.write(tmp_path)
        result.show(tmp_path)
    rows = list(csv.DictReader((tmp_path / "profile.csv").open()))
    costs = {(row["block"], row["frequency"]): (float(row["time"]), float(row["energy"])) for row in rows}
    assert len(costs) == 8
    assert costs["F0", "1100"] == pytest.approx((0.00225, 0.75))
    assert costs["B1", "700"] == pytest.approx((0.0065, 0.97))
    facts = json.loads((tmp_path / "profile.json").read_text())
    assert facts["blocking_power_w"] == {"1100": 85.0, "700": 53.0}
    assert (facts["device"], facts["energy"], facts["iterations"]) == ("a GPU", True, 7)
    placement = read_placement(tmp_path / "placement.yaml")
    times_ms = {block.name: block.time * placement.tick_ms for block in placement.blocks}
    assert times_ms == pytest.approx({"F0": 2.25, "F1": 3.0, "B1": 5.0, "B0": 4.0}, rel=1e-5)
    transfers_ms = [ticks * placement.tick_ms for _, _, ticks in placement.transfer]
    assert transfers_ms == pytest.approx([1.0, 1.5], rel=1e-5)
    assert "while waiting: 85 W at 1100 MHz, 53 W at 700 MHz" in caplog.messages
    assert "F0: 2.25 ms, 750 mJ at 1100 MHz; 2 clocks down to 700 MHz" in caplog.text


def test_blocks_that_were_not_measured_keep_their_times() -> None:
    placement = with_measured_times(PLACEMENT, {"F0": (MeasuredCost("F0", None, 2.5, None),)})
    times_ms = {block.name: block.time * placement.tick_ms for block in placement.blocks}
    assert times_ms == pytest.approx({"F0": 2.5, "F1": 3.0, "B1": 5.0, "B0": 4.0}, rel=1e-5)


def test_micro_batches_are_measured_one_after_another() -> None:
    """One micro-batch takes 2, 3, 5 and 4 ms, and 1 and 1.5 ms of transfers: 66 ticks of 0.25 ms."""
    schedule = one_after_another(PLACEMENT, 3)
    assert schedule.makespan == 3 * 66
    assert [schedule.start_of["F0", n] for n in range(3)] == [0, 66, 132]
    assert [schedule.start_of["B0", n] for n in range(3)] == [50, 116, 182]
