"""How a simulation is run: rounds, decisions, costs of starts, failures, and what is kept of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from schedsearch.cluster.gpu_cluster import ClusterError


@dataclass(frozen=True)
class FailureOptions:
    """GPUs that fail, each on its own, with exponential times.

    Attributes:
        mean_time_s: Time between the repair of a GPU and its next failure, on average.
        repair_s: A GPU that failed is away for so long.
        loses_lease: A job loses all steps since its lease began, for it writes a checkpoint only when its
            lease ends; otherwise it loses those of the round.

    Raises:
        ClusterError: A time is out of its range.
    """

    mean_time_s: float
    repair_s: float = 3600.0
    loses_lease: bool = False

    def __post_init__(self) -> None:
        """Check the numbers."""
        _at_least("failures.mean_time_s", self.mean_time_s, 0, above=True)
        _at_least("failures.repair_s", self.repair_s, 0)


@dataclass(frozen=True)
class SimulationOptions:
    """How a simulation is run.

    Attributes:
        round_s: Length of a round.
        reset_s: Least time from one decision of the policy to the next. Until it has passed, a job that
            arrived meanwhile does not run.
        seed: Seed of all draws: the order of GPU types (seed + 5) and failures (seed + 7).
        types_in_turn: GPU types choose their jobs one after another in the order of the cluster, as in
            Gavel's simulator; otherwise all stand in one queue, which meets shares better (`RoundScheduler`).
        shuffles_types: With types in turn their order is drawn in every round. Where nothing is given as
            Gavel does: if the policy has an attribute ``is_agnostic`` that is true.
        fills_idle_gpus: GPUs that would idle run jobs to which the policy gave no time on this type, but
            some elsewhere or none at all; with types in turn before a later type can. Where nothing is
            given as Gavel's simulator does: unless the policy has an attribute ``fills_idle_gpus`` that is
            false, as first in first out should, and policies that spare money.
        skips_to_arrivals: Where nothing runs, time goes on to the next arrival, as in Gavel's simulator;
            otherwise a job that waits there runs from the next decision on.
        window: First and last job, counted in the order of arrival, whose numbers are averaged; the last
            is not included. The run ends when these are done. All jobs where none is given.
        stop_at_s: Simulated time after which no round starts.
        checkpoint_s: What a job that was stopped pays when it starts again, for its checkpoint.
        restart_s: What a job pays at each start; a job that keeps its GPUs from one round to the next
            does not start again.
        failures: Failures of GPUs; none by default.
        snapshots_s: Least time between two allocations that are kept; infinite to keep none, 0 for all.
        records_rounds: Keeps who ran where in every round, so that the outcome can be replayed.

    Raises:
        ClusterError: A number is out of its range; the message names it.
    """

    round_s: float = 360.0
    reset_s: float = 1920.0
    seed: int = 0
    types_in_turn: bool = True
    shuffles_types: bool | None = None
    fills_idle_gpus: bool | None = None
    skips_to_arrivals: bool = False
    window: tuple[int, int] | None = None
    stop_at_s: float = math.inf
    checkpoint_s: float = 0.0
    restart_s: float = 0.0
    failures: FailureOptions | None = None
    snapshots_s: float = math.inf
    records_rounds: bool = False

    def __post_init__(self) -> None:
        """Check the numbers."""
        _at_least("round_s", self.round_s, 0, above=True)
        _at_least("stop_at_s", self.stop_at_s, 0, above=True, or_infinite=True)
        _at_least("snapshots_s", self.snapshots_s, 0, or_infinite=True)
        for name in ("reset_s", "checkpoint_s", "restart_s"):
            _at_least(name, getattr(self, name), 0)
        if self.checkpoint_s + self.restart_s >= self.round_s:
            raise ClusterError(
                f"checkpoint_s and restart_s: {self.checkpoint_s + self.restart_s} s leave nothing of "
                f"a round of {self.round_s} s; give a longer round_s"
            )
        if self.window is not None and not 0 <= self.window[0] < self.window[1]:
            raise ClusterError(
                f"window: {list(self.window)} has no jobs; give the first, and the one after the last"
            )


def _at_least(
    name: str, value: float, least: float, *, above: bool = False, or_infinite: bool = False
) -> None:
    is_right = value > least if above else value >= least
    if not is_right or not (or_infinite or math.isfinite(value)):
        wanted = f"above {least}" if above else f"of at least {least}"
        raise ClusterError(f"{name}: {value!r} is out of range; give a number {wanted}")
