"""Policies by name: the names of this project, and those of Gavel's code as aliases."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from schedsearch.cluster.policies.throughput import FirstInFirstOut, MaxTotalThroughput, ShortestJobFirst
from schedsearch.cluster.policies.water_filling import WaterFilling

_Maker = Callable[..., Policy]


@dataclass(frozen=True)
class PolicyEntry:
    """What is known of a policy by its name.

    Attributes:
        make: Makes it of its options.
        description: Its aim.
        joined: Its objective on a cluster in parts, from those on the parts.
        needs_steps: It looks at the steps that jobs have left.
        idles_on_purpose: A GPU to which it gives no job is not lost: it would be too dear.
    """

    make: _Maker
    description: str
    joined: Callable[[Sequence[float]], float] = sum
    needs_steps: bool = False
    idles_on_purpose: bool = False


def _forms(term: str, plain: PolicyEntry, *, is_single_level: bool = True) -> dict[str, PolicyEntry]:
    """Return a policy in its forms, by name; only a single-level one can be agnostic of the types."""
    agnostic = replace(
        plain,
        make=partial(plain.make, is_agnostic=True),
        description=f"{plain.description}, taking all types for equal",
    )
    packed = replace(
        plain,
        make=partial(plain.make, shares_space=True),
        description=f"{plain.description}, with space sharing",
    )
    return {
        term: plain,
        **({f"{term}_agnostic": agnostic} if is_single_level else {}),
        f"{term}_packed": packed,
    }


_ENTRIES: Mapping[str, PolicyEntry] = {
    **_forms(
        "las",
        PolicyEntry(
            MaxMinFairness, "max-min fairness of normalized throughput (least attained service)", min
        ),
    ),
    **_forms(
        "finish_time_fairness",
        PolicyEntry(
            FinishTimeFairness, "the least largest ratio of finish times (Themis)", max, needs_steps=True
        ),
    ),
    **_forms(
        "makespan", PolicyEntry(Makespan, "the least time until all jobs are done", max, needs_steps=True)
    ),
    **_forms("fifo", PolicyEntry(FirstInFirstOut, "first in, first out, in a soft order")),
    "sjf": PolicyEntry(ShortestJobFirst, "the shortest job first", needs_steps=True),
    **_forms(
        "water_filling",
        PolicyEntry(WaterFilling, "max-min fairness whose other jobs are raised too", min),
        is_single_level=False,
    ),
    **_forms(
        "hierarchical",
        PolicyEntry(Hierarchical.of, "fairness between entities, fairness or fifo inside", min),
        is_single_level=False,
    ),
    "min_cost": PolicyEntry(
        MinCost, "the most steps per dollar, or the least dollars", idles_on_purpose=True
    ),
    "min_cost_slo": PolicyEntry(
        MinCostWithSlos,
        "the most steps per dollar, or the least dollars, within SLOs",
        needs_steps=True,
        idles_on_purpose=True,
    ),
    "makespan_budget": PolicyEntry(
        MakespanWithinBudget,
        "the least time until all jobs are done, within a budget",
        max,
        needs_steps=True,
        idles_on_purpose=True,
    ),
    "allox": PolicyEntry(AlloX, "the least average completion time, by matching", needs_steps=True),
    "gandiva": PolicyEntry(Gandiva, "jobs share GPUs by trial (Gandiva)"),
    "least_energy_slo": PolicyEntry(
        LeastEnergy,
        "the least power within SLOs, and a share of what is fair for others",
        idles_on_purpose=True,
    ),
    "least_cost_slo": PolicyEntry(
        LeastCost,
        "the least dollars of GPUs and electricity, with the same floors",
        idles_on_purpose=True,
    ),
    "max_total_throughput": PolicyEntry(MaxTotalThroughput, "the largest sum of steps per second"),
    "isolated": PolicyEntry(IsolatedSplit, "1/n of the GPUs of each type for each of n jobs", min),
}

POLICIES: Mapping[str, str] = {name: entry.description for name, entry in _ENTRIES.items()}
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
        ClusterError: There is no such policy, or it has no such option.
    """
    known = options_of(name)
    for option in options:
        if option not in known:
            raise ClusterError(
                f"policy {name} has no option {option!r}; it has {', '.join(known) if known else 'none'}"
            )
    return policy_entry(name).make(**options)


def options_of(name: str) -> tuple[str, ...]:
    """Return the options of a policy.

    Raises:
        ClusterError: There is no such policy.
    """
    return tuple(
        one for one in inspect.signature(policy_entry(name).make).parameters if one not in _SAID_BY_NAME
    )


def policy_entry(name: str) -> PolicyEntry:
    """Return what is known of a policy by its name or Gavel's.

    Raises:
        ClusterError: There is no such policy.
    """
    ours = ALIASES.get(name, name)
    if ours not in _ENTRIES:
        near = difflib.get_close_matches(name, [*_ENTRIES, *ALIASES], n=1)
        listed = ", ".join(dict.fromkeys([*near, *_ENTRIES]))
        raise ClusterError(f"policy: {name!r} is not known; use one of {listed}")
    return _ENTRIES[ours]
