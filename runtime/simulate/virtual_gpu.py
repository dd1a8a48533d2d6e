"""Generated scripts on simulated GPUs, in virtual time: a check of plan and scripts where there is no GPU.

Each GPU has a time of its own; a message arrives when its sender has reached it, plus the placement's time
for the transfer. Blocks do the work of a profile at whatever clock is in force. Not known here: jitter, heat,
and what the blocks compute. Any GPU will do that is a `VirtualGpu`; tests drive the NVML path with another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from placements import OperatingPoint, Placement, Profile
from runtime.codegen.script import read_scripts
from runtime.profiling.records import BlockRecord, MessageRecord, Record, Sample
from runtime.program.calls import Calls, Run, ScriptError, Transfer
from runtime.program.instructions import Receive, Send
from runtime.program.tensor_flow import tensor_inputs
from schedsearch.schedule import Instance


class VirtualGpu(Protocol):
    """A GPU whose time moves only when it is told to; its `set` is that of a `runtime.clocks.clock.Clock`."""

    def set(self, clock_mhz: int) -> None:
        """Ask for a clock; it is in force after the GPU's latency."""

    def now_ms(self) -> float:
        """Return its time."""

    def energy_mj(self) -> float:
        """Return what it has used."""

    def until_change_ms(self) -> float:
        """Return how long until the clock asked for is in force; infinity if it is already."""

    def wait(self, ms: float) -> None:
        """Let time pass at the blocking power."""

    def work(self, points: Sequence[OperatingPoint]) -> None:
        """Do a block's work, of which the points say what all of it costs at each clock."""


class SimulatedGpu:
    """A GPU in memory. It is a clock as well: the third backend, beside `NvmlClock` and `RecordingClock`.

    Attributes:
        description: One line: what becomes of the requests.
        requests: Every clock asked for, in order; MHz.
        clock_mhz: In force.

    Args:
        highest_mhz: Where it begins, and what a reset gives back.
        blocking_power_w: While it waits.
        latency_ms: From a request until the clock is in force.
    """

    def __init__(self, highest_mhz: int, blocking_power_w: float, latency_ms: float = 0.0) -> None:
        """Begin at time 0."""
        self.description = "clocks are simulated, in virtual time; no GPU is controlled"
        self.requests: list[int] = []
        self.clock_mhz = self._wanted_mhz = self._highest_mhz = highest_mhz
        self._blocking_power_w = blocking_power_w
        self._latency_ms = latency_ms
        self._in_force_ms = 0.0
        self._now_ms = 0.0
        self._energy_mj = 0.0

    def set(self, clock_mhz: int) -> None:
        """Ask for a clock; a request that is not in force yet is forgotten."""
        self.requests.append(clock_mhz)
        self._want(clock_mhz)

    def reset(self) -> None:
        """Ask for the highest clock."""
        self._want(self._highest_mhz)

    def now_ms(self) -> float:
        """Return its time."""
        return self._now_ms

    def energy_mj(self) -> float:
        """Return what it has used."""
        return self._energy_mj

    def until_change_ms(self) -> float:
        """Return how long until the clock asked for is in force; infinity if it is already."""
        return math.inf if self._wanted_mhz == self.clock_mhz else self._in_force_ms - self._now_ms

    def wait(self, ms: float) -> None:
        """Let time pass at the blocking power."""
        self._spend(ms, self._blocking_power_w)

    def work(self, points: Sequence[OperatingPoint]) -> None:
        """Do a block's work; at a clock without a point, as at the nearest one with."""
        left = 1.0
        while left > 0:
            point = min(points, key=lambda point: abs(point.clock_mhz - self.clock_mhz))
            rest_ms, change_ms = left * point.time_ms, self.until_change_ms()
            left = left - change_ms / point.time_ms if change_ms < rest_ms else 0.0
            self._spend(min(rest_ms, change_ms), point.energy_mj / point.time_ms)

    def _want(self, clock_mhz: int) -> None:
        if clock_mhz != self._wanted_mhz:
            self._wanted_mhz, self._in_force_ms = clock_mhz, self._now_ms + self._latency_ms
            self._spend(0.0, 0.0)

    def _spend(self, ms: float, power_w: float) -> None:
        arrives = ms >= self.until_change_ms()
        self._now_ms += ms
        self._energy_mj += power_w * ms
        if arrives:
            self.clock_mhz = self._wanted_mhz


@dataclass(frozen=True)
class VirtualRun:
    """What an iteration did on virtual GPUs.

    Attributes:
        time_ms: From its begin to the end of the last block.
        energy_mj: Of all GPUs over that time.
        start_ms: Of each (block, micro-batch).
        records: What each device did.
    """

    time_ms: float
    energy_mj: float
    start_ms: Mapping[Instance, float]
    records: tuple[Record, ...]


@dataclass(frozen=True)
class VirtualScripts:
    """The scripts of all devices, read for a virtual run.

    Attributes:
        placement: What runs where.
        steps: For each device its calls, in order: runs, and transfers with the device at the other end.
    """

    placement: Placement
    steps: tuple[tuple[_Step, ...], ...]

    @classmethod
    def read(cls, directory: str | Path) -> VirtualScripts:
        """Read ``device_0.py`` and so on.

        Raises:
            ScriptError: See `runtime.codegen.script.read_scripts`.
        """
        scripts = read_scripts(directory)
        return cls(scripts[0].placement, tuple(tuple(_steps(script.calls)) for script in scripts))


def run_virtually(
    scripts: VirtualScripts, profile: Profile, gpus: Sequence[VirtualGpu], waits_for_clock: bool = False
) -> VirtualRun:
    """Run one iteration.

    A clock is asked for as soon as the block before has ended, as `runtime.clocks.stream_clock` does. The
    first of each device is there when the iteration begins.

    Args:
        scripts: Of all devices.
        profile: What each block's work costs; it must have the clocks that the scripts ask for.
        gpus: One for each device.
        waits_for_clock: Whether a block waits until its clock is in force, as
            `schedsearch.energy.switching` has it; else it begins at the old one.

    Raises:
        ProfileError: The profile lacks a block.
        ScriptError: The scripts wait for each other, or ask for a clock that the profile lacks.
    """
    profile.require(scripts.placement)
    _check_clocks(scripts, profile)
    return _Virtual(scripts, profile, gpus, waits_for_clock).run()


def _check_clocks(scripts: VirtualScripts, profile: Profile) -> None:
    """Ensure that the profile says what each block costs at its clock.

    Raises:
        ScriptError: It does not; the message names device, block and the clocks nearest to it.
    """
    clocks = {block: {point.clock_mhz for point in points} for block, points in profile.points.items()}
    for device, steps in enumerate(scripts.steps):
        for run in (step.run for step in steps if step.run is not None):
            mhz, known = run.clock_mhz, clocks[run.block]
            if mhz is not None and mhz not in known:
                nearest = sorted((abs(each - mhz), each) for each in known)[:2]
                raise ScriptError(
                    f"device_{device}.py: {run} has clock_mhz={mhz}, at which the profile has no cost; use "
                    f"{' or '.join(str(each) for _, each in nearest)}"
                )


@dataclass(frozen=True)
class _Step:
    """A call of a script: a run, or a transfer that is sent, or received, from or to another device."""

    run: Run | None = None
    sends: Transfer | None = None
    receives: Transfer | None = None
    other: int = 0


def _steps(calls: Calls) -> Iterator[_Step]:
    """Yield a script's calls, in order."""
    runs = iter(calls.runs)
    for each in calls.instructions:
        if isinstance(each, Send):
            yield _Step(sends=Transfer(each.producer, each.consumer, each.micro_batch), other=each.target)
        elif isinstance(each, Receive):
            yield _Step(receives=Transfer(each.producer, each.consumer, each.micro_batch), other=each.source)
        else:
            yield _Step(run=next(runs))


class _Virtual:
    """One iteration under way."""

    def __init__(
        self, scripts: VirtualScripts, profile: Profile, gpus: Sequence[VirtualGpu], waits_for_clock: bool
    ) -> None:
        self.placement, self.steps = scripts.placement, scripts.steps
        self.profile, self.gpus, self.waits_for_clock = profile, gpus, waits_for_clock
        self.inputs = tensor_inputs(self.placement)
        self.position = [0] * len(gpus)
        self.asked = [False] * len(gpus)
        self.there_ms: dict[tuple[Transfer, int], float] = {}
        self.expected: dict[tuple[Transfer, int], MessageRecord] = {}
        self.begin_ms = [0.0] * len(gpus)
        self.start_ms: dict[Instance, float] = {}
        self.blocks: list[list[BlockRecord]] = [[] for _ in gpus]
        self.sends: list[list[MessageRecord]] = [[] for _ in gpus]
        self.clock_mhz: list[list[Sample]] = [[] for _ in gpus]

    def run(self) -> VirtualRun:
        """Begin with the first clocks in force, go on while anything moves, end together."""
        for device, gpu in enumerate(self.gpus):
            first = next((step.run for step in self.steps[device] if step.run), None)
            if first is not None and first.clock_mhz is not None:
                gpu.set(first.clock_mhz)
                if (change_ms := gpu.until_change_ms()) < math.inf:
                    gpu.wait(change_ms)
            self.begin_ms[device] = gpu.now_ms()
        before_mj = [gpu.energy_mj() for gpu in self.gpus]
        while sum(self._advance(device) for device in range(len(self.gpus))):
            pass
        if any(at < len(steps) for at, steps in zip(self.position, self.steps, strict=True)):
            raise ScriptError("the scripts wait for each other; generate them again")
        time_ms = max(self._now_ms(device) for device in range(len(self.gpus)))
        for device in range(len(self.gpus)):
            self._wait_until(device, time_ms)
        after_mj = [gpu.energy_mj() for gpu in self.gpus]
        records = tuple(self._record(device, time_ms) for device in range(len(self.gpus)))
        return VirtualRun(time_ms, sum(after_mj) - sum(before_mj), self.start_ms, records)

    def _record(self, device: int, end_ms: float) -> Record:
        """Return what a device did; all share one clock, and begin at 0."""
        receives = tuple(end for (_, target), end in self.expected.items() if target == device)
        return Record(
            device,
            0,
            "virtual time",
            0.0,
            end_ms,
            tuple(self.blocks[device]),
            receives,
            tuple(self.sends[device]),
            tuple(self.clock_mhz[device]),
        )

    def _now_ms(self, device: int) -> float:
        return self.gpus[device].now_ms() - self.begin_ms[device]

    def _wait_until(self, device: int, ms: float) -> None:
        if (left := ms - self._now_ms(device)) > 0:
            self.gpus[device].wait(left)

    def _advance(self, device: int) -> bool:
        """Carry out what a device can do by now; tell whether that was anything."""
        begin = self.position[device]
        while self.position[device] < len(self.steps[device]):
            step = self.steps[device][self.position[device]]
            if step.run is not None:
                if not self._run_block(device, step.run):
                    break
                continue
            now_ms = self._now_ms(device)
            if step.sends is not None:
                there_ms = now_ms + self._transfer_ms(step.sends)
                self.there_ms[step.sends, step.other] = there_ms
                end = MessageRecord(*step.sends, device, step.other, now_ms, ended_ms=there_ms)
                self.sends[device].append(end)
            elif step.receives is not None:
                end = MessageRecord(*step.receives, step.other, device, now_ms)
                self.expected[step.receives, device] = end
            self.position[device] += 1
        return self.position[device] > begin

    def _run_block(self, device: int, run: Run) -> bool:
        """Run a block on all its devices if all are there and its tensors come; tell whether it ran."""
        if not self.asked[device]:
            if run.clock_mhz is not None:
                self.gpus[device].set(run.clock_mhz)
                self.clock_mhz[device].append(Sample(self._now_ms(device), run.clock_mhz))
            self.asked[device] = True
        team = self.placement.by_name[run.block].devices
        if not all(self._next_run(other) == run and self.asked[other] for other in team):
            return False
        needed = [
            (Transfer(producer, run.block, run.micro_batch), other)
            for producer in self.inputs[run.block]
            for other in team
        ]
        if any(each in self.expected and each not in self.there_ms for each in needed):
            return False
        start_ms = max([self._now_ms(other) for other in team] + [self.there_ms[each] for each in needed])
        if self.waits_for_clock:
            start_ms = max(start_ms, *(self._in_force_ms(other) for other in team))
        self.start_ms[run.block, run.micro_batch] = start_ms
        reached_ms = {other: self._now_ms(other) for other in team}
        for transfer, other in needed:
            if end := self.expected.get((transfer, other)):
                taken_ms = max(reached_ms[other], self.there_ms[transfer, other])
                end = end._replace(waited_ms=reached_ms[other], ended_ms=taken_ms)
                self.expected[transfer, other] = end
        for other in team:
            self._wait_until(other, start_ms)
            self.gpus[other].work(self.profile.points[run.block])
        end_ms = max(self._now_ms(other) for other in team)
        for other in team:
            self._wait_until(other, end_ms)
            times_ms = reached_ms[other], start_ms, start_ms, end_ms
            self.blocks[other].append(BlockRecord(run.block, run.micro_batch, *times_ms))
            self.position[other] += 1
            self.asked[other] = False
            for consumer in self.placement.successors[run.block]:
                made = Transfer(run.block, consumer, run.micro_batch)
                if (made, other) not in self.expected:
                    self.there_ms.setdefault((made, other), end_ms + self._transfer_ms(made))
        return True

    def _next_run(self, device: int) -> Run | None:
        at = self.position[device]
        return self.steps[device][at].run if at < len(self.steps[device]) else None

    def _in_force_ms(self, device: int) -> float:
        change_ms = self.gpus[device].until_change_ms()
        return self._now_ms(device) + (change_ms if change_ms < math.inf else 0.0)

    def _transfer_ms(self, transfer: Transfer) -> float:
        return self.placement.transfer_time(transfer.producer, transfer.consumer) * self.placement.tick_ms
