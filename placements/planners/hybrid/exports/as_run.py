"""A plan as another system runs it: with layers shared alike, and with what that takes by the same costs.

None of the systems has all that a plan may have. What they run instead must fit the memory, and what differs
from the plan is said. The module does not know any system.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise, permutations
from typing import NamedTuple

from placements.block import PlacementError
from placements.layouts.layout import EMBEDDING, LAYER, LOSS, PipelineLayout, layout_of_sizes
from placements.models.calibration import CalibrationError
from placements.models.end_layers import EmbeddingLayer, OutputLayer
from placements.models.parallel import LayerStrategy
from placements.models.transformer import TransformerLayer
from placements.planners.hybrid.plan import Plan, alike
from placements.planners.hybrid.plan_options import RatedPlan, StageEstimate
from placements.planners.hybrid.stage_tables import LayerCosts, LayerTable
from placements.planners.parallel_plan import PlanError
from placements.planners.stage_search.stage_problem import LayerRun, StageProblem, weigh


class PlanExport(NamedTuple):
    """A plan in another system's terms.

    Attributes:
        options: Options by name; None as the value of a flag.
        run: What these options run, with its time and memory.
        differs: What of it is otherwise than planned, and what has to be given besides, a line each.
    """

    options: dict[str, object]
    run: RatedPlan
    differs: tuple[str, ...]


class RunLimits(NamedTuple):
    """Costs of layers, and the memory that there is.

    Attributes:
        costs: Costs of the plan's layers.
        capacities_gib: What each GPU of a stage has for states and activations, by stage.
    """

    costs: LayerCosts
    capacities_gib: Sequence[float]


def decoder_layer(plan: Plan, system: str) -> TransformerLayer:
    """Return the layer of a model that is an embedding, equal transformer layers and an output layer.

    Raises:
        PlanError: It is another one.
    """
    first, *inner, last = plan.model.layers
    ends = isinstance(first, EmbeddingLayer) and isinstance(last, OutputLayer)
    if not ends or len(set(inner)) != 1 or not isinstance(inner[0], TransformerLayer):
        raise PlanError(
            f"model: {plan.model.name} is not an embedding, equal transformer layers and an output layer, "
            f"of which the arguments of {system} are"
        )
    return inner[0]


def shared_alike(plan: Plan, strategy: LayerStrategy, num_recomputed: int = 0) -> Plan:
    """Return a plan with one strategy for all layers; see `placements.planners.hybrid.plan.alike`.

    Args:
        plan: Plan whose stages are kept.
        strategy: Strategy of all layers.
        num_recomputed: Transformer layers of each stage, its first ones, that are computed again besides.
    """
    stages = []
    for stage in plan.stages:
        layers = [plan.model.layers[i] for i in stage.layers]
        chosen = [alike(strategy, layer) for layer in layers]
        inner = [i for i, layer in enumerate(layers) if isinstance(layer, TransformerLayer)]
        for i in inner[:num_recomputed]:
            chosen[i] = replace(chosen[i], recompute="full")
        stages.append(replace(stage, strategies=tuple(chosen)))
    return replace(plan, stages=tuple(stages))


def rate(plan: Plan, costs: LayerCosts) -> RatedPlan:
    """Return a plan with the time and the memory that a search would give it, under 1F1B.

    Raises:
        PlacementError: A layer cannot be shared so.
        CalibrationError: Its time was not measured.
    """
    samples, m, kinds = plan.micro_batch_size, plan.num_micro_batches, set(plan.layers)
    estimates, stages_ms = [], []
    for number, stage in enumerate(plan.stages):
        group, runs, layouts = plan.group(number), [], dict[object, int]()
        for i, how in zip(stage.layers, stage.strategies, strict=True):
            cost = costs.cost(plan.layers[i], how, samples, m, group)
            runs.append(LayerRun(1, LayerTable((how,), (cost,), ()).options(layouts)))
        by_layout = {layouts[layout]: how for how, layout in zip(stage.strategies, layouts, strict=False)}
        transitions = {
            (a, b): max(costs.transition_ms(kind, before, after, samples, group) for kind in kinds)
            for (a, before), (b, after) in permutations(by_layout.items(), 2)
        }
        in_flight = min(plan.num_stages - number, m)
        solution = weigh(StageProblem(tuple(runs), transitions, in_flight, 0.0, m), (0,) * len(runs))
        stages_ms.append(solution.cost)
        estimates.append(StageEstimate(solution.time_ms, solution.sync_ms, solution.peak_mib, in_flight))
    transfers_ms = sum(
        2 * costs.transfer_ms(plan.layers[before.layers[-1]], samples, plan.group(i), plan.group(i + 1))
        for i, (before, _) in enumerate(pairwise(plan.stages))
    )
    return RatedPlan(plan, (m - 1) * max(stages_ms) + sum(stages_ms) + transfers_ms, tuple(estimates))


def first_that_fits(candidates: Iterable[Plan], limits: RunLimits, system: str, remedy: str) -> RatedPlan:
    """Return the first of several ways to run a plan that fits the memory.

    Args:
        candidates: The ways, that of the least time first.
        limits: What layers cost, and the room.
        system: System that runs them.
        remedy: What to do where none fits.

    Raises:
        PlanError: None fits, or a layer cannot be shared so.
    """
    short = ""
    for plan in candidates:
        try:
            rated = rate(plan, limits.costs)
        except (PlacementError, CalibrationError) as error:
            raise PlanError(str(error)) from None
        stage, needs_gib = fullest(rated, limits)
        if needs_gib <= limits.capacities_gib[stage]:
            return rated
        short = short or f"stage {stage} needs {needs_gib:.1f} GiB of {limits.capacities_gib[stage]:.1f}"
    raise PlanError(f"memory: as {system} shares the layers, {short}; {remedy}")


def fullest(run: RatedPlan, limits: RunLimits) -> tuple[int, float]:
    """Return the stage with the least room left, and the GiB that each of its GPUs needs."""
    peaks = [stage.peak_mib / 1024 for stage in run.stages]
    stage = max(range(len(peaks)), key=lambda i: peaks[i] - limits.capacities_gib[i])
    return stage, peaks[stage]


def differences(planned: RatedPlan, run: RatedPlan, limits: RunLimits, remedy: str = "") -> list[str]:
    """Return what is run otherwise than planned, and what that takes, a line each.

    Args:
        planned: By the search.
        run: By the other system.
        limits: What there is room for.
        remedy: Options with which a plan is run as planned.
    """
    before, after = planned.plan, run.plan
    lines = []
    if changed := sum(a != b for a, b in zip(before.strategies, after.strategies, strict=True)):
        stage, needs_gib = fullest(run, limits)
        lines.append(
            f"{changed} of {len(before.strategies)} layers are shared otherwise than planned: an iteration "
            f"takes {run.time_ms:,.0f} ms and not {planned.time_ms:,.0f} by the formula; stage {stage} needs "
            f"{needs_gib:.1f} GiB of {limits.capacities_gib[stage]:.1f}" + (remedy and f"; {remedy}")
        )
    if before.num_gpus < before.cluster.num_gpus:
        lines.append(
            f"{before.num_gpus} of {before.cluster.num_gpus} GPUs are used; start a process for each of these"
        )
    return lines


def plan_layout(plan: Plan, chunks: Sequence[range] | None = None) -> PipelineLayout:
    """Return the layout of a plan of a decoder; see `decoder_layer`.

    Args:
        plan: The plan.
        chunks: Its layers on virtual stages, where its devices have several; None for its stages.
    """
    letters = EMBEDDING + LAYER * (len(plan.model.layers) - 2) + LOSS
    sizes = [len(chunk) for chunk in chunks or [stage.layers for stage in plan.stages]]
    return layout_of_sizes(plan.num_stages, letters, tuple(sizes))
