from __future__ import annotations

import ast
import csv

import pytest
from energy.cases import noisy_profile
from told import told

from placements import Placement
from placements.shapes import m_shape, v_shape, wave_shape, x_shape
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.energy import EnergyError, compute_frontier, num_clock_changes, simulate_at_clocks
from schedsearch.energy.interchange import frequencies_csv, frontier_csv, zeus_files, zeus_stages


def test_the_files_of_zeus_hold_every_plan() -> None:
    schedule = one_f_one_b(v_shape(3), 5)
    profile = noisy_profile(schedule.placement, 6, 0)
    frontier = compute_frontier(schedule, profile, 8)
    files = list(zeus_files(schedule, frontier))
    assert [name for name, _ in files] == [f"freqs_pipeline_{i:05d}.py" for i in range(len(frontier.plans))]
    times = []
    for plan, (_, text) in zip(reversed(frontier.plans), files, strict=True):
        stages = ast.literal_eval(text)
        assert len(stages) == 3
        clocks: dict[str, list[int]] = {}
        for stage, instructions in enumerate(stages):
            assert [{"F": "forward", "B": "backward"}[name[0]] for name, _ in schedule.order(stage)] == [
                instruction for instruction, _ in instructions
            ]
            for instruction, clock in instructions:
                clocks.setdefault(f"{instruction[0].upper()}{stage}", []).append(clock)
        again = simulate_at_clocks(schedule, profile, clocks)
        assert (again.time_ms, again.energy_mj) == pytest.approx((plan.time_ms, plan.energy_mj))
        comments = dict(line.rsplit(": ", 1) for line in text.splitlines() if line.startswith("# "))
        by_what = {key.split(" ", 3)[3]: float(value) for key, value in comments.items()}
        assert by_what["total time"] * 1e3 == pytest.approx(plan.time_ms)
        assert by_what["total cost with P2P"] * 1e3 == pytest.approx(plan.energy_mj)
        waiting_j = 3 * profile.blocking_power_w * plan.time_ms / 1e3
        assert by_what["total cost"] == pytest.approx(plan.energy_mj / 1e3 - waiting_j)
        times.append(by_what["total time"])
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        (m_shape(4), "but device 0 of m_shape runs E"),
        (wave_shape(2), "but device 0 of wave_shape runs"),
        (v_shape(2, split_backward=True), "but device 0 of v_shape runs"),
    ],
    ids=lambda value: value.name if isinstance(value, Placement) else "",
)
def test_a_placement_without_such_a_form(placement: Placement, message: str) -> None:
    with told(EnergyError, match="export: zeus knows one forward and one backward", has=message):
        zeus_stages(placement)


@pytest.mark.parametrize("placement", [v_shape(3), m_shape(4), x_shape(2)], ids=lambda p: p.name)
def test_a_plan_as_csv_for_any_schedule(placement: Placement) -> None:
    schedule = gpipe(placement, 3)
    profile = noisy_profile(placement, 5, 1)
    plan = compute_frontier(schedule, profile, 3).plans[1]
    simulation = simulate_at_clocks(schedule, profile, plan.clock_mhz)
    rows = list(csv.DictReader(frequencies_csv(schedule, profile, plan).splitlines()))
    assert not {"config", "mode"} & rows[0].keys()
    for device in range(placement.num_devices):
        here = [row for row in rows if int(row["device"]) == device]
        assert [int(row["position"]) for row in here] == list(range(len(here)))
        assert [(row["block"], int(row["micro_batch"])) for row in here] == list(schedule.order(device))
    for row in rows:
        name, n = row["block"], int(row["micro_batch"])
        assert int(row["clock_mhz"]) == plan.clock_mhz[name][n]
        assert float(row["start_ms"]) == simulation.start_ms[name, n]
        point = next(p for p in profile.points[name] if p.clock_mhz == plan.clock_mhz[name][n])
        assert float(row["time_ms"]) == point.time_ms
    assert max(float(row["start_ms"]) + float(row["time_ms"]) for row in rows) == pytest.approx(plan.time_ms)


def test_a_frontier_as_csv() -> None:
    schedule = one_f_one_b(v_shape(3), 5)
    profile = noisy_profile(schedule.placement, 6, 0)
    frontier = compute_frontier(schedule, profile, 8)
    rows = list(csv.DictReader(frontier_csv(schedule, frontier).splitlines()))
    for row, plan in zip(rows, frontier.plans, strict=True):
        assert float(row["time_ms"]) == plan.time_ms
        assert float(row["energy_mj"]) == plan.energy_mj
        assert float(row["lower_bound_mj"]) == plan.lower_bound_mj
        assert float(row["gap"]) == plan.gap
        assert float(row["saving"]) == frontier.saving(plan)
        assert int(row["clock_changes"]) == sum(num_clock_changes(schedule, plan.clock_mhz))
        until_ms = float(row["saving_until_ms"])
        both = (frontier.energy_next_to(each, until_ms) for each in (plan, frontier.all_maximum))
        assert float(row["saving"]) == pytest.approx(1 - next(both) / next(both))
        is_later = plan.time_ms > frontier.min_energy.time_ms
        assert row["only_next_to_straggler"] == ("yes" if is_later else "no")
    assert {row["only_next_to_straggler"] for row in rows} == {"yes", "no"}
