"""Gavel's programs as one writes them in cvxpy, solved and timed in a process of their own.

``python -m experiments.benchmarks.cluster.cvxpy_programs POLICY SOLVER IN.npz OUT.npz`` reads what
`experiments.benchmarks.cluster.beside_cvxpy` wrote. cvxpy imports all solvers that are installed, and HiGHS'
package and OR-tools cannot be in one process; so OR-tools is hidden, and nothing of ours is imported.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

DEFAULT = "default"
"""As solver: cvxpy's own choice."""

Arrays = Mapping[str, Any]


def las(cp: Any, terms: Arrays, rates: Any, _: Any) -> Any:
    """Return max-min fairness: the least normalized throughput is as high as can be."""
    factors = terms["scale_factors"] / (terms["weights"] * terms["proportional_steps_per_s"])
    return cp.Maximize(cp.min(cp.multiply(factors, rates)))


def finish_time_fairness(cp: Any, terms: Arrays, rates: Any, _: Any) -> Any:
    """Return finish-time fairness: a convex program with reciprocals, as the paper prints it."""
    finish_s = terms["waited_s"] + cp.multiply(terms["steps_left"], cp.inv_pos(rates))
    return cp.Minimize(cp.max(cp.multiply(1 / terms["isolated_s"], finish_s)))


def makespan(cp: Any, terms: Arrays, rates: Any, _: Any) -> Any:
    """Return the makespan as a linear program: its reciprocal is the least part of the steps per second."""
    return cp.Maximize(cp.min(cp.multiply(1 / terms["steps_left"], rates)))


def min_cost(cp: Any, terms: Arrays, _: Any, shares: Any) -> Any:
    """Return the most throughput for the money."""
    return cp.Maximize(cp.sum(cp.multiply(terms["steps_per_s"] / terms["dollars_per_hour"], shares)))


OBJECTIVES: dict[str, Callable[[Any, Arrays, Any, Any], Any]] = {
    "las": las,
    "finish_time_fairness": finish_time_fairness,
    "makespan": makespan,
    "min_cost": min_cost,
}
"""By the name of the policy."""


def solved(cp: Any, policy: str, solver: str, terms: Arrays) -> Any:
    """Return the shares that a policy wants, shape (jobs, types)."""
    shares = cp.Variable(terms["steps_per_s"].shape, nonneg=True)
    rates = cp.sum(cp.multiply(terms["steps_per_s"], shares), axis=1)
    rules = [cp.sum(shares, axis=1) <= 1, terms["scale_factors"] @ shares <= terms["workers"]]
    problem = cp.Problem(OBJECTIVES[policy](cp, terms, rates, shares), rules)
    problem.solve(**({} if solver == DEFAULT else {"solver": solver}))
    return shares.value


def main(policy: str, solver: str, read: str, written: str) -> None:
    """Solve each moment of a file; write shares, CPU seconds and the name of the solver."""
    sys.modules["ortools"] = None  # type: ignore[assignment]
    import cvxpy as cp

    with np.load(read) as file:
        stacked = {name: file[name] for name in file.files}
    moments = [
        {name: values[number] for name, values in stacked.items()}
        for number in range(len(stacked["steps_per_s"]))
    ]
    solved(cp, policy, solver, moments[0])  # what is loaded at the first solution is not counted
    shares, seconds = [], []
    for terms in moments:
        began = time.process_time()
        shares.append(solved(cp, policy, solver, terms))
        seconds.append(time.process_time() - began)
    np.savez(written, shares=np.array(shares), seconds=np.array(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
