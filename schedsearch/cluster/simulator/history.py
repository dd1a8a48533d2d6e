"""Records of a simulation while it runs: the cluster in each round, decisions, allocations and runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from schedsearch.cluster.demand import FloatArray
from schedsearch.cluster.rounds import ShareMiss
from schedsearch.cluster.simulator.outcome import DecisionSeries, Round, RoundSeries, Snapshot
from schedsearch.cluster.simulator.running import RoundRuns


class History:
    """Lists that grow by one entry for each round or decision.

    Attributes:
        busy_s: GPU seconds of each type in which jobs ran.
        rounds: Begin, busy GPUs of each type, active and waiting jobs of each round.
        decisions: Time, jobs, error and shortfall of each decision.
        snapshots: Allocations that are kept.
        recorded: Who ran in each round.
    """

    def __init__(self, num_types: int) -> None:
        """Begin without any."""
        self.busy_s = np.zeros(num_types)
        self.rounds: list[tuple[float, list[int], int, int]] = []
        self.decisions: list[tuple[float, int, float, float]] = []
        self.snapshots: list[Snapshot] = []
        self.recorded: list[Round] = []

    def note_round(self, start_s: float, found: RoundRuns, waiting: int, *, is_recorded: bool) -> None:
        """Add a round, with all of its runs if it is recorded."""
        num_types = len(self.busy_s)
        busy = np.bincount(found.gpu_type, found.gpus, num_types).astype(np.int64)
        self.busy_s += np.bincount(found.gpu_type, found.gpus * (found.end_s - start_s), num_types)
        self.rounds.append((start_s, busy.tolist(), len(found.job) + waiting, waiting))
        if is_recorded:
            self.recorded.append(Round(start_s, found.recorded()))

    def settle(self, missed: ShareMiss) -> None:
        """Note what the last decision came to."""
        if self.decisions:
            self.decisions[-1] = (*self.decisions[-1][:2], *missed)

    def decide(self, now_s: float, jobs: int) -> None:
        """Add a decision."""
        self.decisions.append((now_s, jobs, math.nan, 0.0))

    def round_series(self) -> RoundSeries:
        """Return the rounds as arrays."""
        start_s, busy, active, waiting = _columns(self.rounds)
        by_type = busy.reshape(-1, len(self.busy_s)).astype(np.int64)
        return RoundSeries(start_s, by_type, active.astype(np.int64), waiting.astype(np.int64))

    def decision_series(self) -> DecisionSeries:
        """Return the decisions as arrays."""
        time_s, jobs, error, shortfall = _columns(self.decisions)
        return DecisionSeries(time_s, jobs.astype(np.int64), error, shortfall)


def _columns(rows: Sequence[tuple[object, ...]]) -> list[FloatArray]:
    """Return the four columns of rows."""
    return [np.array(column, dtype=np.float64) for column in (zip(*rows, strict=True) if rows else ((),) * 4)]
