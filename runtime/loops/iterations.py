"""The iterations of one device in any training loop: run, with the losses and the update of each.

They know neither batches nor checkpoints.
"""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

from runtime.codegen.script import Script
from runtime.execution.device import Device
from runtime.execution.device_context import DeviceContext
from runtime.models import Blocks
from runtime.orders.offered import ProgramSwitch
from runtime.plans.plan_client import DeployedPlan
from runtime.program.tensor_flow import computes_loss
from runtime.training.update import Update
from runtime.transport.agreement import not_finite
from runtime.transport.protocol import Transport

BlockLoss = tuple[str, int, float]
"""(block, micro-batch, loss)."""


class Iterations:
    """The iterations of a device; every device must call each method at the same place.

    Attributes:
        update: Completes the gradients, and moves the parameters of the job's own model.

    Args:
        context: The device and all that it runs with.
    """

    def __init__(self, context: DeviceContext) -> None:
        self._context, self._script = context, context.script
        placement, exact = self._script.placement, context.process.options.is_exact
        self.update = Update(context.model, context.blocks, placement, context.transport, exact=exact)

    def follow_plan(self) -> DeployedPlan | None:
        """Go over to a newer plan of clocks, and return it; None if there is none, or blocks are measured."""
        online = self._context.online
        if online is not None and not online.is_over():
            return None
        plan = self._context.plans.at_iteration_boundary()
        if plan is not None:
            self._context.clocks.follow(plan.clock_mhz)
        return plan

    def follow_program(self, switch: ProgramSwitch, index: int) -> str:
        """Go over to the order of the same blocks for an iteration; return the news for the user."""
        self._script, note = switch.decide(index)
        self._context.device.follow(self._script)
        return note

    def timed(self, index: int) -> float:
        """Run an iteration from a common start; return its milliseconds on this device."""
        return timed_iteration(self._script, self._context.device, index, self._context.transport)

    def run_to_add(self, index: int) -> None:
        """Run an iteration, and add its complete gradients to earlier ones."""
        before = self._set_aside()
        run_iteration(self._script, self._context.device, index)
        self.update.complete()
        for weight, gradient in before:
            weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)

    def losses(self) -> list[BlockLoss]:
        """Return the losses that this device computed in the last iteration."""
        return [(*instance, float(loss)) for instance, loss in self._context.blocks.losses.items()]

    def mean_loss(self, blocks: Blocks, num_micro_batches: int, finite_in: str = "") -> float:
        """Return the mean of all devices' losses, each taken from the block's first device.

        Args:
            blocks: Blocks that have computed them, in so many micro-batches.
            num_micro_batches: Number of micro-batches.
            finite_in: The step whose losses must be finite, in words; empty if they need not be.

        Raises:
            PipelineError: A loss is not finite and has to be.
        """
        placement, index = self._script.placement, self._context.process.device
        sinks = [block for block in placement.blocks if computes_loss(placement, block.name)]
        reported = {sink.name for sink in sinks if sink.devices[0] == index or sink.in_turns}
        instances = [(sink.name, n) for n in range(num_micro_batches) for sink in sinks]
        values = [
            float(blocks.losses[instance]) if instance[0] in reported and instance in blocks.losses else 0.0
            for instance in instances
        ]
        losses = self._context.transport.add_up(values)
        for (block, n), loss in zip(instances, losses, strict=True):
            if finite_in and not math.isfinite(loss):
                raise not_finite(placement.by_name[block].devices[0], finite_in, block, n, loss)
        return sum(losses) / num_micro_batches

    def _set_aside(self) -> list[tuple[Tensor, Tensor]]:
        """Take gradients of earlier steps away that are complete: summed over copies, or scaled down."""
        model = self._context.model
        summed = {name for names in model.replicas.values() for name in names}
        aside = [
            (weight, weight.grad)
            for shard, weight in model.parameters.items()
            if (model.optimizer.loss_scale is not None or shard.name in summed) and weight.grad is not None
        ]
        for weight, _ in aside:
            weight.grad = None
        return aside


def timed_iteration(script: Script, device: Device, index: int, transport: Transport) -> float:
    """Run one iteration and return the milliseconds from the common start to this device's end."""
    if transport.device.type == "cuda":
        torch.cuda.synchronize()  # the gradient step of the iteration before may still run
    transport.barrier()
    return run_iteration(script, device, index)


def run_iteration(script: Script, device: Device, index: int) -> float:
    """Run one iteration and return the milliseconds from now to this device's end."""
    start_s = time.perf_counter()
    device.begin(index)
    script.iteration(device, script.num_micro_batches)
    device.finish()
    return (time.perf_counter() - start_s) * 1000
