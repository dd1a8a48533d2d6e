"""How hard a search tries: what a solver may spend on a question."""

from __future__ import annotations

from dataclasses import dataclass

from schedsearch.solver.query import Spend, uncounted


@dataclass(frozen=True)
class SolverBudget:
    """How hard to try.

    Attributes:
        work: CP-SAT's deterministic time, about a second each.
        timeout_s: Seconds after which to give up all the same.
        seed: Seed of the solver's random choices.
        spend: Told how much work was done.
    """

    work: float
    timeout_s: float
    seed: int
    spend: Spend = uncounted
