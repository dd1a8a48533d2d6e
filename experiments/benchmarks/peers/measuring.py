"""What a case beside a peer measures: both on one task, ours first, several times in turn.

CPU seconds are those of this process with its threads and children. What a peer must have installed is said
in the row where it is missing.
"""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from experiments.benchmarks.comparison import Comparison, Ratio
from experiments.benchmarks.frontier import lowtime_plans
from experiments.benchmarks.frontier.measuring import Task, lowtime_timed, shares_above, simulated_plans
from experiments.benchmarks.peers.recurrence import least_time_ms
from experiments.benchmarks.planners.measuring import random_chain
from experiments.benchmarks.results import CaseResult, true_of
from experiments.benchmarks.search.measuring import proof_and_schedule_timed, tessel_timed
from experiments.benchmarks.timing import CpuClock
from placements import Placement
from placements.cluster import read_cluster
from placements.models.zoo import read_model
from placements.planners.hybrid.decision_trees import PAPER, TreeOptions
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.planners.pipedream.planner import best_plan
from placements.planners.pipedream.topology import Level
from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.metrics import peak_memory
from schedsearch.modulo.search import search

_ALMOST = 1e-9

_NO_TORCH = "torch is not installed; pip install torch"

Answer = TypeVar("Answer")


def against_tessel(
    placement: Placement, num_micro_batches: int, *, size: int, title: str, rounds: int, time_limit_s: float
) -> CaseResult:
    """Search a whole schedule as we do and as Tessel does, with one micro-batch per repetend.

    Args:
        placement: With its memory.
        num_micro_batches: Of the schedule.
        size: Devices.
        title: Of the task; see `Comparison`.
        rounds: Runs of each.
        time_limit_s: Wall-clock seconds of each of Tessel's runs.
    """
    ours_s, theirs_s, proofs = list[float](), list[float](), list[float]()
    for _ in range(rounds):
        (proof, proof_s), (ours, took_s) = proof_and_schedule_timed(placement, num_micro_batches)
        theirs, their_proof_s, their_s = tessel_timed(placement, num_micro_batches, time_limit_s)
        ours_s.append(took_s)
        theirs_s.append(their_s)
        proofs.append(proof_s / their_proof_s)
    assert ours.schedule is not None and proof.repetend is not None, f"{placement.name} has a schedule"
    if theirs.schedule is None or theirs.repetend is None:
        return CaseResult(statistics.median(ours_s), skipped=f"Tessel found nothing in {time_limit_s:g} s")
    note = (
        f"periods {proof.repetend.period:g} and {theirs.repetend.period:g}, the first proved in "
        f"{Ratio.of(proofs, [1.0] * rounds)} of the CPU time"
    )
    return _row(
        title,
        ("devices", size),
        (ours_s, theirs_s),
        ("makespan", ours.schedule.makespan, theirs.schedule.makespan),
        note,
    )


def against_lowtime(
    make: Callable[[], Task | str], *, size: int, unit_ms: float, title: str, rounds: int
) -> CaseResult:
    """Compute the whole frontier as we do and with lowtime, on the same graph and costs.

    Args:
        make: Returns what is planned, or why there is nothing.
        size: Micro-batches.
        unit_ms: By how much each of lowtime's steps shortens the iteration.
        title: Of the task; see `Comparison`.
        rounds: Runs of each.
    """
    if reason := lowtime_plans.reason_to_skip():
        return CaseResult(0.0, skipped=reason)
    planned = make()
    if isinstance(planned, str):
        return CaseResult(0.0, skipped=planned)
    ours_s, theirs_s = list[float](), list[float]()
    for _ in range(rounds):
        _, took_s = _timed(planned.frontier)
        clocks, their_s = lowtime_timed(planned, unit_ms)
        ours_s.append(took_s)
        theirs_s.append(their_s)
    share = shares_above(planned, simulated_plans(planned, clocks)) / 100
    below = int((share < -_ALMOST).sum())
    note = f"at equal deadlines lowtime uses {100 * share.min():.2f} to {100 * share.max():.2f} % more"
    result = _row(
        title,
        ("micro-batches", size),
        (ours_s, theirs_s),
        ("mean energy at equal deadline", float(np.mean(1 - share)), 1.0),
        note,
    )
    return replace(result, missed=(*result.missed, *true_of({f"{below} plans below ours": below > 0})))


def against_torch_runtime(
    num_micro_batches: int, *, width: int, rows: int, rounds: int, title: str
) -> CaseResult:
    """Run 1F1B on four processes in our runtime and in torch's.

    See `experiments.benchmarks.runtime.beside_torch`.

    Args:
        num_micro_batches: Of an iteration.
        width: Of the two layers of each stage.
        rows: Of a micro-batch.
        rounds: Iterations of each.
        title: Of the task; see `Comparison`.
    """
    if not _has_torch():
        return CaseResult(0.0, skipped=_NO_TORCH)
    from experiments.benchmarks.runtime.beside_torch import run_beside_torch

    schedule = one_f_one_b(v_shape(4), num_micro_batches)
    found = run_beside_torch(schedule, width, rows, rounds)
    wall = Ratio.of(found.ours.time_ms, found.torch.time_ms)
    note = (
        f"an iteration takes {wall} times as long, medians {statistics.median(found.ours.time_ms):.1f} and "
        f"{statistics.median(found.torch.time_ms):.1f} ms; gradients differ by {found.error:.1e}"
    )
    ours_s, torch_s = ([ms / 1000 for ms in each.cpu_ms] for each in (found.ours, found.torch))
    answer = "iteration", statistics.median(found.ours.time_ms), statistics.median(found.torch.time_ms)
    result = _row(title, ("blocks", len(schedule.blocks)), (ours_s, torch_s), answer, note)
    differ = true_of({f"gradients differ by {found.error:.1e}": found.error > 1e-5})
    return replace(result, missed=differ)  # who is faster is measured, and no answer of the two is better


def against_torch_schedule(
    name: str, num_devices: int, num_micro_batches: int, *, rounds: int, title: str
) -> CaseResult:
    """Search a schedule with the memory that one of torch's takes, and hold it against torch's.

    Args:
        name: Torch's.
        num_devices: Ranks.
        num_micro_batches: Of an iteration.
        rounds: Runs of each.
        title: Of the task; see `Comparison`.
    """
    if not _has_torch():
        return CaseResult(0.0, skipped=_NO_TORCH)
    from experiments.benchmarks.peers.torch_schedules import torch_schedule

    ours_s, theirs_s = list[float](), list[float]()
    for _ in range(rounds):
        theirs, their_s = _timed(partial(torch_schedule, name, num_devices, num_micro_batches))
        placement = replace(theirs.placement, memory=tuple(map(int, peak_memory(theirs))))
        searched = partial(search, placement, time_limit_s=20.0)
        found, took_s = _timed(partial(searched, num_micro_batches))
        ours_s.append(took_s)
        theirs_s.append(their_s)
    assert found.schedule is not None, f"{name} is a schedule"
    note = f"bound {found.makespan_bound}; torch's rule only writes its table"
    makespans = ("makespan", found.schedule.makespan, theirs.makespan)
    return _row(title, ("blocks", len(theirs.blocks)), (ours_s, theirs_s), makespans, note)


def against_galvatron(num_layers: int, *, rounds: int, title: str) -> CaseResult:
    """Search a plan exactly and with Galvatron-BMW's own division and stage programme.

    Args:
        num_layers: Of the model.
        rounds: Runs of each.
        title: Of the task; see `Comparison`.
    """
    costs, gpus = (
        ShapeCosts(read_model("bert_huge_32", num_layers=num_layers)),
        read_cluster("galvatron_titan_8"),
    )
    options = PlanOptions(
        TreeOptions(PAPER),
        num_stages=(1, 2, 4, 8),
        idle_gpus=False,
        memory_gib=12.0,
        reserve_gib=1.0,
        num_plans=1,
    )
    paper = replace(options, method="base", stage_method="paper")
    ours_s, theirs_s = list[float](), list[float]()
    for _ in range(rounds):
        ours, took_s = _timed(lambda: search_plans(costs, gpus, 64, options))
        theirs, their_s = _timed(lambda: search_plans(costs, gpus, 64, paper))
        ours_s.append(took_s)
        theirs_s.append(their_s)
    if not ours.plans or not theirs.plans:
        return CaseResult(statistics.median(ours_s), skipped="a search found no plan that fits")
    times = ours.plans[0].time_ms, theirs.plans[0].time_ms
    note = f"iterations of {times[0]:,.5g} and {times[1]:,.5g} ms"
    return _row(title, ("layers", num_layers), (ours_s, theirs_s), ("iteration", *times), note)


def against_pipedream(num_layers: int, *, workers: int, rounds: int, title: str) -> CaseResult:
    """Plan a chain as we do, with its plan, and by PipeDream's recurrence as printed, with its time only.

    Args:
        num_layers: Of the chain.
        workers: Of one level.
        rounds: Runs of each.
        title: Of the task; see `Comparison`.
    """
    graph, level = random_chain(num_layers, seed=num_layers), Level(workers, 1.25)
    ours_s, theirs_s = list[float](), list[float]()
    for _ in range(rounds):
        plan, took_s = _timed(lambda: best_plan(graph, [level]))
        theirs_ms, their_s = _timed(lambda: least_time_ms(graph, level))
        ours_s.append(took_s)
        theirs_s.append(their_s)
    times = ("time for an input", plan.time_ms, theirs_ms)
    return _row(title, ("layers", num_layers), (ours_s, theirs_s), times, plan.configuration)


def _has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def _timed(work: Callable[[], Answer]) -> tuple[Answer, float]:
    clock = CpuClock()
    found = work()
    return found, clock.seconds


def _row(
    title: str,
    size: tuple[str, int],
    seconds: tuple[list[float], list[float]],
    answers: tuple[str, float, float],
    note: str,
) -> CaseResult:
    """Return what is measured; it is missed where our answer is the worse one."""
    name, ours, theirs = answers
    compared = Comparison(
        title, *size, tuple(seconds[0]), tuple(seconds[1]), name, float(ours), float(theirs)
    )
    worse = {f"{name} {ours:g} is above {theirs:g}": ours > theirs * (1 + _ALMOST)}
    took_s, their_s = (statistics.median(each) for each in seconds)
    shown = f"{took_s:.3g} and {their_s:.3g} CPU s; {note}"
    return CaseResult(took_s, true_of(worse), note=shown, comparison=compared)
