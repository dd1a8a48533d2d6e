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
from collections.abc import Sequence

from placements.models.rates import tick_for
from placements.planners.pipedream.plan import PipelinePlan, PlannedStage
from placements.spec import Block, Kind, Placement, in_chain

_MIB = 2**20

_LEAST_MS = 1e-3
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
    times = [_block_times(stage) for stage in plan.stages]
    tick_ms = tick_for(min(min(pair) for pair in times), tick_ms)
    hops = [math.ceil(stage.hop_ms / tick_ms) for stage in plan.stages[:-1]]
    last = len(plan.stages) - 1
    forwards = [(f"F{i}", f"F{i + 1}", ticks) for i, ticks in enumerate(hops)]
    backwards = [(f"B{i + 1}", f"B{i}", ticks) for i, ticks in enumerate(hops)]
    return Placement(
        f"pipedream_{plan.configuration}",
        last + 1,
        tuple(_chain(plan.stages, times, tick_ms)),
        tick_ms,
        transfer=tuple(triple for triple in (*forwards, *backwards) if triple[2]),
        memory=None if memory_mib is None else (math.floor(memory_mib),) * (last + 1),
        static_memory=tuple(_mib(stage.in_flight * stage.parameter_bytes) for stage in plan.stages),
        num_gpus=tuple(stage.replicas for stage in plan.stages),
        memory_unit_mib=1.0,
    )


def _block_times(stage: PlannedStage) -> tuple[float, float]:
    """Return the milliseconds of the forward and the backward block."""
    forward_ms = stage.forward_ms / stage.replicas
    return max(forward_ms, _LEAST_MS), max(stage.period_ms - forward_ms, _LEAST_MS)


def _chain(
    stages: Sequence[PlannedStage], times: Sequence[tuple[float, float]], tick_ms: float
) -> list[Block]:
    """Return the forwards and, in reverse, the backwards, each after the one before it."""
    held = [_mib(stage.activation_bytes) for stage in stages]
    ticks = [[round(time_ms / tick_ms) for time_ms in pair] for pair in times]
    down = [Block(f"F{i}", Kind.F, (i,), ticks[i][0], held[i]) for i in range(len(stages))]
    up = [Block(f"B{i}", Kind.B, (i,), ticks[i][1], -held[i]) for i in reversed(range(len(stages)))]
    return in_chain(down + up)


def _mib(num_bytes: float) -> int:
    return math.ceil(num_bytes / _MIB)
