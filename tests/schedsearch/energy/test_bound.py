"""Bounds are reported as they are: one that is above a plan is an error, and is not hidden."""

from __future__ import annotations

from typing import Any

import pytest
from energy.cases import STEPS, noisy_profile, profile_of, relaxed_optimum
from energy.test_periodic import maximum_ms, searched

from placements.shapes import v_shape, x_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.energy import (
    PeriodicSchedule,
    PowerCap,
    capped_plan,
    compute_frontier,
    improving,
    periodic_plan,
)
from schedsearch.energy.cost import cost_curves
from schedsearch.energy.frontier import BOUND_TOLERANCE, TIME_TOLERANCE, proved
from schedsearch.energy.improving import Improved
from schedsearch.energy.limits import power_cap
from schedsearch.energy.limits.folding import fold
from schedsearch.energy.limits.periodic import MOST_UNFOLDED, SETTLING_ROUNDS

SCHEDULE = one_f_one_b(v_shape(1), 2)
PROFILE = profile_of(10.0, F0=STEPS, B0=STEPS)


def test_rounding_errors_are_taken_off_and_nothing_else() -> None:
    assert proved(9.0, 10.0) == 9.0
    assert proved(10.0 * (1 + 0.9 * BOUND_TOLERANCE), 10.0) == 10.0
    assert proved(0.9 * BOUND_TOLERANCE, 0.0, scale=1.0) == 0.0
    for bound, found in ((10.0 * (1 + 2.1 * BOUND_TOLERANCE), 10.0), (2.1 * BOUND_TOLERANCE, 0.0)):
        with pytest.raises(AssertionError, match=r"^the bound 1?\d?\S* is above .*, which was found"):
            proved(bound, found, scale=found / 10)


def test_a_wrong_bound_of_the_exact_solver_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    solve = improving.improved

    def wrong(*args: Any) -> Improved | None:
        answer = solve(*args)
        return None if answer is None else answer._replace(bound_mj=answer.bound_mj + 10.0)

    monkeypatch.setattr(improving, "improved", wrong)
    with pytest.raises(AssertionError, match="the bound .* is above"):
        compute_frontier(SCHEDULE, PROFILE, 3, work_limit=10)


def test_a_wrong_bound_of_a_capped_plan_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    frontier = compute_frontier(SCHEDULE, PROFILE, 3)
    monkeypatch.setattr(power_cap, "_relaxed", lambda problem, above: (1e6, []))
    with pytest.raises(AssertionError, match="the bound .* is above"):
        capped_plan(SCHEDULE, PROFILE, frontier, PowerCap(job_w=60.0))


@pytest.mark.parametrize("seed", range(2))
def test_the_bound_of_clocks_that_repeat_is_that_of_the_whole_schedule(seed: int) -> None:
    """Rounds that are forced to be a period apart need more here: up to 0.5 % for this X-shape."""
    repetend = searched(x_shape(2).with_memory(2), 1)
    periodic = PeriodicSchedule(repetend, repetend.placement)
    profile = noisy_profile(periodic.placement, 3, seed)
    n = 14
    assert fold(periodic, cost_curves(periodic.placement, profile), n, SETTLING_ROUNDS).is_folded
    deadline = 1.02 * maximum_ms(periodic, profile, n)
    found = periodic_plan(periodic, profile, n, deadline)
    waiting_mj = profile.blocking_power_w * periodic.placement.num_devices * deadline
    optimum = relaxed_optimum(
        periodic.schedule(n),
        profile,
        deadline * (1 + TIME_TOLERANCE),
        lambda instance: periodic.groups(instance, n)[-1],
    )
    assert found.relaxed_mj == pytest.approx(optimum + waiting_mj, rel=1e-6)


def test_the_bound_of_clocks_that_repeat_holds_at_the_shortest_time_and_for_many_micro_batches(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The linear program may call the shortest time infeasible; not all blocks run at their fastest there."""
    placement = v_shape(2)
    steps = dict.fromkeys(("F0", "B0"), STEPS) | {
        name: [(clock, ms / 2, mj / 2) for clock, ms, mj in STEPS] for name in ("F1", "B1")
    }
    profile = profile_of(10.0, **steps)
    repetend = searched(placement.with_memory(2), 1)
    periodic = PeriodicSchedule(repetend, repetend.placement, 1)
    for n, deadline in ((6, 1 - 0.9 * TIME_TOLERANCE), (MOST_UNFOLDED // 4 + 1, 1.1)):
        deadline *= maximum_ms(periodic, profile, n) if n == 6 else 12.5 * (2 * n + 1)
        found = periodic_plan(periodic, profile, n, deadline)
        plan = found.unrolled(n)
        with caplog.at_level("INFO"):
            assert found.relaxed_mj > 0
        assert ("the bound for clocks that repeat is only the least energy of" in caplog.text) == (n > 6)
        if n == 6:
            frontier = compute_frontier(periodic.schedule(n), profile, 3, deadline)
            plan = frontier.at(deadline)
        until_mj = plan.energy_mj + 20.0 * (deadline - plan.time_ms)
        assert found.relaxed_mj <= until_mj * (1 + BOUND_TOLERANCE)
