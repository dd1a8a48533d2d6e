"""What a case of the runtime benchmark measures: ways of communication, what calls cost, blocks on a GPU.

Other work on the machine disturbs times. So what is compared runs in turn, and a ratio is the median of the
ratios of neighbours, with the least and the largest beside it.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path

from experiments.benchmarks.comparison import MedianRatio, Ratio
from experiments.benchmarks.results import CaseResult
from experiments.benchmarks.runtime.beside_torch import USUAL_AHEAD, run_beside_torch
from experiments.benchmarks.runtime.clock_costs import time_clock_requests
from experiments.benchmarks.runtime.one_device import cuda_is_there, profile_blocks, script_of, time_calls
from experiments.benchmarks.runtime.sleeping import Way, run_asleep
from experiments.benchmarks.timing import CpuClock
from placements import Placement
from runtime.codegen.codegen import generate
from runtime.codegen.script import Script, read_script
from runtime.execution.run_options import RunOptions
from runtime.launching.launch import launch
from runtime.program.deadlock import check
from runtime.program.instructions import Programs
from runtime.program.lower import lower
from runtime.program.prefetch import prefetch_receives
from runtime.simulate.network import Communication, play
from schedsearch.modulo.search import search
from schedsearch.schedule import Schedule

RECEIVE_AHEAD = 2
"""Blocks of its device that an early receive is posted ahead of."""

_ANY_MODEL = {"name": "synthetic", "hidden_size": 8, "sequence_length": 6, "micro_batch_size": 2}
"""For scripts whose blocks are replaced."""


def asleep(
    placement: Placement,
    num_micro_batches: int,
    *,
    tick_ms: float,
    message_bytes: int,
    rounds: int,
    tolerance: float,
) -> CaseResult:
    """Run one schedule with blocking, non-blocking and early transfers, while blocks sleep.

    Args:
        placement: With its memory.
        num_micro_batches: Of an iteration.
        tick_ms: How long a block sleeps for each tick.
        message_bytes: Of every message.
        rounds: Iterations of each way.
        tolerance: Share by which the ratio of blocking to early may differ from that in virtual time.
    """
    clock = CpuClock()
    late = check(lower(_searched(placement, num_micro_batches)))
    early = check(prefetch_receives(late, RECEIVE_AHEAD))
    ways = {
        "blocking": Way(_scripts(late), blocking=True),
        "non-blocking": Way(_scripts(late)),
        "early": Way(_scripts(early)),
    }
    times = run_asleep(ways, tick_ms, message_bytes, rounds)
    transfer = times.transfer_ms / tick_ms
    virtual = {
        "blocking": _ticks(late, Communication.BLOCKING, transfer),
        "non-blocking": _ticks(late, Communication.DIRECTED, transfer),
        "early": _ticks(early, Communication.DIRECTED, transfer),
    }
    texts = []
    missed = []
    for name in ("non-blocking", "early"):
        ratio = Ratio.of(times.iterations_ms["blocking"], times.iterations_ms[name])
        wanted = virtual["blocking"] / virtual[name]
        texts.append(f"{ratio} times as long as {name}, {wanted:.2f} in virtual time")
        if abs(ratio.median / wanted - 1) > tolerance:
            missed.append(f"{name}: {ratio.median:.2f} is not within {tolerance:.0%} of {wanted:.2f}")
    share = transfer / placement.by_name["F0"].time
    medians = ", ".join(
        f"{name} {statistics.median(each):.0f} ms (virtual {virtual[name] * tick_ms:.0f})"
        for name, each in times.iterations_ms.items()
    )
    note = f"blocking takes {'; '.join(texts)}; a lone transfer takes {share:.2f} of a forward; {medians}"
    return CaseResult(clock.seconds, tuple(missed), note=note)


def beside_virtual(
    schedule: Schedule, *, tick_ms: float, message_bytes: int, rounds: int, most: float
) -> CaseResult:
    """Compare iterations whose blocks sleep with the schedule in virtual time.

    On a busy machine a process sleeps longer than it asked for. So virtual time is that of the blocks as they
    slept in the same iteration; the note also has what it is as they were to sleep.

    Args:
        schedule: Of any placement.
        tick_ms: How long a block sleeps for each tick.
        message_bytes: Of every message.
        rounds: Iterations.
        most: How many times as long as in virtual time an iteration may take, at the median.
    """
    clock = CpuClock()
    programs = check(prefetch_receives(lower(schedule), USUAL_AHEAD))
    times = run_asleep({"early": Way(_scripts(programs))}, tick_ms, message_bytes, rounds)
    planned_ms = _ticks(programs, Communication.DIRECTED, times.transfer_ms / tick_ms) * tick_ms
    virtual_ms = [
        play(
            programs, Communication.DIRECTED, transfer_time=lambda *_: times.transfer_ms, time_of=slept_ms
        ).time
        for slept_ms in times.slept_ms["early"]
    ]
    found = times.iterations_ms["early"]
    ratio = MedianRatio.of(found, virtual_ms)
    planned = MedianRatio.of(found, [planned_ms] * len(found))
    missed = [] if ratio.median <= most else [f"{ratio.median:.3f} is more than {most:g}"]
    note = (
        f"{ratio} times virtual time with the blocks as they slept, {planned} with those that were asked "
        f"for; medians: {statistics.median(found):.1f} ms, virtual {statistics.median(virtual_ms):.1f} ms, "
        f"asked for {planned_ms:.1f} ms"
    )
    return CaseResult(clock.seconds, tuple(missed), note=note)


def computed(
    placement: Placement, num_micro_batches: int, model: Mapping[str, object], rounds: int
) -> CaseResult:
    """Run generated scripts that compute, with blocking, non-blocking and early transfers, in turn.

    Args:
        placement: With its memory.
        num_micro_batches: Of an iteration.
        model: What the blocks compute.
        rounds: Runs of each, of two iterations of which the second counts.
    """
    clock = CpuClock()
    late = check(lower(_searched(placement, num_micro_batches)))
    early = check(prefetch_receives(late, RECEIVE_AHEAD))
    times: dict[str, list[float]] = {"blocking": [], "non-blocking": [], "early": []}
    losses = set()
    with tempfile.TemporaryDirectory(prefix="schedsearch_") as name:
        folders = {
            "blocking": Path(name, "late"),
            "non-blocking": Path(name, "late"),
            "early": Path(name, "early"),
        }
        generate(late, {}, model, folders["blocking"])
        generate(early, {}, model, folders["early"])
        for _ in range(rounds):
            for way, found in times.items():
                run = launch(
                    folders[way],
                    placement.num_devices,
                    RunOptions(2, launcher="fork", verify="none", blocking=way == "blocking"),
                )
                found.append(run.time_ms[-1])
                losses.add(run.losses)
    missed = () if len(losses) == 1 else (f"{len(losses)} different losses",)
    ratios = "; ".join(
        f"{Ratio.of(times['blocking'], times[name])} times as long as {name}"
        for name in ("non-blocking", "early")
    )
    return CaseResult(clock.seconds, missed, note=f"blocking takes {ratios}")


def calls(model: Mapping[str, object], *, num_stages: int, rounds: int, most_us: float) -> CaseResult:
    """Measure what a block's call in a generated script costs above the block itself.

    Args:
        model: What the blocks compute.
        num_stages: On the one device.
        rounds: Iterations of the script, and of a bare loop.
        most_us: CPU time that a call may cost.
    """
    clock = CpuClock()
    found = time_calls(script_of(model, num_stages, 8), rounds)
    above_us = [
        (script - bare) / found.num_calls * 1000
        for script, bare in zip(found.script_ms, found.bare_ms, strict=True)
    ]
    cost_us = statistics.median(above_us)
    missed = [] if found.equal else ["losses or gradients differ"]
    if cost_us > most_us:
        missed.append(f"{cost_us:.0f} us per call is more than {most_us:g}")
    ratio = Ratio.of(found.script_ms, found.bare_ms)
    block_us = statistics.median(found.bare_ms) / found.num_calls * 1000
    note = f"a call costs {cost_us:.0f} us above its block's {block_us:.0f} us; {ratio} times the bare loop"
    return CaseResult(clock.seconds, tuple(missed), note=note)


def beside_torch(schedule: Schedule, *, width: int, rows: int, rounds: int, most: float) -> CaseResult:
    """Compare iterations with those of torch's `_PipelineScheduleRuntime` on the same schedule.

    Args:
        schedule: Of one stage per device.
        width: Of the layers.
        rows: Of a micro-batch.
        rounds: Iterations of each runtime, in turn.
        most: How many times the processor time of torch's ours may take, at the median.
    """
    clock = CpuClock()
    found = run_beside_torch(schedule, width, rows, rounds)
    cpu = MedianRatio.of(found.ours.cpu_ms, found.torch.cpu_ms)
    wall = MedianRatio.of(found.ours.time_ms, found.torch.time_ms)
    missed = [] if cpu.median <= most else [f"{cpu.median:.3f} is more than {most:g}"]
    if found.error > 1e-5:
        missed.append(f"gradients differ by {found.error:.1e}")
    ours, theirs = (
        f"{statistics.median(each.cpu_ms):.1f} ms of processors in {statistics.median(each.time_ms):.1f} ms"
        for each in (found.ours, found.torch)
    )
    note = (
        f"ours takes {cpu} times the processor time of torch's, and {wall} times the time; medians: ours "
        f"{ours}, torch's {theirs}; gradients differ by {found.error:.1e}"
    )
    return CaseResult(clock.seconds, tuple(missed), note=note)


def blocks_of_gpt(model: Mapping[str, object], *, num_stages: int, where: str, min_ms: float) -> CaseResult:
    """Profile a stack of GPT layers on one device, at the clock that it takes by itself.

    Args:
        model: Sizes.
        num_stages: Into which the layers are cut.
        where: The device, as torch names it.
        min_ms: Each block runs so long, at least.
    """
    if where != "cpu" and not cuda_is_there():
        return CaseResult(0.0, skipped="there is no CUDA device")
    clock = CpuClock()
    found = profile_blocks(script_of(model, num_stages, 2), where, min_ms)
    missed = [] if len(found.costs) == 2 * num_stages else ["a block is missing"]
    missed += [f"{cost.kind} takes no time" for cost in found.costs if not cost.time_ms > 0]
    costs = ", ".join(
        f"{cost.kind} {cost.time_ms:.3f} ms"
        + (f" {cost.energy_mj:.0f} mJ" if cost.energy_mj is not None else "")
        for cost in found.costs
    )
    clock_mhz = found.costs[0].clock_mhz if found.costs else None
    note = f"{found.device}, {found.measured}, at {clock_mhz} MHz: {costs}"
    return CaseResult(clock.seconds, tuple(missed), note=note)


def clocks_of_stream(where: str, *, num_blocks: int, launches: int) -> CaseResult:
    """Measure what a block's clock costs the script on a GPU, where the clocks are only recorded.

    Args:
        where: The device, as torch names it.
        num_blocks: Each with a clock.
        launches: Kernels of a block.
    """
    if not cuda_is_there():
        return CaseResult(0.0, skipped="there is no CUDA device")
    clock = CpuClock()
    costs = time_clock_requests(where, num_blocks, launches)
    note = (
        f"a request takes {costs.request_us:.1f} us of the script; a kernel's launch takes "
        f"{costs.launch_us:.2f} us, and {costs.added_us:+.2f} us where clocks are asked for"
    )
    return CaseResult(clock.seconds, note=note)


def _searched(placement: Placement, num_micro_batches: int) -> Schedule:
    found = search(placement, num_micro_batches, objectives=("period",)).schedule
    assert found is not None, f"{placement.name} has a schedule"
    return found


def _scripts(programs: Programs) -> tuple[Script, ...]:
    with tempfile.TemporaryDirectory(prefix="schedsearch_") as name:
        return tuple(map(read_script, generate(programs, {}, _ANY_MODEL, Path(name))))


def _ticks(programs: Programs, communication: Communication, transfer: float) -> float:
    return play(programs, communication, transfer_time=lambda *_: transfer).time
