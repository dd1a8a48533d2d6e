"""Generated scripts on virtual GPUs: a check of plan and scripts where there is no GPU.

A message arrives when its sender has come to it, plus the placement's time for the transfer. Blocks cost what
a profile says at the clock that is in force.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from placements import Profile
from runtime.codegen.script import programs_of, read_scripts
from runtime.interpreter.interpreter import interpret
from runtime.program.calls import Message, ScriptError, Transfer
from runtime.program.data_parallel import Part
from runtime.program.error_grid import grid
from runtime.program.instructions import Programs, Run
from runtime.program.tensor_flow import tensor_inputs
from runtime.virtual.streams import Event, reach
from runtime.virtual.virtual_gpu import VirtualGpu
from schedsearch.schedule import Instance


@dataclass(frozen=True)
class VirtualRun:
    """An iteration on virtual GPUs: its length, the energy of all GPUs, and when each block began."""

    time_ms: float
    energy_mj: float
    start_ms: Mapping[Instance, float]


@dataclass(frozen=True)
class VirtualScripts:
    """The scripts of all devices, and for each device the clocks of its blocks in MHz, in their order."""

    programs: Programs
    clocks: tuple[Mapping[Instance, int | None], ...]

    @classmethod
    def read(cls, directory: str | Path) -> VirtualScripts:
        """Read ``device_0.py`` and so on; see `runtime.codegen.script.read_scripts`."""
        scripts = read_scripts(directory)
        clocks = tuple(
            {(run.block, run.micro_batch): run.clock_mhz for run in script.calls.runs} for script in scripts
        )
        return cls(programs_of(scripts), clocks)

    def run_name(self, instance: Instance) -> str:
        """Return the name under which a profile has the cost of a block in its mode."""
        block, micro_batch = instance
        chosen = self.programs.chosen
        return self.programs.placement.run_name(block, chosen[micro_batch]) if chosen else block


def run_virtually(
    scripts: VirtualScripts, profile: Profile, gpus: Sequence[VirtualGpu], waits_for_clock: bool = False
) -> VirtualRun:
    """Run one iteration.

    A clock is asked for as soon as the block before has ended, as `runtime.clocks.stream_clock` does. The
    first of each device is there when the iteration begins.

    Args:
        scripts: Scripts of all devices.
        profile: What each block's work costs; it must have the clocks that the scripts ask for.
        gpus: One for each device.
        waits_for_clock: Whether a block waits until its clock is in force, as
            `schedsearch.energy.limits.switching` has it; else it begins at the old one.

    Raises:
        ProfileError: The profile lacks a block.
        ScriptError: The scripts wait for each other, or ask for a clock that the profile lacks.
    """
    profile.require(scripts.programs.placement)
    _check_clocks(scripts, profile)
    iteration = _Iteration(scripts, profile, waits_for_clock)
    iteration.devices = [_VirtualDevice(iteration, number, gpu) for number, gpu in enumerate(gpus)]
    for program, device in zip(scripts.programs.instructions, iteration.devices, strict=True):
        interpret(program, device)
    reach(iteration.events)
    stuck: dict[int, int] = {}
    for number, program in enumerate(scripts.programs.instructions):
        for at, each in enumerate(program):
            if isinstance(each, Run) and iteration.ends[each.block, each.micro_batch].time is None:
                stuck.setdefault(number, at)
    if stuck:
        text = grid(scripts.programs, [*stuck.items()])
        raise ScriptError(f"the scripts wait for each other; generate them again\n{text}")
    time_ms = max(device.now_ms for device in iteration.devices)
    for device in iteration.devices:
        device.wait_until(time_ms)
    energy_mj = sum(device.gpu.energy_mj() - device.begin_mj for device in iteration.devices)
    start_ms = {instance: begin.time or 0.0 for instance, begin in iteration.begins.items()}
    return VirtualRun(time_ms, energy_mj, start_ms)


def _check_clocks(scripts: VirtualScripts, profile: Profile) -> None:
    """Ensure that the profile has the cost of each block at its clock.

    Raises:
        ScriptError: It does not; the message names device, block and the clocks nearest to it.
    """
    known = {name: {point.clock_mhz for point in points} for name, points in profile.points.items()}
    for device, clocks in enumerate(scripts.clocks):
        for (block, micro_batch), mhz in clocks.items():
            of_run = known[scripts.run_name((block, micro_batch))]
            if mhz is not None and mhz not in of_run:
                nearest = sorted((abs(each - mhz), each) for each in of_run)[:2]
                raise ScriptError(
                    f"device_{device}.py: {block} of micro-batch {micro_batch} has clock_mhz={mhz}, at which "
                    f"the profile has no cost; use {' or '.join(str(each) for _, each in nearest)}"
                )


class _Iteration:
    """Events, messages and blocks that the devices of an iteration share."""

    def __init__(self, scripts: VirtualScripts, profile: Profile, waits_for_clock: bool) -> None:
        self.scripts, self.waits_for_clock = scripts, waits_for_clock
        self._profile = profile
        self.inputs = tensor_inputs(scripts.programs.placement)
        self.devices: list[_VirtualDevice] = []
        self.events: list[Event] = []
        self.begins: dict[Instance, Event] = {}
        self.ends: dict[Instance, Event] = {}
        self._arrivals: dict[Message, Event] = {}

    def event(self, what: str, *after: Event, **how: Any) -> Event:
        """Return a new event of the iteration."""
        self.events.append(Event(what, list(after), **how))
        return self.events[-1]

    def transfer_ms(self, transfer: Transfer) -> float:
        """Return how long a message is on its way."""
        placement = self.scripts.programs.placement
        return placement.transfer_time(transfer.producer, transfer.consumer) * placement.tick_ms

    def arrival(self, message: Message) -> Event:
        """Return when a message arrives, which waits for its send."""
        if message not in self._arrivals:
            duration = self.transfer_ms(message.transfer)
            self._arrivals[message] = self.event(str(message), duration=duration, num_missing=1)
        return self._arrivals[message]

    def block(self, instance: Instance) -> tuple[Event, Event]:
        """Return begin and end of a block; it begins when all of its devices have come to it."""
        if instance not in self.begins:
            what = f"{instance[0]} of micro-batch {instance[1]}"
            team = self.scripts.programs.placement.by_name[instance[0]].devices
            self.begins[instance] = begin = self.event(what, num_missing=len(team))
            self.ends[instance] = self.event(what, begin, work=partial(self._work, instance, team))
        return self.begins[instance], self.ends[instance]

    def _work(self, instance: Instance, team: Sequence[int], now_ms: float) -> float:
        """Do a block's work on all of its devices; return when the last of them has done it."""
        for device in team:
            self.devices[device].wait_until(now_ms)
            self.devices[device].gpu.work(self._profile.points[self.scripts.run_name(instance)])
        return max(self.devices[device].now_ms for device in team)


class _VirtualDevice:
    """A backend of the interpreter: a virtual GPU, whose time stands where it did something last."""

    def __init__(self, iteration: _Iteration, device: int, gpu: VirtualGpu) -> None:
        """Bring the first clock in force."""
        self.gpu, self._iteration, self._device = gpu, iteration, device
        self._clocks = iteration.scripts.clocks[device]
        first = next(iter(self._clocks.values()), None)
        if first is not None:
            gpu.set(first)
            if (change_ms := gpu.until_change_ms()) < math.inf:
                gpu.wait(change_ms)
        self._begin_ms, self.begin_mj = gpu.now_ms(), gpu.energy_mj()
        self._reached: dict[Instance, Event] = {}
        self._received: dict[Transfer, Event] = {}
        self._last = iteration.event("the begin")

    @property
    def now_ms(self) -> float:
        """The device's time since its begin."""
        return self.gpu.now_ms() - self._begin_ms

    def wait_until(self, ms: float) -> None:
        """Let time pass."""
        if (left := ms - self.now_ms) > 0:
            self.gpu.wait(left)

    def run(self, block: str, micro_batch: int, clock_mhz: int | None = None, **how: Any) -> None:
        """Run a block when its clock and all that it takes let it begin.

        Raises:
            ScriptError: The script runs the block twice, or before another whose tensor it takes.
        """
        iteration, instance = self._iteration, (block, micro_batch)
        what = f"{block} of micro-batch {micro_batch}"
        if instance in self._reached:
            raise ScriptError(f"device_{self._device}.py: runs {what} twice; drop one")
        left_out = iteration.scripts.programs.left_out
        taken = [each for each in iteration.inputs[block] if (each, micro_batch) not in left_out]
        needs = [self._input(Transfer(producer, block, micro_batch)) for producer in taken]
        ask = partial(self._ask, self._clocks[instance])
        self._reached[instance] = reached = iteration.event(what, self._last, work=ask)
        begin, self._last = iteration.block(instance)
        begin.add(reached, *needs)

    def _input(self, transfer: Transfer) -> Event:
        """Return when a tensor is there that a block takes."""
        if transfer in self._received:
            return self._received[transfer]
        producer, consumer, micro_batch = transfer
        if (producer, micro_batch) not in self._reached:
            raise ScriptError(
                f"device_{self._device}.py: {consumer} of micro-batch {micro_batch} runs before {producer}, "
                "whose tensor it takes; generate the scripts again"
            )
        end, duration = self._iteration.ends[producer, micro_batch], self._iteration.transfer_ms(transfer)
        return self._iteration.event(end.what, end, duration=duration)

    def send(
        self, producer: str, consumer: str, micro_batch: int, *, target: int, part: Part | None = None
    ) -> None:
        """Send at the end of the device's block before."""
        message = Message(Transfer(producer, consumer, micro_batch), self._device, target, part)
        self._iteration.arrival(message).add(self._last)

    def receive(
        self, producer: str, consumer: str, micro_batch: int, *, source: int, part: Part | None = None
    ) -> None:
        """Let the consumer wait for a message."""
        message = Message(Transfer(producer, consumer, micro_batch), source, self._device, part)
        self._received[message.transfer] = self._iteration.arrival(message)

    def _ask(self, clock_mhz: int | None, now_ms: float) -> float:
        """Ask for a block's clock; return when that lets it begin."""
        self.wait_until(now_ms)
        if clock_mhz is not None:
            self.gpu.set(clock_mhz)
        if self._iteration.waits_for_clock and (change_ms := self.gpu.until_change_ms()) < math.inf:
            return now_ms + change_ms
        return now_ms
