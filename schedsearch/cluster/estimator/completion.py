"""The missing entries of a matrix of low rank, by alternating least squares.

A matrix is the means of its columns plus a product of two thin factors. Rank and regularization are chosen by
the error on entries that were held out, as nobody knows them beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from schedsearch.cluster.demand import FloatArray

BoolArray = npt.NDArray[np.bool_]

RANKS = (1, 2, 3, 5, 8)
"""Candidates, beside 0, which is the means of the columns."""

REGULARIZATIONS = (0.01, 0.1, 1.0)
"""Candidates, for entries between 0 and 1."""

FOLDS = 4
"""Groups of rows of which entries are held out in turn."""

HELD_OUT = 0.25
"""Share of the entries that are held out where no row is sparser than another."""

SWEEPS = 100
"""Alternations at most, at each regularization."""

STRONGEST = 1.0
"""The regularization that is begun with."""

CONVERGED = 1e-4
"""Change of an entry from one alternation to the next at which they end."""


@dataclass(frozen=True)
class Settings:
    """Parameters of a completion.

    Attributes:
        rank: Columns of each factor; 0 for the means of the columns alone.
        regularization: Factor on the squares of the factors' entries.
        held_out_error: Mean absolute error on entries held out; nan where none were.
    """

    rank: int
    regularization: float
    held_out_error: float = np.nan


def complete(matrix: FloatArray, rank: int, regularization: float) -> FloatArray:
    """Return a matrix with its missing entries estimated; those that are known stay.

    Args:
        matrix: Missing entries are nan.
        rank: See `Settings`.
        regularization: See `Settings`; above 0 where a row or column has fewer entries than the rank.
    """
    known = ~np.isnan(matrix)
    means = _column_means(matrix, known)
    centred = np.where(known, matrix - means, 0.0)
    rank = min(rank, *matrix.shape)
    if rank == 0:
        return np.where(known, matrix, means)
    _, sizes, right = np.linalg.svd(centred, full_matrices=False)
    columns = (right[:rank].T * np.sqrt(sizes[:rank])).astype(np.float64)
    for strength in _strengths(regularization):
        rows, columns = _alternated(centred, known, columns, strength)
    return np.where(known, matrix, means + rows @ columns.T)


def _strengths(regularization: float) -> Iterator[float]:
    """Yield regularizations down to the one asked for: begun with a weak one it may end far from the best."""
    strongest = max(STRONGEST, regularization)
    steps = math.ceil(math.log10(strongest / regularization))
    for step in range(steps, -1, -1):
        yield min(regularization * 10**step, strongest)


def _alternated(
    centred: FloatArray, known: BoolArray, columns: FloatArray, regularization: float
) -> tuple[FloatArray, FloatArray]:
    """Return the two factors, each in turn the best for the other until they no longer change."""
    before = np.zeros(centred.shape)
    for _ in range(SWEEPS):
        rows = _least_squares(centred, known, columns, regularization)
        columns = _least_squares(centred.T, known.T, rows, regularization)
        found = rows @ columns.T
        if np.abs(found - before).max() < CONVERGED:
            break
        before = found
    return rows, columns


def _column_means(matrix: FloatArray, known: BoolArray) -> FloatArray:
    """Return the mean of the known entries of each column; of all of them where a column has none."""
    counts = known.sum(axis=0)
    overall = float(matrix[known].mean()) if known.any() else 0.0
    sums = np.where(known, matrix, 0.0).sum(axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), overall)


def _least_squares(
    values: FloatArray, known: BoolArray, factor: FloatArray, regularization: float
) -> FloatArray:
    """Return for each row of values the coefficients of the factor that fit its known entries best."""
    weights = known.astype(np.float64)
    squares = factor[:, :, None] * factor[:, None, :]
    normal = np.tensordot(weights, squares, axes=1) + regularization * np.eye(factor.shape[1])
    solved = np.linalg.solve(normal, ((values * weights) @ factor)[:, :, None])
    return np.asarray(solved[:, :, 0], dtype=np.float64)


def chosen_settings(matrix: FloatArray, seed: int = 0) -> Settings:
    """Return the candidate with the least error on entries that it does not see.

    A row in which entries are held out keeps those that some row with missing entries has, so that it is as
    sparse as the rows that are to be completed.

    Args:
        matrix: Missing entries are nan.
        seed: Seed of what is held out.
    """
    random = np.random.default_rng(seed)
    order = random.permutation(len(matrix))
    held = [_held_out(matrix, order[fold::FOLDS].tolist(), random) for fold in range(min(FOLDS, len(matrix)))]
    candidates = [(0, 1.0), *product((rank for rank in RANKS if rank <= min(matrix.shape)), REGULARIZATIONS)]
    scored = [
        Settings(rank, regularization, _error(matrix, held, rank, regularization))
        for rank, regularization in candidates
    ]
    return min(scored, key=lambda settings: settings.held_out_error)


def _held_out(matrix: FloatArray, rows: Sequence[int], random: np.random.Generator) -> BoolArray:
    """Return which entries of some rows are held out."""
    known = ~np.isnan(matrix)
    sparse = np.flatnonzero(~known.all(axis=1) & known.any(axis=1))
    held = np.zeros(matrix.shape, dtype=np.bool_)
    for row in rows:
        if len(sparse):
            held[row] = known[row] & ~known[random.choice(sparse)]
        if not held[row].any():
            held[row] = known[row] & (random.random(matrix.shape[1]) < HELD_OUT)
    return held


def _error(matrix: FloatArray, held: Sequence[BoolArray], rank: int, regularization: float) -> float:
    errors = [
        np.abs(complete(np.where(hidden, np.nan, matrix), rank, regularization) - matrix)[hidden]
        for hidden in held
    ]
    found = np.concatenate(errors)
    return float(found.mean()) if len(found) else np.inf
