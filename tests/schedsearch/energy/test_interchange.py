from __future__ import annotations

import csv

import pytest
from energy.cases import noisy_profile

from placements import Placement
from placements.shapes import m_shape, v_shape, x_shape
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.energy import compute_frontier, num_clock_changes, simulate_at_clocks
from schedsearch.energy.interchange import frequencies_csv, frontier_csv


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
        both = (frontier.energy_next_to(candidate, until_ms) for candidate in (plan, frontier.all_maximum))
        assert float(row["saving"]) == pytest.approx(1 - next(both) / next(both))
        is_later = plan.time_ms > frontier.min_energy.time_ms
        assert row["only_next_to_straggler"] == ("yes" if is_later else "no")
    assert {row["only_next_to_straggler"] for row in rows} == {"yes", "no"}
