"""Jobs as flags of torchtitan 0.3.0, and lists of the modules of each stage.

Facts of that version: a model is a function of a module's registry, and all else are flags over what it
returns; states are replicated or sharded (FSDP), and with a pipeline gathered once in an iteration by
default, at the cost of ZeRO-1; context-parallel GPUs shard too, and send keys and values around;
experts are shared whole among GPUs that shard; all layers are recomputed or none; CUDA graphs have to be off
with pipelines and experts. The output module is ``lm_head``, with ``norm`` before it. Of lists of modules
torchtitan checks little: a name that is not there, or a layer that no stage has, only shows in the losses. So
all of it is checked here. Flags, and the models that it has, are in `trainer_arguments.csv`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

from placements.models.parallel import LayerStrategy
from placements.models.transformer import TransformerLayer
from placements.models.zoo import read_model
from placements.planners.hybrid.plan import PlanError
from placements.trainers.as_run import PlanExport, Planned
from placements.trainers.job import (
    TrainerJob,
    decoder_layers,
    layout_from_fields,
    model_sizes,
    plan_stages,
    plan_uniform,
    without_defaults,
)
from placements.trainers.layout import EMBEDDING, LAYER, LOSS, MTP, LayoutError, PipelineLayout
from placements.trainers.stage_modes import recomputed_layers
from placements.trainers.words import argument_text, fields_read, flag_table, given, known, written

_SYSTEM = "torchtitan"
_FLAGS = flag_table(_SYSTEM)

PARTS = "module_fqns_per_model_part"
"""Name of the lists of modules, in the section ``parallelism``."""

_MODULES = {EMBEDDING: ["tok_embeddings"], LOSS: ["norm", "lm_head"]}
"""Names of the modules of the ends; layers are ``layers.0`` and on."""

SECTION = "--parallelism."
_PARTS = f"{SECTION}{PARTS}"
_DEGREE = f"{SECTION}pipeline_parallel_degree"
_SCHEDULE = f"{SECTION}pipeline_parallel_schedule"
_CHECKPOINT = "activation_checkpoint:"
_PRECISIONS = {"half": "bf16", "bf16": "bf16", "single": "single", "tf32": "single"}
"""Mixed precision of each `Precision` that needs no converter, by name."""


def write_parts(layout: PipelineLayout) -> list[list[str]]:
    """Return the names of the modules of each virtual stage.

    Raises:
        LayoutError: torchtitan cannot run the layout.

    >>> write_parts(PipelineLayout(2, ("Et", "tL")))
    [['tok_embeddings', 'layers.0'], ['layers.1', 'norm', 'lm_head']]
    """
    if MTP in layout.parts:
        raise LayoutError(
            "layout: torchtitan: MTP does not support pipeline parallelism yet; leave out MTP, or use "
            "Megatron-LM"
        )
    if "" in layout.stages:
        raise LayoutError(
            f"layout: torchtitan 0.3.0: stage {layout.stages.index('')} is empty, which no list of modules "
            "says; give each stage a layer"
        )
    if layout.parts != EMBEDDING + LAYER * layout.num_layers + LOSS:
        raise LayoutError(
            "layout: torchtitan needs the embedding first, then all layers, then the loss, each once; change "
            "the order"
        )
    return [
        [name for part, number in stage for name in _MODULES.get(part, [f"layers.{number}"])]
        for stage in layout.numbered
    ]


def read_parts(parts: Sequence[Sequence[str]], num_devices: int) -> PipelineLayout:
    """Return the layout that the lists of modules of each virtual stage say.

    Raises:
        LayoutError: A module is unknown, missing, there twice or out of order; or the ranks do not divide the
            stages, as torchtitan says it.
    """
    if num_devices < 1 or len(parts) % num_devices or not parts:
        raise LayoutError(
            f"{PARTS}: torchtitan: num_stages {len(parts)} must be evenly divisible by pp_degree "
            f"{num_devices}; change the number of lists or pipeline_parallel_degree"
        )
    names = [name for stage in parts for name in stage]
    count = sum(name.startswith("layers.") for name in names)
    wanted = ["tok_embeddings", *(f"layers.{i}" for i in range(count)), "norm", "lm_head"]
    for name, expected in zip_longest(names, wanted, fillvalue="nothing"):
        if name != expected:
            raise LayoutError(
                f"{PARTS}: {name} stands where {expected} should; name each once, in their order"
            )
    if "norm" not in parts[-1]:
        raise LayoutError(f"{PARTS}: norm has to stand with lm_head on the last stage; put it there")
    letters = {"tok_embeddings": EMBEDDING, "norm": "", "lm_head": LOSS}
    stages = ("".join(letters.get(name, LAYER) for name in stage) for stage in parts)
    return PipelineLayout(num_devices, tuple(stages))


def layout_of_flags(flags: Mapping[str, Sequence[str]]) -> PipelineLayout:
    """Return the layout that flags say; as torchtitan does, dashes and underscores are alike.

    Raises:
        LayoutError: torchtitan would refuse it, or a flag is missing.
    """
    said = {f"--{name[2:].replace('-', '_')}": words for name, words in flags.items()}
    degree, parts = ([known(flag, word) for word in said.get(flag, ())] for flag in (_DEGREE, _PARTS))
    for flag in (_DEGREE, _PARTS):
        if flag not in said:
            raise LayoutError(f"has no {flag}; give it")
    if len(degree) != 1 or not degree[0].isdecimal():
        raise LayoutError(f"{_DEGREE}: {' '.join(degree)!r} is not a whole number; give one")
    return read_parts([names.split(",") for names in parts], int(degree[0]))


def write(job: TrainerJob, comments: Sequence[str] = ()) -> str:
    """Return the flags that say a job, one a line, below comments.

    Raises:
        LayoutError: torchtitan cannot run its stages, or has no words for its modes.
    """
    is_pipeline, options = job.stages.num_devices > 1, dict[str, object]()
    if job.layout is not None:
        fields = job.fields
        micro, data, zero = (fields[name] for name in ("micro_batch_size", "data", "zero"))
        fields |= {"model": registered(job.sizes), "local": micro}
        shard = (job.layout.shard_gpus or data * fields["context"]) // fields["context"] if zero else 1
        fields |= {"shard": shard, "copies": data // shard}
        fields["sequence_parallel"] = job.layout.sequence_parallel
        if is_pipeline:
            local = micro * fields["num_micro_batches"]
            fields |= {"micro": micro, "local": local, "is_resharded": zero == 3}
        options = written(fields, _FLAGS)
        if is_pipeline or fields["expert"] > 1:
            options["--training.disable_cuda_graphs"] = None
    if is_pipeline or job.layout is None:
        parts = [",".join(names) for names in write_parts(job.stages)]
        schedule = "1F1B" if job.stages.num_chunks == 1 else "Interleaved1F1B"
        options |= {_DEGREE: job.stages.num_devices, _SCHEDULE: schedule, _PARTS: parts}
    else:
        options[_DEGREE] = 1
    if job.modes and len(wrapped := recomputed_layers(job)) in (0, job.stages.num_layers):
        options[f"{_CHECKPOINT}{'full' if wrapped else 'none'}"] = None
    elif job.modes:
        comments = (*comments, "activation checkpointing: give torchtitan_layers.py to your config")
    elif job.layout is not None:
        options[f"{_CHECKPOINT}{job.layout.recompute}"] = None
    return argument_text(options, comments)


def layers_text(job: TrainerJob) -> str:
    """Return Python that recomputes the layers of a job's modes, for the config of a torchtitan job."""
    template = (Path(__file__).parents[1] / "torchtitan_layers.txt").read_text(encoding="utf-8")
    return template.replace("NUMBERS", str(recomputed_layers(job)))


def registered(sizes: Mapping[str, Any]) -> str | None:
    """Return the name of a registered model with these sizes, precision and sequence length aside."""
    free: dict[str, Any] = {"sequence_length": None, "precision": None}
    names = _FLAGS["model"] if sizes else ()
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
    how = fields_read(flags, _FLAGS)
    sizes = _sizes(how["model"]) if "model" in how else {}
    if _PARTS not in flags and sizes:
        stages = PipelineLayout(1, (EMBEDDING + LAYER * sizes["num_layers"] + LOSS,))
    else:
        stages = layout_of_flags(flags)
    if "tensor" not in how:
        return TrainerJob(stages=stages, sizes=sizes)
    tensor, context, expert, shard = (how.get(n, 1) for n in ("tensor", "context", "expert", "shard"))
    data, num_sharing = shard * how.get("copies", 1), shard * context
    how |= {
        "data": data,
        "micro_batch_size": how.get("micro", how["local"]),
        "whole_experts": expert > 1 and tensor > 1,
        "context_sharing": "ring" if context > 1 else "all_to_all",
        "zero": 0 if num_sharing == 1 else 3 if how["is_resharded"] or stages.num_devices == 1 else 1,
        "shard_gpus": num_sharing if 1 < num_sharing < data * context else None,
    }
    if f"{_CHECKPOINT}full" in words:
        most = max(stage.count(LAYER) for stage in stages.stages)
        how |= {"recompute": "full", "recomputed_layers": most}
    elif f"{_CHECKPOINT}selective" in words:
        how |= {"recompute": "selective", "recompute_modules": ("operators",)}
    sizes = {**sizes, **{name: how[name] for name in ("sequence_length", "precision") if name in how}}
    return TrainerJob(stages=stages, sizes=without_defaults(sizes), layout=layout_from_fields(how, stages))


def to_torchtitan(planned: Planned) -> PlanExport:
    """Return the export of a plan to torchtitan, with all layers shared as most of them.

    Raises:
        PlanError: The model is no decoder, or torchtitan's plan cannot be shared so or does not fit; or torch
            cannot run as many micro-batches in chunks.
    """
    plan, precision = planned.plan, planned.plan.model.precision.name
    layer, sizes = decoder_layers(plan.model, _SYSTEM)[-1], model_sizes(plan.model, _SYSTEM)
    common = _strategy(plan.common, plan.num_stages > 1)
    if layer.kv_heads % common.matrix_parallel:
        raise PlanError(
            f"num_kv_heads: {common.matrix_parallel} tensor-parallel GPUs do not divide the {layer.kv_heads}"
        )
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
    if planned.job_fields.get("overlap_tensor_parallel"):
        differs.append("add --compile.enable --compile.enable_async_tensor_parallel, as is timed")
    layout = plan_uniform(run.plan, planned.chunks)
    if layout.degrees.data == layout.degrees.context == 1:
        layout = replace(layout, zero=0)
    sizes["precision"] = _PRECISIONS.get(precision, "bf16")
    job = TrainerJob(stages=stages, sizes=sizes, layout=layout)
    head = f"torchtitan 0.3.0, torchtitan.train on {plan.num_gpus} GPUs"
    return PlanExport(write(job, (head, *differs)), run, tuple(differs), job)


def check_interleaved(layout: PipelineLayout, num_micro_batches: int) -> None:
    """Ensure that torch's interleaved 1F1B accepts the number of micro-batches.

    Raises:
        LayoutError: Torch refuses the number.
    """
    p, m = layout.num_devices, num_micro_batches
    if layout.num_chunks > 1 and (m < p or m % (m // p)):
        raise LayoutError(
            f"num_micro_batches: Interleaved1F1B of torch refuses {m} on {p} ranks; use a multiple of {p}"
        )


def _strategy(common: LayerStrategy, is_pipeline: bool) -> LayerStrategy:
    """Return torchtitan's strategy for all layers, closest to the most frequent strategy of a plan."""
    if common.sequence == "ulysses":
        degree = common.token_parallel
        common = replace(common, tensor_parallel=1, context_parallel=degree, sequence="none")
    is_sharded = common.zero > 0 or common.expert_parallel > 1 or common.context_parallel > 1
    once = 1 if is_pipeline and common.zero < 3 else 3
    context = "ring" if common.context_parallel > 1 else common.context
    return replace(common, zero=once if is_sharded else 0, context=context, tensor_innermost=True)


def _strategies(common: LayerStrategy, layer: TransformerLayer) -> Iterator[LayerStrategy]:
    """Yield torchtitan's strategies, with the planned number of experts on a GPU if possible."""
    plain = replace(common, recompute="full" if common.recompute == "full" else "none")
    shared = [plain]
    if plain.expert_parallel > 1 and plain.tensor_parallel > 1:
        degrees = dict.fromkeys((plain.expert_parallel * plain.expert_tensor_parallel, plain.expert_parallel))
        shared = [
            replace(plain, sequence="megatron", whole_experts=True, expert_parallel=degree)
            for degree in degrees
            if layer.num_experts % degree == 0 and plain.num_gpus % degree == 0
        ]
    for strategy in shared:
        yield strategy
        yield replace(strategy, recompute="none")
        if strategy.tensor_parallel > 1 and strategy.sequence == "none":
            yield replace(strategy, recompute="none", sequence="megatron")
