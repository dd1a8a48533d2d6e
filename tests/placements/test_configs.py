"""Profiles whose blocks have configurations besides clocks, and those of several partitions."""

from __future__ import annotations

import pickle
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from told import told

from placements import OperatingPoint, Profile, ProfileError
from placements.profiles.operating_point import Clock, config_of
from placements.profiles.partitions import joined
from placements.shapes import v_shape

HEADER = "block,frequency,time,energy,config\n"
POINTS = (
    OperatingPoint(900, 80.0, 18e3, "4 SMs"),
    OperatingPoint(1410, 50.0, 23e3, "4 SMs"),
    OperatingPoint(1410, 45.0, 25e3, "8 SMs"),
)


def test_a_clock_is_a_number_and_keeps_configurations_apart() -> None:
    few, many = Clock(1410, "4 SMs"), Clock(1410, "8 SMs")
    assert few != many and few == Clock(1410, "4 SMs") and few != 1410
    assert {1410: 0}.get(few) is None and {few: 0}.get(1410) is None
    assert len({few, many, 1410, Clock(1410, "4 SMs")}) == 3
    assert few + 1 == 1411 and few < 1411 and f"{few}" == "1410"
    assert (config_of(few), config_of(1410)) == ("4 SMs", "")
    again = pickle.loads(pickle.dumps(few))
    assert again == few and config_of(again) == "4 SMs"


def test_configurations_are_read_and_written(tmp_path: Path) -> None:
    path = tmp_path / "profile.csv"
    rows = "F0,1410,0.045,25,8 SMs\nF0,1410,0.05,23,4 SMs\nF0,900,0.08,18,4 SMs\nB0,900,0.1,20,\n"
    path.write_text(HEADER + rows, encoding="utf-8")
    profile = Profile.from_csv(path, blocking_power_w=80.0)
    assert profile.points == {"F0": POINTS, "B0": (OperatingPoint(900, 100.0, 20e3),)}
    assert profile.fastest("F0") == POINTS[2]
    assert profile.clock_of_several == "F0 at 1410 MHz"
    profile.to_csv(path)
    assert path.read_text(encoding="utf-8").startswith(HEADER)
    assert Profile.from_csv(path, blocking_power_w=80.0).points == profile.points


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("F0,900,1,1,a\nF0,900,2,1,a\n", "line 3: F0 at 900 MHz of config a is given twice; keep one row"),
        ("F0,900,1,1,\nF0,900,2,1,\n", "line 3: F0 at 900 MHz is given twice; keep one row"),
        ("F0,900,,1,a\n", "line 2, column time: is missing"),
    ],
)
def test_says_what_is_wrong(tmp_path: Path, rows: str, message: str) -> None:
    path = tmp_path / "profile.csv"
    path.write_text(HEADER + rows, encoding="utf-8")
    with told(ProfileError, f"{path}: {message}"):
        Profile.from_csv(path, blocking_power_w=80.0)


def test_points_are_sorted_by_clock_and_configuration() -> None:
    with pytest.raises(ProfileError, match="1410 MHz of config 4 SMs follows 1410 MHz of config 8 SMs; sort"):
        Profile("test", {"F0": (POINTS[2], POINTS[1])}, 80.0)


def test_what_chooses_clocks_alone_is_given_the_fastest_of_each() -> None:
    profile = Profile("test", {"F0": POINTS}, 80.0)
    alone = profile.in_fastest_configs()
    assert alone.points == {"F0": (POINTS[0], POINTS[2])}
    assert alone.in_fastest_configs() is alone
    alone.require_one_config("energy.periodic")
    with pytest.raises(ProfileError, match="energy.periodic: chooses clocks alone, but F0 at 1410 MHz has"):
        profile.require_one_config("energy.periodic")


def test_a_block_of_partitions_has_the_best_sums_at_each_clock() -> None:
    first = [OperatingPoint(mhz, 1e5 / mhz * t, mhz * e, c) for mhz in (900, 1410) for t, e, c in OPTIONS]
    second = [OperatingPoint(mhz, 9e4 / mhz * t, mhz * e, c) for mhz in (1410, 900) for t, e, c in OPTIONS]
    third = [OperatingPoint(mhz, 1e4 / mhz, 5.0) for mhz in (900, 1000, 1410)]
    found = joined([first, second, third])
    assert [point.clock_mhz for point in found] == sorted(point.clock_mhz for point in found)
    assert {point.clock_mhz for point in found} == {900, 1410}
    for clock in (900, 1410):
        sums = [
            (a.time_ms + b.time_ms + c.time_ms, a.energy_mj + b.energy_mj + c.energy_mj)
            for a, b, c in product(first, second, third)
            if a.clock_mhz == b.clock_mhz == c.clock_mhz == clock
        ]
        best = [
            (time, energy)
            for time, energy in sums
            if not any(t <= time and e <= energy and (t, e) != (time, energy) for t, e in sums)
        ]
        own = [(point.time_ms, point.energy_mj) for point in found if point.clock_mhz == clock]
        assert np.array(sorted(own)) == pytest.approx(np.array(sorted(set(best))))
    assert found[0].config.count(" + ") == 1
    Profile("test", {"F0": found}, 80.0)
    with pytest.raises(ProfileError, match="partitions: have no clock in common"):
        joined([first, [OperatingPoint(1000, 1.0, 1.0)]])
    with pytest.raises(ProfileError, match="partitions: has none"):
        joined([])


OPTIONS = ((1.0, 3.0, "a"), (0.9, 3.5, "b"), (1.1, 3.6, "c"))
"""Time, energy and name; the last is worse than the first."""


def test_transfers_are_counted_in_the_blocks_that_send_and_receive() -> None:
    placement = v_shape(2)
    placement = type(placement)(
        placement.name, 2, placement.blocks, tick_ms=2.0, transfer=(("F0", "F1", 3), ("B1", "B0", 5))
    )
    points = (OperatingPoint(900, 50.0, 900.0), OperatingPoint(1410, 40.0, 1200.0))
    profile = Profile("test", {f"{letter}{i}": points for i in range(2) for letter in "FB"}, 80.0)
    more = profile.with_transfers(placement, 10.0)
    for name, ticks in {"F0": 3, "F1": 3, "B1": 5, "B0": 5}.items():
        for point, before in zip(more.points[name], points, strict=True):
            assert point.energy_mj == before.energy_mj + 10.0 * 2.0 * ticks
            assert (point.clock_mhz, point.time_ms) == (before.clock_mhz, before.time_ms)
    assert profile.with_transfers(placement, 0.0) is profile
    assert profile.with_transfers(v_shape(2), 10.0) is profile
    with pytest.raises(ProfileError, match="transfer_power_w: -1.0 is not a power in W"):
        profile.with_transfers(placement, -1.0)
