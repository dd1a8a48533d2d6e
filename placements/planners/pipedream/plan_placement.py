"""A pipeline plan as blocks on devices, for a search that decides their order, or as a file of stages.

Each worker is a device: the workers of a stage are its copies, which take different inputs in turn (1F1B-RR).
A stage that waits for its exchange of gradients has the wait in its backward. The module does not know in
what order blocks run.
"""

from __future__ import annotations

import math
from dataclasses import replace

from placements.copies.replicas import replicated
from placements.models.parallel import Cost, Pass
from placements.models.piece_placement import PieceCost, in_ticks
from placements.pieces import blocks_of, transfers_of
from placements.planners.pipedream.plan import PipelinePlan, PlannedStage
from placements.spec import Placement

_MIB = 2**20

_MIN_MS = 1e-3
"""Time of a block that has nothing to do."""


def plan_placement(
    plan: PipelinePlan, memory_mib: float | None = None, tick_ms: float | None = None
) -> Placement:
    """Return the blocks of a plan: a chain of forwards, and of backwards in reverse, on copies of each stage.

    Args:
        plan: What the planner decided.
        memory_mib: Capacity of each worker; None for no limit.
        tick_ms: Length of a tick; see `placements.models.rates.tick_for`.

    Returns:
        Transfers are the time until an output is there; that they share a link is not known. Memory is in
        MiB of one worker, rounded up: the activations of an input, and all the time the weights of each
        version that the plan keeps.

    Raises:
        PlacementError: The tick is not above 0, or longer than the shortest block.
    """
    hops_ms = [0.0, *(stage.hop_ms for stage in plan.stages)]
    costs = [
        PieceCost((i,), _cost(stage), 1, hop_ms, hop_ms)
        for i, (stage, hop_ms) in enumerate(zip(plan.stages, hops_ms, strict=False))
    ]
    pieces, tick_ms = in_ticks(costs, tick_ms)
    stages = Placement(
        f"pipedream_{plan.configuration}",
        len(pieces),
        tuple(blocks_of(pieces)),
        tick_ms,
        transfer=transfers_of(pieces),
        memory=None if memory_mib is None else (math.floor(memory_mib),) * len(pieces),
        static_memory=tuple(_mib(stage.in_flight * stage.parameter_bytes) for stage in plan.stages),
        memory_unit_mib=1.0,
    )
    replicas = [stage.replicas for stage in plan.stages]
    return stages if max(replicas) == 1 else replace(replicated(stages, replicas), name=stages.name)


def _cost(stage: PlannedStage) -> Cost:
    """Return what an input costs a worker of a stage."""
    backward_ms = stage.period_ms * stage.replicas - stage.forward_ms
    times_ms = max(stage.forward_ms, _MIN_MS), max(backward_ms, _MIN_MS)
    return Cost(Pass(times_ms[0]), Pass(times_ms[1]), stage.activation_bytes)


def _mib(num_bytes: float) -> int:
    return math.ceil(num_bytes / _MIB)
