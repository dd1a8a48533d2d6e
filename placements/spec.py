"""A placement: the blocks of one micro-batch, the devices they run on, and what they need.

The module knows the rules of a placement and its file form. It does not know in what order blocks run
or at which clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

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


class PlacementError(ValueError):
    """A placement breaks a rule; the message names the field, the value and the remedy in one line."""


class Kind(StrEnum):
    """What a block computes: F forward, B whole backward, I and W its input and weight halves."""

    F = "F"
    B = "B"
    I = "I"  # noqa: E741 - the literature's name for the input-gradient half
    W = "W"


@dataclass(frozen=True)
class Block:
    """One piece of one micro-batch's work on its devices (Tessel, Sec. III-A).

    Attributes:
        name: Unique within the placement.
        kind: What it computes.
        devices: Device indices, kept ascending; several devices run it together (tensor parallel).
        time: Ticks; at least 1.
        memory: Units held on each of its devices from its start when positive, given back when negative.
        after: Names of the blocks of the same micro-batch that must end before it starts.
    """

    name: str
    kind: Kind
    devices: tuple[int, ...]
    time: int
    memory: int = 0
    after: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Sort the devices, so that all of them agree on their order."""
        object.__setattr__(self, "devices", tuple(sorted(self.devices)))


@dataclass(frozen=True)
class Placement:
    """Blocks over devices, for every micro-batch the same; any directed acyclic graph.

    Attributes:
        name: Shown in pictures and reports.
        num_devices: Devices are ``0 .. num_devices - 1``.
        blocks: In any order.
        tick_ms: Length of a tick in milliseconds.
        transfer: Triples (from, to, ticks): the least time between the end of one block and the start
            of another that is after it; 0 where absent.
        memory: Capacity of each device in units of `Block.memory`, or None for no limit.

    Raises:
        PlacementError: A rule is broken; the message names the field.
    """

    name: str
    num_devices: int
    blocks: tuple[Block, ...]
    tick_ms: float = 1.0
    transfer: tuple[tuple[str, str, int], ...] = ()
    memory: tuple[int, ...] | None = field(default=None)

    def __post_init__(self) -> None:
        """Check every rule, cheap ones first."""
        _check_numbers(self)
        _check_blocks(self)
        _check_transfer(self)
        self.topological_order  # noqa: B018 - raises on a cycle
        _check_memory_returns(self)

    @cached_property
    def by_name(self) -> Mapping[str, Block]:
        """Map each block's name to the block."""
        return {block.name: block for block in self.blocks}

    @cached_property
    def successors(self) -> Mapping[str, tuple[str, ...]]:
        """Map each block's name to the names of the blocks that are directly after it."""
        found: dict[str, list[str]] = {block.name: [] for block in self.blocks}
        for block in self.blocks:
            for name in block.after:
                found[name].append(block.name)
        return {name: tuple(names) for name, names in found.items()}

    @cached_property
    def topological_order(self) -> tuple[Block, ...]:
        """Order the blocks so that each comes later than those it is after; ties keep the given order.

        Raises:
            PlacementError: The blocks wait for each other in a cycle.
        """
        missing = {block.name: len(block.after) for block in self.blocks}
        ready = [block.name for block in self.blocks if not block.after]
        order: list[Block] = []
        while ready:
            name = ready.pop(0)
            order.append(self.by_name[name])
            for follower in self.successors[name]:
                missing[follower] -= 1
                if missing[follower] == 0:
                    ready.append(follower)
        if len(order) < len(self.blocks):
            stuck = [name for name, count in missing.items() if count > 0]
            raise PlacementError(
                f"blocks: {', '.join(stuck[:6])} wait for each other in a cycle; remove one of their 'after'"
            )
        return tuple(order)

    @cached_property
    def _transfer_time(self) -> Mapping[tuple[str, str], int]:
        return {(source, target): ticks for source, target, ticks in self.transfer}

    def transfer_time(self, source: str, target: str) -> int:
        """Return the ticks between the end of block `source` and the earliest start of `target`."""
        return self._transfer_time.get((source, target), 0)

    def on(self, device: int) -> tuple[Block, ...]:
        """Return the blocks that run on a device, in topological order."""
        return tuple(block for block in self.topological_order if device in block.devices)

    def load(self, device: int) -> int:
        """Return the ticks of work that one micro-batch puts on a device."""
        return sum(block.time for block in self.blocks if device in block.devices)

    def with_memory(self, memory: int | Iterable[int] | None) -> Placement:
        """Return the same placement with another capacity: one number for all devices, or one each."""
        if memory is None or isinstance(memory, int):
            return replace(self, memory=None if memory is None else (memory,) * self.num_devices)
        return replace(self, memory=tuple(memory))

    def to_dict(self) -> dict[str, Any]:
        """Return the file form as plain data; `transfer` as ``{from, to, time}``."""
        data: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "name": self.name,
            "num_devices": self.num_devices,
            "tick_ms": self.tick_ms,
        }
        if self.memory is not None:
            data["memory"] = list(self.memory)
        data["blocks"] = [
            {
                "name": block.name,
                "kind": block.kind.value,
                "devices": list(block.devices),
                "time": block.time,
                "memory": block.memory,
                "after": list(block.after),
            }
            for block in self.blocks
        ]
        if self.transfer:
            data["transfer"] = [{"from": a, "to": b, "time": ticks} for a, b, ticks in self.transfer]
        return data

    def to_yaml(self) -> str:
        """Return the placement as the text of a ``placement.yaml``."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False, default_flow_style=None, width=110)

    @classmethod
    def from_dict(cls, data: object) -> Placement:
        """Build a placement from its file form.

        Raises:
            PlacementError: A field is missing, unknown or of the wrong type, or a rule is broken.
        """
        top = _fields(data, "placement", required=_TOP_REQUIRED, optional=_TOP_OPTIONAL)
        version = top.get("schema_version", SCHEMA_VERSION)
        if type(version) is not int or version != SCHEMA_VERSION:
            raise PlacementError(f"schema_version: {version!r} is not known; write {SCHEMA_VERSION}")
        num_devices = _integer(top["num_devices"], "num_devices")
        _check_num_devices(num_devices)
        tick_ms = _number(top["tick_ms"], "tick_ms")
        blocks = _list(top["blocks"], "blocks")
        return cls(
            name=_text(top["name"], "name"),
            num_devices=num_devices,
            blocks=tuple(_read_block(block, f"blocks[{i}]", tick_ms) for i, block in enumerate(blocks)),
            tick_ms=tick_ms,
            transfer=_read_transfer([] if top.get("transfer") is None else top["transfer"]),
            memory=read_capacity(top.get("memory"), "memory", num_devices),
        )

    @classmethod
    def from_yaml(cls, path: str | Path) -> Placement:
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
            raise PlacementError(
                f"{path}: is nested too deep, or has a number too long; see README"
            ) from None
        except yaml.YAMLError as error:
            raise PlacementError(
                f"{path}: is not YAML ({_one_line(error)}); see README, 'File forms'"
            ) from None
        try:
            return cls.from_dict(data)
        except PlacementError as error:
            raise PlacementError(f"{path}: {error}") from None


_LARGEST = 1e15
"""Largest number in a file: sums of many stay exact in 64 bits."""

_MOST_DEVICES = 100_000

_TOP_REQUIRED = ("name", "num_devices", "tick_ms", "blocks")
_TOP_OPTIONAL = ("schema_version", "memory", "transfer")


def read_capacity(value: object, where: str, num_devices: int) -> tuple[int, ...] | None:
    """Return one capacity per device from one number, a list, or None for no limit; fractions round down.

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
        return tuple(math.floor(_number(item, f"{where}[{i}]")) for i, item in enumerate(value))
    return (math.floor(_number(value, where)),) * num_devices


def _read_block(data: object, where: str, tick_ms: float) -> Block:
    entry = _fields(
        data, where, required=("name", "kind", "devices"), optional=("time", "time_ms", "memory", "after")
    )
    name = _text(entry["name"], f"{where}.name")
    where = f"{where} ({name})"
    kind = entry["kind"]
    if not isinstance(kind, str) or kind not in set(Kind):
        raise PlacementError(f"{where}.kind: {kind!r} is not a kind; use F, B, I or W")
    devices = entry["devices"]
    devices = devices if isinstance(devices, list) else [devices]
    return Block(
        name=name,
        kind=Kind(kind),
        devices=tuple(_integer(device, f"{where}.devices") for device in devices),
        time=_read_time(entry, where, tick_ms),
        memory=_integer(entry.get("memory", 0), f"{where}.memory"),
        after=tuple(
            _text(item, f"{where}.after")
            for item in _list([] if entry.get("after") is None else entry["after"], f"{where}.after")
        ),
    )


def _read_time(entry: Mapping[str, Any], where: str, tick_ms: float) -> int:
    if ("time" in entry) == ("time_ms" in entry):
        raise PlacementError(f"{where}: give either 'time' (ticks) or 'time_ms'")
    if "time" in entry:
        return _integer(entry["time"], f"{where}.time")
    time_ms = _number(entry["time_ms"], f"{where}.time_ms")
    if not (tick_ms > 0 and math.isfinite(tick_ms)):
        raise PlacementError(f"tick_ms: {tick_ms} is not a positive number of milliseconds")
    if time_ms / _LARGEST > tick_ms:
        raise PlacementError(
            f"{where}.time_ms: {time_ms} is more than {_LARGEST:g} ticks; use a larger tick_ms"
        )
    ticks = round(time_ms / tick_ms)
    if time_ms > 0 and ticks == 0:
        raise PlacementError(
            f"{where}.time_ms: {time_ms} rounds to 0 ticks of {tick_ms} ms; use a smaller tick_ms"
        )
    return ticks


def _read_transfer(data: object) -> tuple[tuple[str, str, int], ...]:
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
        triples.append((_text(source, where), _text(target, where), _integer(ticks, f"{where}.time")))
    return tuple(triples)


def _check_numbers(placement: Placement) -> None:
    _check_num_devices(placement.num_devices)
    if not (placement.tick_ms > 0 and math.isfinite(placement.tick_ms)):
        raise PlacementError(f"tick_ms: {placement.tick_ms} is not a positive number of milliseconds")
    if not placement.blocks:
        raise PlacementError("blocks: is empty; give at least one block")
    if placement.memory is not None:
        if len(placement.memory) != placement.num_devices:
            raise PlacementError(
                f"memory: has {len(placement.memory)} entries for {placement.num_devices} devices; "
                "give one for each"
            )
        for device, capacity in enumerate(placement.memory):
            if capacity < 0:
                raise PlacementError(
                    f"memory[{device}]: {capacity} is negative; give a capacity of 0 or more"
                )


def _check_num_devices(num_devices: int) -> None:
    if not 1 <= num_devices <= _MOST_DEVICES:
        raise PlacementError(f"num_devices: {num_devices} is not at least 1 and at most {_MOST_DEVICES}")


def _check_blocks(placement: Placement) -> None:
    names: set[str] = set()
    known = {block.name for block in placement.blocks}
    for i, block in enumerate(placement.blocks):
        where = f"blocks[{i}] ({block.name})"
        if block.name in names:
            raise PlacementError(f"{where}.name: is used twice; rename one of the blocks")
        names.add(block.name)
        if block.time < 1:
            raise PlacementError(f"{where}.time: {block.time} is not at least 1 tick")
        if not block.devices:
            raise PlacementError(f"{where}.devices: is empty; name at least one device")
        if len(set(block.devices)) < len(block.devices):
            raise PlacementError(
                f"{where}.devices: {list(block.devices)} names a device twice; name each once"
            )
        for device in block.devices:
            if not 0 <= device < placement.num_devices:
                raise PlacementError(
                    f"{where}.devices: {device} is out of range; "
                    f"use 0 to {placement.num_devices - 1} or raise num_devices"
                )
        for name in block.after:
            if name not in known:
                raise PlacementError(
                    f"{where}.after: there is no block {name!r}; the blocks are {_some(known)}"
                )
        if len(set(block.after)) < len(block.after):
            raise PlacementError(f"{where}.after: {list(block.after)} names a block twice; name each once")


def _check_transfer(placement: Placement) -> None:
    seen: set[tuple[str, str]] = set()
    for i, (source, target, ticks) in enumerate(placement.transfer):
        if target not in placement.by_name or source not in placement.by_name[target].after:
            raise PlacementError(f"transfer[{i}]: {target!r} is not after {source!r}; add it to its 'after'")
        if ticks < 0:
            raise PlacementError(f"transfer[{i}].time: {ticks} is negative; give 0 ticks or more")
        if (source, target) in seen:
            raise PlacementError(f"transfer[{i}]: {source!r} to {target!r} is given twice")
        seen.add((source, target))


def _check_memory_returns(placement: Placement) -> None:
    for device in range(placement.num_devices):
        held = sum(block.memory for block in placement.blocks if device in block.devices)
        if held != 0:
            what = "never gives back" if held > 0 else "gives back more than it holds, by"
            raise PlacementError(
                f"blocks: one micro-batch {what} {abs(held)} of memory on device {device}; "
                "make the memory of the device's blocks sum to 0"
            )


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


def _some(names: Iterable[str]) -> str:
    names = sorted(names)
    return ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")


def _one_line(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    mark = getattr(error, "problem_mark", None)
    return f"{problem}, line {mark.line + 1}" if mark else str(problem)
