"""A stack of layers on one device, in this process: what a call of its script costs, what its blocks cost."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from placements import Kind, Placement
from placements.shapes import loop_shape
from runtime.clocks.clock import RecordingClock
from runtime.clocks.nvml import NvmlError, NvmlGpu
from runtime.clocks.torch_gpu import gpu_uuid
from runtime.codegen.codegen import generate
from runtime.codegen.script import Script, read_script
from runtime.execution.clock_requests import ClockRequests
from runtime.execution.process import Process
from runtime.execution.results import Position
from runtime.loops.entry import Device
from runtime.models import WHOLE, Blocks, Model
from runtime.profiling.device_profiler import BlockProfiler, NvmlMeter, WallMeter, cpu_mhz
from runtime.profiling.observer import DeviceObserver
from runtime.profiling.profiler import MeasuredCost, Profiler, Sweep
from runtime.program.deadlock import check
from runtime.program.lower import lower
from runtime.transport.in_memory import MemoryTransport, Network
from schedsearch.baselines import gpipe


def script_of(model: Mapping[str, object], num_stages: int, num_micro_batches: int) -> Script:
    """Return the script of several stages on one device: one micro-batch after the other goes forward."""
    placement = loop_shape(1, num_chunks=num_stages)
    with tempfile.TemporaryDirectory(prefix="schedsearch_") as name:
        programs = check(lower(gpipe(placement, num_micro_batches)))
        (path,) = generate(programs, {}, model, Path(name))
        return read_script(path)


@dataclass(frozen=True)
class _Alone(MemoryTransport):
    """A device that reaches no other one; its tensors live where it says, as torch names it."""

    where: str = "cpu"

    @property
    def device(self) -> torch.device:
        """Return where tensors live."""
        return torch.device(self.where)


class Alone:
    """A script of one device, with what it runs on: a device as torch names it, parameters, and blocks."""

    def __init__(self, script: Script, where: str = "cpu") -> None:
        placement: Placement = script.placement
        shards = {block.name: WHOLE for block in placement.blocks if block.kind is Kind.F}
        self._script = script
        self._transport = _Alone(Network(1), 0, frozenset(), shards, where=where)
        self.model = Model(script.model, placement, shards, self._transport.device)
        self.blocks = Blocks(placement, self.model, script.num_micro_batches)

    def device(self, observer: DeviceObserver) -> Device:
        """Return what the script calls."""
        position = Position(None, 0)
        return Device(self._script, Process(0, 1), self._transport, self.blocks, position, [observer])


@dataclass(frozen=True)
class CallTimes:
    """What a call costs, in CPU time: that of other processes is not in it.

    Attributes:
        script_ms: Each iteration of the script.
        bare_ms: Each iteration of a loop that runs the same blocks and nothing else.
        num_calls: Calls of an iteration.
        equal: Whether all losses and gradients of the two have the same bits.
    """

    script_ms: tuple[float, ...]
    bare_ms: tuple[float, ...]
    num_calls: int
    equal: bool


def time_calls(script: Script, rounds: int) -> CallTimes:
    """Run a script of one device and a bare loop over its blocks in turn, after two rounds not counted."""
    torch.set_num_threads(1)
    alone = Alone(script)
    device = alone.device(ClockRequests(RecordingClock()))

    def by_script() -> None:
        device.begin(0)
        script.iteration(device, script.num_micro_batches)
        device.finish()

    def bare() -> None:
        alone.blocks.begin(0)
        made: dict[tuple[str, str, int], Tensor] = {}
        for run in script.calls.runs:
            block, n = run.block, run.micro_batch
            arrived = [made.pop((producer, block, n)) for producer in alone.blocks.inputs[block]]
            for consumer, tensor in alone.blocks.run(block, n, arrived).items():
                made[block, consumer, n] = tensor

    times: dict[str, list[float]] = {"script": [], "bare": []}
    results: list[list[Tensor]] = []
    for _ in range(rounds + 2):
        for name, run_once in (("script", by_script), ("bare", bare)):
            for weight in alone.model.parameters.values():
                weight.grad = None
            began_s = time.process_time()
            run_once()
            times[name].append((time.process_time() - began_s) * 1000)
            results.append([*alone.blocks.losses.values(), *alone.model.gradients().values()])
    equal = all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))
    return CallTimes(tuple(times["script"][2:]), tuple(times["bare"][2:]), len(script.calls.runs), equal)


def profile_blocks(script: Script, where: str, min_ms: float) -> tuple[list[MeasuredCost], str]:
    """Measure each block's time, and its energy where NVML tells, at the clock the device takes by itself.

    All runs of a block together take ``min_ms`` at least.

    Returns:
        Costs of each block, and what was measured on which device, in words.
    """
    alone = Alone(script, where)
    profiler, measured = _profiler(torch.device(where), min_ms)
    device, index = alone.device(BlockProfiler(profiler)), 0
    while not profiler.is_done:
        device.begin(index)
        script.iteration(device, script.num_micro_batches)
        device.finish()
        for weight in alone.model.parameters.values():
            weight.grad = None
        index += 1
    return profiler.costs, measured


def _profiler(device: torch.device, min_ms: float) -> tuple[Profiler, str]:
    sweep = Sweep(min_ms=min_ms)
    if device.type != "cuda":
        profiler = Profiler(WallMeter(), sweep, current_mhz=cpu_mhz)
        return profiler, "this machine's processor, time only"
    name = torch.cuda.get_device_name(device)
    synchronize = torch.cuda.current_stream(device).synchronize
    try:
        gpu = NvmlGpu(gpu_uuid(device))
    except NvmlError as error:
        return Profiler(WallMeter(), sweep, synchronize=synchronize), f"{name}, time only: {error}"
    meter = NvmlMeter(gpu)
    profiler = Profiler(meter, sweep, current_mhz=gpu.clock_mhz, synchronize=synchronize, align=meter.align)
    return profiler, f"{name}, time and energy by NVML"


def no_gpu() -> str:
    """Return that there is no GPU; empty where there is one."""
    return "" if torch.cuda.is_available() else "there is no CUDA device"
