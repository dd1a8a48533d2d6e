"""Galvatron's plans as files: the ``galvatron_config_*.json`` that its search writes and its runtime reads.

A list of numbers, one for each layer, is text with commas between. What a file leaves out has the value
that Galvatron's runtime gives it. Strategies that blocks cannot have are refused by name: Ulysses and
context parallelism of layers, experts, and tensor-parallel GPUs that are not neighbors.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from placements.models.parallel import LayerStrategy, VocabularyStrategy
from placements.planners.parallel_plan import ParallelPlan, PlanError

_ZERO = {"ddp": 0, "zero2": 2, "zero3": 3}
"""ZeRO's stage by the name of ``default_dp_type``."""

_PIPELINE_TYPES = ("gpipe", "pipedream_flush")

_REQUIRED = ("pp_deg", "tp_sizes_enc", "dp_types_enc", "global_bsz", "chunks")
_FLAGS = {"dp_types_enc": 0, "checkpoint": 0, "use_sp": 0, "tp_consecutive_flags": 1}
_ONES = ("cp_sizes_enc", "ep_sizes_enc", "tp_of_ep_sizes_enc")
_OTHER = ("pp_division", "pipeline_type", "default_dp_type", "vtp", "vsp", "vcp", "embed_sdp", "world_size")
_KNOWN = (*_REQUIRED, *_FLAGS, *_ONES, *_OTHER)

_MOST = 1_000_000


def read_galvatron(path: str | Path, world_size: int | None = None) -> ParallelPlan:
    """Read a plan from a JSON file.

    Args:
        path: The file.
        world_size: GPUs of all stages together; None where the file says it.

    Raises:
        PlanError: The file cannot be read or is wrong; the message begins with its path.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"), object_pairs_hook=_mapping)
    except OSError as error:
        raise PlanError(
            f"{path}: cannot be read ({error.strerror}); give a galvatron_config_*.json"
        ) from None
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{path}: is not JSON ({error}); give a galvatron_config_*.json") from None
    try:
        return galvatron_from_dict(data, world_size)
    except PlanError as error:
        raise PlanError(f"{path}: {error}") from None


def galvatron_from_dict(data: object, world_size: int | None = None) -> ParallelPlan:
    """Build a plan from its file form; see `read_galvatron`.

    Raises:
        PlanError: A field is missing, unknown, of the wrong type or refused, or a rule is broken.
    """
    fields = _fields(data)
    num_stages = _integer(fields, "pp_deg")
    num_gpus = _num_gpus(fields, num_stages, world_size)
    sizes = _numbers(fields, "tp_sizes_enc")
    stage_layers = _stage_layers(fields, num_stages, len(sizes))
    flags = {name: _flags(fields, name, len(sizes), default) for name, default in _FLAGS.items()}
    _check_refused(fields, sizes, flags, num_gpus)
    zero = _ZERO[_choice(fields, "default_dp_type", "ddp", tuple(_ZERO))]
    return ParallelPlan(
        num_gpus,
        stage_layers,
        tuple(
            LayerStrategy(size, num_gpus // size, 3 if sharded else zero, bool(checkpoint))
            for size, sharded, checkpoint in zip(
                sizes, flags["dp_types_enc"], flags["checkpoint"], strict=True
            )
        ),
        VocabularyStrategy(
            _integer(fields, "vtp", 1),
            bool(_flag(fields, "vsp")),
            3 if _flag(fields, "embed_sdp") else zero,
        ),
        _integer(fields, "global_bsz"),
        _integer(fields, "chunks"),
        _choice(fields, "pipeline_type", "pipedream_flush", _PIPELINE_TYPES),
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
        "checkpoint": _text(int(layer.checkpoint) for layer in plan.layers),
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


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields, refusing one that is there twice."""
    names = [name for name, _ in pairs]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ValueError(f"{name} is given twice")
    return dict(pairs)


def _fields(data: object) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise PlanError(f"plan: is not an object with fields such as {_REQUIRED[0]}; give one")
    for name in data:
        if name not in _KNOWN:
            raise PlanError(f"{name}: is not a known field; remove it, the fields are {', '.join(_KNOWN)}")
    for name in _REQUIRED:
        if name not in data:
            raise PlanError(f"{name}: is missing; add it")
    return data


def _integer(fields: dict[str, Any], name: str, default: int | None = None) -> int:
    value = fields.get(name, default)
    if type(value) is not int or not 1 <= value <= _MOST:
        raise PlanError(f"{name}: {value!r} is not a whole number from 1 to {_MOST}; give one")
    return value


def _flag(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name, 0)
    if type(value) is not int or value not in (0, 1):
        raise PlanError(f"{name}: {value!r} is neither 0 nor 1; give one of them")
    return value


def _choice(fields: dict[str, Any], name: str, default: str, known: tuple[str, ...]) -> str:
    value = fields.get(name, default)
    if value not in known:
        raise PlanError(f"{name}: {value!r} is not known; use one of {', '.join(known)}")
    return str(value)


def _numbers(fields: dict[str, Any], name: str) -> tuple[int, ...]:
    """Return the numbers of a text, whose commas are between them."""
    text = fields[name]
    if not isinstance(text, str):
        raise PlanError(f'{name}: {text!r} is not text; give whole numbers with commas between, as in "1,2"')
    for i, item in enumerate(text.split(",")):
        if not (item.strip().isascii() and item.strip().isdigit() and len(item) < 10):
            raise PlanError(
                f"{name}[{i}]: {item!r} is not a whole number of 0 or more; give numbers with commas between"
            )
    return tuple(int(item) for item in text.split(","))


def _flags(fields: dict[str, Any], name: str, count: int, default: int) -> tuple[int, ...]:
    """Return a 0 or 1 for each layer."""
    if name not in fields:
        return (default,) * count
    values = _numbers(fields, name)
    _check_length(name, len(values), count)
    for i, value in enumerate(values):
        if value not in (0, 1):
            raise PlanError(f"{name}[{i}]: {value} is neither 0 nor 1; give one of them")
    return values


def _check_length(name: str, length: int, count: int) -> None:
    if length != count:
        raise PlanError(f"{name}: has {length} entries, but tp_sizes_enc {count}; give one for each layer")


def _num_gpus(fields: dict[str, Any], num_stages: int, given: int | None) -> int:
    """Return the GPUs of a stage."""
    if given is None and "world_size" not in fields:
        raise PlanError(
            "world_size: is missing; give the number of all GPUs, in the file or as placement.world_size"
        )
    total = _integer(fields, "world_size", given)
    if given is not None and given != total:
        raise PlanError(f"world_size: {total} is not the {given} of placement.world_size; give one of them")
    if total % num_stages:
        raise PlanError(f"pp_deg: {num_stages} does not divide the {total} GPUs of world_size; use a divisor")
    return total // num_stages


def _stage_layers(fields: dict[str, Any], num_stages: int, num_layers: int) -> tuple[int, ...]:
    """Return the layers of each stage; without ``pp_division`` the same, and the rest on the last."""
    if "pp_division" not in fields:
        if num_layers < num_stages:
            raise PlanError(f"pp_deg: {num_stages} is more than the {num_layers} layers; give at most these")
        each = num_layers // num_stages
        return (each,) * (num_stages - 1) + (num_layers - each * (num_stages - 1),)
    division = _numbers(fields, "pp_division")
    if len(division) != num_stages:
        raise PlanError(
            f"pp_division: has {len(division)} entries for pp_deg {num_stages}; give the layers of each stage"
        )
    return division


def _check_refused(
    fields: dict[str, Any], sizes: tuple[int, ...], flags: dict[str, tuple[int, ...]], num_gpus: int
) -> None:
    """Refuse what blocks cannot have, and degrees that do not divide."""
    for i, size in enumerate(sizes):
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
        values = _numbers(fields, name) if name in fields else (1,) * len(sizes)
        _check_length(name, len(values), len(sizes))
        for i, value in enumerate(values):
            if value != 1:
                raise PlanError(f"{name}[{i}]: {value} is not 1; blocks share neither context nor experts")
    if fields.get("vcp", 1) != 1:
        raise PlanError(f"vcp: {fields['vcp']!r} is not 1; blocks do not share context")


def _text(numbers: Any) -> str:
    return ",".join(str(number) for number in numbers)
