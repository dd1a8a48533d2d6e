"""Cells of tables under the right heads, with their units: of predictions and plans by profile."""

from __future__ import annotations

from typing import cast

import pytest

from experiments.plan import pipedream
from experiments.predict import task as predict
from experiments.predict.errors import Errors
from experiments.predict.measured_folder import MeasuredPlan, MeasuredPlanRow
from experiments.predict.prediction import PlanPrediction
from placements.measured.plan_file import ReplicatedPlan
from placements.planners.pipedream.plan import PipelinePlan, PlannedStage

MIB = 2**20


def predicted(measured_s: float | None, predicted_s: float | None, note: str = "") -> PlanPrediction:
    plan = MeasuredPlan(
        MeasuredPlanRow("a_plan", "a model", measured_s, 4 * 2**30), cast(ReplicatedPlan, None)
    )
    return PlanPrediction(plan, predicted_s, 3.5, note)


def test_predictions_have_measured_and_predicted_in_their_columns() -> None:
    rows = predict.to_csv([predicted(2.0, 1.5, "odd"), predicted(None, 1.25)]).splitlines()
    assert rows == [
        "plan,measured_s,predicted_s,measured_gib,predicted_gib,note",
        "a_plan,2.00000,1.50000,4.000,3.500,odd",
        "a_plan,,1.25000,4.000,3.500,",
    ]


def test_an_error_is_a_share_of_what_was_measured() -> None:
    """1.5 s of 2 are a quarter too few, 2.5 of 2 a quarter too many; 3.5 GiB of 4 an eighth too few."""
    found = predicted(2.0, 1.5), predicted(2.0, 2.5)
    assert [each.time_error for each in found] == [-0.25, 0.25]
    assert found[0].memory_error == -0.125
    assert predicted(None, 1.5).time_error is None
    assert str(Errors.of([-0.25])) == "mean absolute error 25.0%, mean error -25.0%, worst 25.0%, of 1 plan"


PLAN = PipelinePlan(
    (
        PlannedStage(("a", "b"), 2, 4.0, 6.0, 1.5, 0.5, 0.25, 3 * MIB, 2 * MIB, 2),
        PlannedStage(("c",), 1, 3.0, 5.0, 0.0, 0.0, 0.0, 1 * MIB, 1 * MIB, 1),
    ),
    True,
)
"""Two workers take 10 / 2 ms for an input of 16 samples, then one takes 8."""


@pytest.mark.parametrize(("memory_mib", "note"), [(None, ""), (1.0, "does not fit in 1 MiB")])
def test_plans_by_profile_have_samples_per_second(memory_mib: float | None, note: str) -> None:
    row = pipedream.plan_row("pipedream", PLAN, memory_mib, 16)
    expected = {
        "name": "pipedream",
        "configuration": "2-1",
        "stages": 2,
        "workers": 3,
        "batch": 16,
        "time_ms": 8.0,
        "samples_per_s": 2000.0,
        "bottleneck": "compute",
        "bottleneck_stage": 1,
        "note": note,
    }
    assert {name: row[name] for name in expected} == expected
