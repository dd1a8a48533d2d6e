"""Policies by name: the names of this project, and those of Gavel's code as aliases."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from functools import partial

from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.policies.allox import AlloX
from schedsearch.cluster.policies.fairness import IsolatedSplit, MaxMinFairness
from schedsearch.cluster.policies.finish_time import FinishTimeFairness, Makespan
from schedsearch.cluster.policies.gandiva import Gandiva
from schedsearch.cluster.policies.hierarchical import Hierarchical
from schedsearch.cluster.policies.policy import Policy
from schedsearch.cluster.policies.spending.cost import MakespanWithinBudget, MinCost, MinCostWithSlos
from schedsearch.cluster.policies.spending.energy import LeastCost, LeastEnergy
from schedsearch.cluster.policies.spending.shifting import LeastSignalCost
from schedsearch.cluster.policies.throughput import FirstInFirstOut, MaxTotalThroughput, ShortestJobFirst
from schedsearch.cluster.policies.water_filling import WaterFilling

_Maker = Callable[..., Policy]


def _forms(
    make: _Maker, term: str, description: str, *, is_single_level: bool = True
) -> dict[str, tuple[_Maker, str]]:
    """Return a policy in its forms, by name; only a single-level one can be agnostic of the types."""
    agnostic = partial(make, is_agnostic=True), f"{description}, taking all types for equal"
    return {
        term: (make, description),
        **({f"{term}_agnostic": agnostic} if is_single_level else {}),
        f"{term}_packed": (partial(make, shares_space=True), f"{description}, with space sharing"),
    }


_KNOWN: Mapping[str, tuple[_Maker, str]] = {
    **_forms(MaxMinFairness, "las", "max-min fairness of normalized throughput (least attained service)"),
    **_forms(FinishTimeFairness, "finish_time_fairness", "the least largest ratio of finish times (Themis)"),
    **_forms(Makespan, "makespan", "the least time until all jobs are done"),
    **_forms(FirstInFirstOut, "fifo", "first in, first out, in a soft order"),
    "sjf": (ShortestJobFirst, "the shortest job first"),
    **_forms(
        WaterFilling,
        "water_filling",
        "max-min fairness whose other jobs are raised too",
        is_single_level=False,
    ),
    **_forms(
        Hierarchical.of,
        "hierarchical",
        "fairness between entities, fairness or fifo inside",
        is_single_level=False,
    ),
    "min_cost": (MinCost, "the most steps per dollar, or the least dollars"),
    "min_cost_slo": (MinCostWithSlos, "the most steps per dollar, or the least dollars, within SLOs"),
    "makespan_budget": (MakespanWithinBudget, "the least time until all jobs are done, within a budget"),
    "allox": (AlloX, "the least average completion time, by matching"),
    "gandiva": (Gandiva, "jobs share GPUs by trial (Gandiva)"),
    "least_energy_slo": (LeastEnergy, "the least power within SLOs, and a share of what is fair for others"),
    "least_cost_slo": (LeastCost, "the least dollars of GPUs and electricity, with the same floors"),
    "least_signal_cost": (
        LeastSignalCost.of_file,
        "the least cost or carbon of energy over time, with the same floors",
    ),
    "max_total_throughput": (MaxTotalThroughput, "the largest sum of steps per second"),
    "isolated": (IsolatedSplit, "1/n of the GPUs of each type for each of n jobs"),
}

POLICIES: Mapping[str, str] = {name: description for name, (_, description) in _KNOWN.items()}
"""The aim of each policy, by its name."""

ALIASES: Mapping[str, str] = {
    "max_min_fairness": "las_agnostic",
    "max_min_fairness_perf": "las",
    "max_min_fairness_packed": "las_packed",
    "finish_time_fairness_perf": "finish_time_fairness",
    "min_total_duration": "makespan_agnostic",
    "min_total_duration_perf": "makespan",
    "min_total_duration_packed": "makespan_packed",
    "max_sum_throughput_perf": "max_total_throughput",
    "max_sum_throughput_normalized_by_cost_perf": "min_cost",
    "max_sum_throughput_normalized_by_cost_perf_SLOs": "min_cost_slo",
    "max_min_fairness_water_filling_perf": "water_filling",
    "max_min_fairness_water_filling_packed": "water_filling_packed",
    "fifo_perf": "fifo",
}
"""Our name of each policy of Gavel's code whose own name is not one of ours.

Two names are in both with another meaning: Gavel's `finish_time_fairness` and `fifo` are agnostic, which are
`finish_time_fairness_agnostic` and `fifo_agnostic` here.
"""

_SAID_BY_NAME = frozenset({"name", "shares_space", "is_agnostic"})


def policy_of(name: str, **options: object) -> Policy:
    """Return a new policy by its name or Gavel's.

    Args:
        name: One of `POLICIES` or `ALIASES`.
        options: Options of that policy, by the names of its parameters.

    Raises:
        ClusterError: There is no such policy, it has no such option, or it lacks one that it needs.
    """
    known = options_of(name)
    for option in options:
        if option not in known:
            raise ClusterError(
                f"policy {name} has no option {option!r}; it has {', '.join(known) if known else 'none'}"
            )
    for option, parameter in inspect.signature(_maker_of(name)).parameters.items():
        if parameter.default is inspect.Parameter.empty and option not in options:
            raise ClusterError(f"policy {name} needs option {option!r}, which is not given; give it")
    return _maker_of(name)(**options)


def options_of(name: str) -> tuple[str, ...]:
    """Return the options of a policy.

    Raises:
        ClusterError: There is no such policy.
    """
    return tuple(one for one in inspect.signature(_maker_of(name)).parameters if one not in _SAID_BY_NAME)


def _maker_of(name: str) -> _Maker:
    ours = ALIASES.get(name, name)
    if ours not in _KNOWN:
        near = difflib.get_close_matches(name, [*_KNOWN, *ALIASES], n=1)
        listed = ", ".join(dict.fromkeys([*near, *_KNOWN]))
        raise ClusterError(f"policy: {name!r} is not known; use one of {listed}")
    return _KNOWN[ours][0]
