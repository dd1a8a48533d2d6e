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
from experiments.benchmarks.results import CaseResult, true_of
from experiments.benchmarks.runtime.beside_torch import USUAL_AHEAD, run_beside_torch
from experiments.benchmarks.runtime.one_device import profile_blocks, script_of, time_calls
from experiments.benchmarks.runtime.sleeping import TransferWay, run_asleep
from placements import Placement
from runtime.codegen.codegen import generate
from runtime.codegen.script import Script, read_script
from runtime.execution.run_options import RunOptions
from runtime.launching.launch import launch
from runtime.program.deadlock import check
from runtime.program.instructions import Programs
from runtime.program.lower import lower
from runtime.program.prefetch import prefetch_receives
from runtime.virtual.play import play
from runtime.virtual.rules import Communication
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

    A block sleeps ``tick_ms`` for each tick. The ratio of blocking to the others may differ by the tolerance,
    as a share, from that in virtual time.
    """
    late, early = _late_and_early(placement, num_micro_batches)
    ways = {
        "blocking": (late, Communication.BLOCKING),
        "non-blocking": (late, Communication.DIRECTED),
        "early": (early, Communication.DIRECTED),
    }
    scripts = {
        name: TransferWay(_scripts(programs), name == "blocking") for name, (programs, _) in ways.items()
    }
    times = run_asleep(scripts, tick_ms, message_bytes, rounds)
    transfer = times.transfer_ms / tick_ms
    virtual = {name: _ticks(*way, transfer) for name, way in ways.items()}
    texts, missed = [], []
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
    return CaseResult(missed=tuple(missed), note=note)


def beside_virtual(
    schedule: Schedule, *, tick_ms: float, message_bytes: int, rounds: int, most: float
) -> CaseResult:
    """Compare iterations whose blocks sleep with the schedule in virtual time.

    On a busy machine a process sleeps longer than it asked for. So virtual time is that of the blocks as they
    slept in the same iteration; the note also has what it is as they were to sleep. The median iteration may
    take ``most`` times as long.
    """
    programs = check(prefetch_receives(lower(schedule), USUAL_AHEAD))
    times = run_asleep({"early": TransferWay(_scripts(programs))}, tick_ms, message_bytes, rounds)
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
    missed = true_of({f"{ratio.median:.3f} is more than {most:g}": ratio.median > most})
    note = (
        f"{ratio} times virtual time with the blocks as they slept, {planned} with those that were asked "
        f"for; medians: {statistics.median(found):.1f} ms, virtual {statistics.median(virtual_ms):.1f} ms, "
        f"asked for {planned_ms:.1f} ms"
    )
    return CaseResult(missed=missed, note=note)


def computed(
    placement: Placement, num_micro_batches: int, model: Mapping[str, object], rounds: int
) -> CaseResult:
    """Run generated scripts that compute, with blocking, non-blocking and early transfers, in turn.

    Each run has two iterations, of which the second counts.
    """
    late, early = _late_and_early(placement, num_micro_batches)
    times: dict[str, list[float]] = {"blocking": [], "non-blocking": [], "early": []}
    losses = set()
    with tempfile.TemporaryDirectory(prefix="schedsearch_") as name:
        generate(late, {}, model, Path(name, "late"))
        generate(early, {}, model, Path(name, "early"))
        for _ in range(rounds):
            for way, found in times.items():
                run = launch(
                    Path(name, "early" if way == "early" else "late"),
                    placement.num_devices,
                    RunOptions(2, launcher="fork", verify="none", blocking=way == "blocking"),
                )
                found.append(run.time_ms[-1])
                losses.add(run.losses)
    early_ratio, late_ratio = (Ratio.of(times["blocking"], times[way]) for way in ("early", "non-blocking"))
    note = f"blocking takes {late_ratio} times as long as non-blocking; {early_ratio} times as long as early"
    return CaseResult(missed=true_of({f"{len(losses)} different losses": len(losses) > 1}), note=note)


def calls(model: Mapping[str, object], *, num_stages: int, rounds: int, max_us: float) -> CaseResult:
    """Measure what a block's call in a generated script costs above the block itself, in CPU time."""
    found = time_calls(script_of(model, num_stages, 8), rounds)
    above_us = [
        (script - bare) / found.num_calls * 1000
        for script, bare in zip(found.script_ms, found.bare_ms, strict=True)
    ]
    cost_us = statistics.median(above_us)
    wrong = {
        "losses or gradients differ": not found.equal,
        f"{cost_us:.0f} us per call is more than {max_us:g}": cost_us > max_us,
    }
    ratio = Ratio.of(found.script_ms, found.bare_ms)
    block_us = statistics.median(found.bare_ms) / found.num_calls * 1000
    note = f"a call costs {cost_us:.0f} us above its block's {block_us:.0f} us; {ratio} times the bare loop"
    return CaseResult(missed=true_of(wrong), note=note)


def beside_torch(schedule: Schedule, *, width: int, rows: int, rounds: int, most: float) -> CaseResult:
    """Compare iterations with those of torch's `_PipelineScheduleRuntime` on the same schedule.

    Ours may take ``most`` times the processor time of torch's, at the median; see `run_beside_torch`.
    """
    found = run_beside_torch(schedule, width, rows, rounds)
    cpu = MedianRatio.of(found.ours.cpu_ms, found.torch.cpu_ms)
    wall = MedianRatio.of(found.ours.time_ms, found.torch.time_ms)
    wrong = {
        f"{cpu.median:.3f} is more than {most:g}": cpu.median > most,
        f"gradients differ by {found.error:.1e}": found.error > 1e-5,
    }
    ours, theirs = (
        f"{statistics.median(each.cpu_ms):.1f} ms of processors in {statistics.median(each.time_ms):.1f} ms"
        for each in (found.ours, found.torch)
    )
    note = (
        f"ours takes {cpu} times the processor time of torch's, and {wall} times the time; medians: ours "
        f"{ours}, torch's {theirs}; gradients differ by {found.error:.1e}"
    )
    return CaseResult(missed=true_of(wrong), note=note)


def blocks_of_gpt(model: Mapping[str, object], *, num_stages: int, where: str, min_ms: float) -> CaseResult:
    """Profile a stack of GPT layers on one device, at the clock that it takes by itself.

    All runs of a block together take ``min_ms`` at least.
    """
    found, measured = profile_blocks(script_of(model, num_stages, 2), where, min_ms)
    missed = [] if len(found) == 2 * num_stages else ["a block is missing"]
    missed += [f"{cost.kind} takes no time" for cost in found if not cost.time_ms > 0]
    costs = ", ".join(
        f"{cost.kind} {cost.time_ms:.3f} ms"
        + (f" {cost.energy_mj:.0f} mJ" if cost.energy_mj is not None else "")
        for cost in found
    )
    note = f"{measured}, at {found[0].clock_mhz if found else None} MHz: {costs}"
    return CaseResult(missed=tuple(missed), note=note)


def _late_and_early(placement: Placement, num_micro_batches: int) -> tuple[Programs, Programs]:
    """Return the programs of a searched schedule with receives in their place, and posted early."""
    found = search(placement, num_micro_batches, objectives=("period",)).schedule
    assert found is not None, f"{placement.name} has a schedule"
    late = check(lower(found))
    return late, check(prefetch_receives(late, RECEIVE_AHEAD))


def _scripts(programs: Programs) -> tuple[Script, ...]:
    with tempfile.TemporaryDirectory(prefix="schedsearch_") as name:
        return tuple(map(read_script, generate(programs, {}, _ANY_MODEL, Path(name))))


def _ticks(programs: Programs, communication: Communication, transfer: float) -> float:
    return play(programs, communication, transfer_time=lambda *_: transfer).time
