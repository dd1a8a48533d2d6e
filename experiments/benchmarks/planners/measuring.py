"""What a case of the planners' benchmark measures: plans beside usual ones, and stages beside measured runs.

CPU seconds are those of the planner, or of the search.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from experiments.benchmarks.comparison import ALMOST
from experiments.benchmarks.results import CaseResult, true_of
from experiments.benchmarks.timing import timed
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


def configuration(
    graph: ProfileGraph,
    levels: Sequence[Level],
    *,
    cpu_s: float,
    sync: str = "per_worker",
    wanted: str | None = None,
) -> CaseResult:
    """Plan a model, hold the configuration against a published one, and tell what usual plans take.

    With ``wanted`` the configuration must be this one; ``sync`` is that of `best_plan`.
    """
    plan, took_s = timed(lambda: best_plan(graph, levels, sync))
    parallel_ms = data_parallel_plan(graph, levels, sync).time_ms
    straight = straight_plan(graph, levels, sync) if num_workers(levels) <= len(graph.nodes) else None
    wrong = {
        f"configuration {plan.configuration}": plan.configuration != (wanted or plan.configuration),
        f"more than {cpu_s:g} CPU s": took_s > cpu_s,
        "slower than data parallel": plan.time_ms > parallel_ms * (1 + ALMOST),
        "slower than straight": straight is not None and plan.time_ms > straight.time_ms * (1 + ALMOST),
    }
    beside = "" if straight is None else f", straight {straight.time_ms:.2f} ms"
    note = f"{_described(plan)}; data parallel {parallel_ms:.2f} ms{beside}"
    return CaseResult(took_s, true_of(wrong), note=note)


def _described(plan: PipelinePlan) -> str:
    return (
        f"{plan.configuration}: {plan.time_ms:.2f} ms for an input, by {plan.bottleneck}; "
        f"{plan.num_in_flight} in flight, {plan.memory_mib:.0f} MiB"
    )


def random_chain(num_nodes: int, seed: int) -> ProfileGraph:
    """Return a chain of made-up nodes: times of some ms, outputs and parameters of some MB."""
    random = np.random.default_rng(seed)
    rows = zip(*(random.exponential(scale, num_nodes).tolist() for scale in (3.0, 4e6, 8e6)), strict=True)
    return chain_graph(
        ProfiledNode(f"node{i}", "made up", time_ms, 2 * time_ms, activation, parameters)
        for i, (time_ms, activation, parameters) in enumerate(rows)
    )


def against_every_plan(graph: ProfileGraph, level: Level) -> CaseResult:
    """Compare with every division of a chain among workers of one level, each with its own time."""
    plan, took_s = timed(lambda: best_plan(graph, [level]))
    divisions = _divisions(len(graph.nodes), level.count)
    times, every_s = timed(lambda: [_time_ms(graph, level, *each) for each in divisions])
    wrong = {f"{plan.time_ms} ms is not {min(times)} ms": abs(plan.time_ms / min(times) - 1) > ALMOST}
    note = f"{_described(plan)}; all {len(times)} plans in {every_s:.1f} CPU s"
    return CaseResult(took_s, true_of(wrong), note=note)


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

    Published are ratios of the longest to the shortest stage's forward, by number of stages; ours may differ
    by ``most``.
    """
    head = config.output(tied=True).forward_flops(1)
    pieces = [*[config.layer.forward_flops(1)] * config.num_layers, head]
    notes, wrong = [], {}
    for num_stages, ratio in published.items():
        layers = min_imbalance(pieces, num_stages)
        times = stage_times(pieces, layers)
        ours = max(times) / min(times)
        wrong[f"{num_stages} stages: {ours:.3f}"] = abs(ours - ratio) > most
        notes.append(f"{num_stages} stages: {ours:.3f}, published {ratio:.2f}; {'|'.join(map(str, layers))}")
    return CaseResult(missed=true_of(wrong), note="; ".join(notes))


def prediction(row: MeasuredIteration, *, most: float) -> CaseResult:
    """Hold the iteration of a row's stages in 1F1B against the measured one; the most error in percent."""
    found = predicted(row)
    error = 100 * found.error
    note = (
        f"measured {found.measured_ms:.1f} ms, predicted {found.predicted_ms:.1f} ms ({error:+.2f} %); "
        f"slowest stage {found.longest_ms:.2f} ms for a micro-batch"
    )
    return CaseResult(missed=true_of({f"off by {error:.2f} %": abs(error) > most}), note=note)


def moved(row: MeasuredIteration, others: Sequence[MeasuredIteration], *, work_limit: float) -> CaseResult:
    """Move whole layers such that the slowest stage takes the least time, and search a schedule.

    The row has as many layers in each stage; the others are measured iterations with layers moved.
    """
    layers = moved_layers(row)
    found = searched(with_layers(row, layers), work_limit)
    base_ms = predicted(row).predicted_ms
    wrong = {
        "period not proved": found.period_ms > found.period_bound_ms * (1 + ALMOST),
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
    return CaseResult(missed=true_of(wrong), note=note)


def shared_output(
    row: MeasuredIteration, *, num_in_flight: int, work_limit: float, at_load: bool
) -> CaseResult:
    """Put the output layer on all devices, and search a schedule.

    Each device has room for ``num_in_flight`` micro-batches. The period must be the devices' load
    (``at_load``), or at most that of 1F1B+.
    """
    placement = with_shared_output(row, num_in_flight)
    short, long = (
        one_f_one_b_plus(placement, number).makespan for number in (NUM_MICRO_BATCHES // 2, NUM_MICRO_BATCHES)
    )
    plus_ms = placement.ms(long - short) / (NUM_MICRO_BATCHES / 2)
    found, took_s = timed(lambda: searched(placement, work_limit))
    limit_ms = found.load_ms if at_load else plus_ms
    wrong = {f"period {found.period_ms:.2f} ms": found.period_ms > limit_ms * (1 + ALMOST)}
    note = (
        f"period {found.period_ms:.2f} ms (at least {found.period_bound_ms:.2f}, load {found.load_ms:.2f}), "
        f"iteration {found.makespan_ms:.1f} ms; 1F1B+: {plus_ms:.2f} and {placement.ms(long):.1f} ms; 1F1B "
        f"with the layer on the last stage: measured {row.iteration_ms:.1f} ms"
    )
    return CaseResult(took_s, true_of(wrong), note=note)


def errors_together(rows: Sequence[MeasuredIteration], *, most: float) -> CaseResult:
    """Hold the errors of all predictions together; in percent."""
    errors = [100 * abs(predicted(row).error) for row in rows]
    note = f"{len(rows)} runs: off by {statistics.mean(errors):.2f} % on average, {max(errors):.2f} % at most"
    return CaseResult(missed=true_of({f"off by {max(errors):.2f} %": max(errors) > most}), note=note)
