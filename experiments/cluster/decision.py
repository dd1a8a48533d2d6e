"""One decision of a policy: the shares of the time as a file and as a table."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from experiments.cluster.options import PolicyOptions
from experiments.cluster.workload import chosen_policy
from experiments.report.result import Result
from placements.forms.texts import text_columns
from schedsearch.cluster.allocation import Allocation, check_allocation
from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.inputs.decision_file import read_decision
from schedsearch.cluster.policies.registry import policy_entry

log = logging.getLogger(__name__)

FILE = "allocation.json"

SMALLEST = 1e-12
"""Shares up to this are the solver's rounding, and are written as none."""

_MOST_ROWS = 40
"""Jobs of the printed table."""


def decide(path: str, name: str, options: PolicyOptions) -> Result:
    """Ask a policy the question of a file, and check the answer.

    Raises:
        ClusterError: The file is wrong, or the policy is not known or has no such option.
        InfeasibleError: No allocation does what the policy asks for.
    """
    asked, policy, entry = read_decision(path), chosen_policy(name, options), policy_entry(name)
    if entry.needs_steps and not asked.has_steps:
        raise ClusterError(f"{path}: a job has no steps, which policy {name} looks at; give each its steps")
    allocation = policy.allocate(asked.demand)
    check_allocation(allocation)
    shares = allocation_to_dict(allocation)
    head = {"schema_version": 1, "policy": policy.name, "objective_is": entry.description}
    for note in allocation.notes:
        log.warning("%s", note)
    lines = [decision_table(shares), f"objective {allocation.objective:.8g}: {entry.description}"]
    if allocation.dollars_per_hour:
        lines.append(f"{allocation.dollars_per_hour:.5g} dollars per hour for the GPUs in use")
    figures: dict[str, float | str] = {"policy": policy.name}
    if math.isfinite(allocation.objective):
        figures["objective"] = allocation.objective
    return Result(figures=figures, files={FILE: head | shares}, sentences=lines)


def allocation_to_dict(allocation: Allocation) -> dict[str, Any]:
    """Return an allocation by the names of jobs and GPU types, with all types of the cluster, 0 for none.

    Shares are of jobs alone; those of two jobs on the same GPUs come on top, each once.
    """
    names = [active.name for active in allocation.demand.jobs]
    used = allocation.used(SMALLEST)
    shares = {name: dict.fromkeys(allocation.demand.cluster.gpu_types, 0.0) for name in names}
    for one in used:
        if len(one.jobs) == 1:
            shares[one.jobs[0]][one.gpu_type] += one.share
    return {
        "objective": allocation.objective if math.isfinite(allocation.objective) else None,
        "shares": shares,
        "pairs": [asdict(one) for one in used if len(one.jobs) == 2],
        "steps_per_s": dict(zip(names, allocation.rates.tolist(), strict=True)),
        "dollars_per_hour": allocation.dollars_per_hour,
        "power_w": allocation.power_w,
        "configurations": [asdict(one) for one in used],
        "notes": [*allocation.notes],
    }


def decision_table(decided: Mapping[str, Any]) -> str:
    """Return the shares and the effective throughput of each job, for a terminal."""
    types = list(next(iter(decided["shares"].values())))
    rates, pairs = decided["steps_per_s"], decided["pairs"]
    known = [([job], shares, [rates[job]]) for job, shares in decided["shares"].items()]
    known += [(pair["jobs"], {pair["gpu_type"]: pair["share"]}, pair["steps_per_s"]) for pair in pairs]
    rows = [["job", *types, "steps/s"]]
    for jobs, shares, steps_per_s in known[:_MOST_ROWS]:
        percents = (f"{shares[name]:.2%}" if shares.get(name) else "" for name in types)
        rows.append([" + ".join(jobs), *percents, " + ".join(f"{rate:.5g}" for rate in steps_per_s)])
    more = len(known) - _MOST_ROWS
    return "\n".join([*text_columns(rows), *([f"and {more} more in {FILE}"] if more > 0 else [])])
