"""What a case beside a peer measures: both on one task, ours first, several times in turn.

CPU seconds are those of this process with its threads and children.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from experiments.benchmarks.comparison import ALMOST, PeerComparison, Ratio
from experiments.benchmarks.frontier.measuring import ClockTask, lowtime_timed, shares_above, simulated_plans
from experiments.benchmarks.peers.recurrence import min_time_ms
from experiments.benchmarks.planners.measuring import random_chain
from experiments.benchmarks.planners.plan_searches import plan_options
from experiments.benchmarks.results import CaseResult, true_of
from experiments.benchmarks.search.measuring import proof_and_schedule_timed, tessel_timed
from experiments.benchmarks.timing import timed
from placements import Placement
from placements.cluster import read_cluster
from placements.models.zoo import read_model
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.planners.pipedream.planner import best_plan
from placements.planners.pipedream.topology import Level
from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.metrics import peak_memory
from schedsearch.modulo.search import search

ROUNDS = 3
"""Pairs of runs of each case; the least and the largest ratio are given beside the median."""

Ours = TypeVar("Ours")
Theirs = TypeVar("Theirs")

Seconds = tuple[list[float], list[float]]
"""CPU seconds of our runs and of the peer's, each of theirs right after one of ours."""


def against_tessel(
    placement: Placement, num_micro_batches: int, *, title: str, rounds: int = ROUNDS, time_limit_s: float
) -> CaseResult:
    """Search a whole schedule as we do and as Tessel does, with one micro-batch per repetend.

    Each of Tessel's runs ends after a limit in wall-clock seconds.
    """
    runs = [
        (
            proof_and_schedule_timed(placement, num_micro_batches),
            tessel_timed(placement, num_micro_batches, time_limit_s),
        )
        for _ in range(rounds)
    ]
    ((proof, _), (ours, _)), (theirs, _, _) = runs[-1]
    seconds = [took_s for (_, (_, took_s)), _ in runs], [their_s for _, (_, _, their_s) in runs]
    proofs = [proof_s for ((_, proof_s), _), _ in runs], [proof_s for _, (_, proof_s, _) in runs]
    assert ours.schedule is not None and proof.repetend is not None, f"{placement.name} has a schedule"
    if theirs.schedule is None or theirs.repetend is None:
        return CaseResult(
            statistics.median(seconds[0]), skipped=f"Tessel found nothing in {time_limit_s:g} s"
        )
    note = (
        f"periods {proof.repetend.period:g} and {theirs.repetend.period:g}, the first proved in "
        f"{Ratio.of(*proofs)} of the CPU time"
    )
    makespans = ("makespan", ours.schedule.makespan, theirs.schedule.makespan)
    return _row(title, ("devices", placement.num_devices), seconds, makespans, note)


def against_lowtime(
    make: Callable[[], ClockTask], *, size: int, unit_ms: float, title: str, rounds: int = ROUNDS
) -> CaseResult:
    """Compute the whole frontier as we do and with lowtime, on the same graph and costs.

    Each step of lowtime shortens the iteration by a unit; the size is the number of micro-batches.
    """
    planned = make()
    _, clocks, seconds = _in_turn(
        rounds, lambda: timed(planned.frontier), lambda: lowtime_timed(planned, unit_ms)
    )
    share = shares_above(planned, simulated_plans(planned, clocks)) / 100
    below = int((share < -ALMOST).sum())
    note = f"at equal deadlines lowtime uses {100 * share.min():.2f} to {100 * share.max():.2f} % more"
    energies = ("mean energy at equal deadline", float(np.mean(1 - share)), 1.0)
    wrong = {f"{below} plans below ours": below > 0}
    return _row(title, ("micro-batches", size), seconds, energies, note, wrong)


def against_torch_runtime(num_micro_batches: int, *, width: int, rows: int, rounds: int) -> CaseResult:
    """Run 1F1B on four processes in our runtime and in torch's, iteration by iteration in turn.

    See `experiments.benchmarks.runtime.beside_torch`.
    """
    from experiments.benchmarks.runtime.beside_torch import run_beside_torch

    schedule = one_f_one_b(v_shape(4), num_micro_batches)
    found = run_beside_torch(schedule, width, rows, rounds)
    times = statistics.median(found.ours.time_ms), statistics.median(found.torch.time_ms)
    note = (
        f"an iteration takes {Ratio.of(found.ours.time_ms, found.torch.time_ms)} times as long, medians "
        f"{times[0]:.1f} and {times[1]:.1f} ms; gradients differ by {found.error:.1e}"
    )
    ours_s, torch_s = ([ms / 1000 for ms in each.cpu_ms] for each in (found.ours, found.torch))
    size = ("blocks", len(schedule.blocks))
    result = _row("torch's runtime", size, (ours_s, torch_s), ("iteration", *times), note)
    differ = true_of({f"gradients differ by {found.error:.1e}": found.error > 1e-5})
    return replace(result, missed=differ)  # who is faster is measured, and no answer of the two is better


def against_torch_schedule(
    name: str, num_devices: int, num_micro_batches: int, *, rounds: int = ROUNDS
) -> CaseResult:
    """Search a schedule with the memory that one of torch's takes, and hold it against torch's."""
    from experiments.benchmarks.peers.torch_schedules import torch_schedule

    make = partial(torch_schedule, name, num_devices, num_micro_batches)
    placement = make().placement
    placement = replace(placement, memory=tuple(map(int, peak_memory(make()))))
    found, theirs, seconds = _in_turn(
        rounds,
        lambda: timed(lambda: search(placement, num_micro_batches, time_limit_s=20.0)),
        lambda: timed(make),
    )
    assert found.schedule is not None, f"{name} is a schedule"
    note = f"bound {found.makespan_bound}; torch's rule only writes its table"
    makespans = ("makespan", found.schedule.makespan, theirs.makespan)
    return _row(f"torch's {name}", ("blocks", len(theirs.blocks)), seconds, makespans, note)


def against_galvatron(num_layers: int, *, rounds: int = ROUNDS) -> CaseResult:
    """Search a plan exactly and with Galvatron-BMW's own division and stage programme."""
    costs = ShapeCosts(read_model("bert_huge_32", num_layers=num_layers))
    gpus = read_cluster("galvatron_titan_8")
    options = replace(plan_options(12.0), num_stages=(1, 2, 4, 8), idle_gpus=False)
    paper = replace(options, method="base", stage_method="paper")
    ours, theirs, seconds = _in_turn(
        rounds,
        lambda: timed(lambda: search_plans(costs, gpus, 64, options)),
        lambda: timed(lambda: search_plans(costs, gpus, 64, paper)),
    )
    if not ours.plans or not theirs.plans:
        return CaseResult(statistics.median(seconds[0]), skipped="a search found no plan that fits")
    times = ours.plans[0].time_ms, theirs.plans[0].time_ms
    note = f"iterations of {times[0]:,.5g} and {times[1]:,.5g} ms"
    return _row("Galvatron-BMW", ("layers", num_layers), seconds, ("iteration", *times), note)


def against_pipedream(num_layers: int, *, workers: int, rounds: int = ROUNDS) -> CaseResult:
    """Plan a chain as we do, with its plan, and by PipeDream's recurrence as printed, with its time only."""
    graph, level = random_chain(num_layers, seed=num_layers), Level(workers, 1.25)
    plan, theirs_ms, seconds = _in_turn(
        rounds,
        lambda: timed(lambda: best_plan(graph, [level])),
        lambda: timed(lambda: min_time_ms(graph, level)),
    )
    times = ("time for an input", plan.time_ms, theirs_ms)
    return _row("PipeDream", ("layers", num_layers), seconds, times, plan.configuration)


def _in_turn(
    rounds: int, ours: Callable[[], tuple[Ours, float]], theirs: Callable[[], tuple[Theirs, float]]
) -> tuple[Ours, Theirs, Seconds]:
    """Return the last answers and all CPU seconds of two functions that return an answer and its seconds."""
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    (our_answer, _), (their_answer, _) = pairs[-1]
    seconds = [took_s for (_, took_s), _ in pairs], [their_s for _, (_, their_s) in pairs]
    return our_answer, their_answer, seconds


def _row(
    title: str,
    size: tuple[str, int],
    seconds: Seconds,
    answers: tuple[str, float, float],
    note: str,
    wrong: Mapping[str, bool] | None = None,
) -> CaseResult:
    """Return what is measured; it is missed where our answer is the worse one, or for other reasons."""
    name, ours, theirs = answers
    ours_s, theirs_s = map(tuple, seconds)
    compared = PeerComparison(title, *size, ours_s, theirs_s, name, float(ours), float(theirs))
    worse = {f"{name} {ours:g} is above {theirs:g}": ours > theirs * (1 + ALMOST)}
    took_s, their_s = (statistics.median(each) for each in seconds)
    shown = f"{took_s:.3g} and {their_s:.3g} CPU s; {note}"
    return CaseResult(took_s, true_of(worse | dict(wrong or {})), note=shown, comparison=compared)
