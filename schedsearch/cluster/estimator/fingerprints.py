"""Throughputs of types of jobs beside reference jobs, as shares of those alone: a row for each type.

Columns are, for each GPU type and reference job, the share that the type keeps of its own throughput, and the
share that it leaves to the reference job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from schedsearch.cluster.demand import FloatArray
from schedsearch.cluster.throughputs import Throughputs

KEPT, LEFT = 0, 1
"""Places of the two shares in the last axis of `Fingerprints.shares`."""


@dataclass(frozen=True, eq=False)
class Fingerprints:
    """Shares of the throughputs alone, of jobs with one number of GPUs.

    Attributes:
        scale_factor: Scale factor of all of them.
        types: Types of jobs, the rows.
        references: Types that were profiled in pairs, among the rows.
        gpu_types: On which any of them runs.
        shares: Shape (types, gpu_types, references, 2), see `KEPT` and `LEFT`; 0 where two cannot share, nan
            where it is not known.
    """

    scale_factor: int
    types: tuple[str, ...]
    references: tuple[str, ...]
    gpu_types: tuple[str, ...]
    shares: FloatArray

    @cached_property
    def row(self) -> Mapping[str, int]:
        """Return the row of each type."""
        return {job_type: row for row, job_type in enumerate(self.types)}

    def flat(self) -> FloatArray:
        """Return the shares as a matrix, shape (types, columns)."""
        return self.shares.reshape(len(self.types), -1)


def fingerprints(throughputs: Throughputs, scale_factor: int, references: Sequence[str]) -> Fingerprints:
    """Return what throughputs say of the jobs with one number of GPUs.

    Args:
        throughputs: Alone, and in those pairs that were measured.
        scale_factor: Scale factor of the jobs.
        references: Types, of which those count that have this number of GPUs.
    """
    types = tuple(job_type for job_type, gpus in throughputs.alone if gpus == scale_factor)
    columns = tuple(one for one in references if one in types)
    gpu_types = tuple(
        dict.fromkeys(gpu_type for one in types for gpu_type in throughputs.alone[one, scale_factor])
    )
    shares = np.full((len(types), len(gpu_types), len(columns), 2), np.nan)
    for row, one in enumerate(types):
        for column, other in enumerate(columns):
            measured = throughputs.pair(one, other, scale_factor)
            for number, gpu_type in enumerate(gpu_types):
                if gpu_type in measured:
                    shares[row, number, column] = _shares(
                        measured[gpu_type],
                        throughputs.rate(one, scale_factor, gpu_type),
                        throughputs.rate(other, scale_factor, gpu_type),
                    )
    return Fingerprints(scale_factor, types, columns, gpu_types, shares)


def _shares(rates: tuple[float, float], alone: float, other_alone: float) -> tuple[float, float]:
    if not (all(rates) and alone and other_alone):
        return 0.0, 0.0
    return rates[0] / alone, rates[1] / other_alone
