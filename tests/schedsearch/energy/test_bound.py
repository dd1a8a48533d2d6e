"""Bounds are reported as they are: one that is above a plan is an error, and is not hidden."""

from __future__ import annotations

from typing import Any

import pytest
from energy.cases import STEPS, profile_of

from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.energy import compute_frontier, improving
from schedsearch.energy.frontier import BOUND_TOLERANCE, proved
from schedsearch.energy.improving import Improved

SCHEDULE = one_f_one_b(v_shape(1), 2)
PROFILE = profile_of(10.0, F0=STEPS, B0=STEPS)


def test_rounding_errors_are_taken_off_and_nothing_else() -> None:
    assert proved(9.0, 10.0) == 9.0
    assert proved(10.0 * (1 + 0.9 * BOUND_TOLERANCE), 10.0) == 10.0
    assert proved(0.9 * BOUND_TOLERANCE, 0.0, scale=1.0) == 0.0
    for bound, value in ((10.0 * (1 + 2.1 * BOUND_TOLERANCE), 10.0), (2.1 * BOUND_TOLERANCE, 0.0)):
        with pytest.raises(AssertionError, match=r"^the bound 1?\d?\S* is above .*, which was found"):
            proved(bound, value, scale=value / 10)


def test_a_wrong_bound_of_the_exact_solver_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    solve = improving.improved

    def wrong(*args: Any) -> Improved | None:
        answer = solve(*args)
        return None if answer is None else answer._replace(bound_mj=answer.bound_mj + 10.0)

    monkeypatch.setattr(improving, "improved", wrong)
    with pytest.raises(AssertionError, match="the bound .* is above"):
        compute_frontier(SCHEDULE, PROFILE, 3, work_limit=10)
