"""The file form of a placement: ``placement.yaml``."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import yaml

from placements.block import COMPUTE, Block, Kind, PlacementError
from placements.meaning import Meaning
from placements.modes import Choice, Decision
from placements.plain_data import Field, in_file, in_mib, plain
from placements.spec import Placement, check_num_devices, some
from placements.streams import SharedStream, Slowdown

SCHEMA_VERSION = 1
"""Version of the placement file form; a file without the key is taken to be of this version."""


@dataclass(frozen=True)
class BlockEntry:
    """A block; numbers may be written with a point, as 2.0, and memory with a unit, as 24GiB."""

    name: Annotated[Field, Meaning("name, unique in the placement")]
    kind: Annotated[
        Field,
        Meaning(
            "`F` (forward), `B` (backward), `I` and `W` (its input and weight halves), or `O`: an optimizer "
            "step, which runs once, after its inputs of every micro-batch"
        ),
    ]
    devices: Annotated[
        Field,
        Meaning(
            "where it runs. A block on several devices, or on one that stands for several GPUs, is run by "
            "all of its GPUs together: tensor parallel"
        ),
    ]
    time: Annotated[Field | None, Meaning("its time", "ticks", above=0)] = None
    time_ms: Annotated[
        Field | None,
        Meaning(
            "instead of `time`. Where times are fractions of a tick, ticks are made finer, by powers of "
            "ten, until each time is whole to a millionth",
            "ms",
            above=0,
        ),
    ] = None
    memory: Annotated[
        Field | None,
        Meaning(
            "allocated at the block's start when positive, and released when negative: one number for each "
            "of its devices, or units by device, as in `memory: {0: 1, 2: 3}` (devices left out: 0; in JSON, "
            "devices are in quotes)",
            "units",
        ),
    ] = None
    after: Annotated[Field | None, Meaning("names of blocks of the same micro-batch that it waits for")] = (
        None
    )
    transient: Annotated[
        Field | None,
        Meaning("needed besides while the block runs, on each of its devices", "units", min=0),
    ] = None
    data_parallel: Annotated[
        Field | None,
        Meaning(
            "`2`: its GPUs are two groups, each of which computes half of the micro-batch's samples", min=1
        ),
    ] = None
    stream: Annotated[
        Field | None,
        Meaning(
            "its devices' stream that it runs on, such as `communication`, `copy_out` or `copy_in`; "
            "`compute` where none is given. Each stream runs one block at a time, memory is the device's"
        ),
    ] = None
    host_memory: Annotated[
        Field | None,
        Meaning("allocated on the host of each of its devices, released when negative", "units"),
    ] = None
    in_turns: Annotated[
        Field | None,
        Meaning(
            "`true`: its groups take whole micro-batches in turn, as PipeDream's replicas do; each is a "
            "device of its own for a schedule"
        ),
    ] = None
    sequence_slice: Annotated[
        Field | None,
        Meaning(
            "the slice of the micro-batch's sequence that it computes, from 0 on; a forward after one of an "
            "earlier slice takes the keys and values that this left on the device",
            min=0,
        ),
    ] = None


@dataclass(frozen=True)
class ChangeEntry:
    """What a mode changes of a block; what is not given stays as written."""

    time: Annotated[
        Field | None, Meaning("its time; 0 for a block that does not run in this mode", "ticks", min=0)
    ] = None
    time_ms: Annotated[Field | None, Meaning("instead of `time`", "ms", min=0)] = None
    memory: Annotated[Field | None, Meaning("as of a block", "units")] = None
    transient: Annotated[Field | None, Meaning("as of a block", "units", min=0)] = None
    host_memory: Annotated[Field | None, Meaning("as of a block", "units")] = None


@dataclass(frozen=True)
class DecisionEntry:
    """Linked blocks with modes, one of which a search chooses for each micro-batch."""

    choices: Annotated[
        Field,
        Meaning(
            "modes by name; for each the blocks that differ from what is written, as in `{keep: {}, "
            "recompute: {F0: {memory: 1}, B0: {time: 6, memory: -1, transient: 9}}}`"
        ),
    ]


@dataclass(frozen=True)
class SlowdownEntry:
    """Two streams that slow each other down where both run a block on a device."""

    streams: Annotated[Field, Meaning("list: the two streams, as in `[compute, communication]`")]
    factors: Annotated[
        Field, Meaning("list: how many times as long each then takes, as in `[1.05, 1.02]`", min=1)
    ]


@dataclass(frozen=True)
class SharedStreamEntry:
    """A stream that several devices have together: it runs one block of all of them at a time."""

    stream: Annotated[Field, Meaning("its name, as `copy_out`")]
    devices: Annotated[Field, Meaning("list: the devices, two or more")]


@dataclass(frozen=True)
class TransferEntry:
    """A transfer, which may also be a list of these three."""

    source: Annotated[Field, Meaning("the block whose output it is", key="from")]
    target: Annotated[Field, Meaning("the block after it", key="to")]
    time: Annotated[Field, Meaning("from the end of the one to the start of the other", "ticks", min=0)]


@dataclass(frozen=True)
class PlacementForm:
    """The file of a placement."""

    name: Annotated[Field, Meaning("name of the placement")]
    num_devices: Annotated[Field, Meaning("number of devices", min=1)]
    tick_ms: Annotated[Field, Meaning("length of a tick", "ms", above=0)]
    blocks: Annotated[Field, Meaning("blocks of one micro-batch, in any order")]
    schema_version: Annotated[Field | None, Meaning("version of the form")] = None
    memory: Annotated[
        Field | None, Meaning("capacity of each device: one number or a list", "units", min=0)
    ] = None
    static_memory: Annotated[
        Field | None, Meaning("held by each device all the time, likewise", "units", min=0)
    ] = None
    num_gpus: Annotated[
        Field | None,
        Meaning("GPUs that each device stands for, likewise; a run has a process for each", min=1),
    ] = None
    memory_unit_mib: Annotated[Field | None, Meaning("one unit of memory", "MiB", above=0)] = None
    nodes: Annotated[
        Field | None, Meaning("list: the machine of each GPU, from 0 on, those of one in a row", min=0)
    ] = None
    host_memory: Annotated[
        Field | None, Meaning("what each device may hold on its host, likewise", "units", min=0)
    ] = None
    modes: Annotated[Field | None, Meaning("list of decisions on how blocks run")] = None
    slowdown: Annotated[Field | None, Meaning("list of streams that slow each other down")] = None
    shared_streams: Annotated[Field | None, Meaning("list of streams that devices have together")] = None
    transfer: Annotated[Field | None, Meaning("times between a block and another after it")] = None
    cost_source: Annotated[
        Field | None,
        Meaning("`times`: where times come from, and `placeholder`: true where nobody gave them"),
    ] = None


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
    optional = ("memory", "static_memory", "num_gpus", "memory_unit_mib", "nodes", "host_memory")
    given = {name: value for name in optional if (value := getattr(placement, name)) not in (None, ())}
    data |= plain(given)
    data["blocks"] = [_block_to_dict(block) for block in placement.blocks]
    if placement.decisions:
        data["modes"] = [_decision_to_dict(placement, decision) for decision in placement.decisions]
    if placement.slowdown:
        data["slowdown"] = plain(placement.slowdown)
    if placement.shared_streams:
        data["shared_streams"] = plain(placement.shared_streams)
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
    if block.stream != COMPUTE:
        data["stream"] = block.stream
    if block.host_memory:
        data["host_memory"] = block.host_memory
    if block.in_turns:
        data["in_turns"] = True
    if block.sequence_slice:
        data["sequence_slice"] = block.sequence_slice
    return data


def _decision_to_dict(placement: Placement, decision: Decision) -> dict[str, Any]:
    """Return for each choice what it changes."""
    choices: dict[str, dict[str, Any]] = {}
    for choice in decision.choices:
        choices[choice.name] = {}
        for block in choice.blocks:
            written, changed = _changeable(placement.by_name[block.name]), _changeable(block)
            changes = {name: value for name, value in changed.items() if value != written[name]}
            choices[choice.name][block.name] = changes
    return {"choices": choices}


def _changeable(block: Block) -> dict[str, Any]:
    """Return what a mode may change of a block."""
    return {
        "time": block.time,
        "memory": _memory_to_plain(block),
        "transient": block.transient,
        "host_memory": block.host_memory,
    }


def _memory_to_plain(block: Block) -> int | dict[int, int]:
    """Return one number, or a mapping from each device that it changes to units."""
    if not isinstance(block.memory, tuple):
        return block.memory
    return {device: units for device in block.devices if (units := block.memory_on(device))}


def placement_to_yaml(placement: Placement, costs: Mapping[str, object] | None = None) -> str:
    """Return the placement as the text of a ``placement.yaml``, with a key on where its times come from."""
    data = placement_to_dict(placement) | dict(costs or {})
    return yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=110)


def read_times_source(path: str | Path) -> tuple[str, bool]:
    """Return where the times of a placement's file come from, and whether they are placeholders.

    Raises:
        PlacementError: The file cannot be read, or does not say it as it was written.
    """
    data = read_yaml(path, PlacementError)
    with in_file(path, PlacementError):
        top = Field(data, "placement", PlacementError, is_root=True)
        source = top.get("cost_source", {"times": str(path), "placeholder": False})
        placeholder = source["placeholder"]
        if not isinstance(placeholder.value, bool):
            raise placeholder.wrong("true or false")
        return source["times"].text(), placeholder.value


def placement_from_dict(data: object) -> Placement:
    """Build a placement from its file form.

    Times may be fractions of a tick: then the ticks are made finer, by powers of ten, until each time is
    whole to a millionth of itself.

    Raises:
        PlacementError: A field is missing, unknown or of the wrong type, or a rule is broken.
    """
    top = Field(data, "placement", PlacementError, is_root=True)
    top.record(PlacementForm)
    top.version(SCHEMA_VERSION, SCHEMA_VERSION)
    unit = replace(top.get("memory_unit_mib"), value=in_mib(top.get("memory_unit_mib").value))
    unit_mib = None if unit.value is None else unit.number("a number of MiB above 0")
    num_devices = _integer(top["num_devices"])
    check_num_devices(num_devices)
    tick_ms = _number(top["tick_ms"])
    entries = [_block_entry(entry) for entry in _list(top["blocks"])]
    times = [_read_time(entry, tick_ms) for entry in entries]
    transfer = [_read_transfer(entry) for entry in _list(_optional(top, "transfer", []))]
    modes = _list(_optional(top, "modes", []))
    changes = [each for decision in modes for _, blocks in _choices(decision) for each in blocks.values()]
    mode_times = [time for each in changes if (time := _changed_time(each, tick_ms)) is not None]
    ticks = _Ticks.fine_enough(tick_ms, times + [time for _, _, time in transfer] + mode_times)
    static = read_capacity(
        top.get("static_memory").value, "static_memory", num_devices, math.ceil, unit_mib=unit_mib
    )
    blocks = tuple(
        _read_block(entry, ticks.whole(time), unit_mib) for entry, time in zip(entries, times, strict=True)
    )
    by_name = {block.name: block for block in blocks}
    return Placement(
        name=_name(top["name"]),
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
            for each in _list(_optional(top, "slowdown", []))
        ),
        shared_streams=tuple(
            _read_shared(each, {block.stream for block in blocks})
            for each in _list(_optional(top, "shared_streams", []))
        ),
    )


def _read_slowdown(field: Field, known: Collection[str]) -> Slowdown:
    entry = field.record(SlowdownEntry)
    streams, factors = _list(entry.streams), _list(entry.factors)
    for each, name in ((streams, "streams"), (factors, "factors")):
        if len(each) != 2:
            raise PlacementError(f"{field.where}.{name}: has {len(each)} entries; give two")
    for stream in streams:
        if _name(stream) not in known:
            raise PlacementError(
                f"{stream.where}: no block runs on a stream {stream.value!r}; the streams are {some(known)}"
            )
    return Slowdown((_name(streams[0]), _name(streams[1])), (_number(factors[0]), _number(factors[1])))


def _read_shared(field: Field, known: Collection[str]) -> SharedStream:
    entry = field.record(SharedStreamEntry)
    stream = _name(entry.stream)
    if stream not in known:
        raise PlacementError(
            f"{entry.stream.where}: no block runs on a stream {stream!r}; the streams are {some(known)}"
        )
    return SharedStream(stream, entry.devices.whole_numbers())


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
    ticks: _Ticks,
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
        else _read_memory(_in_units(entry["memory"], unit_mib), written.devices),
        transient=_integer(_in_units(_optional(entry, "transient", written.transient), unit_mib)),
        host_memory=_integer(_in_units(_optional(entry, "host_memory", written.host_memory), unit_mib)),
    )


def read_placement(path: str | Path) -> Placement:
    """Read a placement from a YAML file.

    Raises:
        PlacementError: The file cannot be read or is wrong; the message begins with its path.
    """
    data = read_yaml(path, PlacementError)
    with in_file(path, PlacementError):
        return placement_from_dict(data)


def read_yaml(path: str | Path, error: type[ValueError]) -> object:
    """Return the plain data of a YAML file.

    Raises:
        ValueError: It cannot be read or is no YAML; the error is of the given kind, and its message begins
            with the path.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        reason = getattr(cause, "strerror", None) or "it is not UTF-8 text"
        raise error(f"{path}: cannot be read ({reason}); give the path of a YAML file") from None
    try:
        return yaml.load(text, Loader=_Loader)
    except (RecursionError, ValueError):
        raise error(f"{path}: is nested too deep, or has a number too long; write it shorter") from None
    except yaml.YAMLError as cause:
        raise error(f"{path}: is not YAML ({_one_line(cause)}); correct it there") from None


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
    field = _in_units(Field(value, where, PlacementError), unit_mib)
    return (
        None if value is None else _by_device(field, num_devices, lambda each: rounded(_not_negative(each)))
    )


def read_num_gpus(value: object, where: str, num_devices: int) -> tuple[int, ...]:
    """Return the GPUs that each device stands for, from one number, a list, or None for one each.

    Args:
        value: Value of a file or an option.
        where: Its name in messages.
        num_devices: How many are needed.

    Raises:
        PlacementError: It is none of these, or the list has the wrong length.
    """
    if value is None:
        return ()
    remedy = "give a whole number of 1 or more"
    field = Field(value, where, PlacementError)
    return _by_device(field, num_devices, lambda each: each.whole("a number of GPUs", remedy, 1))


def read_nodes(value: object, where: str) -> tuple[int, ...] | None:
    """Return the node of each GPU, from a list, or None for one node.

    Args:
        value: Value of a file or an option.
        where: Its name in messages.

    Raises:
        PlacementError: It is neither; that the numbers fit the devices is the placement's rule.
    """
    if value is None:
        return None
    listed = Field(value, where, PlacementError).items("a list of nodes", "give the node of each GPU")
    return tuple(each.whole("a node's number", "give a whole number from 0 on", 0) for each in listed)


def _by_device(field: Field, num_devices: int, read: Callable[[Field], int]) -> tuple[int, ...]:
    """Return what is read for each device, from one value for all or a list."""
    if not isinstance(field.value, (list, tuple)):
        return (read(field),) * num_devices
    if len(field.value) != num_devices:
        raise PlacementError(
            f"{field.where}: has {len(field.value)} entries for {num_devices} devices; give one for each, or "
            "one number"
        )
    return tuple(read(each) for each in field.items())


def _block_entry(field: Field) -> Field:
    """Return a block's fields, whose place has the block's name."""
    name = _name(field.record(BlockEntry).name)
    return replace(field, where=f"{field.where} ({name})")


def _in_units(field: Field, unit_mib: float | None) -> Field:
    """Return memory in units, also where it is given with a unit of its own, as 24GiB.

    Raises:
        PlacementError: It has one, but how much a unit is nobody said.
    """
    if isinstance(field.value, list):
        return replace(field, value=[_in_units(each, unit_mib).value for each in field.items()])
    if isinstance(field.value, dict):
        inside = {
            key: _in_units(field.inside(key, each), unit_mib).value for key, each in field.value.items()
        }
        return replace(field, value=inside)
    mib = in_mib(field.value)
    if mib is field.value:
        return field
    if unit_mib is None:
        raise PlacementError(
            f"{field.where}: {field.value!r} has a unit, but the memory of the blocks has none; give a "
            "number in what they hold, or 'memory_unit_mib' in a placement file"
        )
    assert isinstance(mib, float)
    return replace(field, value=mib / unit_mib)


def _read_block(entry: Field, time: int, unit_mib: float | None) -> Block:
    kind = entry["kind"]
    if kind.value not in list(Kind):
        raise kind.wrong("a kind", "use F, B, I, W or O")
    listed = isinstance(entry["devices"].value, list)
    devices = tuple(_integer(each) for each in (entry["devices"].items() if listed else [entry["devices"]]))
    return Block(
        name=entry["name"].value,
        kind=Kind(kind.value),
        devices=devices,
        time=time,
        memory=_read_memory(_in_units(entry.get("memory", 0), unit_mib), devices),
        after=tuple(_name(name) for name in _list(_optional(entry, "after", []))),
        transient=_integer(_in_units(entry.get("transient", 0), unit_mib)),
        data_parallel=_integer(entry.get("data_parallel", 1)),
        stream=_name(_optional(entry, "stream", COMPUTE)),
        host_memory=_integer(_in_units(_optional(entry, "host_memory", 0), unit_mib)),
        in_turns=bool(_optional(entry, "in_turns", False).typed(bool)),
        sequence_slice=_integer(_optional(entry, "sequence_slice", 0)),
    )


def _read_memory(field: Field, devices: tuple[int, ...]) -> int | tuple[int, ...]:
    """Return a block's units: one number, or one for each device, 0 where a mapping leaves it out."""
    if isinstance(field.value, list):
        raise PlacementError(
            f"{field.where}: {field.value!r} is a list; give one number, or units by device as in {{0: 1}}"
        )
    if not isinstance(field.value, dict):
        return _integer(field)
    known: dict[object, int] = {str(device): device for device in devices}  # JSON's keys are text
    known |= {device: device for device in devices}
    held: dict[int, int] = {}
    for key, units in field.value.items():
        if type(key) not in (int, str) or key not in known:
            raise replace(field, value=key).wrong("a device of this block", "use only its 'devices'")
        if known[key] in held:
            raise PlacementError(f"{field.where}: device {key} is given twice; give it once")
        held[known[key]] = _integer(field.inside(known[key], units))
    return tuple(held.get(device, 0) for device in devices)


def _read_time(entry: Field, tick_ms: float) -> Fraction:
    """Return a block's time in ticks of the file."""
    if ("time" in entry.value) == ("time_ms" in entry.value):
        raise PlacementError(f"{entry.where}: give either 'time' (ticks) or 'time_ms'")
    if "time" in entry.value:
        return _positive(entry["time"])
    time_ms = _positive(entry["time_ms"])
    if tick_ms <= 0:
        raise PlacementError(f"tick_ms: {tick_ms} is not a positive number of milliseconds")
    ticks = time_ms / Fraction(str(tick_ms))
    if ticks > _LARGEST:
        raise PlacementError(
            f"{entry.where}.time_ms: {entry.value['time_ms']} is more than {_LARGEST:g} ticks; "
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
    _not_negative(ticks)
    return _name(source), _name(target), _fraction(ticks)


def _optional(field: Field, name: str, default: object) -> Field:
    """Return a field of a mapping; the default also where it is null."""
    found = field.get(name)
    return replace(found, value=default) if found.value is None else found


def _list(field: Field) -> list[Field]:
    return field.items(remedy="give one in brackets")


def _name(field: Field) -> str:
    return field.text("a name", "put text there, in quotes if it looks like a number")


def _number(field: Field) -> float:
    number = field.number()
    if abs(number) > _LARGEST:
        raise PlacementError(f"{field.where}: is larger than {_LARGEST:g}; use a coarser unit")
    return number


def _integer(field: Field) -> int:
    number = _number(field)
    if number != int(number):
        raise field.wrong("a whole number", "use a finer unit")
    return int(number)


def _fraction(field: Field) -> Fraction:
    """Return a number as exactly what the file says, in decimals."""
    return Fraction(str(_number(field)))


def _positive(field: Field) -> Fraction:
    """Return a time above 0, before it becomes ticks: a message repeats it as it was written."""
    if (time := _fraction(field)) <= 0:
        raise field.wrong("a time above 0")
    return time


def _not_negative(field: Field) -> float:
    """Return a number of 0 or more, before it is made whole, for the same reason."""
    if (number := _number(field)) < 0:
        raise PlacementError(f"{field.where}: {field.value} is negative; give 0 or more")
    return number


def _one_line(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    mark = getattr(error, "problem_mark", None)
    return f"{problem}, line {mark.line + 1}" if mark else str(problem)
