"""Linear programs as arrays: the same answer from any basis, and what happens where GLOP does not know."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ortools.math_opt import parameters_pb2, result_pb2
from pybind11_abseil.status import StatusNotOk
from scipy import sparse
from scipy.optimize import linprog

from schedsearch.cluster import linear_program
from schedsearch.cluster.linear_program import Basis, LinearProgram


def drawn(draw: np.random.Generator) -> LinearProgram:
    """Return a bounded program with a few rows of each direction, and zeros in its matrix."""
    num_rows, num_columns = int(draw.integers(1, 6)), int(draw.integers(1, 9))
    matrix = draw.random((num_rows, num_columns)) * (draw.random((num_rows, num_columns)) < 0.6)
    is_lower = draw.random(num_rows) < 0.4
    bounds = draw.random(num_rows)
    return LinearProgram(
        draw.normal(size=num_columns),
        draw.uniform(0.1, 1, num_columns),
        sparse.csc_array(matrix),
        np.where(is_lower, bounds, -np.inf),
        np.where(is_lower, np.inf, bounds),
    )


def best(program: LinearProgram) -> float | None:
    """Return the largest objective as scipy finds it; None if there is no solution."""
    is_lower = np.isfinite(program.lower)
    sign = np.where(is_lower, -1.0, 1.0)
    found = linprog(
        -program.objective,
        sign[:, None] * program.matrix.toarray(),
        np.where(is_lower, -program.lower, program.upper),
        bounds=np.column_stack([np.zeros(len(program.most)), program.most]),
    )
    return -float(found.fun) if found.status == 0 else None


def test_any_basis_gives_the_best_answer_or_says_that_there_is_none() -> None:
    """Also bases of too many or too few, and singular ones."""
    num_without = 0
    for seed in range(100):
        draw = np.random.default_rng(seed)
        program = drawn(draw)
        expected = best(program)
        num_without += expected is None
        rows, columns = program.matrix.shape
        bases = [
            Basis(draw.random(columns) < chance, draw.random(rows) < chance) for chance in (0, 0.3, 0.7, 1)
        ]
        for start in [None, *bases]:
            found = program.solved(start)
            assert (found is None) == (expected is None), seed
            if found is not None:
                assert program.objective @ found.values == pytest.approx(expected, rel=1e-9, abs=1e-9)
                reduced = program.objective - program.matrix.T @ found.duals
                at_price = np.where(np.isfinite(program.lower), program.lower, program.upper)
                bound = at_price @ found.duals + program.most @ np.maximum(reduced, 0)
                assert bound == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert 10 < num_without < 90


def test_glop_begins_anew_where_it_fails_and_highs_solves_what_it_is_not_sure_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = LinearProgram(
        np.ones(2), np.full(2, np.inf), sparse.csc_array(np.eye(2)), np.full(2, -np.inf), np.array([1.0, 2.0])
    )
    solved, calls = linear_program._solved, []

    def unsure(model: Any, kind: int, parameters: Any, beginning: Any) -> Any:
        calls.append((kind, beginning.HasField("initial_basis")))
        if beginning.HasField("initial_basis"):
            solved(model, -1, parameters, beginning)  # there is no such solver
        result = solved(model, kind, parameters, beginning)
        if kind == parameters_pb2.SOLVER_TYPE_GLOP:
            result.termination.reason = result_pb2.TERMINATION_REASON_IMPRECISE
        return result

    with pytest.raises(StatusNotOk):
        solved(program._as_message(), -1, linear_program.DEFAULTS, linear_program.ANEW)
    monkeypatch.setattr(linear_program, "_solved", unsure)
    found = program.solved(Basis(np.zeros(2, dtype=np.bool_), np.ones(2, dtype=np.bool_)))
    assert found is not None
    assert found.values == pytest.approx([1.0, 2.0])
    glop, highs = parameters_pb2.SOLVER_TYPE_GLOP, parameters_pb2.SOLVER_TYPE_HIGHS
    assert calls == [(glop, True), (glop, False), (highs, False)]
