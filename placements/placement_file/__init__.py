"""The file form of a placement: ``placement.yaml``.

What is declared of the fields of `Placement` and `Block` is of the file, too. There, times may be fractions
of a tick or in ms, memory may have a unit, and one number may stand for a list.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from placements.block import COMPUTE, LARGEST, Block, PlacementError
from placements.forms.meaning import DeclaredField, Meaning, declared_fields
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

_MEMORY = ("memory", "static_memory", "host_memory", "transient")

_CHANGEABLE = ("time", "memory", "transient", "host_memory")
"""What a mode may change of a block."""

_ORDER = (
    *("schema_version", "name", "num_devices", "tick_ms", "memory", "static_memory", "num_gpus"),
    *("memory_unit_mib", "nodes", "host_memory", "blocks", "modes", "slowdown", "shared_streams", "transfer"),
)
"""Order of the keys in a file."""

_BLOCK: Mapping[str, DeclaredField] = {each.key: each for each in declared_fields(Block)}
_PLACEMENT: Mapping[str, DeclaredField] = {each.key: each for each in declared_fields(Placement)}


class Transfer(NamedTuple):
    """A transfer between two blocks, which may also be a list of these three."""

    source: Annotated[str, Meaning("the block whose output it is", key="from")]
    target: Annotated[str, Meaning("the block after it", key="to")]
    time: Annotated[float, Meaning("from the end of the one to the start of the other", "ticks", min=0)]


def read_placement(path: str | Path) -> Placement:
    """Read a placement from a YAML file.

    Raises:
        PlacementError: The file cannot be read or is wrong; the message begins with its path.
    """
    data = read_yaml(path, PlacementError)
    with in_file(path, PlacementError):
        return placement_from_dict(data)


def read_times_source(path: str | Path) -> tuple[str, bool]:
    """Return where the times of a placement's file come from, and whether they are placeholders.

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
    top = _given(Field(data, "placement", PlacementError, is_root=True), None)
    top.only(("name", "num_devices", "blocks"), (*_ORDER, "cost_source"))
    top.version(SCHEMA_VERSION, SCHEMA_VERSION)
    unit_mib = _read(top, _PLACEMENT["memory_unit_mib"])
    top = _given(top, unit_mib)
    names = ("name", "num_devices", "tick_ms", "nodes", "slowdown", "shared_streams")
    own = {name: _read(top, _PLACEMENT[name]) for name in names}
    num_devices, tick_ms = own["num_devices"], own["tick_ms"]
    entries = [_given(each, unit_mib) for each in top["blocks"].items()]
    for entry in entries:
        entry.only(("name", "kind", "devices"), (*_BLOCK, "time_ms"))
    transfer = [each.typed(Transfer) for each in top.get("transfer", ()).items()]
    modes = [_choices(each, unit_mib) for each in top.get("modes", ()).items()]
    changes = [entry for choices in modes for changed in choices.values() for entry in changed.values()]
    times = [_time(entry, tick_ms) for entry in entries]
    times += [_time(entry, tick_ms, is_change=True) for entry in changes]
    finer = _finer(tick_ms, times + [Fraction(str(each.time)) for each in transfer])
    blocks = tuple(_block(entry, round(time * finer)) for entry, time in zip(entries, times, strict=False))
    by_name = {block.name: block for block in blocks}

    def choice(name: str, changed: Mapping[str, Field]) -> Choice:
        for block, entry in changed.items():
            if block not in by_name:
                known = some(by_name)
                raise entry.mistake(f"there is no block {block!r}; the blocks are {known}")
        return Choice(
            name, tuple(_changed(by_name[n], entry, tick_ms, finer) for n, entry in changed.items())
        )

    streams = {COMPUTE, *(block.stream for block in blocks)}
    for name in ("slowdown", "shared_streams"):
        for i, each in enumerate(own[name]):
            for stream in each.streams if name == "slowdown" else (each.stream,):
                if stream not in streams:
                    what = f"no block runs on a stream {stream!r}; the streams are {some(streams)}"
                    raise PlacementError(f"{name}[{i}]: {what}")
    held = {name: top.get(name).value for name in ("memory", "static_memory", "host_memory")}
    return Placement(
        **own | {"tick_ms": float(Fraction(str(tick_ms)) / finer) if finer > 1 else tick_ms},
        blocks=blocks,
        transfer=tuple(
            (source, target, round(Fraction(str(time)) * finer)) for source, target, time in transfer
        ),
        memory=read_capacity(held["memory"], "memory", num_devices),
        static_memory=read_capacity(held["static_memory"], "static_memory", num_devices, math.ceil) or (),
        num_gpus=read_num_gpus(top.get("num_gpus").value, "num_gpus", num_devices),
        memory_unit_mib=unit_mib,
        decisions=tuple(Decision(tuple(choice(*each) for each in choices.items())) for choices in modes),
        host_memory=read_capacity(held["host_memory"], "host_memory", num_devices),
    )


def _given(field: Field, unit_mib: float | None) -> Field:
    """Return a mapping without its nulls, its memory in units."""

    def in_units(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: in_units(each) for key, each in value.items()}
        if isinstance(value, list):
            return [in_units(each) for each in value]
        mib = in_mib(value)
        return mib / unit_mib if isinstance(mib, float) and isinstance(value, str) and unit_mib else value

    given = {name: value for name, value in field.mapping().items() if value is not None}
    return replace(field, value=given | {name: in_units(given[name]) for name in _MEMORY if name in given})


def _read(field: Field, declared: DeclaredField) -> Any:
    """Return what a mapping has for a record's field; the default where it has nothing."""
    if declared.key not in field.value and declared.default is not MISSING:
        return declared.default
    return field[declared.key].typed(declared.kind, meaning=declared.meaning)


def _time(entry: Field, tick_ms: float, *, is_change: bool = False) -> Fraction:
    """Return a time in ticks of the file, as exactly as it is written; 0 where a change has none."""
    given = [name for name in ("time", "time_ms") if name in entry.value]
    if len(given) > 1 or (not given and not is_change):
        raise entry.mistake("give either 'time' (ticks) or 'time_ms'")
    if not given:
        return Fraction(0)
    unit = "ticks" if given == ["time"] else "ms"
    meaning = Meaning("", unit, min=0) if is_change else Meaning("", unit, above=0)
    time = Fraction(str(entry[given[0]].typed(float, meaning=meaning)))
    return time if unit == "ticks" else time / Fraction(str(tick_ms))


def _finer(tick_ms: float, times: list[Fraction]) -> int:
    """Return by how much ticks must be finer for each time to be whole to a millionth of itself.

    Raises:
        PlacementError: The longest time would be too many of them.
    """
    for power in range(_FINEST_POWER + 1):
        finer: int = 10**power
        if max(times, default=0) * finer > LARGEST:
            break
        if all(abs(round(time * finer) - time * finer) <= time * finer / 1_000_000 for time in times):
            return finer
    raise PlacementError(
        f"tick_ms: from the shortest time to the longest is too far for ticks of {tick_ms} ms or finer; "
        f"give times of up to {LARGEST:g} whole ticks"
    )


def _block(entry: Field, time: int) -> Block:
    devices = entry["devices"].value
    entry = replace(
        entry, value=entry.value | {"devices": devices if isinstance(devices, list) else [devices]}
    )
    read = {name: _read(entry, _BLOCK[name]) for name in _BLOCK if name not in ("time", "memory")}
    return Block(**read, time=time, memory=_memory(entry, read["devices"]))


def _memory(entry: Field, devices: tuple[int, ...]) -> int | tuple[int, ...]:
    """Return a block's units: one number, or one for each device, 0 where a mapping leaves it out."""
    field = entry.get("memory", 0)
    held = field.typed(int | Mapping[int, int], meaning=_BLOCK["memory"].meaning)
    if not isinstance(held, dict):
        return int(held)
    if others := [device for device in held if device not in devices]:
        raise field.mistake(f"{others[0]} is not a device of this block; use only its 'devices'")
    return tuple(held.get(device, 0) for device in devices)


def _choices(decision: Field, unit_mib: float | None) -> dict[str, dict[str, Field]]:
    """Return by the name of each choice what it changes of which blocks."""
    choices = decision.only(("choices",))["choices"]
    found: dict[str, dict[str, Field]] = {}
    for name, value in choices.mapping(remedy="give modes by name, as in {keep: {}}").items():
        at = choices.inside(str(name), value)
        blocks = at.mapping(remedy="give what differs by block, or {} where nothing does")
        if str(name) in found:
            raise choices.mistake(f"the name {name!r} is used twice; rename one of the choices")
        found[str(name)] = {
            str(block): _given(at.inside(str(block), each).only((), (*_CHANGEABLE, "time_ms")), unit_mib)
            for block, each in blocks.items()
        }
    return found


def _changed(written: Block, entry: Field, tick_ms: float, finer: int) -> Block:
    """Return a block as a mode runs it."""
    changes = {
        name: _read(entry, _BLOCK[name]) for name in ("transient", "host_memory") if name in entry.value
    }
    if "memory" in entry.value:
        changes["memory"] = _memory(entry, written.devices)
    if {"time", "time_ms"} & entry.value.keys():
        changes["time"] = round(_time(entry, tick_ms, is_change=True) * finer)
    return replace(written, **changes)


def read_capacity(
    value: object,
    where: str,
    num_devices: int,
    rounded: Callable[[float], int] = math.floor,
    *,
    unit_mib: float | None = None,
) -> tuple[int, ...] | None:
    """Return whole units per device from one number, a list, or None for no limit.

    Args:
        value: Value of a file or an option.
        where: Its name in messages.
        num_devices: How many are needed.
        rounded: What makes a fraction whole: down for what there is, up for what is taken.
        unit_mib: MiB of a unit, for values such as ``24GiB``; None where only the user knows it.

    Raises:
        PlacementError: It is none of these, or the list has the wrong length.
    """
    if value is None:
        return None
    field = _given(Field({"memory": value}, "", PlacementError), unit_mib)["memory"]
    found = _by_device(replace(field, where=where), num_devices, "memory", float | tuple[float, ...])
    for given in found:
        if given and not rounded(given):
            remedy = "and blocks hold whole units; give 1 or more, or all memory in a smaller unit"
            raise PlacementError(f"{where}: {given:g} is less than 1, {remedy}")
    return tuple(map(rounded, found))


def read_num_gpus(value: object, where: str, num_devices: int) -> tuple[int, ...]:
    """Return the GPUs that each device stands for, from one number, a list, or None for one each.

    Raises:
        PlacementError: It is none of these, or the list has the wrong length.
    """
    if value is None:
        return ()
    field = Field(value, where, PlacementError)
    return _by_device(field, num_devices, "num_gpus", int | tuple[int, ...])


def _by_device(field: Field, num_devices: int, name: str, kind: Any) -> tuple[Any, ...]:
    """Return a number for each device, from one for all or a list."""
    found = field.typed(kind, meaning=_PLACEMENT[name].meaning)
    if not isinstance(found, tuple):
        return (found,) * num_devices
    if len(found) != num_devices:
        has = f"has {len(found)} entries for {num_devices} devices"
        raise field.mistake(f"{has}; give one for each, or one number")
    return found


def placement_to_dict(placement: Placement) -> dict[str, Any]:
    """Return the file form as plain data; `transfer` as ``{from, to, time}``."""
    data = {"schema_version": SCHEMA_VERSION, "tick_ms": placement.tick_ms} | plain(placement, defaults=False)
    data["blocks"] = [_block_to_dict(block) for block in placement.blocks]
    if placement.decisions:
        data["modes"] = [_decision_to_dict(placement, decision) for decision in placement.decisions]
    if placement.transfer:
        data["transfer"] = [{"from": a, "to": b, "time": ticks} for a, b, ticks in placement.transfer]
    return {key: data[key] for key in _ORDER if key in data}


def _block_to_dict(block: Block) -> dict[str, Any]:
    always = ("name", "kind", "devices", "time", "memory", "after")
    data = plain(block, defaults=False) | {"memory": _memory_to_plain(block), "after": list(block.after)}
    return {key: data[key] for key in dict.fromkeys((*always, *data))}


def _decision_to_dict(placement: Placement, decision: Decision) -> dict[str, Any]:
    """Return for each choice what it changes."""

    def changeable(block: Block) -> dict[str, Any]:
        return {name: getattr(block, name) for name in _CHANGEABLE} | {"memory": _memory_to_plain(block)}

    choices: dict[str, dict[str, Any]] = {}
    for choice in decision.choices:
        choices[choice.name] = {}
        for block in choice.blocks:
            written = changeable(placement.by_name[block.name])
            changes = {name: value for name, value in changeable(block).items() if value != written[name]}
            choices[choice.name][block.name] = changes
    return {"choices": choices}


def _memory_to_plain(block: Block) -> int | dict[int, int]:
    """Return one number, or a mapping from each device that it changes to units."""
    if not isinstance(block.memory, tuple):
        return block.memory
    return {device: units for device in block.devices if (units := block.memory_on(device))}


def placement_to_yaml(placement: Placement, costs: Mapping[str, object] | None = None) -> str:
    """Return the placement as the text of a ``placement.yaml``, with a key on where its times come from."""
    return to_yaml(placement_to_dict(placement) | dict(costs or {}))
