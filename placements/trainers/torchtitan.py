"""What torchtitan 0.3.0 is told, as flags of its training.

Facts of that version: a model is a function of a module's registry, and all else are flags over what it
returns; states are replicated or sharded (FSDP), and with a pipeline gathered once in an iteration by
default, which takes what ZeRO-1 does; context-parallel GPUs shard too, and send keys and values around;
experts are shared whole among GPUs that shard; all layers are recomputed or none; CUDA graphs have to be off
with pipelines and experts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from placements.layouts.argument_words import Table, argument_text, fields_read, given, written
from placements.layouts.layout import EMBEDDING, LAYER, LOSS, LayoutError, PipelineLayout
from placements.layouts.torchtitan_parts import (
    DEGREE_FLAG,
    PARTS_FLAG,
    layout_of_flags,
    write_job,
    write_parts,
)
from placements.models.parallel import ContextSharing, LayerStrategy
from placements.models.transformer import TransformerLayer
from placements.models.zoo import read_model
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

_SYSTEM = "torchtitan"

_REGISTERED = {
    "llama3_8b": ("llama3", "llama3_8b"),
    "llama3_70b": ("llama3", "llama3_70b"),
    "llama31_405b": ("llama3", "llama3_405b"),
    "qwen3_0.6b": ("qwen3", "qwen3_0_6b"),
    "qwen3_1.7b": ("qwen3", "qwen3_1_7b"),
    "qwen3_14b": ("qwen3", "qwen3_14b"),
    "qwen3_32b": ("qwen3", "qwen3_32b"),
    "qwen3_30b_a3b": ("qwen3", "qwen3_30b_a3b"),
    "deepseek_v2_lite": ("deepseek_v3", "deepseek_v3_16b"),
    "deepseek_v3": ("deepseek_v3", "deepseek_v3_671b"),
    "gpt_oss_20b": ("gpt_oss", "gpt_oss_20b"),
    "gpt_oss_120b": ("gpt_oss", "gpt_oss_120b"),
}
"""Module and config of each model that torchtitan 0.3.0 has one of, by our name."""

_FLAGS: Table = {
    "sequence_length": "--training.seq_len",
    "batch": "--training.global_batch_size",
    "tensor": "--parallelism.tensor_parallel_degree",
    "context": "--parallelism.context_parallel_degree",
    "expert": "--parallelism.expert_parallel_degree",
    "shard": "--parallelism.data_parallel_shard_degree",
    "copies": "--parallelism.data_parallel_replicate_degree",
    "local": "--training.local_batch_size",
    "micro": "--parallelism.pipeline_parallel_microbatch_size",
    "precision": {
        "bf16": "--training.mixed_precision_param bfloat16",
        "single": "--training.mixed_precision_param float32",
    },
    "sequence_parallel": {True: "", False: "--parallelism.no-enable-sequence-parallel"},
    "is_resharded": {False: "", True: "--parallelism.fsdp_reshard_after_forward always"},
}
_CHECKPOINT = "activation_checkpoint:"


def write(job: TrainerJob, comments: Sequence[str] = ()) -> str:
    """Return the flags that say a job, one a line, below comments.

    Raises:
        LayoutError: torchtitan cannot run its stages.
    """
    if job.layout is None:
        return argument_text(write_job(job.stages), comments)
    fields, is_pipeline = job.fields, job.stages.num_devices > 1
    micro, data, zero = (fields[name] for name in ("micro_batch_size", "data", "zero"))
    fields |= {"shard": data if zero else 1, "copies": 1 if zero else data, "local": micro}
    fields["sequence_parallel"] = job.sequence_parallel or fields["tensor"] == 1
    if is_pipeline:
        fields |= {"micro": micro, "local": micro * fields["num_micro_batches"], "is_resharded": zero == 3}
    name = registered(job.sizes)
    options: dict[str, object] = {}
    if name:
        options |= dict(zip(("--module", "--config"), _REGISTERED[name], strict=True))
    options |= written(fields, _FLAGS)
    if is_pipeline or fields["expert"] > 1:
        options["--training.disable_cuda_graphs"] = None
    options |= write_job(job.stages) if is_pipeline else {DEGREE_FLAG: 1}
    return argument_text(options | {f"{_CHECKPOINT}{fields['recompute']}": None}, comments)


def registered(sizes: Mapping[str, Any]) -> str | None:
    """Return the name of a registered model that has such sizes, whatever its precision and sequences."""
    free: dict[str, Any] = {"sequence_length": None, "precision": None}
    names = _REGISTERED if sizes else ()
    return next((name for name in names if {**_sizes(name), **free} == {**sizes, **free}), None)


@cache
def _sizes(name: str) -> Mapping[str, Any]:
    return model_sizes(read_model(name), _SYSTEM)


def read(words: Sequence[str]) -> TrainerJob:
    """Return the job that flags say, with the sizes of a registered model.

    Raises:
        LayoutError: torchtitan would refuse the stages, or a number is none; or there are neither stages nor
            a registered model.
    """
    flags = given(words)
    names = tuple("".join(flags.get(name, [])) for name in ("--module", "--config"))
    name = next((each for each, pair in _REGISTERED.items() if pair == names), None)
    sizes = _sizes(name) if name else {}
    if PARTS_FLAG not in flags and name:
        stages = PipelineLayout(1, (EMBEDDING + LAYER * sizes["num_layers"] + LOSS,))
    else:
        stages = layout_of_flags(flags)
    how = fields_read(flags, _FLAGS)
    if "tensor" not in how:
        return TrainerJob(stages=stages, sizes=sizes)
    shared = {each: how[each] for each in ("tensor", "context", "expert") if each in how}
    data, size = how.get("shard", 1) * how.get("copies", 1), how.get("micro", how["local"])
    is_sharded = how.get("shard", 1) * shared.get("context", 1) > 1
    zero = 3 if how["is_resharded"] or stages.num_devices == 1 else 1
    whole = shared.get("expert", 1) > 1 and shared["tensor"] > 1
    sharing: ContextSharing = "ring" if shared.get("context", 1) > 1 else "all_to_all"
    degrees = Degrees(
        **shared,
        pipeline=stages.num_devices,
        data=data,
        chunks=stages.num_chunks,
        whole_experts=whole,
        context_sharing=sharing,
    )
    layout = Layout(degrees, size, how["batch"] // (data * size), zero if is_sharded else 0)
    if f"{_CHECKPOINT}full" in words:
        layout = replace(layout, recompute="full", recomputed_layers=max(map(_num_layers, stages.stages)))
    own: dict[str, Any] = {each: how[each] for each in ("sequence_length", "precision") if each in how}
    return TrainerJob(
        stages=stages,
        sizes=without_defaults({**sizes, **own}),
        layout=layout,
        sequence_parallel=how["sequence_parallel"] and shared["tensor"] > 1,
    )


def _num_layers(stage: str) -> int:
    return stage.count(LAYER)


def to_torchtitan(planned: Planned) -> PlanExport:
    """Return a plan as torchtitan is told it: with all layers shared as most of them.

    Raises:
        PlanError: The model is no decoder, or what would be run cannot be shared so or does not fit; or torch
            cannot run as many micro-batches in chunks.
    """
    plan, precision = planned.plan, planned.plan.model.precision.name
    layer, sizes = decoder_layers(plan.model, _SYSTEM)[-1], model_sizes(plan.model, _SYSTEM)
    common = _strategy(plan.common, plan.num_stages > 1)
    if layer.kv_heads % common.matrix_parallel:
        raise PlanError(
            f"num_kv_heads: {common.matrix_parallel} tensor-parallel GPUs do not divide the {layer.kv_heads}"
        )
    try:
        stages = plan_stages(plan, planned.chunks)
        check_interleaved(stages, plan.num_micro_batches)
        write_parts(stages)
        if sizes.get("tied", True) and plan.num_stages > 1 and registered(sizes):
            raise PlanError(f"model: torchtitan has no pipeline of {plan.model.name}, whose tables are tied")
        run = planned.best_of(_strategies(common, layer), _SYSTEM, False)
        differs = planned.differences(run)
        if registered(sizes) is None:
            name = plan.model.name
            differs.append(f"torchtitan 0.3.0 has no {name}: give --module and --config of your own")
        if precision not in _PRECISIONS:
            differs.append(f"{precision} is of a config of your own, with its converter")
        if planned.told.get("overlap_tensor_parallel"):
            differs.append("add --compile.enable --compile.enable_async_tensor_parallel, as is timed")
        layout = plan_uniform(run.plan, planned.chunks)
        if layout.degrees.data == layout.degrees.context == 1:
            layout = replace(layout, zero=0)
        job = TrainerJob(
            stages=stages,
            sizes=sizes | {"precision": _PRECISIONS.get(precision, "bf16")},
            layout=layout,
            sequence_parallel=run.plan.common.sequence == "megatron",
        )
        head = f"torchtitan 0.3.0, torchtitan.train on {plan.num_gpus} GPUs"
        return PlanExport(write(job, (head, *differs)), run, tuple(differs), job)
    except LayoutError as error:
        raise PlanError(str(error)) from None


_PRECISIONS = {"half": "bf16", "bf16": "bf16", "single": "single", "tf32": "single"}
"""What mixed precision makes of those that need no converter."""


def check_interleaved(layout: PipelineLayout, num_micro_batches: int) -> None:
    """Ensure that torch's interleaved 1F1B takes so many micro-batches.

    Raises:
        LayoutError: It does not.
    """
    p, m = layout.num_devices, num_micro_batches
    if layout.num_chunks > 1 and (m < p or m % (m // p)):
        raise LayoutError(
            f"num_micro_batches: Interleaved1F1B of torch refuses {m} on {p} ranks; use a multiple of {p}"
        )


def _strategy(common: LayerStrategy, is_pipeline: bool) -> LayerStrategy:
    """Return how torchtitan shares layers where most are shared so."""
    if common.sequence == "ulysses":
        degree = common.token_parallel
        common = replace(common, tensor_parallel=1, context_parallel=degree, sequence="none")
    is_sharded = common.zero > 0 or common.expert_parallel > 1 or common.context_parallel > 1
    once = 1 if is_pipeline and common.zero < 3 else 3
    context = "ring" if common.context_parallel > 1 else common.context
    return replace(common, zero=once if is_sharded else 0, context=context, tensor_innermost=True)


def _strategies(common: LayerStrategy, layer: TransformerLayer) -> Iterator[LayerStrategy]:
    """Yield ways to share, with as many experts on a GPU as planned if that can be."""
    plain = replace(common, recompute="full" if common.recompute == "full" else "none")
    shared = [plain]
    if plain.expert_parallel > 1 and plain.tensor_parallel > 1:
        degrees = dict.fromkeys((plain.expert_parallel * plain.expert_tensor_parallel, plain.expert_parallel))
        shared = [
            replace(plain, sequence="megatron", whole_experts=True, expert_parallel=degree)
            for degree in degrees
            if layer.num_experts % degree == 0 and plain.num_gpus % degree == 0
        ]
    for each in shared:
        yield each
        yield replace(each, recompute="none")
        if each.tensor_parallel > 1 and each.sequence == "none":
            yield replace(each, recompute="none", sequence="megatron")
