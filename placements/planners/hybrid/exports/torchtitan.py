"""A plan as arguments of torchtitan 0.3.0.

Facts of that version: a model is a function of a module's registry, and all else are flags over what it
returns; states are replicated or sharded (FSDP, as ZeRO-3); experts are shared among GPUs that shard; all
layers are recomputed or none; CUDA graphs have to be off with pipelines and experts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from placements.layouts.argument_words import argument_text
from placements.layouts.torchtitan_parts import read_parts, write_job, write_parts
from placements.models.parallel import LayerStrategy, Recompute
from placements.models.transformer import TransformerLayer
from placements.models.zoo import read_model
from placements.planners.hybrid.exports.as_run import (
    PlanExport,
    RunLimits,
    decoder_layer,
    differences,
    first_that_fits,
    plan_layout,
    shared_alike,
)
from placements.planners.hybrid.plan import Plan
from placements.planners.hybrid.plan_options import RatedPlan
from placements.planners.parallel_plan import PlanError

_SYSTEM = "torchtitan"
_REMEDY = "plan with uniform=true 'paradigms=[dp,sdp,tp]'"

_CONFIGS = {"llama3_8b": "llama3", "llama3_70b": "llama3"}
"""The module of each model that torchtitan 0.3.0 has a config of by the same name."""


def to_torchtitan(planned: RatedPlan, limits: RunLimits, chunks: Sequence[range] | None = None) -> PlanExport:
    """Return a plan as arguments of torchtitan's training.

    All layers are shared as most of the plan's. ZeRO-1 and ZeRO-2 become ZeRO-3. Where memory is short, all
    layers are recomputed.

    Args:
        planned: The plan.
        limits: What layers cost, and the room.
        chunks: Layers of each virtual stage, for interleaved 1F1B; the memory is then only that of 1F1B.

    Raises:
        PlanError: The model is no decoder, or what would be run cannot be shared so or does not fit; or torch
            cannot run as many micro-batches in chunks.
    """
    layer = decoder_layer(planned.plan, _SYSTEM)
    common = _strategy(planned.plan.common)
    if layer.kv_heads % common.matrix_parallel:
        raise PlanError(
            f"num_kv_heads: {common.matrix_parallel} tensor-parallel GPUs do not divide the {layer.kv_heads}"
        )
    run = first_that_fits(_candidates(planned.plan, common), limits, _SYSTEM, _REMEDY)
    named = _config(planned.plan, layer)
    differs = differences(planned, run, limits, _REMEDY)
    if not named:
        differs.append(
            f"torchtitan 0.3.0 has no {planned.plan.model.name}: give --module and --config of your own"
        )
    return PlanExport(named | _options(run.plan, layer, _pipeline(run.plan, chunks)), run, tuple(differs))


def torchtitan_text(exported: PlanExport) -> str:
    """Return the arguments, one a line, with what differs as comments."""
    head = "torchtitan 0.3.0, torchtitan.train"
    return argument_text(exported.options, (head, *exported.differs))


def _strategy(common: LayerStrategy) -> LayerStrategy:
    """Return how torchtitan shares layers where most are shared so."""
    if common.sequence == "ulysses":
        degree = common.token_parallel
        common = replace(common, tensor_parallel=1, context_parallel=degree, sequence="none")
    is_sharded = common.zero > 0 or common.expert_parallel > 1
    recompute: Recompute = "full" if common.recompute == "full" else "none"
    return replace(common, zero=3 if is_sharded else 0, recompute=recompute, tensor_innermost=True)


def _candidates(plan: Plan, common: LayerStrategy) -> Iterator[Plan]:
    yield shared_alike(plan, common)
    yield shared_alike(plan, replace(common, recompute="full"))


def _config(plan: Plan, layer: TransformerLayer) -> dict[str, object]:
    """Return the registered model that a plan is of; nothing where there is none of its sizes."""
    name = plan.model.name
    if name in _CONFIGS and plan.model == read_model(name, sequence_length=layer.sequence_length):
        return {"--module": _CONFIGS[name], "--config": name}
    return {}


def _options(plan: Plan, layer: TransformerLayer, pipeline: dict[str, object]) -> dict[str, object]:
    common = plan.common
    is_pipeline, is_sharded = plan.num_stages > 1, common.zero == 3
    micro = plan.micro_batch_size // common.data_parallel
    options: dict[str, object] = {
        "--training.seq_len": layer.sequence_length,
        "--training.global_batch_size": plan.global_batch_size,
        "--training.local_batch_size": micro * (plan.num_micro_batches if is_pipeline else 1),
        "--training.mixed_precision_param": "bfloat16" if plan.model.precision.name == "half" else "float32",
        "--parallelism.pipeline_parallel_degree": plan.num_stages,
        "--parallelism.tensor_parallel_degree": common.matrix_parallel,
        "--parallelism.context_parallel_degree": common.token_parallel,
        "--parallelism.data_parallel_shard_degree": common.data_parallel if is_sharded else 1,
        "--parallelism.data_parallel_replicate_degree": 1 if is_sharded else common.data_parallel,
        "--parallelism.expert_parallel_degree": common.expert_parallel,
    }
    if common.sequence != "megatron" and common.matrix_parallel > 1:
        options["--parallelism.no-enable-sequence-parallel"] = None
    if is_pipeline or common.expert_parallel > 1:
        options["--training.disable_cuda_graphs"] = None
    if is_pipeline:
        options |= {"--parallelism.pipeline_parallel_microbatch_size": micro} | pipeline
    return options | {f"activation_checkpoint:{common.recompute}": None}


def _pipeline(plan: Plan, chunks: Sequence[range] | None) -> dict[str, object]:
    """Return the flags of the layout, read back."""
    layout, m = plan_layout(plan, chunks), plan.num_micro_batches
    if layout.num_chunks > 1 and (m < plan.num_stages or m % (m // plan.num_stages)):
        raise PlanError(
            f"num_micro_batches: Interleaved1F1B of torch refuses {m} on {plan.num_stages} ranks; plan with "
            f"a multiple of {plan.num_stages}"
        )
    assert read_parts(write_parts(layout), plan.num_stages) == layout, "it is read back"
    return write_job(layout)
