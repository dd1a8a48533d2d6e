"""Policies by name: this project's names, and aliases from Gavel's code."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.policies.allox import AlloX
from schedsearch.cluster.policies.fairness import IsolatedSplit, MaxMinFairness
from schedsearch.cluster.policies.gandiva import Gandiva
from schedsearch.cluster.policies.policy import Policy, SharesPolicy
from schedsearch.cluster.policies.single_level import (
    FinishTimeFairness,
    FirstInFirstOut,
    Makespan,
    MaxTotalThroughput,
    ShortestJobFirst,
)
from schedsearch.cluster.policies.spending import (
    LeastCost,
    LeastEnergy,
    MakespanWithinBudget,
    MinCost,
    MinCostWithSlos,
)
from schedsearch.cluster.policies.water_filling import Hierarchical, WaterFilling


@dataclass(frozen=True)
class PolicyEntry:
    """A policy's entry in the registry: its constructor, aim and properties.

    Attributes:
        make: Constructor; takes the policy's options.
        description: Its aim.
        needs_steps: Whether the policy uses the steps that jobs have left.
        idles_on_purpose: Whether the policy leaves GPUs without a job because running them would be too dear.
    """

    make: Callable[..., Policy]
    description: str
    needs_steps: bool = False
    idles_on_purpose: bool = False


def policy_forms(
    policy: type[SharesPolicy],
    description: str,
    *,
    needs_steps: bool = False,
    forms: tuple[str, ...] = ("_agnostic", "_packed"),
) -> dict[str, PolicyEntry]:
    """Return the entries of a policy and of its agnostic and space-sharing forms, by name."""
    how: dict[str, tuple[str, Callable[..., Policy]]] = {
        "": (description, policy),
        "_agnostic": (f"{description}, taking all types for equal", partial(policy, is_agnostic=True)),
        "_packed": (f"{description}, with space sharing", partial(policy, shares_space=True)),
    }
    return {policy.term + form: PolicyEntry(how[form][1], how[form][0], needs_steps) for form in ("", *forms)}


_FAIR = "max-min fairness of normalized throughput (least attained service)"
_RAISED = "max-min fairness whose other jobs are raised too"
_RATIO = "the least largest ratio of finish times (Themis)"
_SOONEST = "the least time until all jobs are done"
_CHEAPEST = "the most steps per dollar"
_BY_ENTITY = "fairness between entities, fairness or fifo inside"
_LEAST_POWER = "the least power within SLOs, and a share of the fair throughput for others"
_LEAST_DOLLARS = "the least dollars of GPUs and electricity, with the same floors"

POLICIES: Mapping[str, PolicyEntry] = {
    **policy_forms(MaxMinFairness, _FAIR),
    **policy_forms(FinishTimeFairness, _RATIO, needs_steps=True),
    **policy_forms(Makespan, _SOONEST, needs_steps=True),
    **policy_forms(FirstInFirstOut, "first in, first out, in a soft order"),
    **policy_forms(ShortestJobFirst, "the shortest job first", needs_steps=True, forms=()),
    **policy_forms(WaterFilling, _RAISED, forms=("_packed",)),
    **policy_forms(Hierarchical, _BY_ENTITY, forms=("_packed",)),
    **policy_forms(MaxTotalThroughput, "the largest sum of steps per second", forms=()),
    "min_cost": PolicyEntry(MinCost, _CHEAPEST, idles_on_purpose=True),
    "min_cost_slo": PolicyEntry(MinCostWithSlos, f"{_CHEAPEST}, within SLOs", True, True),
    "makespan_budget": PolicyEntry(MakespanWithinBudget, f"{_SOONEST}, within a budget", True, True),
    "allox": PolicyEntry(AlloX, "the least average completion time, by matching", needs_steps=True),
    "gandiva": PolicyEntry(Gandiva, "jobs share GPUs by trial (Gandiva)"),
    "least_energy_slo": PolicyEntry(LeastEnergy, _LEAST_POWER, idles_on_purpose=True),
    "least_cost_slo": PolicyEntry(LeastCost, _LEAST_DOLLARS, idles_on_purpose=True),
    "isolated": PolicyEntry(IsolatedSplit, "1/n of the GPUs of each type for each of n jobs"),
}

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


def policy_of(name: str, **options: object) -> Policy:
    """Return a new policy by its name or Gavel's, with options by the names of its parameters.

    Raises:
        ClusterError: There is no such policy, or it has no such option.
    """
    entry = policy_entry(name)
    of_form = ("shares_space", "is_agnostic")  # which the name says
    known = [one for one in inspect.signature(entry.make).parameters if one not in of_form]
    for option in options:
        if option not in known:
            raise ClusterError(f"policy {name} has no option {option!r}; it has {', '.join(known) or 'none'}")
    return entry.make(**options)


def policy_entry(name: str) -> PolicyEntry:
    """Return the entry of a policy by its name or Gavel's.

    Raises:
        ClusterError: There is no such policy.
    """
    ours = ALIASES.get(name, name)
    if ours not in POLICIES:
        near = difflib.get_close_matches(name, [*POLICIES, *ALIASES], n=1)
        listed = ", ".join(dict.fromkeys([*near, *POLICIES]))
        raise ClusterError(f"policy: {name!r} is not known; use one of {listed}")
    return POLICIES[ours]
