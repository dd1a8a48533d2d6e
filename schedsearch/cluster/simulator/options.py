"""Options of a simulation: rounds, decisions, costs of job starts, and recorded figures."""

from __future__ import annotations

import math
from dataclasses import dataclass

from schedsearch.cluster.gpu_cluster import ClusterError, require


@dataclass(frozen=True)
class SimulationOptions:
    """Options of a simulation.

    Attributes:
        round_s: Length of a round.
        reset_s: Least time from one decision of the policy to the next. Until it has passed, a job that
            arrived meanwhile does not run.
        seed: Seed of the order of GPU types (seed + 5).
        types_in_turn: As in Gavel's simulator GPU types choose their jobs one after another, in the order of
            the cluster, or in one drawn in every round if the policy has an ``is_agnostic`` that is true.
            GPUs that would idle run jobs to which the policy gave no time on this type, but some elsewhere or
            none at all, unless the policy has a ``fills_idle_gpus`` that is false. Otherwise all stand in one
            queue, which meets shares better (`RoundScheduler`), and none without a share runs.
        skips_to_arrivals: Where nothing runs, time goes on to the next arrival, as in Gavel's simulator;
            otherwise a job that waits there runs from the next decision on.
        window: First and last job, counted in the order of arrival, whose numbers are averaged; the last
            is not included. The run ends when these are done. All jobs where none is given.
        stop_at_s: Simulated time after which no round starts.
        checkpoint_s: Seconds that a stopped job loses when it starts again, for its checkpoint.
        restart_s: Seconds that a job loses at each start; a job that keeps its GPUs from one round to the
            next does not start again.
        records_rounds: Keeps who ran where in every round, so that the outcome can be replayed.

    Raises:
        ClusterError: A number is out of its range; the message names it.
    """

    round_s: float = 360.0
    reset_s: float = 1920.0
    seed: int = 0
    types_in_turn: bool = True
    skips_to_arrivals: bool = False
    window: tuple[int, int] | None = None
    stop_at_s: float = math.inf
    checkpoint_s: float = 0.0
    restart_s: float = 0.0
    records_rounds: bool = False

    def __post_init__(self) -> None:
        """Check the numbers."""
        require(0 < self.round_s < math.inf, "round_s", self.round_s, "a number above 0; give seconds")
        require(self.stop_at_s > 0, "stop_at_s", self.stop_at_s, "a number above 0; give seconds")
        for name in ("reset_s", "checkpoint_s", "restart_s"):
            value = getattr(self, name)
            require(0 <= value < math.inf, name, value, "a number of at least 0; give seconds")
        if self.checkpoint_s + self.restart_s >= self.round_s:
            raise ClusterError(
                f"checkpoint_s and restart_s: {self.checkpoint_s + self.restart_s} s leave nothing of "
                f"a round of {self.round_s} s; give a longer round_s"
            )
        if self.window is not None and not 0 <= self.window[0] < self.window[1]:
            raise ClusterError(
                f"window: {list(self.window)} has no jobs; give the first, and the one after the last"
            )
