"""Gavel's programs as one writes them in cvxpy, solved and timed in a process of their own.

``python -m experiments.benchmarks.others.cvxpy_programs POLICY IN.npz OUT.npz`` reads what
`experiments.benchmarks.measures.cluster` wrote. cvxpy imports all solvers that are installed, and HiGHS'
package and OR-tools cannot be in one process; so OR-tools is hidden, and nothing of ours is imported.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Terms = Mapping[str, Any]


def las(cp: Any, terms: Terms, rates: Any, _: Any) -> Any:
    """Return max-min fairness: the least normalized throughput is as high as can be."""
    factors = terms["scale_factors"] / (terms["weights"] * terms["proportional_steps_per_s"])
    return cp.Maximize(cp.min(cp.multiply(factors, rates)))


def finish_time_fairness(cp: Any, terms: Terms, rates: Any, _: Any) -> Any:
    """Return finish-time fairness: a convex program with reciprocals, as the paper prints it."""
    finish_s = terms["waited_s"] + cp.multiply(terms["steps_left"], cp.inv_pos(rates))
    return cp.Minimize(cp.max(cp.multiply(1 / terms["isolated_s"], finish_s)))


def makespan(cp: Any, terms: Terms, rates: Any, _: Any) -> Any:
    """Return the makespan as a linear program: its reciprocal is the least part of the steps per second."""
    return cp.Maximize(cp.min(cp.multiply(1 / terms["steps_left"], rates)))


def min_cost(cp: Any, terms: Terms, _: Any, shares: Any) -> Any:
    """Return the most throughput for the money."""
    return cp.Maximize(cp.sum(cp.multiply(terms["steps_per_s"] / terms["dollars_per_hour"], shares)))


PROGRAMS: dict[str, Callable[[Any, Terms, Any, Any], Any]] = {
    "las": las,
    "finish_time_fairness": finish_time_fairness,
    "makespan": makespan,
    "min_cost": min_cost,
}
"""By the name of the policy."""


def beside(cp: Any, policy: str, solver: str | None, terms: Terms) -> tuple[float, float]:
    """Return how many times as bad the shares in ``terms`` are as cvxpy's, and cvxpy's CPU seconds.

    No solver is cvxpy's own choice.
    """
    began = time.process_time()
    shares = cp.Variable(terms["steps_per_s"].shape, nonneg=True)
    rates = cp.sum(cp.multiply(terms["steps_per_s"], shares), axis=1)
    rules = [cp.sum(shares, axis=1) <= 1, terms["scale_factors"] @ shares <= terms["workers"]]
    objective = PROGRAMS[policy](cp, terms, rates, shares)
    cp.Problem(objective, rules).solve(**({"solver": solver} if solver else {}))
    theirs, cpu_s = float(objective.value), time.process_time() - began
    shares.value = terms["shares"]
    ours = float(objective.value)
    return (theirs / ours if isinstance(objective, cp.Maximize) else ours / theirs), cpu_s


def main(policy: str, read: str, written: str) -> None:
    """Answer each moment of a file with each solver; write ratios and CPU seconds: (solvers, moments, 2)."""
    sys.modules["ortools"] = None  # type: ignore[assignment]
    import cvxpy as cp

    with np.load(read) as file:
        stacked = {name: file[name] for name in file.files}
    moments = [
        {name: values[number] for name, values in stacked.items()}
        for number in range(len(stacked["steps_per_s"]))
    ]
    is_linear = policy != "finish_time_fairness"
    answers = []
    for solver in (None, "HIGHS", "CLARABEL") if is_linear else (None,):
        beside(cp, policy, solver, moments[0])  # what is loaded at the first solution is not counted
        answers.append([beside(cp, policy, solver, terms) for terms in moments])
    np.save(written, np.array(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
