"""The time between two layers that GPUs share differently (Galvatron-BMW, Sec. VI: Slice-Gather)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.reproduce.galvatron.search_2022.constants import Constants, all_reduce_groups
from experiments.reproduce.galvatron.search_2022.strategies import GalvatronStrategy

_BOUNDARY_MIB = 2
"""Of a sample. Defect: it is the same for every model."""

_MORE_SHARDED_LATER_S = 1e-4
"""So that of equal plans the one is found whose sharded layers come last."""


def transitions_s(
    constants: Constants, strategies: tuple[GalvatronStrategy, ...], batch: int
) -> NDArray[np.float64]:
    """Return the time from a layer with one strategy to a layer with another, in s.

    Args:
        constants: Constants of the model.
        strategies: With the same number of stages.
        batch: Samples of an iteration.

    Returns:
        Shape ``(len(strategies), len(strategies))``: from, to.
    """
    times = [
        [_transition_s(constants, before, after, batch) for after in strategies] for before in strategies
    ]
    return np.array(times, dtype=np.float64)


def _transition_s(
    constants: Constants, before: GalvatronStrategy, after: GalvatronStrategy, batch: int
) -> float:
    same = before.degrees == after.degrees and before.tensor_consecutive == after.tensor_consecutive
    if same and before.sharded and not after.sharded:
        return _MORE_SHARDED_LATER_S
    if not _gathers(before, after, constants.num_gpus):
        return 0.0
    degree = after.tensor_parallel
    coefficients = constants.layer_types[0].all_reduce_ms_per_mib[after.num_stages]
    activation = _BOUNDARY_MIB * batch / after.data_parallel
    return (degree - 1) * activation / degree * coefficients[all_reduce_groups(after)[1]] * 0.001


def _gathers(before: GalvatronStrategy, after: GalvatronStrategy, num_gpus: int) -> bool:
    """Return whether GPUs lack a part of what the layer before made."""
    old, new = before.tensor_parallel, after.tensor_parallel
    if new > old:
        return True
    if before.tensor_consecutive is None or after.tensor_consecutive is None:
        return False
    if before.tensor_consecutive == after.tensor_consecutive:
        return False
    if num_gpus == 8:
        return new == old or (before.num_stages == 1 and (old, new) == (4, 2))
    return new == old or (1 < new < old < 16 // before.num_stages)
