"""A placement from its file."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from placements.block import COMPUTE, Block, Kind, PlacementError
from placements.modes import Choice, Decision
from placements.placement_file.fields import (
    LARGEST,
    entries_of,
    fraction_of,
    in_units,
    integer_of,
    name_of,
    not_negative,
    number_of,
    optional,
    positive_time,
    read_capacity,
    read_nodes,
    read_num_gpus,
)
from placements.placement_file.form import (
    SCHEMA_VERSION,
    BlockEntry,
    ChangeEntry,
    DecisionEntry,
    PlacementForm,
    SharedStreamEntry,
    SlowdownEntry,
    TransferEntry,
)
from placements.placement_file.ticks import Ticks
from placements.placement_file.yaml_text import read_yaml
from placements.plain_data import Field, in_file, in_mib
from placements.spec import Placement, check_num_devices, some
from placements.streams import SharedStream, Slowdown


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
    top = Field(data, "placement", PlacementError, is_root=True)
    others = {"stages": "stages", "layers": "stages", "pp_deg": "galvatron", "placement": "schedule"}
    kind = next((others[key] for key in others if isinstance(data, dict) and key in data), "")
    if kind:
        use = "its placement.yaml" if kind == "schedule" else f"placement={kind} placement.path=FILE"
        raise PlacementError(f"placement: this is a file of {kind} and no placement; use {use}")
    top.record(PlacementForm)
    top.version(SCHEMA_VERSION, SCHEMA_VERSION)
    unit = replace(top.get("memory_unit_mib"), value=in_mib(top.get("memory_unit_mib").value))
    unit_mib = None if unit.value is None else unit.number("a number of MiB above 0")
    num_devices = integer_of(top["num_devices"])
    check_num_devices(num_devices)
    tick_ms = number_of(top["tick_ms"])
    entries = [_block_entry(entry) for entry in entries_of(top["blocks"])]
    times = [_read_time(entry, tick_ms) for entry in entries]
    transfer = [_read_transfer(entry) for entry in entries_of(optional(top, "transfer", []))]
    modes = entries_of(optional(top, "modes", []))
    changes = [each for decision in modes for _, blocks in _choices(decision) for each in blocks.values()]
    mode_times = [time for each in changes if (time := _changed_time(each, tick_ms)) is not None]
    ticks = Ticks.fine_enough(tick_ms, times + [time for _, _, time in transfer] + mode_times)
    static = read_capacity(
        top.get("static_memory").value, "static_memory", num_devices, math.ceil, unit_mib=unit_mib
    )
    blocks = tuple(
        _read_block(entry, ticks.whole(time), unit_mib) for entry, time in zip(entries, times, strict=True)
    )
    by_name = {block.name: block for block in blocks}
    return Placement(
        name=name_of(top["name"]),
        num_devices=num_devices,
        blocks=blocks,
        tick_ms=ticks.tick_ms,
        transfer=tuple((source, target, ticks.whole(time)) for source, target, time in transfer),
        memory=read_capacity(top.get("memory").value, "memory", num_devices, unit_mib=unit_mib),
        static_memory=static or (),
        num_gpus=read_num_gpus(top.get("num_gpus").value, "num_gpus", num_devices),
        memory_unit_mib=unit_mib,
        nodes=read_nodes(top.get("nodes").value, "nodes"),
        decisions=tuple(
            Decision(
                tuple(
                    Choice(
                        name,
                        tuple(
                            _read_change(entry, by_name, block, ticks, tick_ms, unit_mib)
                            for block, entry in changed.items()
                        ),
                    )
                    for name, changed in _choices(decision)
                )
            )
            for decision in modes
        ),
        host_memory=read_capacity(
            top.get("host_memory").value, "host_memory", num_devices, unit_mib=unit_mib
        ),
        slowdown=tuple(
            _read_slowdown(each, {COMPUTE, *(block.stream for block in blocks)})
            for each in entries_of(optional(top, "slowdown", []))
        ),
        shared_streams=tuple(
            _read_shared(each, {block.stream for block in blocks})
            for each in entries_of(optional(top, "shared_streams", []))
        ),
    )


def _block_entry(field: Field) -> Field:
    """Return a block's fields, whose place has the block's name."""
    name = name_of(field.record(BlockEntry).name)
    return replace(field, where=f"{field.where} ({name})")


def _read_block(entry: Field, time: int, unit_mib: float | None) -> Block:
    kind = entry["kind"]
    if kind.value not in list(Kind):
        raise kind.wrong("a kind", "use F, R, B, I, W or O")
    listed = isinstance(entry["devices"].value, list)
    devices = tuple(integer_of(each) for each in (entry["devices"].items() if listed else [entry["devices"]]))
    return Block(
        name=entry["name"].value,
        kind=Kind(kind.value),
        devices=devices,
        time=time,
        memory=_read_memory(in_units(entry.get("memory", 0), unit_mib), devices),
        after=tuple(name_of(name) for name in entries_of(optional(entry, "after", []))),
        transient=integer_of(in_units(entry.get("transient", 0), unit_mib)),
        data_parallel=integer_of(entry.get("data_parallel", 1)),
        stream=name_of(optional(entry, "stream", COMPUTE)),
        host_memory=integer_of(in_units(optional(entry, "host_memory", 0), unit_mib)),
        in_turns=bool(optional(entry, "in_turns", False).typed(bool)),
        sequence_slice=integer_of(optional(entry, "sequence_slice", 0)),
    )


def _read_memory(field: Field, devices: tuple[int, ...]) -> int | tuple[int, ...]:
    """Return a block's units: one number, or one for each device, 0 where a mapping leaves it out."""
    if isinstance(field.value, list):
        raise PlacementError(
            f"{field.where}: {field.value!r} is a list; give one number, or units by device as in {{0: 1}}"
        )
    if not isinstance(field.value, dict):
        return integer_of(field)
    known: dict[object, int] = {str(device): device for device in devices}  # JSON's keys are text
    known |= {device: device for device in devices}
    held: dict[int, int] = {}
    for key, units in field.value.items():
        if type(key) not in (int, str) or key not in known:
            raise replace(field, value=key).wrong("a device of this block", "use only its 'devices'")
        if known[key] in held:
            raise PlacementError(f"{field.where}: device {key} is given twice; give it once")
        held[known[key]] = integer_of(field.inside(known[key], units))
    return tuple(held.get(device, 0) for device in devices)


def _read_time(entry: Field, tick_ms: float) -> Fraction:
    """Return a block's time in ticks of the file."""
    if ("time" in entry.value) == ("time_ms" in entry.value):
        raise PlacementError(f"{entry.where}: give either 'time' (ticks) or 'time_ms'")
    if "time" in entry.value:
        return positive_time(entry["time"])
    time_ms = positive_time(entry["time_ms"])
    if tick_ms <= 0:
        raise PlacementError(f"tick_ms: {tick_ms} is not a positive number of milliseconds")
    ticks = time_ms / Fraction(str(tick_ms))
    if ticks > LARGEST:
        raise PlacementError(
            f"{entry.where}.time_ms: {entry.value['time_ms']} is more than {LARGEST:g} ticks; "
            "use a larger tick_ms"
        )
    return ticks


def _read_transfer(field: Field) -> tuple[str, str, Fraction]:
    if isinstance(field.value, dict):
        entry = field.record(TransferEntry)
        source, target, ticks = entry.source, entry.target, entry.time
    elif len(field.items("a triple [from, to, time]")) == 3:
        source, target, ticks = field.items()
    else:
        raise field.wrong("a triple [from, to, time]")
    not_negative(ticks)
    return name_of(source), name_of(target), fraction_of(ticks)


def _choices(decision: Field) -> list[tuple[str, dict[str, Field]]]:
    """Return the name of each choice of a decision, and what it changes of which blocks."""
    choices = decision.record(DecisionEntry).choices
    found = []
    for name, changed in choices.mapping(remedy="give modes by name, as in {keep: {}}").items():
        at = choices.inside(name, changed)
        if name == "":
            raise PlacementError(f"{choices.where}: '' is not a name of a mode; give text")
        blocks = at.mapping(remedy="give what differs by block, or {} where nothing does")
        found.append((str(name), {str(block): at.inside(block, each) for block, each in blocks.items()}))
    return found


def _changed_time(entry: Field, tick_ms: float) -> Fraction | None:
    """Return a block's time in a mode, in ticks of the file; None where it is as written."""
    entry.record(ChangeEntry)
    if "time" in entry.value and "time_ms" in entry.value:
        raise PlacementError(f"{entry.where}: give either 'time' (ticks) or 'time_ms'")
    for name in ("time", "time_ms"):
        if name in entry.value and entry[name].value == 0:
            return Fraction(0)
    return _read_time(entry, tick_ms) if {"time", "time_ms"} & set(entry.value) else None


def _read_change(
    entry: Field,
    blocks: Mapping[str, Block],
    name: str,
    ticks: Ticks,
    tick_ms: float,
    unit_mib: float | None,
) -> Block:
    """Return a block as a mode runs it."""
    if name not in blocks:
        raise PlacementError(f"{entry.where}: there is no block {name!r}; the blocks are {some(blocks)}")
    written, time = blocks[name], _changed_time(entry, tick_ms)
    held = entry.get("memory").value
    return replace(
        written,
        time=written.time if time is None else ticks.whole(time),
        memory=written.memory
        if held is None
        else _read_memory(in_units(entry["memory"], unit_mib), written.devices),
        transient=integer_of(in_units(optional(entry, "transient", written.transient), unit_mib)),
        host_memory=integer_of(in_units(optional(entry, "host_memory", written.host_memory), unit_mib)),
    )


def _read_slowdown(field: Field, known: Collection[str]) -> Slowdown:
    entry = field.record(SlowdownEntry)
    streams, factors = entries_of(entry.streams), entries_of(entry.factors)
    for each, name in ((streams, "streams"), (factors, "factors")):
        if len(each) != 2:
            raise PlacementError(f"{field.where}.{name}: has {len(each)} entries; give two")
    for stream in streams:
        if name_of(stream) not in known:
            raise PlacementError(
                f"{stream.where}: no block runs on a stream {stream.value!r}; the streams are {some(known)}"
            )
    return Slowdown(
        (name_of(streams[0]), name_of(streams[1])), (number_of(factors[0]), number_of(factors[1]))
    )


def _read_shared(field: Field, known: Collection[str]) -> SharedStream:
    entry = field.record(SharedStreamEntry)
    stream = name_of(entry.stream)
    if stream not in known:
        raise PlacementError(
            f"{entry.stream.where}: no block runs on a stream {stream!r}; the streams are {some(known)}"
        )
    return SharedStream(stream, entry.devices.typed(tuple[int, ...]))
