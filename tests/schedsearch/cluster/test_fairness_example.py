import numpy as np
import pytest

from schedsearch.cluster.allocation import check_allocation
from schedsearch.cluster.demand import Configuration, Demand
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import ActiveJob, Job
from schedsearch.cluster.policies.fairness import MaxMinFairness


def test_las_of_the_dissertations_example() -> None:
    """Three jobs, one V100 and one K80 (Sec. 5.4.1): by hand 8/11, about 10 % above isolated shares."""
    rates = [[40.0, 10.0], [12.0, 4.0], [100.0, 50.0]]
    demand = Demand.of(
        GpuCluster({"v100": 1, "k80": 1}),
        [ActiveJob(Job(f"job {n}", "any", 1000.0), 1000.0) for n in range(3)],
        [
            Configuration((job,), gpu_type, 1, (rate,))
            for job, row in enumerate(rates)
            for gpu_type, rate in zip(("v100", "k80"), row, strict=True)
        ],
    )
    allocation = MaxMinFairness().allocate(demand)
    check_allocation(allocation)
    assert allocation.objective == pytest.approx(8 / 11)
    expected = [[5 / 11, 0], [5 / 11, 1 / 11], [1 / 11, 10 / 11]]
    assert allocation.shares.reshape(3, 2) == pytest.approx(np.array(expected))
