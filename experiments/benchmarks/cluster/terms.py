"""What a decision is about as plain arrays, one share for each job and GPU type, and what shares are worth.

It shares no code with policies: both our answer and a peer's are judged here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from schedsearch.cluster.allocation import Allocation
from schedsearch.cluster.demand import Demand, FloatArray


@dataclass(frozen=True, eq=False)
class Terms:
    """The numbers of a decision about jobs alone, with one configuration for each job and type.

    Attributes:
        steps_per_s: Of each job on each type, shape (jobs, types).
        scale_factors: GPUs of each job.
        weights: Weights of each job.
        steps_left: Of each job.
        waited_s: Of each job.
        isolated_s: Of each job: its time so far and until its end on its own part of the cluster.
        proportional_steps_per_s: Of each job, if its time is divided as the GPUs among the types.
        workers: GPUs of each type.
        dollars_per_hour: Of one GPU of each type.
    """

    steps_per_s: FloatArray
    scale_factors: FloatArray
    weights: FloatArray
    steps_left: FloatArray
    waited_s: FloatArray
    isolated_s: FloatArray
    proportional_steps_per_s: FloatArray
    workers: FloatArray
    dollars_per_hour: FloatArray

    @classmethod
    def of(cls, demand: Demand) -> Terms:
        """Return those of a demand; pairs are left out."""
        rates, workers = demand.alone_steps_per_s, demand.workers
        own = workers / len(demand.jobs) / demand.scale_factors[:, None]
        own /= np.maximum(own.sum(axis=1, keepdims=True), 1)
        so_far = np.array([active.isolated_s for active in demand.jobs])
        return cls(
            rates,
            demand.scale_factors,
            demand.weights,
            demand.steps_left,
            np.array([active.waited_s for active in demand.jobs]),
            so_far + demand.steps_left / (rates * own).sum(axis=1),
            rates @ (workers / workers.sum()),
            workers,
            np.array([demand.cluster.price_of(gpu_type) for gpu_type in demand.cluster.gpu_types]),
        )


def shares_of(allocation: Allocation) -> FloatArray:
    """Return the shares of jobs alone, shape (jobs, types)."""
    demand = allocation.demand
    shares = np.zeros((len(demand.jobs), len(demand.workers)))
    alone = demand.configurations.is_alone
    found = demand.configurations.only(alone)
    np.add.at(shares, (found.jobs[:, 0], found.gpu_type), allocation.shares[alone])
    return shares


def _las(terms: Terms, shares: FloatArray) -> float:
    rates = (terms.steps_per_s * shares).sum(axis=1)
    least = (terms.scale_factors * rates / (terms.weights * terms.proportional_steps_per_s)).min()
    return float(1 / least)


def _finish_time_fairness(terms: Terms, shares: FloatArray) -> float:
    rates = (terms.steps_per_s * shares).sum(axis=1)
    return float(((terms.waited_s + terms.steps_left / rates) / terms.isolated_s).max())


def _makespan(terms: Terms, shares: FloatArray) -> float:
    return float((terms.steps_left / (terms.steps_per_s * shares).sum(axis=1)).max())


def _min_cost(terms: Terms, shares: FloatArray) -> float:
    return float(1 / (terms.steps_per_s / terms.dollars_per_hour * shares).sum())


WORTH: Mapping[str, tuple[str, Callable[[Terms, FloatArray], float]]] = {
    "las": ("1 / least normalized throughput", _las),
    "finish_time_fairness": ("largest finish-time ratio", _finish_time_fairness),
    "makespan": ("makespan", _makespan),
    "min_cost": ("1 / (steps/s per dollar/hour)", _min_cost),
}
"""By policy: what of its answer is compared, and that of shares; less of it is better."""
