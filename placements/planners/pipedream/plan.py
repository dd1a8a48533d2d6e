"""A pipeline plan: stages of nodes, each shared by workers that take inputs in turn, and what they cost.

Times are those of one input in the steady state, as PipeDream's planner counts them: compute, exchange of
gradients and transfers go on beside each other, and the longest of all is the plan's. The module does not
know how a plan is found.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placements.planners.pipedream.closed_sets import ClosedSets
from placements.planners.pipedream.topology import Level

SYNCS = ("per_worker", "printed")
"""How the exchange of gradients counts: what each worker sends, or the printed formula, which counts what
all of them send as if it went through one link."""

_MIB = 2**20


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
        """Forward and backward for one input, where the replicas take inputs in turn."""
        return (self.forward_ms + self.backward_ms) / self.replicas

    @property
    def period_ms(self) -> float:
        """Time from one input to the next that the stage allows, transfers aside."""
        return max(self.compute_ms, self.synchronisation_ms)

    @property
    def memory_mib(self) -> float:
        """Weights and activations that each replica holds at most (weight stashing, Sec. 2.4.3)."""
        return self.in_flight * (self.parameter_bytes + self.activation_bytes) / _MIB


@dataclass(frozen=True)
class PipelinePlan:
    """Stages in the order of the pipeline.

    Attributes:
        stages: Stages; at least one.
        levels: The workers that they share, from the innermost level on.
        sync: One of `SYNCS`.
        is_exact: Every cut of the model was looked at; otherwise a few of each number of nodes.
    """

    stages: tuple[PlannedStage, ...]
    levels: tuple[Level, ...]
    sync: str
    is_exact: bool

    @property
    def time_ms(self) -> float:
        """Time from one input to the next in the steady state: that of the bottleneck."""
        return max(time_ms for time_ms, *_ in self._terms())

    @property
    def bottleneck(self) -> str:
        """Cause of this time: ``compute``, ``synchronisation`` or ``transfer``; the first of several."""
        return max(self._terms(), key=lambda term: term[0])[1]

    @property
    def bottleneck_stage(self) -> int:
        """The stage of the bottleneck, from 0; of a transfer, the one that hands its output on."""
        return max(self._terms(), key=lambda term: term[0])[2]

    @property
    def num_workers(self) -> int:
        """Workers of all stages."""
        return sum(stage.replicas for stage in self.stages)

    @property
    def configuration(self) -> str:
        """Replicas of each stage as in Table 2.2: ``16`` is data parallel, ``15-1`` are two stages."""
        return "-".join(str(stage.replicas) for stage in self.stages)

    @property
    def num_in_flight(self) -> int:
        """Inputs that each replica of the first stage admits before its first backward (NOAM, Sec. 2.4.2)."""
        return math.ceil(self.num_workers / self.stages[0].replicas)

    @property
    def memory_mib(self) -> float:
        """The most that any worker holds."""
        return max(stage.memory_mib for stage in self.stages)

    def _terms(self) -> Iterator[tuple[float, str, int]]:
        """Yield every time that may be the longest, with what takes it and where."""
        for i, stage in enumerate(self.stages):
            yield stage.compute_ms, "compute", i
            yield stage.synchronisation_ms, "synchronisation", i
            yield stage.transfer_ms, "transfer", i


@dataclass(frozen=True)
class PlanPart:
    """Work of copies of a component of the level below: all of them the same.

    Attributes:
        first: Index of the closed set that it begins after.
        end: Index of the one that it ends with.
        copies: Components that take inputs in turn.
        parts: What each does, in the order of the pipeline; empty where they are workers.
    """

    first: int
    end: int
    copies: int
    parts: tuple[PlanPart, ...] = ()


def plan_of(sets: ClosedSets, levels: Sequence[Level], sync: str, parts: Sequence[PlanPart]) -> PipelinePlan:
    """Return the plan of parts of the outermost level, with what it costs (Sec. 2.4.1).

    Args:
        sets: Where the model can be cut.
        levels: Levels from the innermost to the outermost.
        sync: One of `SYNCS`.
        parts: Parts from the empty set to the whole model.
    """
    stages = list(_stages(sets, levels, sync, parts))
    workers = np.cumsum([stage.replicas for stage in reversed(stages)])[::-1].tolist()
    return PipelinePlan(
        tuple(
            replace(stage, in_flight=math.ceil(left / stage.replicas))
            for stage, left in zip(stages, workers, strict=True)
        ),
        tuple(levels),
        sync,
        sets.is_complete,
    )


def synchronisation_bytes(parameter_bytes: float, copies: int, sync: str) -> float:
    """Return what a link carries where copies exchange gradients once (Sec. 2.4.1).

    Each worker sends and receives ``(copies - 1) / copies`` of the parameters; the printed formula leaves
    the division out.
    """
    sent = 2 * (copies - 1) * parameter_bytes
    return sent / copies if sync == "per_worker" else sent


def _stages(
    sets: ClosedSets,
    levels: Sequence[Level],
    sync: str,
    parts: Sequence[PlanPart],
    outer_copies: int = 1,
    outer_sync_ms: float = 0.0,
    outer_cut: tuple[float, float] = (0.0, 0.0),
) -> Iterator[PlannedStage]:
    """Yield the stages of parts, as yet without what is in flight.

    The outer copies take inputs in turn, and their exchange of gradients holds up every stage in them; the
    outer cut is the transfer after the last part.
    """
    level = levels[-1]
    for part in parts:
        copies = outer_copies * part.copies
        weights = float(sets.parameter_bytes[part.first, part.end])
        sync_ms = level.ms(synchronisation_bytes(weights, part.copies, sync)) / copies
        sync_ms = max(sync_ms, outer_sync_ms)
        hop_ms = level.ms(float(sets.cut_bytes[part.end]))
        cut = outer_cut if part is parts[-1] else (2 * hop_ms / outer_copies, hop_ms)
        if part.parts:
            yield from _stages(sets, levels[:-1], sync, part.parts, copies, sync_ms, cut)
        else:
            nodes = sets.between(part.first, part.end)
            yield PlannedStage(
                tuple(node.name for node in nodes),
                copies,
                math.fsum(node.forward_ms for node in nodes),
                math.fsum(node.backward_ms for node in nodes),
                sync_ms,
                *cut,
                math.fsum(node.parameter_bytes for node in nodes),
                math.fsum(node.activation_bytes for node in nodes),
                in_flight=0,
            )
