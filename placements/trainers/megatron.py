"""Jobs as arguments of the GPT training script of Megatron-LM with megatron-core 0.16.

Facts of that version: gradients of 16-bit training are 32-bit unless ``--grad-reduce-in-bf16``; experts and
tensor parallelism together need sequence parallelism; tensor-parallel GPUs are neighbors; the first layers of
each chunk can be recomputed (method ``block``); Megatron-FSDP shards everything, as ZeRO-3; the exchange of
heads for tokens needs as many heads of keys and values on each GPU as share the tokens. For a pipeline's
arguments see `placements.trainers.megatron_layout`; all others are in `trainer_arguments.csv`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from placements.models.parallel import LayerStrategy, SequenceSharing
from placements.models.transformer import TransformerLayer
from placements.planners.hybrid.plan import PlanError
from placements.trainers.as_run import PlanExport, Planned
from placements.trainers.job import (
    StageMode,
    TrainerJob,
    decoder_layers,
    layout_from_fields,
    model_sizes,
    plan_stages,
    plan_uniform,
    without_defaults,
)
from placements.trainers.layout import LayoutError
from placements.trainers.megatron_layout import LAYERS, arguments_of, group_size, pipeline_of
from placements.trainers.stage_modes import common_mode
from placements.trainers.words import argument_text, fields_read, flag_table, given, written

_SYSTEM = "Megatron-LM"
_MODEL, _SHARING = flag_table("Megatron-LM model"), flag_table(_SYSTEM)
_NOT_GPT_OSS = ("--swiglu", "--disable-bias-linear", "--add-qkv-bias")
"""Arguments that `gpt_oss_parts` stands for others of: a gate, and biases of all matrices."""


def write(job: TrainerJob, comments: Sequence[str] = ()) -> str:
    """Return the arguments that say a job, one a line, below comments.

    Raises:
        LayoutError: Megatron-LM would refuse its stages, or has no words for its modes.
    """
    return argument_text(arguments(job) | mode_arguments(job), comments)


def mode_arguments(job: TrainerJob) -> dict[str, object]:
    """Return the arguments of modes that all stages and micro-batches share.

    Only inputs of modules go to the host: those of the products of a dense feed-forward layer stay.

    Raises:
        ModeError: They do not share them.
    """
    mode = common_mode(job)
    if mode.kind == "recompute":
        return written({"recompute": "full", "recomputed_layers": mode.layers}, _SHARING)
    has_more = mode.kind == "offload" and job.fields["num_experts"] > 1
    return written({"recompute": "offload_experts" if has_more else mode.kind}, _SHARING)


def arguments(job: TrainerJob) -> dict[str, object]:
    """Return the arguments that say a job without its modes, by their names; errors as in `write`."""
    fields, stages = job.fields, arguments_of(job.stages, job.group)
    options = {LAYERS: stages.pop(LAYERS)}
    if job.sizes:
        options |= written(fields | _of_model(fields), _MODEL)
        if fields["gpt_oss_parts"]:
            options = {name: value for name, value in options.items() if name not in _NOT_GPT_OSS}
    if job.layout:
        shards, exchanges = fields["zero"] > 0, fields["context_sharing"] == "all_to_all"
        options |= written(
            fields
            | {
                "exchanges_heads": fields["context"] > 1 and exchanges,
                "gathers": job.overlap_exchanges and shards,
                "gathered": fields["precision"] if shards else None,
            },
            _SHARING,
        )
        if job.layout.recompute_modules:
            options["--recompute-modules"] = [*job.layout.recompute_modules]
    return options | stages


def _of_model(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a model that only Megatron-LM has; of None nothing is written."""
    inner, num_dense = fields["feed_forward_size"], fields["num_dense_layers"]
    window, is_latent, is_routed = fields["window"], fields["kv_rank"] is not None, fields["num_experts"] > 1
    extra = {
        "max_positions": fields["sequence_length"],
        "inner_size": fields["dense_feed_forward_size"] or inner,
        "has_groups": fields["num_kv_heads"] is not None,
        "rotates": None if fields["learned_positions"] else fields["rope_base"] is not None,
        "window_size": None if window is None else f"{window - 1},0",
        "is_latent": is_latent,
        "query_width": fields["head_width"] if is_latent else None,
        "experts_per_token": None,
    }
    if is_routed:
        extra |= {
            "experts_per_token": fields["experts_per_token"],
            "expert_size": inner,
            "is_biased": fields["router_biases"],
            "is_grouped": fields["precision"] != "single",
            "dispatches": not fields["sends_tokens_once"],
        }
        if num_dense:
            extra["frequency"] = f"([0]*{num_dense}+[1]*{fields['num_layers'] - num_dense})"
    return extra


def read(words: Sequence[str], num_gpus: int) -> TrainerJob:
    """Return the job of arguments on `num_gpus` GPUs; arguments that `write` does not write are not read.

    Raises:
        LayoutError: Megatron-LM would refuse the stages, or a number is none.
    """
    flags, (stages, group) = given(words), pipeline_of(words)
    how, layout, sizes = fields_read(flags, _SHARING), None, dict[str, Any]()
    switches = ("overlap_exchanges", "overlap_tensor_parallel", "sends_tokens_once")
    job = TrainerJob(stages=stages, group=group, **{name: how[name] for name in switches})
    if "tensor" in how:
        how["data"] = num_gpus // (how["tensor"] * how.get("context", 1) * stages.num_devices)
        how["recompute_modules"] = tuple(flags.get("--recompute-modules", ()))
        if flags.get("--recompute-method") == ["uniform"] and "--recompute-granularity" in flags:
            if how.get("recomputed_layers", 1) != 1:
                raise LayoutError("--recompute-num-layers: is not known with uniform; give 1, or block")
            how |= {"recompute": "full", "recomputed_layers": None}
        if how["recompute"].startswith("offload"):
            job = replace(job, modes=tuple((StageMode("offload", count),) for count in job.num_layers))
            how["recompute"] = "none"
        layout = layout_from_fields(how, stages)
    if "--hidden-size" in flags:
        texts = ("window_size", "frequency")
        values = fields_read(flags, {name: ways for name, ways in _MODEL.items() if name not in texts})
        known = job.fields
        sizes = {name: value for name, value in values.items() if name in known}
        sizes |= {"num_layers": stages.num_layers, "num_predict_layers": stages.num_mtp}
        sizes["feed_forward_size"] = values.get("expert_size", values.get("inner_size"))
        if dense := re.fullmatch(
            r"\(?\[0\]\*(\d+)\+\[1\]\*\d+\)?", "".join(flags.get("--moe-layer-freq", []))
        ):
            sizes |= {"num_dense_layers": int(dense[1]), "dense_feed_forward_size": values.get("inner_size")}
        if sizes["gpt_oss_parts"]:
            sizes |= {"gated": True, "biases": False, "qkv_biases": True}
        if window := flags.get("--window-size"):
            sizes["window"] = int(window[0].strip("(").split(",")[0]) + 1
        if "kv_rank" in sizes:
            sizes["query_key_norms"] = False
    return replace(job, sizes=without_defaults(sizes), layout=layout)


def to_megatron(planned: Planned) -> PlanExport:
    """Return the export of a plan to Megatron-LM: as planned, or with all layers shared as most of them.

    Tokens of norms are then shared too where that is faster, and as few layers recomputed as it takes.

    Raises:
        PlanError: The model is no decoder, or Megatron-LM's plan cannot be shared so or does not fit; or
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
    if name in _SHARING["gathered"] and not layout.zero:
        flag = _SHARING["gathered"][name].split()[0]
        differs.append(
            f"{flag} needs the distributed optimizer: weights of 16 bits are held beside weights of {name}, "
            "about 2 bytes a parameter more than planned"
        )
    if sizes.get("gpt_oss_parts") and layout.degrees.tensor > 1 and not layout.degrees.whole_experts:
        differs.append("biases of experts need --expert-tensor-parallel-size 1; or add --disable-bias-linear")
    if sizes.get("rope_base") is None and not sizes.get("learned_positions", True):
        differs.append(f"positions: the base of {plan.model.name}'s is not known; none are written")
    stages = plan_stages(run.plan, planned.chunks)
    job = TrainerJob(stages=stages, group=group, sizes=sizes, layout=layout, **planned.job_fields)
    head = f"Megatron-LM with megatron-core 0.16, pretrain_gpt.py on {plan.num_gpus} GPUs"
    return PlanExport(write(job, (head, *differs)), run, tuple(differs), job)


def _strategies(common: LayerStrategy, layer: TransformerLayer) -> Iterator[LayerStrategy]:
    """Yield Megatron-LM's strategies for all layers, closest to the most frequent strategy of a plan."""
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
