import numpy as np
import pytest

from schedsearch.cluster.demand import FloatArray
from schedsearch.cluster.estimator.completion import chosen_settings, complete


def low_rank(rank: int, shape: tuple[int, int] = (30, 24), seed: int = 0) -> FloatArray:
    random = np.random.default_rng(seed)
    return random.normal(size=(shape[0], rank)) @ random.normal(size=(rank, shape[1])) / rank


def hidden(matrix: FloatArray, share: float, seed: int = 1) -> FloatArray:
    return np.where(np.random.default_rng(seed).random(matrix.shape) < share, np.nan, matrix)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_matrix_of_low_rank_is_recovered(rank: int) -> None:
    """From half of its entries; the means of the columns add one to its rank."""
    matrix = low_rank(rank)
    found = complete(hidden(matrix, 0.5), rank + 1, 1e-6)
    assert np.abs(found - matrix).max() < 0.02
    assert np.abs(complete(hidden(matrix, 0.5), 0, 1.0) - matrix).max() > 0.5


def test_known_entries_stay_and_a_column_without_any_gets_the_mean() -> None:
    matrix = np.array([[1.0, 2.0, np.nan], [3.0, np.nan, np.nan]])
    found = complete(matrix, 0, 1.0)
    assert found.tolist() == [[1.0, 2.0, 2.0], [3.0, 2.0, 2.0]]
    assert not np.isnan(complete(np.full((3, 4), np.nan), 2, 0.1)).any()


def test_the_settings_are_those_of_the_least_held_out_error() -> None:
    """Of a matrix of rank 2 a sparse row is best told by a rank above 0; of noise by the means alone."""
    matrix = low_rank(2)
    matrix[0, 6:] = np.nan
    settings = chosen_settings(matrix)
    assert settings.rank in (2, 3, 5) and settings.regularization == 0.01
    assert settings.held_out_error < 0.1
    noise = np.random.default_rng(2).normal(size=(30, 24))
    noise[0, 6:] = np.nan
    assert chosen_settings(noise).rank == 0 or chosen_settings(noise).regularization == 1.0
