"""The solvers by name, and several as one: each is asked in turn, for longer and longer, until one knows."""

from __future__ import annotations

from collections.abc import Callable

from schedsearch.repetend import Repetend
from schedsearch.solver import smt
from schedsearch.solver.query import Answer, Query, Solver, memory_turn

MANY_INSTANCES = 160
"""Blocks times micro-batches from which on Z3 rarely answers after its first slice."""


def portfolio(*solvers: Solver, first_slice_s: float = 0.5, only_first: bool = False) -> Solver:
    """Return a solver that asks several in turn until one knows: first shortly, then as long as they may.

    Args:
        solvers: In the order in which they are asked.
        first_slice_s: Seconds that each gets at first; what is left after that is shared equally.
        only_first: Whether the first gets all that is left instead.
    """
    last = solvers[:1] if only_first else solvers

    def decide(query: Query, timeout_s: float = 60.0, seed: int = 0) -> tuple[Answer, Repetend | None]:
        shortly = min(first_slice_s, timeout_s / len(solvers))
        rest = (timeout_s - shortly * len(solvers)) / len(last)
        for given, those in ((shortly, solvers), (rest, last)):
            for solver in those if given > 0 else ():
                answer, repetend = solver(query, timeout_s=given, seed=seed)
                if answer is not Answer.UNKNOWN:
                    return answer, repetend
        return Answer.UNKNOWN, None

    return decide


def _cpsat() -> Solver:
    from schedsearch.solver import cpsat  # takes a second to load, and easy questions do without

    return cpsat.decide


def _cpsat_when_asked(query: Query, timeout_s: float = 60.0, seed: int = 0) -> tuple[Answer, Repetend | None]:
    return _cpsat()(query, timeout_s=timeout_s, seed=seed)


def _z3_and_cpsat() -> Solver:
    """Return Z3 and CP-SAT in turn, the one that is more likely to know first.

    That is CP-SAT for several micro-batches where memory is shared in turns (V, chains), by some half; where
    it is not (X, waves, loops), Z3 often answers in 2 s what CP-SAT does not in 4. Of very large questions Z3
    gets only a first slice.
    """
    z3_first, cpsat_first = portfolio(smt.decide, _cpsat_when_asked), portfolio(_cpsat_when_asked, smt.decide)
    large = portfolio(_cpsat_when_asked, smt.decide, only_first=True)

    def decide(query: Query, timeout_s: float = 60.0, seed: int = 0) -> tuple[Answer, Repetend | None]:
        placement, micro_batches = query.placement, query.micro_batches
        asked = z3_first
        if micro_batches * len(placement.blocks) >= MANY_INSTANCES:
            asked = large
        elif micro_batches > 1 and all(memory_turn(placement, d) for d in range(placement.num_devices)):
            asked = cpsat_first
        return asked(query, timeout_s=timeout_s, seed=seed)

    return decide


SOLVERS: dict[str, Callable[[], Solver]] = {
    "portfolio": _z3_and_cpsat,
    "z3": lambda: smt.decide,
    "cpsat": _cpsat,
}
"""What loads each solver, by the name that the command line uses."""
