"""What Megatron-LM with megatron-core 0.16 is told, as arguments of its training script for GPT.

Facts of that version: gradients of 16-bit training are 32-bit unless ``--grad-reduce-in-bf16``; experts and
tensor parallelism together need sequence parallelism; tensor-parallel GPUs are neighbors; the first layers of
each chunk can be recomputed (method ``block``); Megatron-FSDP shards everything, as ZeRO-3; the exchange of
heads for tokens needs as many heads of keys and values on each GPU as share the tokens.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from placements.models.parallel import LayerStrategy, SequenceSharing
from placements.models.transformer import TransformerLayer
from placements.planners.hybrid.plan import PlanError
from placements.planners.hybrid.uniform import Degrees, Layout
from placements.trainers.as_run import PlanExport, Planned
from placements.trainers.job import (
    TrainerJob,
    decoder_layers,
    model_sizes,
    plan_stages,
    plan_uniform,
    without_defaults,
)
from placements.trainers.megatron_layout import LAYERS, arguments_of, group_size, pipeline_of
from placements.trainers.words import Table, argument_text, fields_read, given, written

_SYSTEM = "Megatron-LM"

_MODEL: Table = {
    "hidden_size": "--hidden-size",
    "num_heads": "--num-attention-heads",
    "num_kv_heads": "--num-query-groups",
    "head_width": "--kv-channels",
    "sequence_length": "--seq-length",
    "vocab_size": "--vocab-size",
    "rope_base": "--rotary-base",
    "norm_epsilon": "--norm-epsilon",
    "kv_rank": "--kv-lora-rank",
    "query_rank": "--q-lora-rank",
    "value_width": "--v-head-dim",
    "router_groups": "--moe-router-num-groups",
    "chosen_groups": "--moe-router-group-topk",
    "router_scaling": "--moe-router-topk-scaling-factor",
    "balance_loss": "--moe-aux-loss-coeff",
    "window_every": "--window-attn-skip-freq",
    "rope_width": "--qk-pos-emb-head-dim",
    "rope_share": "--rotary-percent",
    "shared_expert_size": "--moe-shared-expert-intermediate-size",
    "learned_positions": {False: "", True: "--position-embedding-type learned_absolute"},
    "gated": {False: "", True: "--swiglu"},
    "biases": {True: "", False: "--disable-bias-linear --normalization RMSNorm"},
    "qkv_biases": {False: "", True: "--add-qkv-bias"},
    "dropout": {True: "", False: "--attention-dropout 0.0 --hidden-dropout 0.0"},
    "tied": {True: "", False: "--untie-embeddings-and-output-weights"},
    "gpt_oss_parts": {
        False: "",
        True: "--softmax-type learnable --quick-geglu --glu-linear-offset 1.0 "
        "--activation-func-clamp-value 7.0 --no-bias-dropout-fusion",
    },
    "query_key_norms": {False: "", True: "--qk-layernorm"},
    "router_scores": {each: f"--moe-router-score-function {each}" for each in ("softmax", "sigmoid")},
    "scores_before_choice": {False: "", True: "--moe-router-pre-softmax"},
    "router_biases": {False: "", True: "--moe-router-enable-expert-bias"},
    "precision": {
        "single": "",
        "bf16": "--bf16",
        "half": "--bf16 --grad-reduce-in-bf16",
        "fp8": "--bf16 --fp8-recipe tensorwise --fp8-format hybrid",
        "fp8_blockwise": "--bf16 --fp8-recipe blockwise --fp8-format e4m3",
        "mxfp8": "--bf16 --fp8-recipe mxfp8 --fp8-format e4m3",
        "nvfp4": "--bf16 --fp4-recipe nvfp4 --fp4-format e2m1",
    },
}
_USUAL = {"window_every": 0, "rope_width": 0, "shared_expert_size": 0, "rope_share": 1}
"""Numbers that are written where they are others."""
_EXPERTS: Table = {"num_experts": "--num-experts", "experts_per_token": "--moe-router-topk"}
_WIDTHS: Table = {"feed_forward_size": "--moe-ffn-hidden-size", "inner": "--ffn-hidden-size"}
_WINDOW, _FREQUENCY = "--window-size", "--moe-layer-freq"
_SHARING: Table = {
    "tensor": "--tensor-model-parallel-size",
    "context": "--context-parallel-size",
    "expert": "--expert-model-parallel-size",
    "micro_batch_size": "--micro-batch-size",
    "batch": "--global-batch-size",
    "recomputed_layers": "--recompute-num-layers",
    "whole_experts": {False: "", True: "--expert-tensor-parallel-size 1"},
    "context_sharing": {"all_to_all": "", "ring": "--cp-comm-type p2p"},
    "sequence_parallel": {False: "", True: "--sequence-parallel"},
    "zero": {
        0: "",
        1: "--use-distributed-optimizer",
        3: "--use-distributed-optimizer --use-megatron-fsdp --data-parallel-sharding-strategy "
        "optim_grads_params --no-gradient-accumulation-fusion --ckpt-format fsdp_dtensor",
    },
    "recompute": {
        "none": "",
        "selective": "--recompute-granularity selective",
        "full": "--recompute-granularity full --recompute-method block",
    },
    "overlap_exchanges": {False: "", True: "--overlap-grad-reduce"},
    "overlap_tensor_parallel": {False: "", True: "--tp-comm-overlap"},
    "sends_tokens_once": {False: "", True: "--moe-token-dispatcher-type flex"},
}
_GATHERED = dict.fromkeys(("fp8", "fp8_blockwise"), ("--fp8-param-gather",)) | {
    "mxfp8": ("--fp8-param-gather", "--reuse-grad-buf-for-mxfp8-param-ag"),
    "nvfp4": ("--fp4-param-gather",),
}
"""Arguments by which weights of 8 or 4 bits have no copy in 16; they need the distributed optimizer."""
_NOT_GPT_OSS = ("--swiglu", "--disable-bias-linear", "--add-qkv-bias")
"""Arguments that `gpt_oss_parts` stands for others of: a gate, and biases of all matrices."""


def write(job: TrainerJob, comments: Sequence[str] = ()) -> str:
    """Return the arguments that say a job, one a line, below comments.

    Raises:
        LayoutError: Megatron-LM would refuse its stages.
    """
    fields, stages = job.fields, arguments_of(job.stages, job.group)
    options = {LAYERS: stages.pop(LAYERS)}
    if job.sizes:
        usual = {name: None for name, value in _USUAL.items() if fields[name] == value}
        options |= written(fields | usual, _MODEL) | _model_besides(fields)
        if fields["gpt_oss_parts"]:
            options = {name: value for name, value in options.items() if name not in _NOT_GPT_OSS}
    if job.layout:
        options |= written(fields, _SHARING)
        if fields["context"] > 1 and fields["context_sharing"] == "all_to_all":
            options["--cp-comm-type"] = "a2a"
        if fields["zero"]:
            options |= {"--overlap-param-gather": None} if job.overlap_exchanges else {}
            options |= dict.fromkeys(_GATHERED.get(fields["precision"], ()))
    return argument_text(options | stages, comments)


def _model_besides(fields: Mapping[str, Any]) -> dict[str, object]:
    """Return the arguments of a model that follow from others or have a form of their own."""
    inner, num_dense = fields["feed_forward_size"], fields["num_dense_layers"]
    found: dict[str, object] = {"--max-position-embeddings": fields["sequence_length"]}
    found["--ffn-hidden-size"] = fields["dense_feed_forward_size"] or inner
    if fields["num_kv_heads"] is not None:
        found["--group-query-attention"] = None
    if not fields["learned_positions"]:
        found["--position-embedding-type"] = "none" if fields["rope_base"] is None else "rope"
    if fields["window"] is not None:
        found[_WINDOW] = f"{fields['window'] - 1},0"
    if fields["kv_rank"] is not None:
        # Positions are YaRN's by default, for a longer context than that of the first training.
        found |= {"--multi-latent-attention": None, "--rope-type": "rope", "--qk-layernorm": None}
        found["--qk-head-dim"] = fields["head_width"]
    if fields["num_experts"] > 1:
        found |= written(fields, _EXPERTS) | {"--moe-ffn-hidden-size": inner}
        if num_dense:
            found[_FREQUENCY] = f"([0]*{num_dense}+[1]*{fields['num_layers'] - num_dense})"
        found["--moe-router-load-balancing-type"] = "seq_aux_loss" if fields["router_biases"] else "aux_loss"
        found |= {"--moe-grouped-gemm": None} if fields["precision"] != "single" else {}
        found |= {} if fields["sends_tokens_once"] else {"--moe-token-dispatcher-type": "alltoall"}
    return found


def read(words: Sequence[str], num_gpus: int) -> TrainerJob:
    """Return the job on so many GPUs that arguments say; others than those that are written are not read.

    Raises:
        LayoutError: Megatron-LM would refuse the stages, or a number is none.
    """
    flags, (stages, group) = given(words), pipeline_of(words)
    how, layout, sizes = fields_read(flags, _SHARING), None, dict[str, Any]()
    names = ("sequence_parallel", "overlap_exchanges", "overlap_tensor_parallel", "sends_tokens_once")
    switches = {name: how.pop(name) for name in names}
    if "tensor" in how:
        batch = how.pop("batch")
        shared = {name: how.pop(name) for name in inspect.signature(Degrees).parameters if name in how}
        data = num_gpus // (shared["tensor"] * shared.get("context", 1) * stages.num_devices)
        degrees = Degrees(pipeline=stages.num_devices, data=data, chunks=stages.num_chunks, **shared)
        layout = Layout(degrees, num_micro_batches=batch // (data * how["micro_batch_size"]), **how)
    if "--hidden-size" in flags:
        sizes = fields_read(flags, {**_MODEL, **_EXPERTS, **_WIDTHS})
        sizes |= {"num_layers": stages.num_layers, "num_predict_layers": stages.num_mtp}
        inner = sizes.pop("inner", None)
        sizes.setdefault("feed_forward_size", inner)
        dense = re.fullmatch(r"\(?\[0\]\*(\d+)\+\[1\]\*\d+\)?", "".join(flags.get(_FREQUENCY, [])))
        if dense:
            sizes |= {"num_dense_layers": int(dense[1]), "dense_feed_forward_size": inner}
        if sizes["gpt_oss_parts"]:
            sizes |= {"gated": True, "biases": False, "qkv_biases": True}
        if _WINDOW in flags:
            sizes["window"] = int(flags[_WINDOW][0].strip("(").split(",")[0]) + 1
        if "kv_rank" in sizes:
            sizes["query_key_norms"] = False
    return TrainerJob(stages=stages, group=group, sizes=without_defaults(sizes), layout=layout, **switches)


def to_megatron(planned: Planned) -> PlanExport:
    """Return a plan as Megatron-LM is told it: as it is, or with all layers shared as most of them.

    Tokens of norms are then shared too where that is faster, and as few layers recomputed as it takes.

    Raises:
        PlanError: The model is no decoder, or what would be run cannot be shared so or does not fit; or
            Megatron-LM cannot run as many micro-batches in chunks.
    """
    plan, name = planned.plan, planned.plan.model.precision.name
    sizes = model_sizes(plan.model, _SYSTEM)
    ways = list(_strategies(plan.common, decoder_layers(plan.model, _SYSTEM)[-1]))
    p, m = plan.num_stages, plan.num_micro_batches
    group = None
    if len(planned.chunks or ()) > p:
        if m < p:
            raise PlanError(
                f"num_micro_batches: {m} are fewer than the {p} ranks of interleaved 1F1B; plan with more"
            )
        group = size if (size := group_size(p, m)) != p else None
    run = planned.best_of(ways, _SYSTEM, True)
    layout, differs = plan_uniform(run.plan, planned.chunks), planned.differences(run)
    if layout.zero == 3:
        differs.append("ZeRO-3 is Megatron-FSDP: leave CUDA_DEVICE_MAX_CONNECTIONS unset")
    elif max(layout.degrees.tensor, layout.degrees.context) > 1:
        differs.append("set CUDA_DEVICE_MAX_CONNECTIONS=1 before Blackwell")
    if name == "tf32":
        differs.append("TF32 has no argument: set torch.backends.cuda.matmul.allow_tf32")
        sizes["precision"] = "single"
    if name in _GATHERED and not layout.zero:
        differs.append(
            f"{_GATHERED[name][0]} needs the distributed optimizer: weights of 16 bits are held beside "
            f"those of {name}, about 2 bytes a parameter more than planned"
        )
    if sizes.get("gpt_oss_parts") and layout.degrees.tensor > 1 and not layout.degrees.whole_experts:
        differs.append("biases of experts need --expert-tensor-parallel-size 1; or add --disable-bias-linear")
    if sizes.get("rope_base") is None and not sizes.get("learned_positions", True):
        differs.append(f"positions: the base of {plan.model.name}'s is not known; none are written")
    job = TrainerJob(
        stages=plan_stages(run.plan, planned.chunks),
        group=group,
        sizes=sizes,
        layout=layout,
        sequence_parallel=run.plan.common.sequence == "megatron",
        **planned.told,
    )
    head = f"Megatron-LM with megatron-core 0.16, pretrain_gpt.py on {plan.num_gpus} GPUs"
    return PlanExport(write(job, (head, *differs)), run, tuple(differs), job)


def _strategies(common: LayerStrategy, layer: TransformerLayer) -> Iterator[LayerStrategy]:
    """Yield the ways in which Megatron can share layers where most are shared so."""
    if common.sequence == "ulysses":
        common = replace(common, tensor_parallel=common.token_parallel, context_parallel=1)
    elif layer.has_experts and common.tensor_parallel > 1:
        common = replace(common, sequence="megatron")
    t, c, kv_heads = common.matrix_parallel, common.token_parallel, layer.kv_heads
    is_exchanged = c > 1 and (common.sequence == "ulysses" or common.context == "all_to_all")
    if is_exchanged and (kv_heads < t or kv_heads // t % c):
        sequence: SequenceSharing = "none" if common.sequence == "ulysses" else common.sequence
        common = replace(common, tensor_parallel=t, context_parallel=c, sequence=sequence, context="ring")
    common = replace(common, tensor_innermost=True, zero=1 if common.zero == 2 else common.zero)
    if kv_heads % t and t % kv_heads:
        raise PlanError(f"num_kv_heads: {kv_heads} and {t} tensor-parallel GPUs do not divide one another")
    if c > 1 and layer.sequence_length % (2 * c):
        raise PlanError(
            f"context_parallel: twice {c} does not divide the {layer.sequence_length} tokens of a sample"
        )
    plain = replace(common, recompute="none")
    yield plain
    if common.tensor_parallel > 1 and common.sequence == "none":
        yield replace(plain, sequence="megatron")
    if common.recompute == "selective":
        yield common
