"""Constants as a file: JSON with an entry for each model, width and number of GPUs.

``mem`` and ``time`` of an entry are objects, or equally long lists with an object for each type of layers.
The file's MB are 2^20 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from experiments.reproduce.galvatron.search_2022.constants import (
    FAMILIES,
    Constants,
    ConstantsError,
    LayerConstants,
    OtherMemory,
    all_reduce_groups,
)
from experiments.reproduce.galvatron.search_2022.strategies import GalvatronStrategy, all_strategies
from placements.plain_data import Field, json_file

_NAME = re.compile(rf"({'|'.join(FAMILIES)})_\d{{1,6}}_(8|16)gpus")

_MOST = 1e12
_LEAST = 1e-9

_MEMORY_ALWAYS = ("parameter_size", "tp_activation_per_bsz_dict")
_MEMORY_8 = ("other_model_states", "other_activation_per_bsz")
_MEMORY_16 = ("other_memory_pp_off", "other_memory_pp_on")
_TIME = (
    "sequence_length",
    "hidden_size",
    "forward_computation_time",
    "bct_fct_coe",
    "extra_overhead",
    "comm_coe_dict",
    "dp_overlap_coe",
    "bct_overlap_coe",
)
_TIME_OPTIONAL = ("parameter_size", "layer_num", "layer_type", "microbatch")


def read_constants(path: str | Path, names: Collection[str] | None = None) -> dict[str, Constants]:
    """Read constants by their names.

    Args:
        path: A JSON file.
        names: Entries to read, where the file has them; None for all.

    Raises:
        ConstantsError: The file cannot be read or is wrong; the message begins with its path.
    """
    with json_file(path, "a profile_constants.json", ConstantsError, "constants") as entries:
        entries.mapping("a mapping of entries such as bert_1280_8gpus")
        wanted = [name for name in entries.value if names is None or name in names]
        return {name: constants_from_dict(name, entries[name]) for name in wanted}


def constants_from_dict(name: str, entry: Field) -> Constants:
    """Build the constants of an entry.

    Raises:
        ConstantsError: A field is missing, unknown, of the wrong type or out of range.
    """
    parts = _NAME.fullmatch(name)
    if parts is None:
        raise ConstantsError(
            f"{name[:60]!r}: is not FAMILY_HIDDEN_8gpus or _16gpus; use one of {', '.join(FAMILIES)}"
        )
    family, num_gpus = parts[1], int(parts[2])
    entry.only(("strategies", "mem", "time"))
    strategies = tuple(_strategy(each, num_gpus) for each in _filled(entry["strategies"]))
    if len(set(strategies)) < len(strategies):
        raise ConstantsError(f"{entry['strategies'].where}: has a strategy twice; give each once")
    memories, times = _types(entry["mem"]), _types(entry["time"])
    if len(memories) != len(times):
        raise ConstantsError(
            f"{entry['time'].where}: has {len(times)} types of layers, but mem {len(memories)}; "
            "give both for each"
        )
    layers = tuple(
        _layer(memory, time, strategies, num_gpus) for memory, time in zip(memories, times, strict=True)
    )
    memory = memories[0]
    _check_repeated(memories)
    if num_gpus == 8:
        other = OtherMemory(_amount(memory[_MEMORY_8[0]]), _amount(memory[_MEMORY_8[1]]))
        return Constants(name, family, 8, strategies, layers, other, None, None, 0.0, family)
    stages = memory["other_memory_pp_on"].only(("first_stage", "last_stage"))
    return Constants(
        name,
        family,
        16,
        strategies,
        layers,
        _other(memory["other_memory_pp_off"]),
        _other(stages["first_stage"]),
        _other(stages["last_stage"]),
        _amount(memory.get("peak_reduction_with_chunks", 0)),
        memory.get("model_type", "bert").choice(FAMILIES),
    )


def _check_repeated(memories: list[Field]) -> None:
    """Refuse types of layers that do not repeat what is not in layers."""
    for memory in memories[1:]:
        for name in (*_MEMORY_8, *_MEMORY_16, "peak_reduction_with_chunks", "model_type"):
            first, again = memories[0].get(name), memory.get(name)
            if again.value != first.value:
                raise again.wrong(f"the value of {first.where}", "repeat that for each type of layers")


def _filled(field: Field) -> list[Field]:
    items = field.items("a list")
    if not items:
        raise field.wrong("a list with entries")
    return items


def _types(field: Field) -> list[Field]:
    """Return the fields of each type of layers."""
    return _filled(field) if isinstance(field.value, list) else [field]


def _strategy(field: Field, num_gpus: int) -> GalvatronStrategy:
    """Return one of those of a number of GPUs."""
    remedy = f"give P, t and d with a product of {num_gpus}, and tp and fsdp of 0 or 1 where they apply"
    values = [item.value for item in field.items("a strategy", remedy)]
    info = values[3] if len(values) == 4 else None
    if not isinstance(info, dict) or not set(info) <= {"tp", "fsdp"}:
        raise field.wrong("a strategy", remedy)
    numbers = (*values[:3], *info.values())
    if not all(type(each) is int for each in numbers) or not set(info.values()) <= {0, 1}:
        raise field.wrong("a strategy", remedy)
    consecutive = bool(info["tp"]) if "tp" in info else None
    found = GalvatronStrategy(values[0], values[1], values[2], info.get("fsdp", 0) == 1, consecutive)
    if found not in all_strategies(num_gpus):
        raise field.wrong("a strategy", remedy)
    return found


def _layer(
    memory: Field, time: Field, strategies: tuple[GalvatronStrategy, ...], num_gpus: int
) -> LayerConstants:
    """Return the constants of one type of layers, with all that the strategies need."""
    if num_gpus == 8:
        memory.only((*_MEMORY_ALWAYS, *_MEMORY_8), ("microbatch",))
        time.only(_TIME, _TIME_OPTIONAL)
    else:
        memory.only(
            (*_MEMORY_ALWAYS, *_MEMORY_16), ("peak_reduction_with_chunks", "model_type", "microbatch")
        )
        time.only((*_TIME, "p2p_comm_coe_dict"), _TIME_OPTIONAL)
    for field in (memory, time):
        flag = field.get("microbatch", True)
        if flag.value is not True:
            raise flag.wrong("true", "without micro-batches there is nothing to reproduce")
    if "layer_num" in time.value:
        time["layer_num"].whole("a whole number above 0", min=1)
    parameter_mib = _positive(memory["parameter_size"])
    activations = memory["tp_activation_per_bsz_dict"]
    return LayerConstants(
        parameter_mib=parameter_mib,
        activation_mib={
            each.tensor_parallel: _positive(activations[str(each.tensor_parallel)]) for each in strategies
        },
        synchronized_mib=_positive(time.get("parameter_size", parameter_mib)),
        forward_ms=_positive(time["forward_computation_time"]),
        backward_over_forward=_positive(time["bct_fct_coe"]),
        extra_overhead_ms=_amount(time["extra_overhead"]),
        sequence_length=_count(time["sequence_length"]),
        hidden_size=_count(time["hidden_size"]),
        is_decoder=time.get("layer_type", "enc").choice(("enc", "dec")) == "dec",
        all_reduce_ms_per_mib=_all_reduces(time["comm_coe_dict"], strategies),
        transfer_ms_per_mib=_transfers(time, strategies),
        communication_slowdown=_slowdown(time["dp_overlap_coe"]),
        backward_slowdown=_slowdown(time["bct_overlap_coe"]),
        divided_by_layers="layer_num" in time.value,
    )


def _all_reduces(
    field: Field, strategies: tuple[GalvatronStrategy, ...]
) -> Mapping[int, Mapping[str, float]]:
    """Return the all-reduces that are there, which are at least those of the strategies."""
    found: dict[int, dict[str, float]] = {}
    for each in strategies:
        groups = field[str(each.num_stages)]
        for key in all_reduce_groups(each):
            found.setdefault(each.num_stages, {})[key] = _amount(groups[key])
    return found


def _transfers(time: Field, strategies: tuple[GalvatronStrategy, ...]) -> dict[int, float]:
    if "p2p_comm_coe_dict" not in time.value:
        return {}
    field = time["p2p_comm_coe_dict"]
    return {
        each.num_stages: _amount(field[str(each.num_stages)]) for each in strategies if each.num_stages > 1
    }


def _other(field: Field) -> OtherMemory:
    field.only(("model_states", "activation"))
    return OtherMemory(_amount(field["model_states"]), _amount(field["activation"]))


def _positive(field: Field) -> float:
    return float(field.number("a number above 0", min=_LEAST, max=_MOST))


def _amount(field: Field) -> float:
    return float(field.number("a number of 0 or more", min=0, max=_MOST))


def _slowdown(field: Field) -> float:
    return float(field.number("a number of 1 or more", min=1, max=_MOST))


def _count(field: Field) -> int:
    return field.whole("a whole number above 0", min=1, max=_MOST)
