"""Several solvers as one: each is asked in turn, for longer and longer, until one knows."""

from __future__ import annotations

from schedsearch.repetend import Repetend
from schedsearch.solver.query import Answer, Query, Solver


def portfolio(*solvers: Solver, first_slice_s: float = 0.5) -> Solver:
    """Return a solver that asks several in turn until one knows: first shortly, then as long as they may.

    Args:
        solvers: In the order in which they are asked.
        first_slice_s: Seconds that each gets at first; what is left after that is shared equally.
    """

    def decide(query: Query, timeout_s: float = 60.0, seed: int = 0) -> tuple[Answer, Repetend | None]:
        shortly = min(first_slice_s, timeout_s / len(solvers))
        rest = timeout_s / len(solvers) - shortly
        for given in (shortly, rest):
            for solver in solvers if given > 0 else ():
                answer, repetend = solver(query, timeout_s=given, seed=seed)
                if answer is not Answer.UNKNOWN:
                    return answer, repetend
        return Answer.UNKNOWN, None

    return decide
