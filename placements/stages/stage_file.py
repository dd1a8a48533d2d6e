"""Stages as users write them: a YAML file, plain data, or columns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from placements.forms.meaning import declared_fields
from placements.forms.reading import Field, in_file
from placements.forms.texts import read_yaml
from placements.stages.stage_chain import StageChain, StagesError

_OPTIONS = {option.key: option for option in declared_fields(StageChain)}


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
    if isinstance(data, dict) and "blocks" in data:
        raise StagesError("blocks: this is a placement and no stages; use placement=file placement.path=FILE")
    return Field(data, "", StagesError).record(StageChain)


def with_memory(stages: StageChain, memory: object, where: str) -> StageChain:
    """Return the model on devices with other memory: one value or a list, with its name in messages."""
    _, _, kind, meaning, _ = _OPTIONS["memory_mib"]
    return replace(stages, memory_mib=Field(memory, where, StagesError).typed(kind, meaning=meaning))


def stages_of(num_stages: int | None = None, **columns: Any) -> StageChain:
    """Build a model from columns; see `placements.stages.stage_chain.Stage` and `StageChain` for their names.

    Args:
        num_stages: Needed where no column is a list.
        columns: Of the stages one number for all, or one for each: lists, arrays, or columns of a DataFrame.
            Memory may have its unit as text, such as ``24GiB``. Others are of the whole model, such as
            `memory_mib` of all devices or each, and ``power_w={"running": 300, "blocking": 75}``.

    Raises:
        StagesError: A column is unknown, wrong, or of another length than the others.

    >>> stages_of(forward_ms=[10, 12], backward_ms=20, memory_mib=4096).pieces[1].forward_ms
    12.0
    """
    given = {name: _plain(column) for name, column in columns.items()}
    whole = {name: option for name in _OPTIONS if (option := given.pop(name, None)) is not None}
    lengths = {name: len(column) for name, column in given.items() if isinstance(column, list)}
    if num_stages is None and not lengths:
        raise StagesError("num_stages: has no value, and no column is a list; give either")
    count = max(lengths.values()) if num_stages is None else _plain(num_stages)
    if not isinstance(count, int):
        raise StagesError(f"num_stages: a {type(count).__name__} is not a whole number; give columns by name")
    for name, length in lengths.items():
        if length != count:
            raise StagesError(f"{name}: has {length} numbers for {count} stages; give one each, or one")
    rows = [
        {name: column[i] if isinstance(column, list) else column for name, column in given.items()}
        for i in range(count)
    ]
    return stages_from_dict({"stages": rows} | whole)


def _plain(value: Any) -> Any:
    """Return arrays and columns as lists, and numbers of numpy's as Python's."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return [*map(_plain, value)] if isinstance(value, list | tuple | range) else value
