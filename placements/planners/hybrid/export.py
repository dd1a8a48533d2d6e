"""Plans in the terms of other systems: Galvatron's plan file, Megatron-LM's arguments, torchtitan's options.

None of them has all that a plan may have; what is lost is said. The module does not know what a plan costs.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from placements.models.layers import TransformerLayer
from placements.models.parallel import LayerStrategy, VocabularyStrategy
from placements.models.profiled_layer import ProfiledLayer
from placements.planners.galvatron_file import galvatron_to_dict
from placements.planners.hybrid.plan import Plan
from placements.planners.parallel_plan import ParallelPlan, PlanError


class Exported(NamedTuple):
    """A plan in another system's terms.

    Attributes:
        options: By name; None as the value of a flag.
        lost: What the plan has and these options cannot say, a line each.
    """

    options: dict[str, object]
    lost: tuple[str, ...]


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
        raise PlanError(
            f"stages: have {_listed(sizes)} GPUs, but Galvatron's all have as many; export another plan"
        )
    first, strategies = plan.strategies[0], plan.strategies
    return ParallelPlan(
        sizes.pop(),
        tuple(sum(i in inner for i in stage.layers) for stage in plan.stages),
        tuple(_of_galvatron(strategies[i]) for i in inner),
        VocabularyStrategy(first.tensor_parallel, first.sequence == "ulysses", 3 if first.zero == 3 else 0),
        plan.global_batch_size,
        plan.num_micro_batches,
    )


def to_galvatron(plan: Plan) -> Exported:
    """Return a plan as Galvatron's runtime reads it.

    Raises:
        PlanError: See `parallel_plan`.
    """
    found = parallel_plan(plan)
    zero = max((s.zero for s in plan.strategies if s.zero < 3), default=0)
    found = replace(found, default_zero=2 if zero else 0)
    options: dict[str, object] = dict(galvatron_to_dict(found))
    inner = [plan.strategies[i] for i in _inner_layers(plan)]
    options["use_sp"] = _text(int(s.sequence == "ulysses") for s in inner)
    options["tp_consecutive_flags"] = _text(int(s.tensor_innermost) for s in inner)
    return Exported(options, tuple(_lost_in_galvatron(plan)))


def _of_galvatron(strategy: LayerStrategy) -> LayerStrategy:
    return replace(strategy, zero=3 if strategy.zero == 3 else 0)


def _lost_in_galvatron(plan: Plan) -> Iterator[str]:
    strategies = plan.strategies
    if any(s.recompute == "selective" for s in strategies):
        yield "selective recomputation: Galvatron recomputes whole layers or nothing"
    if {s.zero for s in strategies} - {0, 2, 3}:
        yield "ZeRO-1: Galvatron has ZeRO-2 or none beside ZeRO-3; ZeRO-2 is written"
    if len({s.zero for s in strategies if s.zero < 3 and s.weight_copies.degree > 1}) > 1:
        yield "different ZeRO stages below 3: Galvatron has one of them; ZeRO-2 is written for all"
    if any(s.expert_parallel > 1 for s in strategies):
        yield "expert parallel degrees: its search does not write them"
    if _ends_differ(plan):
        yield "the output layer's strategy: Galvatron gives it the embedding's"
    if plan.num_gpus < plan.cluster.num_gpus:
        yield f"idle GPUs: world_size is the {plan.num_gpus} that are used"


def to_megatron(plan: Plan) -> Exported:
    """Return a plan as arguments of Megatron-LM's training script.

    Megatron shares all layers alike, so the strategy is that of most layers and all others are lost.

    Raises:
        PlanError: The plan has no transformer layer.
    """
    layer, common, lost = _in_common(plan)
    options: dict[str, object] = {
        "--num-layers": len(_transformer_layers(plan)),
        "--hidden-size": layer.hidden_size,
        "--num-attention-heads": layer.num_heads,
        "--ffn-hidden-size": layer.ffn_size,
        "--seq-length": layer.sequence_length,
        "--tensor-model-parallel-size": common.matrix_parallel,
        "--pipeline-model-parallel-size": plan.num_stages,
        "--context-parallel-size": common.token_parallel,
        "--micro-batch-size": plan.micro_batch_size // common.data_parallel,
        "--global-batch-size": plan.global_batch_size,
    }
    if layer.kv_heads != layer.num_heads:
        options |= {"--group-query-attention": None, "--num-query-groups": layer.kv_heads}
    if layer.gated:
        options["--swiglu"] = None
    if common.expert_parallel > 1:
        options["--expert-model-parallel-size"] = common.expert_parallel
    if common.sequence == "megatron":
        options["--sequence-parallel"] = None
    if common.zero in (1, 2):
        options["--use-distributed-optimizer"] = None
    if common.zero == 3:
        options |= {"--use-megatron-fsdp": None, "--data-parallel-sharding-strategy": "optim_grads_params"}
    if common.recompute == "full":
        options |= {
            "--recompute-granularity": "full",
            "--recompute-method": "uniform",
            "--recompute-num-layers": 1,
        }
    if common.recompute == "selective":
        options["--recompute-granularity"] = "selective"
    if plan.num_stages > 1:
        options["--pipeline-model-parallel-layout"] = _megatron_layout(plan)
    if common.sequence == "ulysses":
        lost.append("Ulysses: written as context parallelism, with --cp-comm-type a2a")
        options["--cp-comm-type"] = "a2a"
    if common.zero == 2:
        lost.append("ZeRO-2: Megatron's distributed optimizer is written, which is ZeRO-1")
    return Exported(options, tuple(lost))


def to_torchtitan(plan: Plan) -> Exported:
    """Return a plan as options of torchtitan; see `to_megatron`.

    Raises:
        PlanError: The plan has no transformer layer.
    """
    layer, common, lost = _in_common(plan)
    sharded = common.zero == 3
    options: dict[str, object] = {
        "training.seq_len": layer.sequence_length,
        "training.global_batch_size": plan.global_batch_size,
        "training.local_batch_size": plan.global_batch_size // common.data_parallel,
        "parallelism.pipeline_parallel_degree": plan.num_stages,
        "parallelism.tensor_parallel_degree": common.matrix_parallel,
        "parallelism.context_parallel_degree": common.token_parallel,
        "parallelism.data_parallel_shard_degree": common.data_parallel if sharded else 1,
        "parallelism.data_parallel_replicate_degree": 1 if sharded else common.data_parallel,
        "activation_checkpoint.mode": common.recompute,
    }
    if common.expert_parallel > 1:
        options["parallelism.expert_parallel_degree"] = common.expert_parallel
    if plan.num_stages > 1:
        options |= {
            "parallelism.pipeline_parallel_schedule": "1F1B",
            "parallelism.pipeline_parallel_microbatch_size": plan.micro_batch_size // common.data_parallel,
            "parallelism.module_fqns_per_model_part": _titan_parts(plan),
        }
    if common.zero in (1, 2):
        lost.append(f"ZeRO-{common.zero}: torchtitan has replicas or ZeRO-3; replicas are written")
    if common.sequence == "ulysses":
        lost.append("Ulysses: written as context parallelism, which sends keys and values around")
    if common.recompute == "selective":
        lost.append("selective recomputation: torchtitan chooses the operations itself")
    return Exported(options, tuple(lost))


def megatron_text(exported: Exported) -> str:
    """Return arguments as a command line has them, one a line, with what is lost as comments.

    >>> print(megatron_text(Exported({"--num-layers": 2, "--swiglu": None}, ("all else",))), end="")
    # lost: all else
    --num-layers 2
    --swiglu
    """
    lines = [f"# lost: {line}" for line in exported.lost]
    for name, value in exported.options.items():
        lines.append(name if value is None else f"{name} {shlex.quote(str(value))}")
    return "\n".join(lines) + "\n"


def torchtitan_text(exported: Exported) -> str:
    """Return options as a TOML file has them, with what is lost as comments."""
    lines = [f"# lost: {line}" for line in exported.lost]
    groups = dict.fromkeys(name.partition(".")[0] for name in exported.options)
    for group in groups:
        lines += ["", f"[{group}]"] if lines else [f"[{group}]"]
        for name, value in exported.options.items():
            section, _, key = name.partition(".")
            if section == group:
                lines.append(f"{key} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _inner_layers(plan: Plan) -> list[int]:
    """Return the transformer layers, or the blocks of a model that is known by its profile."""
    layers = enumerate(plan.model.layers)
    profiled = [i for i, layer in layers if isinstance(layer, ProfiledLayer) and layer.role == "block"]
    return profiled or _transformer_layers(plan)


def _transformer_layers(plan: Plan) -> list[int]:
    found = [i for i, layer in enumerate(plan.model.layers) if isinstance(layer, TransformerLayer)]
    if not found:
        raise PlanError(
            f"model: {plan.model.name} has no transformer layer; this form is of transformers alone"
        )
    return found


def _in_common(plan: Plan) -> tuple[TransformerLayer, LayerStrategy, list[str]]:
    """Return a layer, the strategy of most layers, and what all of that leaves out."""
    inner = _transformer_layers(plan)
    chosen = [plan.strategies[i] for i in inner]
    common = max(dict.fromkeys(chosen), key=chosen.count)
    lost = []
    if others := sum(each != common for each in chosen):
        lost.append(
            f"{others} of {len(chosen)} layers are shared otherwise; all are given the strategy of most"
        )
    layers = {plan.model.layers[i] for i in inner}
    if len(layers) > 1:
        lost.append(f"{len(layers)} kinds of transformer layers; the sizes are those of the first")
    ends = [s for i, s in enumerate(plan.strategies) if i not in inner]
    if any((s.matrix_parallel, s.zero) != (common.matrix_parallel, common.zero) for s in ends):
        lost.append("embedding or output layer are shared otherwise than the layers; they are given the same")
    if len({len(stage.gpus) for stage in plan.stages}) > 1:
        lost.append("stages have different numbers of GPUs")
    if not common.tensor_innermost:
        lost.append("data-parallel GPUs are neighbors; here tensor-parallel ones are")
    if plan.num_gpus < plan.cluster.num_gpus:
        lost.append(
            f"{plan.num_gpus} of {plan.cluster.num_gpus} GPUs are used; start a process for each of these"
        )
    layer = plan.model.layers[inner[0]]
    assert isinstance(layer, TransformerLayer)
    return layer, common, lost


def _ends_differ(plan: Plan) -> bool:
    first, last = plan.strategies[0], plan.strategies[-1]
    return (first.tensor_parallel, first.sequence, first.zero) != (
        last.tensor_parallel,
        last.sequence,
        last.zero,
    )


def _megatron_layout(plan: Plan) -> str:
    """Return the stages as ``E`` embedding, ``t`` transformer layer and ``L`` loss, with bars between."""
    last = len(plan.model.layers) - 1
    inner = set(_transformer_layers(plan))
    parts = []
    for stage in plan.stages:
        count = sum(i in inner for i in stage.layers)
        before = "E" if 0 in stage.layers and 0 not in inner else ""
        after = "L" if last in stage.layers and last not in inner else ""
        parts.append(before + (f"t*{count}" if count else "") + after)
    return "|".join(parts)


def _titan_parts(plan: Plan) -> list[list[str]]:
    inner = {layer: place for place, layer in enumerate(_transformer_layers(plan))}
    last = len(plan.model.layers) - 1
    parts = []
    for stage in plan.stages:
        names = [f"layers.{inner[i]}" for i in stage.layers if i in inner]
        if 0 in stage.layers and 0 not in inner:
            names = ["tok_embeddings", *names]
        if last in stage.layers and last not in inner:
            names += ["norm", "output"]
        parts.append(names)
    return parts


def _text(numbers: Iterator[int]) -> str:
    return ",".join(map(str, numbers))


def _listed(numbers: set[int]) -> str:
    return " and ".join(map(str, sorted(numbers)))
