"""A pipeline plan: stages of nodes, each shared by workers that take inputs in turn, and their costs.

Times are those of one input in the steady state, as PipeDream's planner counts them: compute, exchange of
gradients and transfers go on beside each other, and the longest of all is the plan's. The module does not
know how a plan is found, nor in what order blocks run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeVar

from placements.copies.replicas import replicated
from placements.models.parallel import Cost, Pass
from placements.models.piece_placement import PieceCost, in_ticks
from placements.pieces import blocks_of, transfers_of
from placements.planners.division import Floats
from placements.spec import Placement

_MIB = 2**20

_MIN_MS = 1e-3
"""Time of a block that has nothing to do."""

Bytes = TypeVar("Bytes", float, Floats)


@dataclass(frozen=True)
class Level:
    """Components of the level below, or workers, that are joined by links (PipeDream, Sec. 2.4.1, Fig. 2.6).

    There is at least 1; each one's link to the others has `gb_per_s`, 1e9 bytes each second, above 0.
    """

    count: int
    gb_per_s: float

    def ms(self, num_bytes: Bytes) -> Bytes:
        """Return the time that bytes take on a link."""
        return num_bytes / (self.gb_per_s * 1e6)


@dataclass(frozen=True)
class PlannedStage:
    """Nodes, and the workers that share them.

    Attributes:
        nodes: Names, in topological order.
        replicas: Workers; input i is for number i modulo replicas (1F1B-RR, Sec. 2.4.2).
        forward_ms: Forward time of one input on one worker.
        backward_ms: Likewise.
        synchronisation_ms: Exchange of gradients for one input of all replicas.
        transfer_ms: For one input: its output to the next stage and the gradient back; 0 for the last.
        hop_ms: Time from the end of a forward, or of the next stage's backward, until the result is there.
        parameter_bytes: Parameter bytes of one weight version.
        activation_bytes: Outputs of its nodes for one input.
        in_flight: Inputs that each replica holds at most, each with the weights that its forward saw.
    """

    nodes: tuple[str, ...]
    replicas: int
    forward_ms: float
    backward_ms: float
    synchronisation_ms: float
    transfer_ms: float
    hop_ms: float
    parameter_bytes: float
    activation_bytes: float
    in_flight: int

    @property
    def compute_ms(self) -> float:
        """Forward and backward time for one input, over the replicas, which take inputs in turn."""
        return (self.forward_ms + self.backward_ms) / self.replicas

    @property
    def memory_mib(self) -> float:
        """Weights and activations that each replica holds at most (weight stashing, Sec. 2.4.3)."""
        return self.in_flight * (self.parameter_bytes + self.activation_bytes) / _MIB


@dataclass(frozen=True)
class PipelinePlan:
    """Stages in the order of the pipeline.

    It is exact if every cut of the model was looked at; otherwise only those of one order of its nodes.
    """

    stages: tuple[PlannedStage, ...]
    is_exact: bool

    @property
    def bottleneck(self) -> tuple[float, str, int]:
        """The longest time of an input, its cause, and its stage from 0; the first of equal ones.

        The cause is ``compute``, ``synchronisation``, or ``transfer`` of the stage that hands its output on.
        """
        causes = ("compute", "synchronisation", "transfer")
        terms = [(getattr(s, f"{cause}_ms"), cause, i) for i, s in enumerate(self.stages) for cause in causes]
        return max(terms, key=lambda term: term[0])

    @property
    def time_ms(self) -> float:
        """Time from one input to the next in the steady state: the bottleneck's time."""
        return self.bottleneck[0]

    @property
    def num_workers(self) -> int:
        """Workers of all stages."""
        return sum(stage.replicas for stage in self.stages)

    @property
    def configuration(self) -> str:
        """Replicas of each stage as in Table 2.2: ``16`` is data parallel, ``15-1`` are two stages."""
        return "-".join(str(stage.replicas) for stage in self.stages)

    @property
    def memory_mib(self) -> float:
        """The most that any worker holds."""
        return max(stage.memory_mib for stage in self.stages)


def plan_placement(plan: PipelinePlan, memory_mib: float | None = None) -> Placement:
    """Return the blocks of a plan: a chain of forwards, and of backwards in reverse, on copies of each stage.

    Each worker is a device: the workers of a stage are its copies, which take different inputs in turn
    (1F1B-RR). A stage that waits for its exchange of gradients has the wait in its backward.

    Args:
        plan: Plan of the planner.
        memory_mib: Capacity of each worker; None for no limit.

    Returns:
        Transfers are the time until an output is there; that they share a link is not known. Memory is in
        MiB of one worker, rounded up: the activations of an input, and all the time the weights of each
        version that the plan keeps.
    """
    costs, hop_ms = [], 0.0
    for i, stage in enumerate(plan.stages):
        period_ms = stage.replicas * max(stage.compute_ms, stage.synchronisation_ms)
        times_ms = stage.forward_ms, period_ms - stage.forward_ms
        forward, backward = (Pass(max(ms, _MIN_MS)) for ms in times_ms)
        costs.append(PieceCost((i,), Cost(forward, backward, stage.activation_bytes), 1, hop_ms, hop_ms))
        hop_ms = stage.hop_ms
    pieces, tick_ms = in_ticks(costs)
    held_bytes = (stage.in_flight * stage.parameter_bytes for stage in plan.stages)
    stages = Placement(
        f"pipedream_{plan.configuration}",
        len(pieces),
        tuple(blocks_of(pieces)),
        tick_ms,
        transfer=transfers_of(pieces),
        memory=None if memory_mib is None else (math.floor(memory_mib),) * len(pieces),
        static_memory=tuple(math.ceil(num_bytes / _MIB) for num_bytes in held_bytes),
        memory_unit_mib=1.0,
    )
    replicas = [stage.replicas for stage in plan.stages]
    return stages if max(replicas) == 1 else replace(replicated(stages, replicas), name=stages.name)
