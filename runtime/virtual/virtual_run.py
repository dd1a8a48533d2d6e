"""Generated scripts on virtual GPUs: a check of plan and scripts where there is no GPU.

A message arrives when its sender has come to it, plus the placement's time for the transfer. Blocks cost what
a profile says at the clock that is in force.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placements import Profile
from runtime.program.calls import Message, ScriptError, Transfer
from runtime.program.deadlock import check, operations_in_order
from runtime.program.instructions import Programs, Run
from runtime.program.tensor_flow import tensor_inputs
from runtime.virtual.virtual_gpu import VirtualGpu
from schedsearch.schedule import Instance


@dataclass(frozen=True)
class VirtualRun:
    """An iteration on virtual GPUs: its length, the energy of all GPUs, and when each block began."""

    time_ms: float
    energy_mj: float
    start_ms: Mapping[Instance, float]


def run_virtually(
    programs: Programs, profile: Profile, gpus: Sequence[VirtualGpu], waits_for_clock: bool = False
) -> VirtualRun:
    """Run one iteration of scripts; see `runtime.codegen.script.programs_of`.

    A clock is asked for as soon as the block before has ended, as `runtime.clocks.stream_clock` does. The
    first of each device is there when the iteration begins.

    Args:
        programs: Programs of the scripts of all devices, with their clocks.
        profile: What each block's work costs; it must have the clocks that the scripts ask for.
        gpus: One for each device.
        waits_for_clock: Whether a block waits until its clock is in force, as
            `schedsearch.energy.limits.switching` has it; else it begins at the old one.

    Raises:
        ProfileError: The profile lacks a block.
        UnsafeProgramsError: The scripts wait for each other, or for a tensor that nobody made.
        ScriptError: The scripts ask for a clock that the profile lacks.
    """
    check(programs)
    placement, inputs = programs.placement, tensor_inputs(programs.placement)
    profile.require(placement)
    _check_clocks(programs, profile)
    devices = [_Device(*pair) for pair in zip(gpus, _clocks(programs), strict=True)]
    arrival_ms: dict[tuple[Transfer, int], float] = {}
    start_ms: dict[Instance, float] = {}
    end_ms: dict[Instance, float] = {}

    def on_its_way_ms(transfer: Transfer) -> float:
        return placement.transfer_time(transfer.producer, transfer.consumer) * placement.tick_ms

    def input_ms(transfer: Transfer, device: int) -> float:
        """Return when a tensor is on a device, from another one or from a block of its own."""
        if (transfer, device) in arrival_ms:
            return arrival_ms[transfer, device]
        return end_ms[transfer.producer, transfer.micro_batch] + on_its_way_ms(transfer)

    for operation in operations_in_order(programs):
        if isinstance(operation, Message):  # leaves at the end of the block before
            taken, sent_ms = (operation.transfer, operation.target), devices[operation.source].now_ms
            there_ms = sent_ms + on_its_way_ms(operation.transfer)
            arrival_ms[taken] = max(there_ms, arrival_ms.get(taken, 0.0))  # of several parts the last counts
            continue
        instance = block, micro_batch = operation.block, operation.micro_batch
        team = placement.by_name[block].devices
        begins_ms = [devices[index].ask(instance, waits_for_clock) for index in team]
        for producer in inputs[block]:
            if (producer, micro_batch) not in programs.left_out:
                transfer = Transfer(producer, block, micro_batch)
                begins_ms += [input_ms(transfer, index) for index in team]
        start_ms[instance] = max(begins_ms)
        for index in team:
            devices[index].wait_until(start_ms[instance])
            devices[index].gpu.work(profile.points[_run_name(programs, instance)])
        end_ms[instance] = max(devices[index].now_ms for index in team)
        for index in team:
            devices[index].wait_until(end_ms[instance])
    time_ms = max(device.now_ms for device in devices)
    for device in devices:
        device.wait_until(time_ms)
    return VirtualRun(time_ms, sum(device.energy_mj for device in devices), start_ms)


def _clocks(programs: Programs) -> list[dict[Instance, int | None]]:
    """Return for each device the clocks of its blocks in MHz, in their order."""
    return [
        {(run.block, run.micro_batch): run.clock_mhz for run in program if isinstance(run, Run)}
        for program in programs.instructions
    ]


def _run_name(programs: Programs, instance: Instance) -> str:
    """Return the name under which a profile has the cost of a block in its mode."""
    block, micro_batch = instance
    chosen = programs.chosen
    return programs.placement.run_name(block, chosen[micro_batch]) if chosen else block


def _check_clocks(programs: Programs, profile: Profile) -> None:
    """Ensure that the profile has the cost of each block at its clock.

    Raises:
        ScriptError: It does not; the message names device, block and the clocks nearest to it.
    """
    known = {name: {point.clock_mhz for point in points} for name, points in profile.points.items()}
    for device, clocks in enumerate(_clocks(programs)):
        for (block, micro_batch), mhz in clocks.items():
            of_run = known[_run_name(programs, (block, micro_batch))]
            if mhz is not None and mhz not in of_run:
                nearest = sorted((abs(clock - mhz), clock) for clock in of_run)[:2]
                raise ScriptError(
                    f"device_{device}.py: {block} of micro-batch {micro_batch} has clock_mhz={mhz}, at which "
                    f"the profile has no cost; use {' or '.join(str(clock) for _, clock in nearest)}"
                )


class _Device:
    """A virtual GPU from the begin of an iteration on, when the first clock is in force."""

    def __init__(self, gpu: VirtualGpu, clocks: Mapping[Instance, int | None]) -> None:
        """Bring the first clock in force."""
        self.gpu, self._clocks = gpu, clocks
        first = next(iter(clocks.values()), None)
        if first is not None:
            gpu.set(first)
            if (change_ms := gpu.until_change_ms()) < math.inf:
                gpu.wait(change_ms)
        self._begin_ms, self._begin_mj = gpu.now_ms(), gpu.energy_mj()

    @property
    def now_ms(self) -> float:
        """The device's time since its begin."""
        return self.gpu.now_ms() - self._begin_ms

    @property
    def energy_mj(self) -> float:
        """The energy used since its begin."""
        return self.gpu.energy_mj() - self._begin_mj

    def wait_until(self, ms: float) -> None:
        """Let time pass."""
        if (left := ms - self.now_ms) > 0:
            self.gpu.wait(left)

    def ask(self, instance: Instance, waits_for_clock: bool) -> float:
        """Ask for a block's clock; return when that lets it begin."""
        clock_mhz = self._clocks[instance]
        if clock_mhz is not None:
            self.gpu.set(clock_mhz)
        if waits_for_clock and (change_ms := self.gpu.until_change_ms()) < math.inf:
            return self.now_ms + change_ms
        return self.now_ms
