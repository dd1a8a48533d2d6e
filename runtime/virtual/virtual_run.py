"""Generated scripts on virtual GPUs: a check of plan and scripts where there is no GPU.

A message arrives when its sender has come to it, plus the placement's time for the transfer. Blocks cost what
a profile says at the clock that is in force.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from placements import Placement, Profile
from runtime.codegen.script import programs_of, read_scripts
from runtime.profiling.records import BlockRecord, CounterSample, MessageRecord, Record
from runtime.program.calls import ScriptError, message_of
from runtime.program.error_grid import UnsafeProgramsError
from runtime.program.instructions import Programs, Receive, Run, Send
from runtime.program.tensor_flow import tensor_inputs
from runtime.virtual.iteration import BlockCosts, Iteration, Playback
from runtime.virtual.rules import SENDER_ONLY
from runtime.virtual.virtual_gpu import VirtualGpu
from schedsearch.schedule import Instance


@dataclass(frozen=True)
class VirtualRun:
    """What an iteration did on virtual GPUs.

    Attributes:
        time_ms: Time from its begin to the end of the last block.
        energy_mj: Energy of all GPUs over that time.
        start_ms: When each (block, micro-batch) began.
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
        programs: What each device runs, sends and receives.
        clocks: For each device the clock of each block, in the order of its program; MHz, None where a script
            asks for none.
    """

    programs: Programs
    clocks: tuple[Mapping[Instance, int | None], ...]

    @classmethod
    def read(cls, directory: str | Path) -> VirtualScripts:
        """Read ``device_0.py`` and so on.

        Raises:
            ScriptError: See `runtime.codegen.script.read_scripts`.
        """
        scripts = read_scripts(directory)
        clocks = tuple(
            {(run.block, run.micro_batch): run.clock_mhz for run in script.calls.runs} for script in scripts
        )
        return cls(programs_of(scripts), clocks)

    @property
    def placement(self) -> Placement:
        """Return what runs where."""
        return self.programs.placement

    def run_name(self, instance: Instance) -> str:
        """Return the name under which a profile has the cost of a block in its mode."""
        block, micro_batch = instance
        chosen = self.programs.chosen
        return self.placement.run_name(block, chosen[micro_batch]) if chosen else block


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
    profile.require(scripts.placement)
    _check_clocks(scripts, profile)
    work = _Work(scripts, profile, gpus, waits_for_clock)
    costs = BlockCosts(work.run, work.reach)
    try:
        playback = Iteration(scripts.programs, SENDER_ONLY, costs, work.transfer_ms).play()
    except UnsafeProgramsError as error:
        raise ScriptError(f"the scripts wait for each other; generate them again\n{error}") from None
    time_ms, energy_mj = work.end()
    records = tuple(work.record(device, playback, time_ms) for device in range(len(gpus)))
    return VirtualRun(time_ms, energy_mj, playback.start_of, records)


def _check_clocks(scripts: VirtualScripts, profile: Profile) -> None:
    """Ensure that the profile says what each block costs at its clock.

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


class _Work:
    """What blocks cost on the GPUs, and what is to be recorded of that.

    Each GPU has a time of its own, which stands where its device did something last.
    """

    def __init__(
        self, scripts: VirtualScripts, profile: Profile, gpus: Sequence[VirtualGpu], waits_for_clock: bool
    ) -> None:
        """Bring the first clocks in force."""
        self._scripts, self._profile, self._gpus = scripts, profile, gpus
        self._placement = scripts.placement
        self._waits_for_clock = waits_for_clock
        self._inputs = tensor_inputs(self._placement)
        self._received = [
            {
                (each.producer, each.consumer, each.micro_batch)
                for each in program
                if isinstance(each, Receive)
            }
            for program in scripts.programs.instructions
        ]
        self._end_ms: dict[Instance, float] = {}
        self._blocks: list[dict[Instance, BlockRecord]] = [{} for _ in gpus]
        self._reached_ms: list[dict[Instance, float]] = [{} for _ in gpus]
        self._samples: list[list[CounterSample]] = [[] for _ in gpus]
        for gpu, clocks in zip(gpus, scripts.clocks, strict=True):
            first = next(iter(clocks.values()), None)
            if first is not None:
                gpu.set(first)
                if (change_ms := gpu.until_change_ms()) < math.inf:
                    gpu.wait(change_ms)
        self._begin_ms = [gpu.now_ms() for gpu in gpus]
        self._begin_mj = sum(gpu.energy_mj() for gpu in gpus)

    def reach(self, device: int, instance: Instance, now_ms: float) -> float:
        """Ask for a block's clock; return when that and what the device has at hand let it begin.

        Raises:
            ScriptError: The script runs the block twice, or before another whose tensor it takes.
        """
        if instance in self._reached_ms[device]:
            block, micro_batch = instance
            raise ScriptError(
                f"device_{device}.py: runs {block} of micro-batch {micro_batch} twice; drop one"
            )
        self._wait_until(device, now_ms)
        self._reached_ms[device][instance] = now_ms
        gpu, clock_mhz = self._gpus[device], self._scripts.clocks[device][instance]
        if clock_mhz is not None:
            gpu.set(clock_mhz)
            self._samples[device].append(CounterSample(now_ms, clock_mhz))
        begin_ms = max([now_ms, *self._at_hand_ms(device, instance)])
        if self._waits_for_clock and (change_ms := gpu.until_change_ms()) < math.inf:
            begin_ms = max(begin_ms, now_ms + change_ms)
        return begin_ms

    def _at_hand_ms(self, device: int, instance: Instance) -> Iterator[float]:
        """Yield when each tensor is there that a device takes of its own blocks."""
        block, micro_batch = instance
        for producer in self._inputs[block]:
            if (producer, micro_batch) in self._scripts.programs.left_out:
                continue
            if (producer, block, micro_batch) in self._received[device]:
                continue
            if (producer, micro_batch) not in self._end_ms:
                raise ScriptError(
                    f"device_{device}.py: {block} of micro-batch {micro_batch} runs before {producer}, whose "
                    "tensor it takes; generate the scripts again"
                )
            yield self._end_ms[producer, micro_batch] + self.transfer_ms(producer, block)

    def run(self, device: int, instance: Instance, now_ms: float) -> float:
        """Do a block's work on all of its devices; return when the last of them has done it."""
        if instance not in self._end_ms:
            team = self._placement.by_name[instance[0]].devices
            for other in team:
                self._wait_until(other, now_ms)
                self._gpus[other].work(self._profile.points[self._scripts.run_name(instance)])
            self._end_ms[instance] = max(self._now_ms(other) for other in team)
        end_ms = self._end_ms[instance]
        reached_ms = self._reached_ms[device][instance]
        self._blocks[device][instance] = BlockRecord(*instance, reached_ms, now_ms, now_ms, end_ms)
        return end_ms

    def end(self) -> tuple[float, float]:
        """Let all GPUs wait for the last block; return when that ends, and the energy of all (mJ)."""
        time_ms = max(self._now_ms(device) for device in range(len(self._gpus)))
        for device in range(len(self._gpus)):
            self._wait_until(device, time_ms)
        return time_ms, sum(gpu.energy_mj() for gpu in self._gpus) - self._begin_mj

    def record(self, device: int, playback: Playback, end_ms: float) -> Record:
        """Return what a device did; all share one clock, and begin at 0."""
        sends, receives = [], []
        for each in self._scripts.programs.instructions[device]:
            if isinstance(each, Run):
                continue
            message = message_of(device, each)
            span = playback.transfers[device, message]
            end = MessageRecord(*message.transfer, message.source, message.target, span.start)
            if isinstance(each, Send):
                sends.append(end._replace(ended_ms=span.end))
            elif (taken := self._blocks[device].get((each.consumer, each.micro_batch))) is not None:
                ended_ms = max(taken.reached_ms, span.end)
                receives.append(end._replace(waited_ms=taken.reached_ms, ended_ms=ended_ms))
            else:
                receives.append(end)
        return Record(
            device,
            0,
            "virtual time",
            0.0,
            end_ms,
            tuple(self._blocks[device].values()),
            tuple(receives),
            tuple(sends),
            tuple(self._samples[device]),
        )

    def transfer_ms(self, producer: str, consumer: str) -> float:
        """Return how long a message is on its way."""
        return self._placement.transfer_time(producer, consumer) * self._placement.tick_ms

    def _now_ms(self, device: int) -> float:
        return self._gpus[device].now_ms() - self._begin_ms[device]

    def _wait_until(self, device: int, ms: float) -> None:
        if (left := ms - self._now_ms(device)) > 0:
            self._gpus[device].wait(left)
