"""From models to throughputs: what is planned, kept in files, and put into a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schedsearch.cluster.allocation import check_allocation
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.jobs import ActiveJob, Job
from schedsearch.cluster.planned_jobs.planned_frontier import PlanRequest, planned_frontier
from schedsearch.cluster.planned_jobs.planned_throughputs import planned_throughputs
from schedsearch.cluster.policies.fairness import MaxMinFairness

ONE = PlanRequest("gpt3_1.3b", "a100", 2, 16, num_plans=5)


def test_a_model_becomes_throughputs_on_each_type_and_count() -> None:
    found = [planned_frontier(replace(ONE, gpu_type=t, gpus=n)) for t in ("a100", "h100") for n in (2, 4)]
    table = planned_throughputs(found, max_points=3)
    assert table.counts("gpt3_1.3b") == (2, 4)
    for (_, gpus), of_type in table.throughputs.alone.items():
        for gpu_type, points in of_type.items():
            (highest,) = table.highest_clocks.alone["gpt3_1.3b", gpus][gpu_type]
            speeds = [point.steps_per_s for point in points]
            assert 1 < len(points) <= 3
            assert speeds == sorted(speeds, reverse=True)
            assert speeds[0] >= highest.steps_per_s * (1 - 1e-9)
            assert points[0].power_w <= highest.power_w * (1 + 1e-9)
            # An A100 draws 84 W while it waits and 467 W at the most, an H100 146 W and 818 W.
            assert all(84 * gpus < point.power_w < 820 * gpus for point in points)
    assert table.throughputs.rate("gpt3_1.3b", 2, "h100") > table.throughputs.rate("gpt3_1.3b", 2, "a100")


def test_a_job_may_run_on_several_numbers_of_gpus() -> None:
    """Alone on eight GPUs it takes four, its largest number, although its fair share is counted for two."""
    table = planned_throughputs([planned_frontier(replace(ONE, gpus=n)) for n in (2, 4)]).throughputs
    job = ActiveJob(Job("one", "gpt3_1.3b", 100.0, 2, other_scale_factors=(4,)), 100.0)
    demand = table.demand(GpuCluster({"a100": 8}), [job])
    assert {*demand.configurations.gpus.tolist()} == {2, 4}
    allocation = MaxMinFairness().allocate(demand)
    check_allocation(allocation)
    on_four, on_two = (table.rate("gpt3_1.3b", gpus, "a100") for gpus in (4, 2))
    assert allocation.rates == pytest.approx([on_four])
    assert allocation.objective == pytest.approx(2 * on_four / on_two)


def test_a_model_that_does_not_fit_is_left_out_with_the_reason() -> None:
    found = planned_frontier(PlanRequest("llama2_13b", "a100", 1, 16))
    assert found.frontier is None
    table = planned_throughputs([found])
    assert "80 GiB less 4 in reserve are too little" in table.left_out[found.asked]
    assert not table.throughputs.alone


def test_wrong_questions_are_refused() -> None:
    with pytest.raises(ClusterError, match="'k80' is not a GPU that can be planned for; use a100"):
        planned_frontier(replace(ONE, gpu_type="k80"))
    one, two = planned_frontier(ONE), planned_frontier(replace(ONE, batch=32))
    with pytest.raises(ClusterError, match="is planned for batches of 16 and 32; use one"):
        planned_throughputs([one, two])
    with pytest.raises(ClusterError, match="is planned twice for 2 a100"):
        planned_throughputs([one, one])
