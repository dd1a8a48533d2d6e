"""Galvatron's plans as files: the ``galvatron_config_*.json`` that its search writes and its runtime reads.

A list of numbers, one for each layer, is text with commas between. What a file leaves out has the value
that Galvatron's runtime gives it. Strategies that blocks cannot have are refused by name: Ulysses and
context parallelism of layers, experts, and tensor-parallel GPUs that are not neighbors.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from placements.models.parallel import LayerStrategy, VocabularyStrategy
from placements.plain_data import Field, json_file
from placements.planners.parallel_plan import ParallelPlan, PlanError

_ZERO = {"ddp": 0, "zero2": 2, "zero3": 3}
"""ZeRO's stage by the name of ``default_dp_type``."""

_PIPELINE_TYPES = ("gpipe", "pipedream_flush")

_REQUIRED = ("pp_deg", "tp_sizes_enc", "dp_types_enc", "global_bsz", "chunks")
_FLAGS = {"dp_types_enc": 0, "checkpoint": 0, "use_sp": 0, "tp_consecutive_flags": 1}
_ONES = ("cp_sizes_enc", "ep_sizes_enc", "tp_of_ep_sizes_enc")
_OTHER = ("pp_division", "pipeline_type", "default_dp_type", "vtp", "vsp", "vcp", "embed_sdp", "world_size")
_OPTIONAL = (*_FLAGS, *_ONES, *_OTHER)

_MOST = 1_000_000


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
    fields = Field(data, "plan", PlanError, is_root=True).only(_REQUIRED, _OPTIONAL)
    num_stages = _count(fields["pp_deg"])
    num_gpus = _num_gpus(fields, num_stages, world_size)
    sizes = _numbers(fields["tp_sizes_enc"])
    stage_layers = _stage_layers(fields, num_stages, len(sizes))
    flags = {
        name: tuple(_binary(each) for each in _of_layers(fields, name, len(sizes), default))
        for name, default in _FLAGS.items()
    }
    _check_refused(fields, sizes, flags, num_gpus)
    zero = _ZERO[fields.get("default_dp_type", "ddp").choice(tuple(_ZERO))]
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
        VocabularyStrategy(
            _count(fields.get("vtp", 1)), _flag(fields, "vsp"), 3 if _flag(fields, "embed_sdp") else zero
        ),
        _count(fields["global_bsz"]),
        _count(fields["chunks"]),
        fields.get("pipeline_type", "pipedream_flush").choice(_PIPELINE_TYPES),
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


def _count(field: Field) -> int:
    return field.whole(f"a whole number from 1 to {_MOST}", least=1, most=_MOST)


def _flag(fields: Field, name: str) -> bool:
    return bool(_binary(fields.get(name, 0)))


def _binary(field: Field) -> int:
    if type(field.value) is not int or field.value not in (0, 1):
        raise field.wrong("0 or 1", "give one of them")
    return field.value


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


def _num_gpus(fields: Field, num_stages: int, given: int | None) -> int:
    """Return the GPUs of a stage."""
    if given is None and "world_size" not in fields.value:
        raise PlanError(
            "world_size: is missing; give the number of all GPUs, in the file or as placement.world_size"
        )
    total = _count(fields.get("world_size", given))
    if given is not None and given != total:
        raise PlanError(f"world_size: {total} is not the {given} of placement.world_size; give one of them")
    if total % num_stages:
        raise PlanError(f"pp_deg: {num_stages} does not divide the {total} GPUs of world_size; use a divisor")
    return total // num_stages


def _stage_layers(fields: Field, num_stages: int, num_layers: int) -> tuple[int, ...]:
    """Return the layers of each stage; without ``pp_division`` the same, and the rest on the last."""
    if "pp_division" not in fields.value:
        if num_layers < num_stages:
            raise PlanError(f"pp_deg: {num_stages} is more than the {num_layers} layers; give at most these")
        each = num_layers // num_stages
        return (each,) * (num_stages - 1) + (num_layers - each * (num_stages - 1),)
    division = _numbers(fields["pp_division"])
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
    fields.get("vcp", 1).whole("1", "blocks do not share context", 1, 1)


def _text(numbers: Any) -> str:
    return ",".join(str(number) for number in numbers)
