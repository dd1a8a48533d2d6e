"""A pipeline plan as blocks on devices, for a search that decides their order, or as a file of stages.

Each stage is a device that stands for the workers that share it. In PipeDream these take different inputs in
turn (1F1B-RR), so that the stage is done with one input after another in a share of the time that each takes.
A device has no such turns: its blocks take that share, which keeps the steady state and shortens the way of
one input, and with it what is in flight: each worker holds an input for each that the device holds. A stage
that waits for its exchange of gradients has the wait in its backward. The module does not know in what order
blocks run.
"""

from __future__ import annotations

import math

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
    """Return the blocks of a plan: a chain of forwards, and of backwards in reverse.

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
    return Placement(
        f"pipedream_{plan.configuration}",
        len(pieces),
        tuple(blocks_of(pieces)),
        tick_ms,
        transfer=transfers_of(pieces),
        memory=None if memory_mib is None else (math.floor(memory_mib),) * len(pieces),
        static_memory=tuple(_mib(stage.in_flight * stage.parameter_bytes) for stage in plan.stages),
        num_gpus=tuple(stage.replicas for stage in plan.stages),
        memory_unit_mib=1.0,
    )


def _cost(stage: PlannedStage) -> Cost:
    """Return what an input costs a stage."""
    forward_ms = stage.forward_ms / stage.replicas
    times_ms = max(forward_ms, _MIN_MS), max(stage.period_ms - forward_ms, _MIN_MS)
    return Cost(Pass(times_ms[0]), Pass(times_ms[1]), stage.activation_bytes)


def _mib(num_bytes: float) -> int:
    return math.ceil(num_bytes / _MIB)
