"""One decision of a policy: the shares of the time as a file and as a table."""

from __future__ import annotations

import math
from pathlib import Path

from experiments.cluster.chosen_policies import chosen_policy
from experiments.cluster.options import PolicyOptions
from placements.files import in_columns
from schedsearch.cluster.allocation import check_allocation
from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.inputs.allocation_file import DecidedAllocation, write_allocation
from schedsearch.cluster.inputs.decision_file import Decision, read_decision
from schedsearch.cluster.policies.hierarchical import Entity
from schedsearch.cluster.policies.registry import policy_entry

FILE = "allocation.json"

_MOST_ROWS = 40
"""Jobs of the printed table."""


def decide(path: str, name: str, options: PolicyOptions, directory: Path) -> DecidedAllocation:
    """Ask a policy what a file asks, check the answer and write it.

    Raises:
        ClusterError: The file is wrong, or the policy is not known or has no such option.
        InfeasibleError: No allocation does what the policy asks for.
    """
    asked = read_decision(path)
    policy = chosen_policy(name, options, _said(asked))
    entry = policy_entry(name)
    if entry.needs_steps and not asked.has_steps:
        raise ClusterError(f"{path}: no job has steps, which policy {name} looks at; give each its steps")
    allocation = policy.allocate(asked.demand)
    check_allocation(allocation)
    decided = DecidedAllocation.of(allocation, policy.name, entry.description)
    write_allocation(directory / FILE, decided)
    return decided


def _said(asked: Decision) -> dict[str, object]:
    """Return the options of policies that a file has."""
    said: dict[str, object] = {}
    if asked.entities:
        said["entities"] = {
            name: Entity(weight, "fifo" if inside == "fifo" else "fairness")
            for name, (weight, inside) in asked.entities.items()
        }
    if math.isfinite(asked.budget_dollars):
        said["budget_dollars"] = asked.budget_dollars
    return said


def decision_table(decided: DecidedAllocation) -> str:
    """Return the shares and the effective throughput of each job, for a terminal."""
    types = list(next(iter(decided.shares.values())))
    rows = [["job", *types, "steps/s"]]
    for job, shares in decided.shares.items():
        rows.append([job, *(_percent(shares[name]) for name in types), f"{decided.steps_per_s[job]:.5g}"])
    for pair in decided.pairs:
        share = [_percent(pair.share if name == pair.gpu_type else 0.0) for name in types]
        rows.append([" + ".join(pair.jobs), *share, " + ".join(f"{rate:.5g}" for rate in pair.steps_per_s)])
    left_out = len(rows) - 1 - _MOST_ROWS
    lines = in_columns(rows[: _MOST_ROWS + 1])
    return "\n".join([*lines, f"and {left_out} more in {FILE}"] if left_out > 0 else lines)


def _percent(share: float) -> str:
    return f"{share:.2%}" if share else ""
