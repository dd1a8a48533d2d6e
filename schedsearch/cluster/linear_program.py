"""A linear program as arrays, solved by a simplex that may start from a basis.

It owns the solvers (MathOpt's GLOP and HiGHS). Programs go to MathOpt as messages filled from arrays, and
solutions come back so: its objects for each variable and coefficient take longer than the simplex.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from ortools.math_opt import callback_pb2, model_parameters_pb2, parameters_pb2, result_pb2, solution_pb2
from ortools.math_opt.core.python import solver
from ortools.math_opt.model_pb2 import ModelProto
from pybind11_abseil.status import StatusNotOk
from scipy import sparse

from schedsearch.cluster.demand import BoolArray, FloatArray

INFEASIBLE = (
    result_pb2.TERMINATION_REASON_INFEASIBLE,
    result_pb2.TERMINATION_REASON_INFEASIBLE_OR_UNBOUNDED,
)
"""Reasons that the solver gives for an infeasible program; programs are expected to be bounded."""
CERTAIN = (result_pb2.TERMINATION_REASON_OPTIMAL, *INFEASIBLE)
"""Reasons that end a program; after anything else it is solved in another way."""
PRICING = parameters_pb2.SolveParametersProto(
    glop={"feasibility_rule": "DANTZIG", "optimization_rule": "DANTZIG"}
)
"""GLOP's other rules begin with a norm of each column, which takes longer than pivots from a good basis."""
DEFAULTS = parameters_pb2.SolveParametersProto()
ANEW = model_parameters_pb2.ModelSolveParametersProto()


@dataclass(frozen=True, eq=False)
class Basis:
    """Which columns and rows are in a basis; if they are too many or too few, some are left out or added."""

    columns: BoolArray
    rows: BoolArray


@dataclass(frozen=True, eq=False)
class Solution:
    """The best values of a program.

    Attributes:
        values: Values of the columns.
        duals: Dual values of the rows; objective - matrix.T @ duals are the reduced costs.
        basis: None where the solver gave none.
    """

    values: FloatArray
    duals: FloatArray
    basis: Basis | None


@dataclass(frozen=True, eq=False)
class LinearProgram:
    """Maximizes objective @ x with lower <= matrix @ x <= upper and 0 <= x <= most.

    Attributes:
        objective: Shape (columns,), as is `most`.
        most: Above 0, or infinite.
        matrix: Shape (rows, columns).
        lower: Shape (rows,), as is `upper`; a row has one finite bound.
        upper: See `lower`.
    """

    objective: FloatArray
    most: FloatArray
    matrix: sparse.csc_array
    lower: FloatArray
    upper: FloatArray

    def solved(self, start: Basis | None) -> Solution | None:
        """Return the solution from a basis; None where there is none.

        It is solved without the basis where GLOP fails with it, and with HiGHS where GLOP is not sure.
        """
        model = self._as_message()
        found = None
        for kind, parameters, beginning in (
            (parameters_pb2.SOLVER_TYPE_GLOP, PRICING, self._beginning(start)),
            (parameters_pb2.SOLVER_TYPE_GLOP, PRICING, ANEW),
            (parameters_pb2.SOLVER_TYPE_HIGHS, DEFAULTS, ANEW),
        ):
            with suppress(StatusNotOk):
                found = _solved(model, kind, parameters, beginning)
                if found.termination.reason in CERTAIN:
                    break
        assert found is not None, "no solver could do anything with the program"
        if found.termination.reason in INFEASIBLE:
            return None
        assert found.termination.reason in CERTAIN, found.termination
        best = found.solutions[0]
        is_basic = [
            np.array(status.values) == solution_pb2.BASIS_STATUS_BASIC
            for status in (best.basis.variable_status, best.basis.constraint_status)
        ]
        return Solution(
            np.array(best.primal_solution.variable_values.values),
            np.array(best.dual_solution.dual_values.values),
            Basis(*is_basic) if best.HasField("basis") else None,
        )

    def _as_message(self) -> ModelProto:
        model, num_columns, num_rows = ModelProto(), len(self.objective), len(self.lower)
        model.variables.ids.extend(range(num_columns))
        model.variables.lower_bounds.extend([0.0] * num_columns)
        model.variables.upper_bounds.extend(self.most.tolist())
        model.variables.integers.extend([False] * num_columns)
        model.objective.maximize = True
        model.objective.linear_coefficients.ids.extend(range(num_columns))
        model.objective.linear_coefficients.values.extend(self.objective.tolist())
        model.linear_constraints.ids.extend(range(num_rows))
        model.linear_constraints.lower_bounds.extend(self.lower.tolist())
        model.linear_constraints.upper_bounds.extend(self.upper.tolist())
        matrix = self.matrix.tocsr()
        rows = np.repeat(np.arange(num_rows), np.diff(matrix.indptr))
        model.linear_constraint_matrix.row_ids.extend(rows.tolist())
        model.linear_constraint_matrix.column_ids.extend(matrix.indices.tolist())
        model.linear_constraint_matrix.coefficients.extend(matrix.data.tolist())
        return model

    def _beginning(self, start: Basis | None) -> model_parameters_pb2.ModelSolveParametersProto:
        if start is None:
            return ANEW
        columns, rows = start.columns.copy(), start.rows.copy()
        missing = len(rows) - int(rows.sum()) - int(columns.sum())
        rows[np.flatnonzero(~rows)[: max(missing, 0)]] = True
        columns[np.flatnonzero(columns)[: max(-missing, 0)]] = False
        low, high = solution_pb2.BASIS_STATUS_AT_LOWER_BOUND, solution_pb2.BASIS_STATUS_AT_UPPER_BOUND
        beginning = model_parameters_pb2.ModelSolveParametersProto()
        for status, is_basic, other in (
            (beginning.initial_basis.variable_status, columns, low),
            (beginning.initial_basis.constraint_status, rows, np.where(np.isfinite(self.lower), low, high)),
        ):
            status.ids.extend(range(len(is_basic)))
            status.values.extend(np.where(is_basic, solution_pb2.BASIS_STATUS_BASIC, other).tolist())
        return beginning


def _solved(
    model: ModelProto,
    kind: int,
    parameters: parameters_pb2.SolveParametersProto,
    beginning: model_parameters_pb2.ModelSolveParametersProto,
) -> result_pb2.SolveResultProto:
    options, calls = parameters_pb2.SolverInitializerProto(), callback_pb2.CallbackRegistrationProto()
    return solver.solve(model, kind, options, parameters, beginning, None, calls, None, None)
