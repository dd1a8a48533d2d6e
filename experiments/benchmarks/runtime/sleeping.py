"""Blocks that sleep instead of computing, with real transfers between them.

Processes that share processors cannot show that transfers overlap with computing, since both want the
processor. A block that sleeps leaves it to the transfers, as a block on a GPU does.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from experiments.benchmarks.runtime.processes import on_devices
from placements import Placement
from runtime.codegen.script import Script
from runtime.execution.process import Process
from runtime.execution.results import Position
from runtime.execution.run_options import RunOptions
from runtime.loops.entry import Device
from runtime.loops.iterations import timed_iteration
from runtime.models import Blocks
from runtime.models.blocks import Instance
from runtime.program.tensor_flow import KEEP, tensor_inputs
from runtime.program.tensor_spec import TensorSpec
from runtime.transport.process_groups import connect
from runtime.transport.protocol import Channel, Transport

_TIMEOUT_S = 300.0

_TRANSFERS = 9
"""Times that a lone transfer is measured; its time is their median."""


@dataclass(frozen=True)
class TransferWay:
    """One way to run the same schedule: the scripts of all devices, and whether transfers are blocking."""

    scripts: tuple[Script, ...]
    blocking: bool = False


@dataclass(frozen=True)
class SleepTimes:
    """What was measured.

    Attributes:
        iterations_ms: Of each way its iterations, in the order of the rounds.
        slept_ms: For each of these how long each (block, micro-batch) slept: on a busy machine a process
            wakes up late.
        transfer_ms: Of one message, while nothing else moves.
    """

    iterations_ms: Mapping[str, tuple[float, ...]]
    slept_ms: Mapping[str, tuple[Mapping[Instance, float], ...]]
    transfer_ms: float


class SleepingBlocks:
    """Stands in for `runtime.models.Blocks`; the devices of a block meet at its begin.

    Attributes:
        varies: Whether messages have other forms in another iteration.
        slept_ms: How long each (block, micro-batch) of this iteration slept.
    """

    varies = False

    def __init__(
        self, placement: Placement, transport: Transport, tick_ms: float, message_bytes: int
    ) -> None:
        """Make the one tensor that is always sent."""
        self.inputs = tensor_inputs(placement)
        self._placement, self._transport, self._tick_s = placement, transport, tick_ms / 1000
        self._tensor = torch.ones(message_bytes // 4)
        self.slept_ms: dict[Instance, float] = {}

    def begin(self, iteration: int) -> None:
        """Begin with no block that has slept; all iterations are alike."""
        self.slept_ms = {}

    def spec_between(self, producer: str, consumer: str, micro_batch: int | None = None) -> TensorSpec:
        """Return the form of every message."""
        return TensorSpec("float32", tuple(self._tensor.shape))

    def run(
        self,
        block: str,
        micro_batch: int,
        arrived: Sequence[Tensor],
        mode: str = KEEP,
        *,
        keep_weights: bool = False,
    ) -> Mapping[str, Tensor]:
        """Sleep, in every mode as long, and hand the tensor to whoever takes one.

        Raises:
            RuntimeError: What arrived is not what was sent.
        """
        here = self._placement.by_name[block]
        if any(float(tensor[-1]) != 1.0 for tensor in arrived):
            raise RuntimeError(f"{block} was given something that nobody sent")
        if len(here.devices) > 1:
            self._transport.meet(here.devices)
        began_s = time.perf_counter()
        time.sleep(here.time * self._tick_s)
        self.slept_ms[block, micro_batch] = (time.perf_counter() - began_s) * 1000
        consumers = self._placement.successors[block]
        return {consumer: self._tensor for consumer in consumers if block in self.inputs[consumer]}


def run_asleep(
    ways: Mapping[str, TransferWay], tick_ms: float, message_bytes: int, rounds: int
) -> SleepTimes:
    """Run the ways of one placement in turn, after one round that is not counted.

    A block sleeps ``tick_ms`` for each of its ticks; the bytes of a message are a multiple of 4.
    """
    first = next(iter(ways.values())).scripts[0]
    placement = first.placement
    channels = sorted({channel for way in ways.values() for channel in way.scripts[0].channels})

    def work(device: int) -> tuple[dict[str, list[_Iteration]], float]:
        transport = connect(placement, channels, device, _TIMEOUT_S)
        blocks = SleepingBlocks(placement, transport, tick_ms, message_bytes)
        found: dict[str, list[_Iteration]] = {name: [] for name in ways}
        for index in range(rounds + 1):
            for name, way in ways.items():
                script = way.scripts[device]
                runner = _device(device, blocks, transport, script, way.blocking)
                time_ms = timed_iteration(script, runner, index, transport)
                found[name].append((time_ms, blocks.slept_ms))
        return found, _transfer_ms(transport, channels[0], device, message_bytes)

    per_device = on_devices(placement.num_devices, work, _TIMEOUT_S)
    counted = {name: list(zip(*(found[name][1:] for found, _ in per_device), strict=True)) for name in ways}
    return SleepTimes(
        {name: tuple(max(time_ms for time_ms, _ in each) for each in of) for name, of in counted.items()},
        {name: tuple(_longest([slept for _, slept in each]) for each in of) for name, of in counted.items()},
        per_device[channels[0][1]][1],
    )


_Iteration = tuple[float, Mapping[Instance, float]]
"""An iteration on a device: its milliseconds, and those that each block slept."""


def _longest(per_device: Sequence[Mapping[Instance, float]]) -> dict[Instance, float]:
    """Return how long each block slept, on the device where it slept longest."""
    found: dict[Instance, float] = {}
    for instance, slept_ms in (pair for each in per_device for pair in each.items()):
        found[instance] = max(found.get(instance, 0.0), slept_ms)
    return found


def _device(
    device: int, blocks: SleepingBlocks, transport: Transport, script: Script, blocking: bool
) -> Device:
    options = Process(device, script.placement.num_devices, RunOptions(blocking=blocking))
    return Device(script, options, transport, cast(Blocks, blocks), Position(None, device))


def _transfer_ms(transport: Transport, channel: Channel, device: int, message_bytes: int) -> float:
    """Return how long a message takes to its receiver, from when both ends are there."""
    tensor, times_ms = torch.ones(message_bytes // 4), []
    for _ in range(_TRANSFERS):
        transport.barrier()
        began_s = time.perf_counter()
        if device == channel[0]:
            transport.send(tensor, channel).wait()
        elif device == channel[1]:
            transport.receive(torch.empty_like(tensor), channel).wait()
        times_ms.append((time.perf_counter() - began_s) * 1000)
    return statistics.median(times_ms)
