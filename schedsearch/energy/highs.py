"""What an answer of scipy's solvers (HiGHS) says: a failure is no proof that there is nothing."""

from __future__ import annotations

import logging
from enum import StrEnum

from scipy.optimize import OptimizeResult

from schedsearch.energy.graph import EnergyError

log = logging.getLogger(__name__)

_MODEL_ERROR = "(HiGHS Status 2:"
"""In scipy's message where HiGHS refused the program, which scipy gives the status of an infeasible one."""


class SolverError(EnergyError):
    """HiGHS ended without an answer, so that nothing is known of the question."""


class SolverStatus(StrEnum):
    """What is known of a program.

    FEASIBLE is an answer of a mixed-integer program that was stopped by its time limit; its bound holds.
    UNKNOWN is neither an answer nor a proof that there is none: the time was up before, or the solver failed.
    """

    OPTIMAL = "OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    UNBOUNDED = "UNBOUNDED"
    UNKNOWN = "UNKNOWN"

    @property
    def has_answer(self) -> bool:
        """Whether the answer may be read."""
        return self in (SolverStatus.OPTIMAL, SolverStatus.FEASIBLE)


def status_of(answer: OptimizeResult) -> SolverStatus:
    """Return what an answer of scipy's `linprog` or `milp` says; tell the log of a solver that failed."""
    stopped, refused = answer.status == 1, _MODEL_ERROR in answer.message
    if answer.x is not None and (answer.status == 0 or (stopped and "mip_gap" in answer)):
        return SolverStatus.FEASIBLE if stopped else SolverStatus.OPTIMAL
    if answer.status == 2 and not refused:
        return SolverStatus.INFEASIBLE
    if answer.status == 3:
        return SolverStatus.UNBOUNDED
    if not stopped:
        log.warning("HiGHS failed, what it would have proved is left out: %s", answer.message)
    return SolverStatus.UNKNOWN
