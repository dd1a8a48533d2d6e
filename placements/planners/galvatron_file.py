"""Galvatron's plans as files: the ``galvatron_config_*.json`` that its search writes and its runtime reads.

A list of numbers, one for each layer, is text with commas between. What a file leaves out has the value
that Galvatron's runtime gives it. Strategies that blocks cannot have are refused by name: Ulysses and
context parallelism of layers, experts, and tensor-parallel GPUs that are not neighbors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from placements.forms.meaning import Meaning
from placements.forms.reading import Field, json_file
from placements.models.parallel import LayerStrategy, VocabularyStrategy
from placements.planners.parallel_plan import ParallelPlan, PlanError

_ZERO = {"ddp": 0, "zero2": 2, "zero3": 3}
"""ZeRO's stage by the name of ``default_dp_type``."""

_Flag = Literal[0, 1]

_FLAGS = {"dp_types_enc": 0, "checkpoint": 0, "use_sp": 0, "tp_consecutive_flags": 1}
"""Lists of zeros and ones, one for each layer, and what all layers have where the file has none."""

_ONES = ("cp_sizes_enc", "ep_sizes_enc", "tp_of_ep_sizes_enc")
"""Lists that must have a one for each layer."""


@dataclass(frozen=True)
class GalvatronForm:
    """The fields of a plan's file; lists are text with commas between their numbers."""

    pp_deg: Annotated[int, Meaning("stages", min=1)]
    tp_sizes_enc: Annotated[Field, Meaning("list: tensor-parallel size of each layer")]
    dp_types_enc: Annotated[Field, Meaning("list: 1 for a layer with ZeRO-3")]
    global_bsz: Annotated[int, Meaning("samples of an iteration", min=1)]
    chunks: Annotated[int, Meaning("micro-batches of an iteration", min=1)]
    checkpoint: Annotated[Field | None, Meaning("list: 1 for a layer that is computed again")] = None
    use_sp: Annotated[Field | None, Meaning("list: 1 for a layer with Ulysses, which blocks cannot have")] = (
        None
    )
    tp_consecutive_flags: Annotated[
        Field | None, Meaning("list: 1, unless all GPUs of a stage share the layer")
    ] = None
    cp_sizes_enc: Annotated[Field | None, Meaning("list: 1, as blocks do not share context")] = None
    ep_sizes_enc: Annotated[Field | None, Meaning("list: 1, as blocks do not share experts")] = None
    tp_of_ep_sizes_enc: Annotated[Field | None, Meaning("list: 1, likewise")] = None
    pp_division: Annotated[
        Field | None, Meaning("list: layers of each stage; without it equal, the rest on the last")
    ] = None
    pipeline_type: Annotated[
        Literal["gpipe", "pipedream_flush"], Meaning("schedule that the planner assumed; not used")
    ] = "pipedream_flush"
    default_dp_type: Annotated[
        Literal["ddp", "zero2", "zero3"], Meaning("how the other layers' states are shared")
    ] = "ddp"
    vtp: Annotated[int, Meaning("GPUs that share embedding and output layer", min=1)] = 1
    vsp: Annotated[_Flag, Meaning("whether these share by tokens")] = 0
    vcp: Annotated[Literal[1], Meaning("GPUs that share the context of both")] = 1
    embed_sdp: Annotated[_Flag, Meaning("whether both have ZeRO-3")] = 0
    world_size: Annotated[int | None, Meaning("GPUs in all; required here or as an option", min=1)] = None


def read_galvatron(path: str | Path, world_size: int | None = None) -> ParallelPlan:
    """Read a plan from a JSON file.

    Args:
        path: The file.
        world_size: GPUs of all stages together; None where the file says it.

    Raises:
        PlanError: The file cannot be read or is wrong; the message begins with its path.
    """
    with json_file(path, "a galvatron_config_*.json", PlanError) as data:
        return galvatron_from_dict(data.value, world_size)


def galvatron_from_dict(data: object, world_size: int | None = None) -> ParallelPlan:
    """Build a plan from its file form; see `read_galvatron`.

    Raises:
        PlanError: A field is missing, unknown, of the wrong type or refused, or a rule is broken.
    """
    fields = Field(data, "plan", PlanError, is_root=True)
    form = fields.record(GalvatronForm)
    num_gpus = _num_gpus(form, world_size)
    sizes = _numbers(form.tp_sizes_enc)
    stage_layers = _stage_layers(form, len(sizes))
    flags = {
        name: tuple(each.typed(_Flag) for each in _of_layers(fields, name, len(sizes), default))
        for name, default in _FLAGS.items()
    }
    _check_refused(fields, sizes, flags, num_gpus)
    zero = _ZERO[form.default_dp_type]
    return ParallelPlan(
        num_gpus,
        stage_layers,
        tuple(
            LayerStrategy(
                size.value,
                num_gpus // size.value,
                3 if sharded else zero,
                recompute="full" if checkpoint else "none",
            )
            for size, sharded, checkpoint in zip(
                sizes, flags["dp_types_enc"], flags["checkpoint"], strict=True
            )
        ),
        VocabularyStrategy(form.vtp, bool(form.vsp), 3 if form.embed_sdp else zero),
        form.global_bsz,
        form.chunks,
        form.pipeline_type,
        zero,
    )


def galvatron_to_dict(plan: ParallelPlan) -> dict[str, int | str]:
    """Return the file form of a plan as plain data, from which `galvatron_from_dict` builds an equal one."""
    names = {stage: name for name, stage in _ZERO.items()}
    return {
        "pp_deg": plan.num_stages,
        "tp_sizes_enc": _text(layer.tensor_parallel for layer in plan.layers),
        "tp_consecutive_flags": _text(1 for _ in plan.layers),
        "dp_types_enc": _text(int(layer.zero == 3) for layer in plan.layers),
        "use_sp": _text(0 for _ in plan.layers),
        "checkpoint": _text(int(layer.recompute == "full") for layer in plan.layers),
        "global_bsz": plan.global_batch_size,
        "chunks": plan.num_micro_batches,
        "pp_division": _text(plan.stage_layers),
        "pipeline_type": plan.pipeline_type,
        "default_dp_type": names[plan.default_zero],
        "vtp": plan.vocabulary.parallel,
        "vsp": int(plan.vocabulary.by_sequence),
        "embed_sdp": int(plan.vocabulary.zero == 3),
        "world_size": plan.num_stages * plan.num_gpus,
    }


def _numbers(field: Field) -> list[Field]:
    """Return the numbers of a text, whose commas are between them."""
    text = field.text("text", 'give whole numbers with commas between, as in "1,2"')
    items = [field.inside(i, item) for i, item in enumerate(text.split(","))]
    for item in items:
        if not (item.value.strip().isascii() and item.value.strip().isdigit() and len(item.value) < 10):
            raise item.wrong("a whole number of 0 or more", "give numbers with commas between")
    return [replace(item, value=int(item.value)) for item in items]


def _of_layers(fields: Field, name: str, count: int, default: int) -> list[Field]:
    """Return a number for each layer."""
    if name not in fields.value:
        return [fields.inside(name, default)] * count
    values = _numbers(fields[name])
    if len(values) != count:
        raise PlanError(
            f"{name}: has {len(values)} entries, but tp_sizes_enc {count}; give one for each layer"
        )
    return values


def _num_gpus(form: GalvatronForm, given: int | None) -> int:
    """Return the GPUs of a stage."""
    total, num_stages = form.world_size or given, form.pp_deg
    if total is None:
        raise PlanError(
            "world_size: is missing; give the number of all GPUs, in the file or as placement.world_size"
        )
    if given is not None and given != total:
        raise PlanError(f"world_size: {total} is not the {given} of placement.world_size; give one of them")
    if total % num_stages:
        raise PlanError(f"pp_deg: {num_stages} does not divide the {total} GPUs of world_size; use a divisor")
    return total // num_stages


def _stage_layers(form: GalvatronForm, num_layers: int) -> tuple[int, ...]:
    """Return the layers of each stage; without ``pp_division`` the same, and the rest on the last."""
    num_stages = form.pp_deg
    if form.pp_division is None:
        if num_layers < num_stages:
            raise PlanError(f"pp_deg: {num_stages} is more than the {num_layers} layers; give at most these")
        each = num_layers // num_stages
        return (each,) * (num_stages - 1) + (num_layers - each * (num_stages - 1),)
    division = _numbers(form.pp_division)
    if len(division) != num_stages:
        raise PlanError(
            f"pp_division: has {len(division)} entries for pp_deg {num_stages}; give the layers of each stage"
        )
    return tuple(layers.value for layers in division)


def _check_refused(
    fields: Field, sizes: list[Field], flags: dict[str, tuple[int, ...]], num_gpus: int
) -> None:
    """Refuse what blocks cannot have, and degrees that do not divide."""
    for i, size in enumerate(size.value for size in sizes):
        if size < 1 or num_gpus % size:
            raise PlanError(
                f"tp_sizes_enc[{i}]: {size} does not divide the {num_gpus} GPUs of a stage; give a divisor"
            )
        if size > 1 and flags["use_sp"][i]:
            raise PlanError(
                f"use_sp[{i}]: {size} GPUs share the sequence (Ulysses), which blocks cannot; use tensor "
                "parallelism, with 0"
            )
        if 1 < size < num_gpus and not flags["tp_consecutive_flags"][i]:
            raise PlanError(
                f"tp_consecutive_flags[{i}]: 0 has tensor-parallel GPUs that are not neighbors, which blocks "
                "cannot; use 1"
            )
    for name in _ONES:
        for each in _of_layers(fields, name, len(sizes), 1):
            each.whole("1", "blocks share neither context nor experts", 1, 1)


def _text(numbers: Any) -> str:
    return ",".join(str(number) for number in numbers)
