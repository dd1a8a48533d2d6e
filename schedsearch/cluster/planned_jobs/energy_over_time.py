"""The power of a simulated cluster over time, idle GPUs included.

Read from the rounds that a simulation recorded, apart from its own sums, so that the two check each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from schedsearch.cluster.demand import FloatArray
from schedsearch.cluster.simulator.outcome import Outcome

_J_PER_KWH = 3.6e6
"""Joules in a kilowatt-hour."""


@dataclass(frozen=True, eq=False)
class EnergyOverTime:
    """The power of all GPUs as a function of time that is constant between changes.

    Attributes:
        outcome: Outcome of a simulation that recorded its rounds; after its end all GPUs are idle.
    """

    outcome: Outcome

    @cached_property
    def _changes(self) -> tuple[FloatArray, FloatArray]:
        """Return the times at which the power changes, from 0 on, and the power from each on, in W."""
        cluster = self.outcome.cluster
        idle_w = [cluster.idle_power_w.get(gpu_type, 0.0) for gpu_type in cluster.gpu_types]
        rows = [
            (done.start_s, run.end_s, run.power_w - idle_w[run.gpu_type] * len(run.gpu_ids))
            for done in self.outcome.recorded
            for run in done.runs
        ]
        begins, ends, added_w = np.array(rows, dtype=np.float64).reshape(-1, 3).T
        all_idle_w = sum(watts * n for watts, n in zip(idle_w, cluster.workers.values(), strict=True))
        times, where = np.unique(np.concatenate([[0.0], begins, ends]), return_inverse=True)
        by_time = np.bincount(where, np.concatenate([[all_idle_w], added_w, -added_w]), minlength=len(times))
        return times, np.cumsum(by_time)

    def kwh_until(self, times_s: npt.ArrayLike) -> FloatArray:
        """Return the energy from 0 until each of some times, in kWh."""
        changes_s, power_w = self._changes
        ends_s = np.append(changes_s, max(changes_s[-1], float(np.max(times_s, initial=0.0))) + 1.0)
        joules = np.concatenate([[0.0], np.cumsum(power_w * np.diff(ends_s))])
        found: FloatArray = np.interp(np.asarray(times_s, dtype=np.float64), ends_s, joules) / _J_PER_KWH
        return found

    def kw_by_hour(self, until_s: float) -> FloatArray:
        """Return the mean power in each hour of the day, in kW; of whole days, shape (24,).

        Args:
            until_s: After which no day begins; the first day counts in any case.
        """
        days = max(int(until_s // 86400), 1)
        hours = self.kwh_until(np.arange(24 * days + 1) * 3600.0)
        mean: FloatArray = np.diff(hours).reshape(days, 24).mean(axis=0)
        return mean

    @property
    def peak_w(self) -> float:
        """Return the highest power at any time."""
        return float(self._changes[1].max())

    def share_above(self, power_w: float) -> float:
        """Return the share of the time until the end in which the power is above so much."""
        times_s, found_w = self._changes
        lengths = np.diff(np.append(times_s, max(self.outcome.end_s, times_s[-1])))
        total = float(lengths.sum())
        return float(lengths[found_w > power_w * (1 + 1e-9)].sum()) / total if total else 0.0
