"""A plan as arguments of Megatron-LM with megatron-core 0.16.

Facts of that version: gradients of 16-bit training are 32-bit unless ``--grad-reduce-in-bf16``; experts and
tensor parallelism together need sequence parallelism; tensor-parallel GPUs are neighbors; the first layers of
each stage can be recomputed (method ``block``); Megatron-FSDP shards everything, as ZeRO-3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from placements.models.end_layers import EmbeddingLayer, OutputLayer
from placements.models.parallel import LayerStrategy
from placements.models.transformer import TransformerLayer
from placements.planners.hybrid.exports.as_run import (
    PlanExport,
    RunLimits,
    arguments_text,
    decoder_layer,
    differences,
    first_that_fits,
    shared_alike,
)
from placements.planners.hybrid.plan import Plan
from placements.planners.hybrid.plan_options import RatedPlan
from placements.planners.parallel_plan import PlanError

_SYSTEM = "Megatron-LM"
_REMEDY = "plan with uniform=true"


def to_megatron(planned: RatedPlan, limits: RunLimits) -> PlanExport:
    """Return a plan as arguments of Megatron-LM's training script for GPT.

    All layers are shared as most of the plan's. Where some of them are recomputed, or memory is short
    otherwise, as many of each stage are as it takes.

    Raises:
        PlanError: The model is no decoder, or what would be run cannot be shared so or does not fit.
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
    return PlanExport(_shapes(run.plan, layer) | _parallelism(run.plan, common), run, tuple(differs))


def megatron_text(exported: PlanExport) -> str:
    """Return the arguments, one a line, with what differs as comments."""
    return arguments_text("Megatron-LM with megatron-core 0.16, pretrain_gpt.py", exported)


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


def _parallelism(plan: Plan, common: LayerStrategy) -> dict[str, object]:
    """Return the arguments that say how GPUs share the model."""
    options: dict[str, object] = {
        "--tensor-model-parallel-size": common.matrix_parallel,
        "--pipeline-model-parallel-size": plan.num_stages,
        "--context-parallel-size": common.token_parallel,
        "--expert-model-parallel-size": common.expert_parallel,
        "--micro-batch-size": plan.micro_batch_size // common.data_parallel,
        "--global-batch-size": plan.global_batch_size,
    }
    if plan.num_stages > 1:
        options["--pipeline-model-parallel-layout"] = _layout(plan)
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
    return options | _recomputation(plan)


def _recomputation(plan: Plan) -> dict[str, object]:
    chosen = [[plan.strategies[i].recompute for i in stage.layers] for stage in plan.stages]
    if any("selective" in of_stage for of_stage in chosen):
        return {"--recompute-granularity": "selective"}
    most = max(of_stage.count("full") for of_stage in chosen)
    method = {"--recompute-method": "block", "--recompute-num-layers": most}
    return {"--recompute-granularity": "full", **method} if most else {}


def _layout(plan: Plan) -> str:
    """Return the stages as ``E`` embedding, ``t`` transformer layer and ``L`` loss, with bars between."""
    last = len(plan.model.layers) - 1
    parts = []
    for stage in plan.stages:
        count = sum(0 < i < last for i in stage.layers)
        parts.append(
            ("E" if 0 in stage.layers else "")
            + (f"t*{count}" if count else "")
            + ("L" if last in stage.layers else "")
        )
    return "|".join(parts)
