"""A plan as Galvatron's plan file.

Its runtime has a strategy for each layer, one stage of ZeRO for all that are not ZeRO-3, and gives the output
layer the embedding's strategy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from placements.block import PlacementError
from placements.models.calibration import CalibrationError
from placements.models.parallel import LayerStrategy, VocabularyStrategy
from placements.models.profiled_layer import ProfiledLayer
from placements.models.transformer import TransformerLayer
from placements.planners.galvatron_file import galvatron_to_dict
from placements.planners.hybrid.plan import Plan
from placements.planners.parallel_plan import ParallelPlan, PlanError
from placements.trainers.as_run import PlanExport, Planned


def parallel_plan(plan: Plan) -> ParallelPlan:
    """Return a plan of a transformer or measured blocks in Galvatron's terms; see `to_galvatron` for losses.

    Raises:
        PlanError: It has no transformer layer, stages of different numbers of GPUs or without such a layer,
            or context parallelism.
    """
    inner = _inner_layers(plan)
    if any(strategy.context_parallel > 1 for strategy in plan.strategies):
        raise PlanError(
            "context_parallel: is above 1, but Galvatron's plans here are without; export another plan"
        )
    sizes = {len(stage.gpus) for stage in plan.stages}
    if len(sizes) > 1:
        listed = " and ".join(map(str, sorted(sizes)))
        raise PlanError(f"stages: have {listed} GPUs, but Galvatron's all have as many; export another plan")
    first, strategies = plan.strategies[0], plan.strategies
    zero = max((each.zero for each in strategies if each.zero < 3), default=0)
    return ParallelPlan(
        sizes.pop(),
        tuple(sum(i in inner for i in stage.layers) for stage in plan.stages),
        tuple(strategies[i] for i in inner),
        VocabularyStrategy(first.tensor_parallel, first.sequence == "ulysses", first.zero),
        plan.global_batch_size,
        plan.num_micro_batches,
        default_zero=zero,
    )


def to_galvatron(planned: Planned) -> PlanExport:
    """Return a plan as Galvatron's runtime reads it.

    Raises:
        PlanError: See `parallel_plan`; or it has several chunks, or what would be run cannot be shared so or
            does not fit.
    """
    plan, chunks = planned.plan, planned.chunks or ()
    if len(chunks) > plan.num_stages:
        raise PlanError("its plans have no loop_shape")
    parallel_plan(plan)
    try:
        run = planned.rate(_as_run(plan))
    except (PlacementError, CalibrationError) as error:
        raise PlanError(str(error)) from None
    if not planned.fits(run):
        remedy = "plan with expert_parallel=[1] and recompute=[none,full]"
        raise PlanError(f"memory: as Galvatron shares the layers, {planned.fullest(run)}; {remedy}")
    found = parallel_plan(run.plan)
    options: dict[str, object] = dict(galvatron_to_dict(found))
    inner = [plan.strategies[i] for i in _inner_layers(plan)]
    options["use_sp"] = ",".join(str(int(each.sequence == "ulysses")) for each in inner)
    options["tp_consecutive_flags"] = ",".join(str(int(each.tensor_innermost)) for each in inner)
    differs = (*planned.differences(run), *_lost(plan))
    return PlanExport(json.dumps(options, indent=2) + "\n", run, differs)


def _as_run(plan: Plan) -> Plan:
    """Return a plan as Galvatron runs it."""
    zero = 2 if any(each.zero in (1, 2) for each in plan.strategies) else 0
    last = len(plan.strategies) - 1
    head = {last: plan.strategies[0]} if _ends_differ(plan) and last not in _inner_layers(plan) else {}

    def changed(i: int, how: LayerStrategy) -> LayerStrategy:
        how = head.get(i, how)
        recompute = "none" if how.recompute == "selective" else how.recompute
        return replace(how, zero=3 if how.zero == 3 else zero, recompute=recompute, expert_parallel=1)

    stages = (
        replace(
            stage,
            strategies=tuple(changed(*each) for each in zip(stage.layers, stage.strategies, strict=True)),
        )
        for stage in plan.stages
    )
    return replace(plan, stages=tuple(stages))


def _lost(plan: Plan) -> Iterator[str]:
    strategies = plan.strategies
    if any(each.recompute == "selective" for each in strategies):
        yield "selective recomputation: Galvatron recomputes whole layers or nothing"
    if any(each.zero == 1 for each in strategies):
        yield "ZeRO-1: Galvatron has ZeRO-2 or none beside ZeRO-3; ZeRO-2 is written"
    if len({each.zero for each in strategies if each.zero < 3 and each.weight_copies.degree > 1}) > 1:
        yield "different ZeRO stages below 3: Galvatron has one of them; ZeRO-2 is written for all"
    if any(each.expert_parallel > 1 for each in strategies):
        yield "expert parallel degrees: its search does not write them"
    if _ends_differ(plan):
        yield "the output layer's strategy: Galvatron gives it the embedding's"
    if plan.num_gpus < plan.cluster.num_gpus:
        yield f"idle GPUs: world_size is the {plan.num_gpus} that are used"


def _inner_layers(plan: Plan) -> list[int]:
    """Return the transformer layers, or the blocks of a model that is known by its profile."""
    layers = list(enumerate(plan.model.layers))
    profiled = [i for i, layer in layers if isinstance(layer, ProfiledLayer) and layer.role == "block"]
    found = profiled or [i for i, layer in layers if isinstance(layer, TransformerLayer)]
    if not found:
        raise PlanError(
            f"model: {plan.model.name} has no transformer layer; this form is of transformers alone"
        )
    return found


def _ends_differ(plan: Plan) -> bool:
    first, last = plan.strategies[0], plan.strategies[-1]
    return (first.tensor_parallel, first.sequence, first.zero) != (
        last.tensor_parallel,
        last.sequence,
        last.zero,
    )
