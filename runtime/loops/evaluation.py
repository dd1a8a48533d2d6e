"""Forward blocks alone, between iterations of a training: a program of its own, proved like any other.

It knows the placement, not the schedule of the training: forward blocks run in the order of a steady state
with as many micro-batches in flight as the busiest device can feed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from placements import Kind, Placement
from runtime.execution.device import Device
from runtime.execution.device_context import DeviceContext
from runtime.execution.results import Position
from runtime.interpreter.interpreter import interpret
from runtime.loops.iterations import run_iteration
from runtime.models import Blocks
from runtime.program.deadlock import check
from runtime.program.instructions import Programs
from runtime.program.lower import by_lane, lower
from runtime.program.tensor_flow import restricted
from runtime.transport.agreement import PipelineError
from schedsearch.schedule import Instance, as_soon_as_possible


@cache
def forward_programs(placement: Placement, num_micro_batches: int) -> Programs:
    """Return proved programs of a placement's forward blocks alone; slices stay in their order.

    >>> from placements.shapes import v_shape
    >>> print(forward_programs(v_shape(2), 2))
    device 0
        run F0 #0
        send F0 -> F1 #0 to 1
        run F0 #1
        send F0 -> F1 #1 to 1
    device 1
        receive F0 -> F1 #0 from 0
        run F1 #0
        receive F0 -> F1 #1 from 0
        run F1 #1
    """
    placement = restricted(placement, {block.name for block in placement.blocks if block.kind is Kind.F})
    orders = [_order(placement, device, num_micro_batches) for device in range(placement.num_devices)]
    return check(lower(as_soon_as_possible(placement, num_micro_batches, by_lane(placement, orders))))


def _order(placement: Placement, device: int, num_micro_batches: int) -> list[Instance]:
    """Return a device's blocks as they would start if one micro-batch began in every period.

    All devices sort by the same starts, and a block starts after those that it takes from, so the orders of
    the devices cannot wait for each other.
    """
    period = max(sum(block.time for block in placement.on(rank)) for rank in range(placement.num_devices))
    starts: dict[str, tuple[int, int]] = {}
    for i, block in enumerate(placement.topological_order):
        ends = [starts[name][0] + placement.by_name[name].time for name in block.after]
        starts[block.name] = max(ends, default=0), i
    instances = [(block.name, n) for block in placement.on(device) for n in range(num_micro_batches)]
    return sorted(instances, key=lambda at: (starts[at[0]][0] + at[1] * period, starts[at[0]][1]))


class Evaluation:
    """The forward blocks of a device, for one number of micro-batches.

    Attributes:
        blocks: Its blocks; after a run they have its losses.

    Args:
        context: The device of the training, and all that it runs with.
        num_micro_batches: Number of micro-batches of one evaluation.

    Raises:
        PipelineError: Copies of a stage take micro-batches in turn.
    """

    def __init__(self, context: DeviceContext, num_micro_batches: int) -> None:
        script, process = context.script, context.process
        if any(block.in_turns for block in script.placement.blocks):
            raise PipelineError(
                "eval_step: knows no copies of stages that take micro-batches in turn; evaluate saved "
                "weights in a job without copies"
            )
        programs = forward_programs(script.placement, num_micro_batches)
        self._script = replace(
            script,
            iteration=lambda device, _: interpret(programs.instructions[process.device], device),
            placement=programs.placement,
            num_micro_batches=num_micro_batches,
            specs=None,
            batch=(),
        )
        self.blocks = Blocks(programs.placement, context.model, num_micro_batches)
        position = Position(None, process.device)
        self._device = Device(self._script, process, context.transport, self.blocks, position)

    def run(self, iteration: int) -> None:
        """Run it as an iteration, whose micro-batches a model with data of its own reads."""
        run_iteration(self._script, self._device, iteration)
