"""Stages as people write them: a YAML file, plain data, or columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, SupportsFloat, SupportsIndex, TypeGuard

from placements.placement_file import read_yaml
from placements.plain_data import Field, in_file, in_mib
from placements.stages import DevicePower, Number, Stage, StageChain, StagesError, exact

_LARGEST = 1e9
"""Milliseconds or MiB beyond which a figure is a mistake."""


def read_stages(path: str | Path) -> StageChain:
    """Read a model's stages from a YAML or JSON file; see `stages_from_dict`.

    Raises:
        StagesError: The file cannot be read or is wrong; the message begins with its path.
    """
    data = read_yaml(path, StagesError)
    with in_file(path, StagesError):
        return stages_from_dict(data)


def stages_from_dict(data: object) -> StageChain:
    """Build a model from plain data.

    The fields are ``stages`` or ``layers``, a list of mappings with ``forward_ms``, with ``backward_ms`` or
    ``input_gradient_ms`` and ``weight_gradient_ms``, and optionally with ``activation_mib`` and
    ``weight_mib``; and optionally ``memory_mib`` (one number, or one for each device), ``transfer_ms``,
    ``num_devices`` (default: as many as stages), ``input_gradient_share``, and ``power_w``, a mapping with
    ``running`` and ``blocking``, of one device.

    Raises:
        StagesError: A field is missing, unknown or wrong.
    """
    optional = ("memory_mib", "transfer_ms", "num_devices", "input_gradient_share", "power_w")
    top = Field(data, "", StagesError)
    given = top.mapping("a mapping with 'stages' or 'layers'")
    if ("stages" in given) == ("layers" in given):
        raise StagesError("stages: give either 'stages', one for each device, or 'layers', to be divided")
    name = "layers" if "layers" in given else "stages"
    top.only((name,), optional)
    pieces = tuple(map(_read_stage, top[name].items(f"a list of {name}")))
    if not pieces:
        raise top[name].wrong(f"a list of at least one of the {name}")
    if name == "layers" and top.get("num_devices").value is None:
        raise StagesError("num_devices: has no value beside layers; give the number of devices")
    number = top.get("num_devices", len(pieces)).whole("a whole number from 1 on", least=1)
    share = top.get("input_gradient_share", 0.5)
    if not 0 < share.number("a share between 0 and 1", least=0, most=1) < 1:
        raise share.wrong("a share between 0 and 1")
    transfer_ms = _figure(top.get("transfer_ms", 0.0))
    return StageChain(
        pieces,
        number,
        _read_memory(top.get("memory_mib"), number),
        transfer_ms,
        share.value,
        name == "layers",
        _read_power(top.get("power_w")),
    )


def _read_power(field: Field) -> DevicePower | None:
    if field.value is None:
        return None
    field.only(("running", "blocking"))
    running, blocking = (_figure(field[name]) for name in ("running", "blocking"))
    return DevicePower(running, blocking)


def _read_stage(field: Field) -> Stage:
    halves = ("input_gradient_ms", "weight_gradient_ms")
    optional = ("backward_ms", *halves, "activation_mib", "weight_mib")
    given = field.only(("forward_ms",), optional).value
    if ("backward_ms" in given) == any(half in given for half in halves):
        raise StagesError(f"{field.where}: give either backward_ms, or {' and '.join(halves)}")
    if "backward_ms" in given:
        whole: Number = _time(field["backward_ms"])
        first = None
    else:
        first = _time(field[halves[0]])
        whole = exact(first) + exact(_time(field[halves[1]]))
    activation, weight = (_mib(field.get(name, 0.0)) for name in ("activation_mib", "weight_mib"))
    return Stage(_time(field["forward_ms"]), whole, first, activation, weight)


def _time(field: Field) -> float:
    if not field.number("a time above 0", "give milliseconds", 0.0, _LARGEST) > 0:
        raise field.wrong("a time above 0", "give milliseconds")
    return float(field.value)


def _figure(field: Field) -> float:
    return float(field.number("a number of 0 or more", least=0.0, most=_LARGEST))


def _mib(field: Field) -> float:
    return float(
        replace(field, value=in_mib(field.value)).number(
            "a number of 0 or more", "give MiB, or a number with its unit as in 24GiB", 0.0, _LARGEST
        )
    )


def with_memory(stages: StageChain, memory: object, where: str) -> StageChain:
    """Return the model on devices with other memory.

    Args:
        stages: The model.
        memory: One value or a list, as ``memory_mib`` of a file.
        where: Its name in messages.

    Raises:
        StagesError: It is wrong.
    """
    return replace(stages, memory_mib=_read_memory(Field(memory, where, StagesError), stages.num_devices))


def _read_memory(field: Field, num_devices: int) -> tuple[float, ...] | None:
    if field.value is None:
        return None
    if not isinstance(field.value, list):
        return (_mib(field),) * num_devices
    if len(field.value) != num_devices:
        raise StagesError(
            f"{field.where}: has {len(field.value)} numbers for {num_devices} devices; give one each, or one"
        )
    return tuple(map(_mib, field.items()))


def stages_of(
    num_stages: int | None = None,
    *,
    memory_mib: float | str | Sequence[float | str] | None = None,
    transfer_ms: float = 0.0,
    num_devices: int | None = None,
    input_gradient_share: float = 0.5,
    power_w: Mapping[str, float] | None = None,
    **columns: float | Iterable[float],
) -> StageChain:
    """Build a model from columns; see `stages_from_dict` for their names.

    Args:
        num_stages: Needed where no column is a list.
        memory_mib: Of each device, or of all; with another unit as text, such as ``24GiB``.
        transfer_ms: See `StageChain`, as for the rest.
        num_devices: Default: as many as stages.
        input_gradient_share: Likewise.
        power_w: Of a device, as ``{"running": 300, "blocking": 75}``.
        columns: One number for all stages, or one for each: lists, arrays, or columns of a DataFrame.

    Raises:
        StagesError: A column is unknown, wrong, or of another length than the others.

    >>> stages_of(forward_ms=[10, 12], backward_ms=20, memory_mib=4096).pieces[1].forward_ms
    12.0
    """
    given = {name: list(each) if _is_row(each) else each for name, each in columns.items()}
    lengths = {name: len(each) for name, each in given.items() if isinstance(each, list)}
    if num_stages is None and not lengths:
        raise StagesError("num_stages: has no value, and no column is a list; give either")
    count = max(lengths.values()) if num_stages is None else num_stages
    if not isinstance(count, SupportsIndex):
        raise StagesError(f"num_stages: a {type(count).__name__} is not a whole number; give columns by name")
    for name, length in lengths.items():
        if length != count:
            raise StagesError(f"{name}: has {length} numbers for {count} stages; give one each, or one")
    rows = [
        {name: _plain(each[i] if isinstance(each, list) else each) for name, each in given.items()}
        for i in range(count)
    ]
    memory = [*map(_plain, memory_mib)] if _is_row(memory_mib) else _plain(memory_mib)
    data = {"stages": rows, "memory_mib": memory, "transfer_ms": transfer_ms}
    number = {} if num_devices is None else {"num_devices": num_devices}
    power = None if power_w is None else dict(power_w)
    return stages_from_dict(data | number | {"input_gradient_share": input_gradient_share, "power_w": power})


def _is_row(value: Any) -> TypeGuard[Iterable[Any]]:
    return isinstance(value, Iterable) and not isinstance(value, str)


def _plain(value: Any) -> Any:
    """Return a number of any kind, such as numpy's, as plain data; all else as it is, to be refused."""
    return float(value) if isinstance(value, SupportsFloat) else value
