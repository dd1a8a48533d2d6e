"""A plan as arguments of Megatron-LM with megatron-core 0.16.

Facts of that version: gradients of 16-bit training are 32-bit unless ``--grad-reduce-in-bf16``; experts and
tensor parallelism together need sequence parallelism; tensor-parallel GPUs are neighbors; the first layers of
each stage can be recomputed (method ``block``); Megatron-FSDP shards everything, as ZeRO-3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from placements.layouts.argument_words import argument_text
from placements.layouts.megatron_arguments import LAYERS, arguments_of, group_size, pipeline_of
from placements.models.end_layers import EmbeddingLayer, OutputLayer
from placements.models.parallel import LayerStrategy
from placements.models.transformer import TransformerLayer
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

_SYSTEM = "Megatron-LM"
_REMEDY = "plan with uniform=true"


def to_megatron(planned: RatedPlan, limits: RunLimits, chunks: Sequence[range] | None = None) -> PlanExport:
    """Return a plan as arguments of Megatron-LM's training script for GPT.

    All layers are shared as most of the plan's. Where some of them are recomputed, or memory is short
    otherwise, as many of each stage are as it takes.

    Args:
        planned: The plan.
        limits: What layers cost, and the room.
        chunks: Layers of each virtual stage, for interleaved 1F1B; the memory is then only that of 1F1B.

    Raises:
        PlanError: The model is no decoder, or what would be run cannot be shared so or does not fit; or
            Megatron-LM cannot run as many micro-batches in chunks.
    """
    layer = decoder_layer(planned.plan, _SYSTEM)
    common = _strategy(planned.plan.common, layer)
    kv_heads, t = layer.kv_heads, common.matrix_parallel
    if kv_heads % t and t % kv_heads:
        raise PlanError(f"num_kv_heads: {kv_heads} and {t} tensor-parallel GPUs do not divide one another")
    if common.token_parallel > 1 and layer.sequence_length % (2 * common.token_parallel):
        raise PlanError(
            f"context_parallel: twice {common.token_parallel} does not divide the {layer.sequence_length} "
            "tokens of a sample"
        )
    run = first_that_fits(_candidates(planned.plan, common), limits, _SYSTEM, _REMEDY)
    differs = differences(planned, run, limits, _REMEDY)
    if common.zero == 3:
        differs.append("ZeRO-3 is Megatron-FSDP: leave CUDA_DEVICE_MAX_CONNECTIONS unset")
    elif max(t, common.token_parallel) > 1:
        differs.append("set CUDA_DEVICE_MAX_CONNECTIONS=1 before Blackwell")
    shared = run.plan
    pipeline = _pipeline(shared, chunks) | _recomputation(shared, chunks)
    arguments = _parallelism(shared, common, pipeline)
    return PlanExport(_shapes(shared, layer) | arguments, run, tuple(differs))


def megatron_text(exported: PlanExport) -> str:
    """Return the arguments, one a line, with what differs as comments."""
    head = "Megatron-LM with megatron-core 0.16, pretrain_gpt.py"
    return argument_text(exported.options, (head, *exported.differs))


def _strategy(common: LayerStrategy, layer: TransformerLayer) -> LayerStrategy:
    """Return how Megatron shares layers where most are shared so."""
    if common.sequence == "ulysses":
        degree = common.token_parallel
        common = replace(common, tensor_parallel=degree, context_parallel=1)
    elif layer.num_experts > 1 and common.tensor_parallel > 1:
        common = replace(common, sequence="megatron")
    return replace(common, tensor_innermost=True, zero=1 if common.zero == 2 else common.zero)


def _candidates(plan: Plan, common: LayerStrategy) -> Iterator[Plan]:
    if common.recompute != "none":
        yield shared_alike(plan, common)
    plain, most = replace(common, recompute="none"), max(len(stage.layers) for stage in plan.stages)
    yield from (shared_alike(plan, plain, number) for number in range(most + 1) if common.recompute != "full")


def _shapes(plan: Plan, layer: TransformerLayer) -> dict[str, object]:
    """Return the arguments that describe the model and the batch."""
    embedding, *inner, output = plan.model.layers
    assert isinstance(embedding, EmbeddingLayer) and isinstance(output, OutputLayer), "a decoder"
    is_half = plan.model.precision.name == "half"
    options: dict[str, object] = {
        "--num-layers": len(inner),
        "--hidden-size": layer.hidden_size,
        "--num-attention-heads": layer.num_heads,
        "--ffn-hidden-size": layer.ffn_size,
        "--seq-length": layer.sequence_length,
        "--max-position-embeddings": layer.sequence_length,
        "--vocab-size": embedding.vocab_size,
        "--kv-channels": layer.query_width // layer.num_heads,
        "--position-embedding-type": "learned_absolute" if embedding.num_positions else "rope",
    }
    options |= {"--bf16": None, "--grad-reduce-in-bf16": None} if is_half else {}
    if layer.kv_heads != layer.num_heads:
        options |= {"--group-query-attention": None, "--num-query-groups": layer.kv_heads}
    options |= {"--swiglu": None} if layer.gated else {}
    options |= {} if layer.biases else {"--disable-bias-linear": None, "--normalization": "RMSNorm"}
    options |= {} if layer.dropout else {"--attention-dropout": 0.0, "--hidden-dropout": 0.0}
    options |= {} if output.tied else {"--untie-embeddings-and-output-weights": None}
    if layer.num_experts > 1:
        options |= {
            "--num-experts": layer.num_experts,
            "--moe-router-topk": layer.experts_per_token,
            "--moe-ffn-hidden-size": layer.ffn_size,
            "--moe-router-load-balancing-type": "aux_loss",
            "--moe-aux-loss-coeff": 0.01,
            "--moe-token-dispatcher-type": "alltoall",
        }
        options |= {"--moe-grouped-gemm": None} if is_half else {}
    return options


def _parallelism(plan: Plan, common: LayerStrategy, pipeline: dict[str, object]) -> dict[str, object]:
    """Return the arguments that say how GPUs share the model."""
    options: dict[str, object] = {
        "--tensor-model-parallel-size": common.matrix_parallel,
        "--pipeline-model-parallel-size": plan.num_stages,
        "--context-parallel-size": common.token_parallel,
        "--expert-model-parallel-size": common.expert_parallel,
        "--micro-batch-size": plan.micro_batch_size // common.data_parallel,
        "--global-batch-size": plan.global_batch_size,
    }
    options |= pipeline
    if common.sequence == "megatron":
        options["--sequence-parallel"] = None
    if common.sequence == "ulysses":
        options["--cp-comm-type"] = "a2a"
    if common.zero:
        options["--use-distributed-optimizer"] = None
    if common.zero == 3:
        options |= {
            "--use-megatron-fsdp": None,
            "--data-parallel-sharding-strategy": "optim_grads_params",
            "--no-gradient-accumulation-fusion": None,
            "--ckpt-format": "fsdp_dtensor",
        }
    return options


def _recomputation(plan: Plan, chunks: Sequence[range] | None) -> dict[str, object]:
    parts = chunks or [stage.layers for stage in plan.stages]
    chosen = [[plan.strategies[i].recompute for i in part] for part in parts]
    if any("selective" in of_stage for of_stage in chosen):
        return {"--recompute-granularity": "selective"}
    most = max(of_stage.count("full") for of_stage in chosen)
    method = {"--recompute-method": "block", "--recompute-num-layers": most}
    return {"--recompute-granularity": "full", **method} if most else {}


def _pipeline(plan: Plan, chunks: Sequence[range] | None) -> dict[str, object]:
    """Return the arguments of the layout besides the number of layers, read back."""
    layout, group = plan_layout(plan, chunks), None
    if layout.num_chunks > 1:
        if plan.num_micro_batches < plan.num_stages:
            raise PlanError(
                f"num_micro_batches: {plan.num_micro_batches} are fewer than the {plan.num_stages} ranks of "
                "interleaved 1F1B; plan with more"
            )
        group = group_size(plan.num_stages, plan.num_micro_batches)
    options = arguments_of(layout, group)
    read = pipeline_of([str(word) for pair in options.items() for word in pair])
    assert read.layout == layout, "it is read back"
    del options[LAYERS]
    return options
