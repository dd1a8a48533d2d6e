"""What a case of the planners' benchmark measures: plans beside usual ones, and stages beside measured runs.

CPU seconds are those of the planner, or of the search.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from experiments.benchmarks.results import CaseResult, true_of
from experiments.benchmarks.timing import CpuClock
from experiments.reproduce.measured.measured_iterations import NUM_MICRO_BATCHES, MeasuredIteration
from experiments.reproduce.measured.unbalanced_stages import (
    moved_layers,
    predicted,
    searched,
    with_layers,
    with_shared_output,
)
from placements.models.gpt.gpt_config import GptConfig
from placements.planners.partition import min_imbalance, stage_times
from placements.planners.pipedream.plan import PipelinePlan
from placements.planners.pipedream.planner import best_plan, data_parallel_plan, straight_plan
from placements.planners.pipedream.profile_graph import ProfiledNode, ProfileGraph, chain_graph
from placements.planners.pipedream.topology import Level, num_workers
from schedsearch.baselines import one_f_one_b_plus

_ALMOST = 1e-9


def configuration(
    read: Callable[[], ProfileGraph | None],
    levels: Sequence[Level],
    *,
    cpu_s: float,
    sync: str = "per_worker",
    wanted: str | None = None,
) -> CaseResult:
    """Plan a model, hold the configuration against a published one, and tell what usual plans take.

    Args:
        read: Returns the profile; None where it is not there.
        levels: Workers.
        cpu_s: CPU seconds that it may take.
        sync: See `best_plan`.
        wanted: The configuration; None for any.
    """
    graph = read()
    if graph is None:
        return CaseResult(0.0, skipped="the profile is not there")
    clock = CpuClock()
    plan = best_plan(graph, levels, sync)
    took_s = clock.seconds
    parallel_ms = data_parallel_plan(graph, levels, sync).time_ms
    straight = straight_plan(graph, levels, sync) if num_workers(levels) <= len(graph.nodes) else None
    wrong = {
        f"configuration {plan.configuration}": plan.configuration != (wanted or plan.configuration),
        f"more than {cpu_s:g} CPU s": took_s > cpu_s,
        "slower than data parallel": plan.time_ms > parallel_ms * (1 + _ALMOST),
        "slower than straight": straight is not None and plan.time_ms > straight.time_ms * (1 + _ALMOST),
    }
    beside = f"data parallel {parallel_ms:.2f} ms" + (
        f", straight {straight.time_ms:.2f} ms" if straight is not None else ""
    )
    return CaseResult(took_s, true_of(wrong), note=f"{_described(plan)}; {beside}")


def _described(plan: PipelinePlan) -> str:
    return (
        f"{plan.configuration}: {plan.time_ms:.2f} ms for an input, by {plan.bottleneck}; "
        f"{plan.num_in_flight} in flight, {plan.memory_mib:.0f} MiB"
    )


def random_chain(num_nodes: int, seed: int) -> ProfileGraph:
    """Return a chain of made-up nodes: times of some ms, outputs and parameters of some MB.

    Args:
        num_nodes: At least 1.
        seed: Of the generator.
    """
    random = np.random.default_rng(seed)
    rows = zip(*(random.exponential(scale, num_nodes).tolist() for scale in (3.0, 4e6, 8e6)), strict=True)
    return chain_graph(
        ProfiledNode(f"node{i}", "made up", time_ms, 2 * time_ms, activation, parameters)
        for i, (time_ms, activation, parameters) in enumerate(rows)
    )


def planner_speed(graph: ProfileGraph, levels: Sequence[Level], *, cpu_s: float) -> CaseResult:
    """Plan a model in so many CPU seconds."""
    return configuration(lambda: graph, levels, cpu_s=cpu_s)


def against_every_plan(graph: ProfileGraph, level: Level) -> CaseResult:
    """Compare with every division of a chain among workers of one level, each with its own time."""
    clock = CpuClock()
    plan = best_plan(graph, [level])
    took_s = clock.seconds
    clock = CpuClock()
    times = [_time_ms(graph, level, *each) for each in _divisions(len(graph.nodes), level.count)]
    every_s = clock.seconds
    wrong = {f"{plan.time_ms} ms is not {min(times)} ms": abs(plan.time_ms / min(times) - 1) > _ALMOST}
    return CaseResult(
        took_s, true_of(wrong), note=f"{_described(plan)}; all {len(times)} plans in {every_s:.1f} CPU s"
    )


def _divisions(num_nodes: int, workers: int) -> itertools.chain[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the ends of stages and of their workers, for every number of stages."""
    return itertools.chain.from_iterable(
        itertools.product(
            ((*cuts, num_nodes) for cuts in itertools.combinations(range(1, num_nodes), stages - 1)),
            ((*cuts, workers) for cuts in itertools.combinations(range(1, workers), stages - 1)),
        )
        for stages in range(1, min(num_nodes, workers) + 1)
    )


def _time_ms(graph: ProfileGraph, level: Level, ends: Sequence[int], shares: Sequence[int]) -> float:
    """Return the time of one division for one input."""
    longest = max((2 * level.ms(graph.nodes[end - 1].activation_bytes) for end in ends[:-1]), default=0.0)
    bounds = zip(itertools.pairwise((0, *ends)), itertools.pairwise((0, *shares)), strict=True)
    for (first, end), (before, until) in bounds:
        nodes, copies = graph.nodes[first:end], until - before
        sent = 2 * (copies - 1) / copies * sum(node.parameter_bytes for node in nodes)
        longest = max(longest, max(sum(node.time_ms for node in nodes), level.ms(sent)) / copies)
    return longest


def imbalance(config: GptConfig, published: Mapping[int, float], *, most: float) -> CaseResult:
    """Divide a GPT's layers and its head as alike as possible, by operations (Perseus, App. B.1).

    Args:
        config: The model.
        published: Ratio of the longest to the shortest stage's forward, by number of stages.
        most: Difference to it that is allowed.
    """
    clock = CpuClock()
    head = config.output(tied=True).forward_flops(1)
    pieces = [*[config.layer.forward_flops(1)] * config.num_layers, head]
    notes, wrong = [], {}
    for num_stages, ratio in published.items():
        layers = min_imbalance(pieces, num_stages)
        times = stage_times(pieces, layers)
        ours = max(times) / min(times)
        wrong[f"{num_stages} stages: {ours:.3f}"] = abs(ours - ratio) > most
        notes.append(f"{num_stages} stages: {ours:.3f}, published {ratio:.2f}; {'|'.join(map(str, layers))}")
    return CaseResult(clock.seconds, true_of(wrong), note="; ".join(notes))


def prediction(row: MeasuredIteration, *, most: float) -> CaseResult:
    """Hold the iteration of a row's stages in 1F1B against the measured one; the most error in percent."""
    clock = CpuClock()
    found = predicted(row)
    error = 100 * found.error
    note = (
        f"measured {found.measured_ms:.1f} ms, predicted {found.predicted_ms:.1f} ms ({error:+.2f} %); "
        f"slowest stage {found.longest_ms:.2f} ms for a micro-batch"
    )
    return CaseResult(clock.seconds, true_of({f"off by {error:.2f} %": abs(error) > most}), note=note)


def moved(row: MeasuredIteration, others: Sequence[MeasuredIteration], *, work_limit: float) -> CaseResult:
    """Move whole layers such that the slowest stage takes the least time, and search a schedule.

    Args:
        row: With as many layers in each stage.
        others: Measured iterations of the same model with layers moved.
        work_limit: Units of work of the search.
    """
    clock = CpuClock()
    layers = moved_layers(row)
    found = searched(with_layers(row, layers), work_limit)
    base_ms = predicted(row).predicted_ms
    wrong = {
        "period not proved": found.period_ms > found.period_bound_ms * (1 + _ALMOST),
        f"{found.makespan_ms:.1f} ms, not moved {base_ms:.1f} ms": found.makespan_ms > base_ms * (1 + 1e-2),
    }
    theirs = ", ".join(
        f"{'|'.join(map(str, other.stage_layers))} measured {other.iteration_ms:.1f} ms, predicted "
        f"{predicted(other).predicted_ms:.1f} ms"
        for other in others
    )
    note = (
        f"layers {'|'.join(map(str, layers))}: period {found.period_ms:.2f} ms, iteration "
        f"{found.makespan_ms:.1f} ms; not moved: measured {row.iteration_ms:.1f} ms, predicted "
        f"{base_ms:.1f} ms" + (f"; published: {theirs}" if theirs else "")
    )
    return CaseResult(clock.seconds, true_of(wrong), note=note)


def shared_output(
    row: MeasuredIteration, *, num_in_flight: int, work_limit: float, at_load: bool
) -> CaseResult:
    """Put the output layer on all devices, and search a schedule.

    Args:
        row: With as many layers in each stage.
        num_in_flight: Micro-batches for which each device has room.
        work_limit: Units of work of the search.
        at_load: Whether the period must be the devices' load; otherwise it must be that of 1F1B+ at most.
    """
    placement = with_shared_output(row, num_in_flight)
    short, long = (
        one_f_one_b_plus(placement, number).makespan for number in (NUM_MICRO_BATCHES // 2, NUM_MICRO_BATCHES)
    )
    plus_ms = placement.ms(long - short) / (NUM_MICRO_BATCHES / 2)
    clock = CpuClock()
    found = searched(placement, work_limit)
    limit_ms = found.load_ms if at_load else plus_ms
    wrong = {f"period {found.period_ms:.2f} ms": found.period_ms > limit_ms * (1 + _ALMOST)}
    note = (
        f"period {found.period_ms:.2f} ms (at least {found.period_bound_ms:.2f}, load {found.load_ms:.2f}), "
        f"iteration {found.makespan_ms:.1f} ms; 1F1B+: {plus_ms:.2f} and {placement.ms(long):.1f} ms; 1F1B "
        f"with the layer on the last stage: measured {row.iteration_ms:.1f} ms"
    )
    return CaseResult(clock.seconds, true_of(wrong), note=note)


def errors_together(rows: Sequence[MeasuredIteration], *, most: float) -> CaseResult:
    """Hold the errors of all predictions together; in percent."""
    clock = CpuClock()
    errors = [100 * abs(predicted(row).error) for row in rows]
    note = f"{len(rows)} runs: off by {statistics.mean(errors):.2f} % on average, {max(errors):.2f} % at most"
    return CaseResult(clock.seconds, true_of({f"off by {max(errors):.2f} %": max(errors) > most}), note=note)
