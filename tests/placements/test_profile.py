from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from one_line_errors import raises_line

from placements import OperatingPoint, Profile, ProfileError
from placements.profiles.operating_point import Clock, config_of
from placements.shapes import m_shape, v_shape

BLOCKS = "block,frequency,time,energy\n"
STAGES = "stage,instruction,frequency,time,energy\n"
HEADER = "block,frequency,time,energy,config\n"


def read(tmp_path: Path, text: str, **scales: float) -> Profile:
    path = tmp_path / "profile.csv"
    path.write_text(text, encoding="utf-8")
    return Profile.from_csv(path, device="test", blocking_power_w=80.0, **scales)


def stage_profile(num_stages: int) -> Profile:
    points = (OperatingPoint(900, 50.0, 9.0), OperatingPoint(1410, 40.0, 12.0))
    return Profile("test", {f"{letter}{i}": points for i in range(num_stages) for letter in "FB"}, 80.0)


def test_reads_blocks_in_any_order(tmp_path: Path) -> None:
    profile = read(tmp_path, BLOCKS + "F0,1410,0.05,23.5\nB0,1410,0.1,40\n\n F0 , 900.0 ,0.08, 18\n")
    assert profile.points == {
        "F0": (OperatingPoint(900, 80.0, 18000.0), OperatingPoint(1410, 50.0, 23500.0)),
        "B0": (OperatingPoint(1410, 100.0, 40000.0),),
    }
    assert profile.fastest("F0").clock_mhz == 1410
    assert (profile.device, profile.blocking_power_w) == ("test", 80.0)


def test_reads_stages_of_zeus_and_scales(tmp_path: Path) -> None:
    text = STAGES + "1,backward,900,2,4\n0,forward,900,1,2\n1,forward,900,1,3\n0,backward,900,2,5\n"
    profile = read(tmp_path, text, time_scale=10, energy_scale=80)
    assert profile.points["B1"] == (OperatingPoint(900, 20e3, 320e3),)
    assert profile.points.keys() == v_shape(2).runs.keys()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "lacks the column 'block'; the columns are block,frequency,time,energy,config or"),
        (
            BLOCKS + "F0,0,1,1\n",
            "line 2, column frequency: '0' is not a whole number of 1 or more; give it in MHz",
        ),
        (BLOCKS + "F0,900,1,1\nF0,900,1,1\n", "line 3: block F0 frequency 900 is in line 2 too; keep"),
        (STAGES + "0,sideways,900,1,1\n", "column instruction: 'sideways' is not known; use one of forward"),
        (HEADER + "F0,900,1,1,a\nF0,900,2,1,a\n", "line 3: block F0 frequency 900 config a is in line 2 too"),
        (HEADER + "F0,900,,1,a\n", "line 2, column time: is empty"),
    ],
)
def test_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    with raises_line(ProfileError, f"{tmp_path / 'profile.csv'}: ", has=message):
        read(tmp_path, text)


def test_says_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="time_scale: 0 is not a factor above 0"):
        read(tmp_path, BLOCKS + "F0,900,1,1\n", time_scale=0)


def test_writes_what_it_reads(tmp_path: Path) -> None:
    profile = read(tmp_path, BLOCKS + "F0,1410,0.05016166687011708,23.80547200000007\nF0,900,0.08,18\n")
    path = tmp_path / "again.csv"
    path.write_text("old", encoding="utf-8")
    profile.to_csv(path)
    again = Profile.from_csv(path, blocking_power_w=80.0)
    for before, after in zip(profile.points["F0"], again.points["F0"], strict=True):
        assert (after.clock_mhz, after.time_ms, after.energy_mj) == pytest.approx(
            (before.clock_mhz, before.time_ms, before.energy_mj), rel=1e-14
        )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.csv", "profile.csv"]
    with pytest.raises(ProfileError, match="cannot be written"):
        profile.to_csv(tmp_path / "profile.csv" / "x.csv")


def test_requires_every_block() -> None:
    stage_profile(4).require(v_shape(4))
    stage_profile(4).require(v_shape(4, inference=True))
    with raises_line(ProfileError, match=r"lacks F2, F3, B3, B2 of v_shape, it has F0, B0, F1, B1; profile"):
        stage_profile(2).require(v_shape(4))
    with pytest.raises(ProfileError, match=r"lacks E, EB of m_shape, it has F0, B0"):
        stage_profile(4).require(m_shape(4))


def test_gives_a_placement_its_times() -> None:
    placement = v_shape(2)
    placement = type(placement)(placement.name, 2, placement.blocks, tick_ms=1.0, transfer=(("F0", "F1", 3),))
    timed = stage_profile(2).times_for(placement)
    assert timed.tick_ms == 0.00001
    assert {block.time for block in timed.blocks} == {4_000_000}
    assert timed.transfer == (("F0", "F1", 300_000),)


@pytest.mark.parametrize("shortest", [0.0009, 9.99, 10.0, 12345.6])
def test_the_shortest_block_has_half_a_million_ticks(shortest: float) -> None:
    profile = Profile("test", {name: (OperatingPoint(1, shortest, 1.0),) for name in ("F0", "B0")}, 0.0)
    ticks = profile.times_for(v_shape(1)).by_name["F0"].time
    assert 500_000 <= ticks < 10_000_000


ONE = (OperatingPoint(1, 1.0, 1.0),)


@pytest.mark.parametrize(
    ("points", "power", "message"),
    [
        ((), 1.0, "points.F0: is empty"),
        (
            (OperatingPoint(2, 1.0, 1.0), OperatingPoint(1, 1.0, 1.0)),
            1.0,
            "1 MHz follows 2 MHz; sort by clock",
        ),
        ((OperatingPoint(1, 0.0, 1.0),), 1.0, "1 MHz, 0.0 ms, 1.0 mJ is no operating point"),
        (ONE, (), "blocking_power_w: has no points"),
        (ONE, ((0, 1.0),), "blocking_power_w: 0 is not a clock; give MHz above 0"),
        (ONE, ((700, -1.0), (900, 3.0)), "blocking_power_w: -1.0 at 700 MHz is not a power in W"),
        (ONE, ((700, 1.0), (700, 3.0)), "blocking_power_w: 700 MHz is given twice"),
    ],
)
def test_refuses_impossible_figures(
    points: tuple[OperatingPoint, ...], power: float | tuple[tuple[int, float], ...], message: str
) -> None:
    with pytest.raises(ProfileError, match=message):
        Profile("test", {"F0": points}, power)


def test_blocking_power_by_clock() -> None:
    """Linear between its points and constant outside; least at a clock that the profile has."""
    points = {name: (OperatingPoint(clock, 1.0, 1.0),) for name, clock in (("F0", 800), ("B0", 1200))}
    profile = Profile("test", points, ((1400, 80.0), (1000, 60.0), (400, 90.0)))
    assert profile.blocking_power_w == ((400, 90.0), (1000, 60.0), (1400, 80.0))
    powers_w = [profile.blocking_w(clock) for clock in (210, 400, 800, 1000, 1200, 1400, 1980)]
    assert powers_w == pytest.approx([90, 90, 70, 60, 70, 80, 80])
    assert profile.min_blocking_power_w == pytest.approx(70)
    number = Profile("test", points, 60.0)
    assert number.min_blocking_power_w == number.blocking_w(1) == 60.0
    assert not number.waits_by_clock
    assert replace(profile, blocking_power_w=((400, 90.0), (1000, 60.0))).waits_by_clock


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
    profile.to_csv(path)
    assert path.read_text(encoding="utf-8").startswith(HEADER)
    assert Profile.from_csv(path, blocking_power_w=80.0).points == profile.points


def test_what_chooses_clocks_alone_is_given_the_fastest_of_each() -> None:
    profile = Profile("test", {"F0": POINTS}, 80.0)
    alone = profile.in_fastest_configs()
    assert alone.points == {"F0": (POINTS[0], POINTS[2])}
    assert alone.in_fastest_configs() is alone
    alone.require_one_config("energy.periodic")
    with pytest.raises(ProfileError, match="energy.periodic: chooses clocks alone, but F0 at 1410 MHz has"):
        profile.require_one_config("energy.periodic")
