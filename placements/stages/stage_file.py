"""Stages as people write them: a YAML file, plain data, or columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, SupportsFloat, SupportsIndex

from placements.forms.texts import read_yaml
from placements.meaning import declared_fields
from placements.plain_data import Field, in_file
from placements.stages.stage_chain import StageChain, StagesError

_OPTIONS = {each.key: each for each in declared_fields(StageChain)}
_MEMORY = _OPTIONS["memory_mib"]


def read_stages(path: str | Path) -> StageChain:
    """Read a model's stages from a YAML or JSON file; see `stages_from_dict`.

    Raises:
        StagesError: The file cannot be read or is wrong; the message begins with its path.
    """
    data = read_yaml(path, StagesError)
    with in_file(path, StagesError):
        return stages_from_dict(data)


def stages_from_dict(data: object) -> StageChain:
    """Build a model from plain data with the fields of a `StageChain`.

    Raises:
        StagesError: A field is missing, unknown or wrong.
    """
    if isinstance(data, dict):
        if "blocks" in data:
            raise StagesError(
                "blocks: this is a placement and no stages; use placement=file placement.path=FILE"
            )
        data = data | {"memory_mib": _memory(data.get("memory_mib"), "memory_mib")}
    return Field(data, "", StagesError).record(StageChain)


def with_memory(stages: StageChain, memory: object, where: str) -> StageChain:
    """Return the model on devices with other memory.

    Args:
        stages: The model.
        memory: One value or a list, as ``memory_mib`` of a file.
        where: Its name in messages.
    """
    field = Field(_memory(memory, where), where, StagesError)
    return replace(stages, memory_mib=field.typed(_MEMORY.kind, {}, _MEMORY.meaning))


def _memory(value: object, where: str) -> object:
    """Return a list as it is, and of one number for all devices such a list."""
    return (
        value
        if isinstance(value, list | None)
        else [Field(value, where, StagesError).typed(float, {}, _MEMORY.meaning)]
    )


def stages_of(num_stages: int | None = None, **columns: Any) -> StageChain:
    """Build a model from columns; see `placements.stages.stage_chain.Stage` and `StageChain` for their names.

    Args:
        num_stages: Needed where no column is a list.
        columns: Of the stages one number for all, or one for each: lists, arrays, or columns of a DataFrame.
            Memory may have its unit as text, such as ``24GiB``. Beside them what is of the whole model, as
            `memory_mib` of all devices or each, and ``power_w={"running": 300, "blocking": 75}``.

    Raises:
        StagesError: A column is unknown, wrong, or of another length than the others.

    >>> stages_of(forward_ms=[10, 12], backward_ms=20, memory_mib=4096).pieces[1].forward_ms
    12.0
    """
    given = {name: _plain(each) for name, each in columns.items()}
    whole = {name: each for name, each in given.items() if name in _OPTIONS and each is not None}
    given = {name: each for name, each in given.items() if name not in _OPTIONS}
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
        {name: each[i] if isinstance(each, list) else each for name, each in given.items()}
        for i in range(count)
    ]
    return stages_from_dict({"stages": rows} | whole)


def _plain(value: Any) -> Any:
    """Return numbers of any kind, such as numpy's, as plain data; all else as it is, to be refused."""
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        return [*map(_plain, value)]
    if isinstance(value, SupportsFloat) and not isinstance(value, int):
        return value.__index__() if isinstance(value, SupportsIndex) else float(value)
    return value
