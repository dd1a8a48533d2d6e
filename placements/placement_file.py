"""The file form of a placement: ``placement.yaml``.

The declared fields of `Placement` and `Block` are the file's too. There, times may be fractions of a tick,
or in ms; memory may have a unit, and one number may stand for a list.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from placements.block import COMPUTE, LARGEST, Block, PlacementError
from placements.forms.meaning import Meaning, declared_fields
from placements.forms.reading import Field, in_file, in_mib, plain
from placements.forms.texts import read_yaml, to_yaml
from placements.modes import Choice, Decision
from placements.spec import Placement, some

SCHEMA_VERSION = 1
"""Version of the placement file form; a file without the key is taken to be of this version."""

_FINEST_POWER = 15
"""Ticks are made at most ten to this power finer."""

_OTHERS = {"stages": "stages", "layers": "stages", "pp_deg": "galvatron", "placement": "schedule"}
"""The kinds of other files, by a key that no placement has."""

_AS_DECLARED = ("name", "num_devices", "tick_ms", "memory_unit_mib", "nodes", "slowdown", "shared_streams")
"""Fields of a placement that are in a file as they are declared."""

_MEMORY = ("memory", "transient", "host_memory")
"""Fields of a block that may have a unit."""

_CHANGEABLE = ("time", *_MEMORY)
"""Fields of a block that a mode may change."""

_ALWAYS = ("name", "kind", "devices", "time", "memory", "after")
"""Fields that each block in a file has."""

_ORDER = (
    *("schema_version", "name", "num_devices", "tick_ms", "memory", "static_memory", "num_gpus"),
    *("memory_unit_mib", "nodes", "host_memory", "blocks", "modes", "slowdown", "shared_streams", "transfer"),
)
"""Order of the keys in a file."""

_BLOCK = {field.name: field for field in declared_fields(Block)}
_PLACEMENT = {field.name: field for field in declared_fields(Placement)}

_Choices = Mapping[str, Mapping[str, Field]]
"""The changed blocks of each choice, by their names."""


class Transfer(NamedTuple):
    """A transfer between two blocks, which may also be a list of these three."""

    source: Annotated[str, Meaning("source block", key="from")]
    target: Annotated[str, Meaning("target block", key="to")]
    time: Annotated[float, Meaning("delay from source end to target start", "ticks", min=0)]


def read_placement(path: str | Path) -> Placement:
    """Read a placement from a YAML file.

    Raises:
        PlacementError: The file cannot be read or is wrong; the message begins with its path.
    """
    data = read_yaml(path, PlacementError)
    with in_file(path, PlacementError):
        return placement_from_dict(data)


def read_times_source(path: str | Path) -> tuple[str, bool]:
    """Return the source of the times in a placement's file, and whether the times are placeholders.

    Raises:
        PlacementError: The file cannot be read, or does not say it as it was written.
    """
    data = read_yaml(path, PlacementError)
    with in_file(path, PlacementError):
        top = Field(data, "placement", PlacementError, is_root=True)
        source = top.get("cost_source", {"times": str(path), "placeholder": False})
        return source["times"].text(), source["placeholder"].typed(bool)


def placement_from_dict(data: object) -> Placement:
    """Build a placement from its file form.

    Times may be fractions of a tick: then the ticks are made finer, by powers of ten, until each time is
    whole to a millionth of itself.

    Raises:
        PlacementError: A field is missing, unknown or of the wrong type, or a rule is broken.
    """
    if kind := next((_OTHERS[key] for key in _OTHERS if isinstance(data, dict) and key in data), ""):
        use = "its placement.yaml" if kind == "schedule" else f"placement={kind} placement.path=FILE"
        raise PlacementError(f"placement: this is a file of {kind} and no placement; use {use}")
    top = Field(data, "placement", PlacementError, is_root=True)
    top.only(("name", "num_devices", "blocks"), (*_ORDER, "cost_source"))
    top.version(SCHEMA_VERSION, SCHEMA_VERSION)
    fields = {
        name: top[name].typed(_PLACEMENT[name].kind, meaning=_PLACEMENT[name].meaning)
        for name in _AS_DECLARED
        if name in top.value
    }
    num_devices, unit_mib = fields["num_devices"], fields.get("memory_unit_mib")
    tick_ms = Fraction(str(fields.get("tick_ms", 1.0)))
    given = [
        _in_own_units(entry, tick_ms, unit_mib, Meaning("", "ms", above=0)) for entry in top["blocks"].items()
    ]
    entries = [entry.only(("name", "kind", "devices", "time"), tuple(_BLOCK)) for entry in given]
    written = {str(entry.value["name"]): entry.value for entry in entries}

    def changed(name: str, change: Field) -> Field:
        change = _in_own_units(change, tick_ms, unit_mib, Meaning("", "ms", min=0)).only((), _CHANGEABLE)
        if name not in written:
            raise change.mistake(f"there is no block {name!r}; the blocks are {some(written)}")
        return replace(change, value=written[name] | change.value)

    modes = [
        [
            (name, [changed(block, change) for block, change in changes.items()])
            for name, changes in mode.only(("choices",))["choices"].typed(_Choices).items()
        ]
        for mode in top.get("modes", ()).items()
    ]
    transfer = [entry.typed(Transfer) for entry in top.get("transfer", ()).items()]
    changes = [entry for mode in modes for _, of_choice in mode for entry in of_choice]
    times = [entry["time"].typed(float, meaning=_BLOCK["time"].meaning) for entry in entries]
    times += [change["time"].typed(float, meaning=Meaning("", "ticks", min=0)) for change in changes]
    finer = _finer(tick_ms, [Fraction(str(time)) for time in (0, *times, *(edge.time for edge in transfer))])
    blocks = tuple(_block(entry, finer) for entry in entries)
    streams = {COMPUTE, *(block.stream for block in blocks)}
    for name in ("slowdown", "shared_streams"):
        for i, entry in enumerate(fields.get(name, ())):
            for stream in entry.streams if name == "slowdown" else (entry.stream,):
                if stream not in streams:
                    what = f"no block runs on a stream {stream!r}; the streams are {some(streams)}"
                    raise PlacementError(f"{name}[{i}]: {what}")
    fields |= {
        name: by_device(name, value, name, num_devices, unit_mib)
        for name in ("memory", "static_memory", "host_memory", "num_gpus")
        if (value := top.get(name).value) is not None
    }
    return Placement(
        **fields | {"tick_ms": float(tick_ms / finer)},
        blocks=blocks,
        transfer=tuple((a, b, round(Fraction(str(time)) * finer)) for a, b, time in transfer),
        decisions=tuple(
            Decision(
                tuple(Choice(name, tuple(_block(data, finer) for data in changes)) for name, changes in mode)
            )
            for mode in modes
        ),
    )


def _in_own_units(entry: Field, tick_ms: Fraction, unit_mib: float | None, ms: Meaning) -> Field:
    """Return a block's entry with its time in ticks and its memory in units of the placement."""
    value = {name: given for name, given in entry.mapping().items() if given is not None}
    value |= {name: _in_units(value[name], unit_mib) for name in _MEMORY if name in value}
    if "time_ms" in value:
        if "time" in value:
            raise entry.mistake("give either 'time' (ticks) or 'time_ms'")
        time_ms = entry["time_ms"].typed(float, meaning=ms)
        del value["time_ms"]
        value["time"] = float(Fraction(str(time_ms)) / tick_ms)
    return replace(entry, value=value)


def _in_units(value: Any, unit_mib: float | None) -> Any:
    """Return memory text, also in a list or by device, in units of `unit_mib` MiB; other values unchanged."""
    if isinstance(value, dict):
        return {key: _in_units(memory, unit_mib) for key, memory in value.items()}
    if isinstance(value, list | tuple):
        return [_in_units(memory, unit_mib) for memory in value]
    mib = in_mib(value)
    return mib / unit_mib if isinstance(value, str) and isinstance(mib, float) and unit_mib else value


def _finer(tick_ms: Fraction, times: list[Fraction]) -> int:
    """Return the factor of finer ticks in which each time is whole, to a millionth of itself."""
    for finer in (int(10**power) for power in range(_FINEST_POWER + 1)):
        in_ticks = [time * finer for time in times]
        if max(in_ticks) <= LARGEST and all(abs(round(t) - t) <= t / 1_000_000 for t in in_ticks):
            return finer
    fault = f"from the shortest time to the longest is too far for ticks of {float(tick_ms)} ms or finer"
    raise PlacementError(f"tick_ms: {fault}; give times of up to {LARGEST:g} whole ticks")


def _block(entry: Field, finer: int) -> Block:
    """Return a block in ticks that are `finer` times finer than the file's."""
    devices = entry["devices"].typed(int | tuple[int, ...], meaning=_BLOCK["devices"].meaning)
    devices = devices if isinstance(devices, tuple) else (devices,)
    field = entry.get("memory", 0)
    memory = field.typed(int | Mapping[int, int], meaning=_BLOCK["memory"].meaning)
    if isinstance(memory, dict):
        if wrong := [device for device in memory if device not in devices]:
            raise field.mistake(f"{wrong[0]} is not a device of this block; use only its 'devices'")
        memory = tuple(memory.get(device, 0) for device in devices)
    read = {"devices": devices, "memory": memory, "time": round(Fraction(str(entry.value["time"])) * finer)}
    others = {name: value for name, value in entry.value.items() if name not in read}
    return replace(entry, value=others).record(Block, **read)


def by_device(
    name: str, value: object, where: str, num_devices: int, unit_mib: float | None = None
) -> tuple[int, ...] | None:
    """Return a field's number for each device, from one number or a list of a file or option; None for none.

    Fractions are rounded down, those of `static_memory` up. Messages call the value `where`. A value such as
    ``24GiB`` needs the MiB of a unit.

    Raises:
        PlacementError: The value is none of these, or the list's length is not `num_devices`.
    """
    if value is None:
        return None
    kind: Any = int | tuple[int, ...] if name == "num_gpus" else float | tuple[float, ...]
    given = Field(_in_units(value, unit_mib), where, PlacementError).typed(
        kind, meaning=_PLACEMENT[name].meaning
    )
    numbers = given if isinstance(given, tuple) else (given,) * num_devices
    if len(numbers) != num_devices:
        has = f"has {len(numbers)} entries for {num_devices} devices"
        raise PlacementError(f"{where}: {has}; give one for each, or one number")
    if name == "static_memory":
        return tuple(map(math.ceil, numbers))
    if less := [number for number in numbers if 0 < number < 1]:
        remedy = "and blocks hold whole units; give 1 or more, or all memory in a smaller unit"
        raise PlacementError(f"{where}: {less[0]:g} is less than 1, {remedy}")
    return tuple(map(math.floor, numbers))


def placement_to_dict(placement: Placement) -> dict[str, Any]:
    """Return the file form as plain data; `transfer` as ``{from, to, time}``."""
    data = {"schema_version": SCHEMA_VERSION, "tick_ms": placement.tick_ms} | plain(placement, defaults=False)
    written = {block.name: _to_dict(block) for block in placement.blocks}
    data["blocks"] = [
        {key: value for key, value in block.items() if key in _ALWAYS or value != _BLOCK[key].default}
        for block in written.values()
    ]
    if placement.decisions:
        data["modes"] = [
            {"choices": {choice.name: _changes(choice, written) for choice in decision.choices}}
            for decision in placement.decisions
        ]
    if placement.transfer:
        data["transfer"] = [{"from": a, "to": b, "time": ticks} for a, b, ticks in placement.transfer]
    return {key: data[key] for key in _ORDER if key in data}


def _changes(choice: Choice, written: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        block.name: {
            key: value for key, value in _to_dict(block).items() if value != written[block.name][key]
        }
        for block in choice.blocks
    }


def _to_dict(block: Block) -> dict[str, Any]:
    """Return all fields of a block; memory as one number, or by each device with changed memory."""
    is_one = not isinstance(block.memory, tuple)
    units = block.memory if is_one else {device: held for device, held in block.units.items() if held}
    return {**plain(block), "memory": units}


def placement_to_yaml(placement: Placement, costs: Mapping[str, object] | None = None) -> str:
    """Return the placement as the text of a ``placement.yaml``, with a key on where its times come from."""
    return to_yaml(placement_to_dict(placement) | dict(costs or {}))
