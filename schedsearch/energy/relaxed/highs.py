"""Linear programs: their rows, and what an answer of scipy's solver (HiGHS) says.

A failure of the solver is no proof that there is nothing. Scipy is loaded with the first program.
"""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from schedsearch.energy.graph import EnergyError, Floats, Ints

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult
    from scipy.sparse import csr_array

log = logging.getLogger(__name__)

_MODEL_ERROR = "(HiGHS Status 2:"
"""In scipy's message where HiGHS refused the program, which scipy gives the status of an infeasible one."""


class Rows:
    """Rows of a linear program, each group below what came before it.

    Attributes:
        limit: What each row must not exceed, or must be.
    """

    def __init__(self) -> None:
        self.limit: list[Floats] = []
        self._parts: list[tuple[Ints, Ints, Floats]] = []
        self._count = 0

    def add(self, limit: Floats, *parts: tuple[Ints, Ints, Floats]) -> None:
        """Add rows: (row within the group, column, value) of what must keep `limit`."""
        self._parts += [(row + self._count, column, value) for row, column, value in parts]
        self.limit.append(limit)
        self._count += len(limit)

    def matrix(self, num_columns: int) -> csr_array:
        """Return all rows."""
        from scipy.sparse import coo_array

        row, column, value = (np.concatenate([part[i] for part in self._parts]) for i in range(3))
        return coo_array((value, (row, column)), shape=(self._count, num_columns)).tocsr()


def minimized(
    cost: Floats, upper: Floats, rows: Rows, *, lower: Floats | None = None, equal: Rows | None = None
) -> OptimizeResult:
    """Return scipy's answer to a linear program.

    Args:
        cost: Cost of each column; their sum is to be least.
        upper: Bound of each column.
        rows: Must not exceed their limits.
        lower: Bound of each column; 0 by default.
        equal: Rows that must be what their limits say.
    """
    from scipy.optimize import linprog

    least = np.zeros(len(cost)) if lower is None else lower
    return linprog(
        cost,
        A_ub=rows.matrix(len(cost)),
        b_ub=np.concatenate(rows.limit),
        A_eq=None if equal is None else equal.matrix(len(cost)),
        b_eq=None if equal is None else np.concatenate(equal.limit),
        bounds=np.column_stack([least, upper]),
        method="highs",
        options={
            "presolve": False,  # takes longer than it saves
            "primal_feasibility_tolerance": 1e-9,
            "dual_feasibility_tolerance": 1e-9,
        },
    )


class SolverError(EnergyError):
    """HiGHS ended without an answer, so that nothing is known of the question."""


class SolverStatus(StrEnum):
    """What is known of a program.

    UNKNOWN is neither an answer nor a proof that there is none: the solver failed.
    """

    OPTIMAL = "OPTIMAL"
    INFEASIBLE = "INFEASIBLE"
    UNBOUNDED = "UNBOUNDED"
    UNKNOWN = "UNKNOWN"


def status_of(answer: OptimizeResult) -> SolverStatus:
    """Return what an answer of `minimized` says; tell the log of a solver that failed."""
    if answer.status == 0 and answer.x is not None:
        return SolverStatus.OPTIMAL
    if answer.status == 2 and _MODEL_ERROR not in answer.message:
        return SolverStatus.INFEASIBLE
    if answer.status == 3:
        return SolverStatus.UNBOUNDED
    log.warning("HiGHS failed, so its bound is left out: %s", answer.message)
    return SolverStatus.UNKNOWN
