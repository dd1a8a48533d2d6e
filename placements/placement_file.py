"""The file form of a placement: ``placement.yaml``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from placements.spec import Block, Kind, Placement, PlacementError, check_num_devices

SCHEMA_VERSION = 1
"""Version of the placement file form; a file without the key is taken to be of this version."""


class _Loader(yaml.SafeLoader):
    """YAML without its silent rule that of two equal keys the last one counts."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that is there twice."""
        keys = [key.value for key, _ in node.value]
        for i, key in enumerate(keys):
            if key in keys[:i]:
                raise yaml.constructor.ConstructorError(
                    problem=f"{key!r} is given twice", problem_mark=node.value[i][0].start_mark
                )
        return super().construct_mapping(node, deep)


def placement_to_dict(placement: Placement) -> dict[str, Any]:
    """Return the file form as plain data; `transfer` as ``{from, to, time}``."""
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "name": placement.name,
        "num_devices": placement.num_devices,
        "tick_ms": placement.tick_ms,
    }
    if placement.memory is not None:
        data["memory"] = list(placement.memory)
    if placement.static_memory:
        data["static_memory"] = list(placement.static_memory)
    if placement.num_gpus:
        data["num_gpus"] = list(placement.num_gpus)
    data["blocks"] = [_block_to_dict(block) for block in placement.blocks]
    if placement.transfer:
        data["transfer"] = [{"from": a, "to": b, "time": ticks} for a, b, ticks in placement.transfer]
    return data


def _block_to_dict(block: Block) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": block.name,
        "kind": block.kind.value,
        "devices": list(block.devices),
        "time": block.time,
        "memory": _memory_to_plain(block),
        "after": list(block.after),
    }
    if block.transient:
        data["transient"] = block.transient
    if block.data_parallel != 1:
        data["data_parallel"] = block.data_parallel
    return data


def _memory_to_plain(block: Block) -> int | dict[int, int]:
    """Return one number, or a mapping from each device that it changes to units."""
    if not isinstance(block.memory, tuple):
        return block.memory
    return {device: units for device in block.devices if (units := block.memory_on(device))}


def placement_to_yaml(placement: Placement) -> str:
    """Return the placement as the text of a ``placement.yaml``."""
    return yaml.safe_dump(placement_to_dict(placement), sort_keys=False, default_flow_style=None, width=110)


def placement_from_dict(data: object) -> Placement:
    """Build a placement from its file form.

    Times may be fractions of a tick: then the ticks are made finer, by powers of ten, until each time is
    whole to a millionth of itself.

    Raises:
        PlacementError: A field is missing, unknown or of the wrong type, or a rule is broken.
    """
    top = _fields(data, "placement", required=_TOP_REQUIRED, optional=_TOP_OPTIONAL)
    version = top.get("schema_version", SCHEMA_VERSION)
    if type(version) is not int or version != SCHEMA_VERSION:
        raise PlacementError(f"schema_version: {version!r} is not known; write {SCHEMA_VERSION}")
    num_devices = _integer(top["num_devices"], "num_devices")
    check_num_devices(num_devices)
    tick_ms = _number(top["tick_ms"], "tick_ms")
    entries = _list(top["blocks"], "blocks")
    times = [_read_time(entry, f"blocks[{i}]", tick_ms) for i, entry in enumerate(entries)]
    transfer = _read_transfer([] if top.get("transfer") is None else top["transfer"])
    ticks = _Ticks.fine_enough(tick_ms, times + [time for _, _, time in transfer])
    static = read_capacity(top.get("static_memory"), "static_memory", num_devices, math.ceil)
    return Placement(
        name=_text(top["name"], "name"),
        num_devices=num_devices,
        blocks=tuple(
            _read_block(entry, f"blocks[{i}]", ticks.whole(time))
            for i, (entry, time) in enumerate(zip(entries, times, strict=True))
        ),
        tick_ms=ticks.tick_ms,
        transfer=tuple((source, target, ticks.whole(time)) for source, target, time in transfer),
        memory=read_capacity(top.get("memory"), "memory", num_devices),
        static_memory=static or (),
        num_gpus=read_num_gpus(top.get("num_gpus"), "num_gpus", num_devices),
    )


def read_placement(path: str | Path) -> Placement:
    """Read a placement from a YAML file.

    Raises:
        PlacementError: The file cannot be read or is wrong; the message begins with its path.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise PlacementError(f"{path}: cannot be read ({reason}); give the path of a YAML file") from None
    try:
        data = yaml.load(text, Loader=_Loader)
    except (RecursionError, ValueError):
        raise PlacementError(f"{path}: is nested too deep, or has a number too long; see README") from None
    except yaml.YAMLError as error:
        raise PlacementError(f"{path}: is not YAML ({_one_line(error)}); see README, 'File forms'") from None
    try:
        return placement_from_dict(data)
    except PlacementError as error:
        raise PlacementError(f"{path}: {error}") from None


@dataclass(frozen=True)
class _Ticks:
    """Ticks made finer than the file's, so that its times are whole numbers of them.

    Attributes:
        tick_ms: Length of one in milliseconds.
        finer: How many make a tick of the file.
    """

    tick_ms: float
    finer: int

    @classmethod
    def fine_enough(cls, tick_ms: float, times: list[Fraction]) -> _Ticks:
        """Return the coarsest ticks in which each time is whole to a millionth of itself.

        Raises:
            PlacementError: The longest time would be too many of them.
        """
        longest = max(times, default=Fraction(0))
        for power in range(_FINEST_POWER + 1):
            finer = 10**power
            if longest * finer > _LARGEST:
                break
            if all(
                abs(round(time * finer) - time * finer) <= abs(time) * finer / 1_000_000 for time in times
            ):
                return cls(float(Fraction(str(tick_ms)) / finer) if power else tick_ms, finer)
        raise PlacementError(
            f"tick_ms: from the shortest time to the longest is too far for ticks of {tick_ms} ms or finer; "
            f"give times of up to {_LARGEST:g} whole ticks"
        )

    def whole(self, time: Fraction) -> int:
        """Return the whole number of these ticks nearest to a time in ticks of the file."""
        return round(time * self.finer)


_LARGEST = 1e15
"""Largest number in a file: sums of many stay exact in 64 bits."""

_FINEST_POWER = 15
"""Ticks are made at most ten to this power finer."""


_TOP_REQUIRED = ("name", "num_devices", "tick_ms", "blocks")
_TOP_OPTIONAL = ("schema_version", "memory", "static_memory", "num_gpus", "transfer")


def read_capacity(
    value: object, where: str, num_devices: int, rounded: Callable[[float], int] = math.floor
) -> tuple[int, ...] | None:
    """Return whole units per device from one number, a list, or None for no limit.

    Args:
        value: Of a file or an option.
        where: Its name in messages.
        num_devices: How many are needed.
        rounded: What makes a fraction whole: down for what there is, up for what is taken.

    Raises:
        PlacementError: It is none of these, or the list has the wrong length.
    """
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        if len(value) != num_devices:
            raise PlacementError(
                f"{where}: has {len(value)} entries for {num_devices} devices; give one for each"
            )
        return tuple(rounded(_number(item, f"{where}[{i}]")) for i, item in enumerate(value))
    return (rounded(_number(value, where)),) * num_devices


def read_num_gpus(value: object, where: str, num_devices: int) -> tuple[int, ...]:
    """Return the GPUs that each device stands for, from one number, a list, or None for one each.

    Args:
        value: Of a file or an option.
        where: Its name in messages.
        num_devices: How many are needed.

    Raises:
        PlacementError: It is none of these, or the list has the wrong length.
    """
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        return (_num_gpus(value, where),) * num_devices
    if len(value) != num_devices:
        raise PlacementError(
            f"{where}: has {len(value)} entries for {num_devices} devices; give one for each, or one number"
        )
    return tuple(_num_gpus(item, f"{where}[{i}]") for i, item in enumerate(value))


def _num_gpus(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise PlacementError(f"{where}: {value!r} is not a number of GPUs; give a whole number of 1 or more")
    return value


def _read_block(data: object, where: str, time: int) -> Block:
    entry = _block_fields(data, where)
    where = f"{where} ({entry['name']})"
    kind = entry["kind"]
    if not isinstance(kind, str) or kind not in set(Kind):
        raise PlacementError(f"{where}.kind: {kind!r} is not a kind; use F, B, I, W or O")
    devices = entry["devices"]
    devices = devices if isinstance(devices, list) else [devices]
    devices = tuple(_integer(device, f"{where}.devices") for device in devices)
    return Block(
        name=entry["name"],
        kind=Kind(kind),
        devices=devices,
        time=time,
        memory=_read_memory(entry.get("memory", 0), f"{where}.memory", devices),
        after=tuple(
            _text(item, f"{where}.after")
            for item in _list([] if entry.get("after") is None else entry["after"], f"{where}.after")
        ),
        transient=_integer(entry.get("transient", 0), f"{where}.transient"),
        data_parallel=_integer(entry.get("data_parallel", 1), f"{where}.data_parallel"),
    )


def _read_memory(value: object, where: str, devices: tuple[int, ...]) -> int | tuple[int, ...]:
    """Return a block's units: one number, or one for each device, 0 where a mapping leaves it out."""
    if isinstance(value, list):
        raise PlacementError(
            f"{where}: {value!r} is a list; give one number, or units by device as in {{0: 1}}"
        )
    if not isinstance(value, dict):
        return _integer(value, where)
    known: dict[object, int] = {str(device): device for device in devices}  # JSON's keys are text
    known |= {device: device for device in devices}
    held: dict[int, int] = {}
    for key, units in value.items():
        if type(key) not in (int, str) or key not in known:
            raise PlacementError(f"{where}: {key!r} is not a device of this block; use only its 'devices'")
        if known[key] in held:
            raise PlacementError(f"{where}: device {key} is given twice; give it once")
        held[known[key]] = _integer(units, f"{where}[{key}]")
    return tuple(held.get(device, 0) for device in devices)


def _block_fields(data: object, where: str) -> dict[str, Any]:
    entry = _fields(
        data,
        where,
        required=("name", "kind", "devices"),
        optional=("time", "time_ms", "memory", "after", "transient", "data_parallel"),
    )
    _text(entry["name"], f"{where}.name")
    return entry


def _read_time(data: object, where: str, tick_ms: float) -> Fraction:
    """Return a block's time in ticks of the file."""
    entry = _block_fields(data, where)
    where = f"{where} ({entry['name']})"
    if ("time" in entry) == ("time_ms" in entry):
        raise PlacementError(f"{where}: give either 'time' (ticks) or 'time_ms'")
    if "time" in entry:
        return _fraction(entry["time"], f"{where}.time")
    time_ms = _fraction(entry["time_ms"], f"{where}.time_ms")
    if not (tick_ms > 0 and math.isfinite(tick_ms)):
        raise PlacementError(f"tick_ms: {tick_ms} is not a positive number of milliseconds")
    ticks = time_ms / Fraction(str(tick_ms))
    if ticks > _LARGEST:
        raise PlacementError(
            f"{where}.time_ms: {entry['time_ms']} is more than {_LARGEST:g} ticks; use a larger tick_ms"
        )
    return ticks


def _fraction(value: object, where: str) -> Fraction:
    """Return a number as exactly what the file says, in decimals."""
    return Fraction(str(_number(value, where)))


def _read_transfer(data: object) -> list[tuple[str, str, Fraction]]:
    triples = []
    for i, item in enumerate(_list(data, "transfer")):
        where = f"transfer[{i}]"
        if isinstance(item, (list, tuple)):
            if len(item) != 3:
                raise PlacementError(f"{where}: {item!r} is not a triple [from, to, time]")
            source, target, ticks = item
        else:
            entry = _fields(item, where, required=("from", "to", "time"), optional=())
            source, target, ticks = entry["from"], entry["to"], entry["time"]
        triples.append((_text(source, where), _text(target, where), _fraction(ticks, f"{where}.time")))
    return triples


def _fields(data: object, where: str, required: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise PlacementError(
            f"{where}: is not a mapping but {type(data).__name__}; give {', '.join(required)}"
        )
    for key in required:
        if key not in data:
            raise PlacementError(f"{where}: lacks the field {key!r}; add it")
    for key in data:
        if key not in required and key not in optional:
            raise PlacementError(
                f"{where}: has an unknown field {key!r}; the fields are {', '.join(required + optional)}"
            )
    return data


def _list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise PlacementError(f"{where}: {value!r} is not a list; give one in brackets")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise PlacementError(
            f"{where}: {value!r} is not a name; put text there, in quotes if it looks like a number"
        )
    return value


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        raise PlacementError(f"{where}: {value!r} is not a number; give one")
    if abs(value) > _LARGEST:
        raise PlacementError(f"{where}: is larger than {_LARGEST:g}; use a coarser unit")
    return value


def _integer(value: object, where: str) -> int:
    number = _number(value, where)
    if number != int(number):
        raise PlacementError(f"{where}: {value!r} is not a whole number; use a finer unit")
    return int(number)


def _one_line(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    mark = getattr(error, "problem_mark", None)
    return f"{problem}, line {mark.line + 1}" if mark else str(problem)
