"""Calibration of a GPU's modelled times by runs that were measured on it.

Two factors at most: on computing, which stands for clocks and kernels, and on communication, which stands
for the network. One run cannot tell them apart, so that both are then the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.predict.modelled_run import as_modelled
from experiments.predict.run_table import NO_TABLES, RunFolder, is_table, read_run_table
from experiments.predict.runs.run import Run
from experiments.predict.runs.table_forms import RunTableError
from placements.models.costing.options import CostOptions
from placements.models.memory import FRAMEWORKS, Framework
from schedsearch.planning.uniform_run import UniformRun

MIN_SPREAD = 0.05
"""Difference of the runs' shares of communication from which the two factors are told apart."""

_ROUNDS = 6
"""Most linear fits, each around the factors of the one before: overlaps make times not quite linear."""

_SETTLED = 1e-3
"""Relative change of the factors from which they count as found."""

_STEP = 0.02
"""Relative change of the communication factor by which its share of an iteration is measured."""


@dataclass(frozen=True)
class Calibration:
    """Factors on a GPU's modelled times.

    Attributes:
        gpu: Name of the GPU.
        compute: Factor on times of products, cores and kernels.
        communication: Factor on times of collectives and transfers.
        in_words: Explanation of the factors in one line.
        runs: Names of the runs by which they were found.
    """

    gpu: str
    compute: float
    communication: float
    in_words: str
    runs: frozenset[str] = frozenset()

    def of(self, options: CostOptions) -> CostOptions:
        """Return options of costs with the factors on those that they have."""
        return _scaled(options, self.compute, self.communication)


def calibration_of(
    name: str, folder: RunFolder = NO_TABLES, framework: Framework = FRAMEWORKS["megatron"]
) -> Calibration:
    """Return the factors that a run of a folder, or a table of runs, gives.

    Args:
        name: Name of a run of the folder; or path of a table whose runs are all on one GPU.
        folder: Tables, sizes of models, and measured rates; for a path it may have no tables.
        framework: Framework of runs that do not say theirs.

    Raises:
        RunTableError: There is no such run or table, no time was measured, or GPUs differ.
    """
    if is_table(Path(name)):
        runs: Sequence[Run] = read_run_table(Path(name))
    else:
        runs = [run for run in folder.runs if run.run == name]
    measured = [run for run in runs if run.measured_ms is not None and not run.refused]
    if not measured:
        why = next((run.refused for run in runs if run.refused), "has no measured_ms")
        why = why if runs else "is no run of the tables, and no table of runs"
        raise RunTableError(f"calibrate: {name!r} {why}; name a run that was measured, or a CSV file")
    gpus = sorted({run.gpu for run in measured})
    if len(gpus) > 1:
        raise RunTableError(f"calibrate: {name!r} has runs on {' and '.join(gpus)}; give those of one GPU")
    modelled = list[UniformRun]()
    for run in measured:
        try:
            modelled.append(as_modelled(folder, run, framework))
        except ValueError as why:
            raise RunTableError(f"calibrate: {run.run}: {why}") from None
    compute, communication = _factors(modelled, np.array([run.measured_ms for run in measured]))
    if compute == communication:
        words = f"all times on {gpus[0]} are multiplied with {compute:.3f}: one figure for clocks and network"
    else:
        words = (
            f"computing on {gpus[0]} takes {compute:.3f} times as long as its rates say (clocks, kernels), "
            f"communication {communication:.3f} times (network)"
        )
    count = f"{len(measured)} run{'s' if len(measured) > 1 else ''}"
    given = frozenset(run.run for run in measured)
    return Calibration(gpus[0], compute, communication, f"{words}; by {count} of {name}", given)


def _factors(runs: Sequence[UniformRun], measured_ms: NDArray[np.float64]) -> tuple[float, float]:
    """Return the factors on computing and communication with least squares of the relative errors.

    Times are taken to be of the first degree in both, so that a time is the sum of each factor's share. Both
    factors are the same where runs hardly differ in their shares of communication.
    """
    compute = communication = 1.0
    for _ in range(_ROUNDS):
        now_ms = _times_ms(runs, compute, communication)
        exchanged_ms = (_times_ms(runs, compute, (1 + _STEP) * communication) - now_ms) / _STEP
        share = now_ms / measured_ms
        first = second = share.sum() / (share**2).sum()
        if np.ptp(exchanged_ms / now_ms) >= MIN_SPREAD:
            shares = np.stack([now_ms - exchanged_ms, exchanged_ms], axis=1) / measured_ms[:, None]
            found = np.linalg.lstsq(shares, np.ones(len(runs)), rcond=None)[0]
            first, second = found if min(found) > 0 else (first, second)
        compute, communication = float(compute * first), float(communication * second)
        if max(abs(first - 1), abs(second - 1)) < _SETTLED:
            break
    return compute, communication


def _times_ms(runs: Sequence[UniformRun], compute: float, communication: float) -> NDArray[np.float64]:
    scaled = (replace(run, options=_scaled(run.options, compute, communication)) for run in runs)
    return np.array([run.iteration_ms for run in scaled])


def _scaled(options: CostOptions, compute: float, communication: float) -> CostOptions:
    return replace(
        options,
        compute_factor=compute * options.compute_factor,
        communication_factor=communication * options.communication_factor,
    )
