"""Cells of tables under the right heads, with their units: of plans by profile."""

from __future__ import annotations

import pytest

from experiments.plan import pipedream
from placements.planners.pipedream.plan import PipelinePlan, PlannedStage

MIB = 2**20

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
