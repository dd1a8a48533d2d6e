"""Models by name, of YAML files with published sizes; the project's are `language.yaml` and `images.yaml`.

A file is a list of families of one ``source``. Their ``shape`` is one of `placements.models.zoo.shapes`,
``sizes`` are those that all have, ``models`` those of each by its name. ``details``, of a family or among the
sizes of a model, are what trainers need besides; the published number of ``parameters`` is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from placements.block import PlacementError
from placements.forms.reading import Field, in_file
from placements.forms.texts import read_yaml
from placements.models.chain import ModelDetails, ModelShape
from placements.models.zoo.config_json import read_config
from placements.models.zoo.shapes import SHAPES, Shape, suggestion


class _Published(NamedTuple):
    """A model as a file has it."""

    shape: Shape
    sizes: dict[str, Any]
    details: ModelDetails


def read_model(name: str, /, **overrides: Any) -> ModelShape:
    """Return a model by its name, with some of its sizes changed.

    Args:
        name: One of `MODELS`; a model of your own file, as ``mine.yaml:name``; or the path of a `config.json`
            of Hugging Face, see `placements.models.zoo.config_json`.
        overrides: Sizes of the model's shape in `placements.models.zoo.shapes`, such as ``num_layers``,
            ``sequence_length`` or ``precision``.

    Raises:
        PlacementError: The name, the file's kind of model or a size is not known, or a size is out of its
            range.

    >>> round(read_model("llama2_7b").num_parameters / 1e9, 2)
    6.74
    >>> len(read_model("llama2_7b", num_layers=4).layers)
    6
    """
    if str(name).lower().endswith(".json"):
        return read_config(name, **overrides)
    path, ending, own = str(name).partition(".yaml")
    if ending:
        with in_file(path + ending, PlacementError):
            return _model(_read(path + ending), own.removeprefix(":"), overrides)
    return _model(_known(), name, overrides)


def _model(known: Mapping[str, _Published], name: str, overrides: dict[str, Any]) -> ModelShape:
    if name not in known:
        raise PlacementError(f"model: {name!r} is not known; {suggestion(str(name), known)}")
    shape, sizes, details = known[name]
    return replace(shape(name, **sizes | overrides), details=details)


@cache
def _known() -> dict[str, _Published]:
    files = (Path(__file__).with_name(f"{name}.yaml") for name in ("language", "images"))
    return {name: model for file in files for name, model in _read(file).items()}


def _read(path: str | Path) -> dict[str, _Published]:
    found = {}
    data = Field(read_yaml(path, PlacementError), "families", PlacementError)
    for family in data.items("a list of families"):
        family.only(("source", "shape", "models"), ("sizes", "details"))
        shape = SHAPES[family["shape"].choice(tuple(SHAPES))]
        shared, models = family.get("sizes", {}).mapping(), family["models"]
        for name in models.mapping():
            model = models.inside(name, shared | models[name].mapping())
            sizes = {key: size for key, size in model.value.items() if key not in ("details", "parameters")}
            details = (model if "details" in model.value else family).get("details", {})
            found[name] = _Published(shape, sizes, details.record(ModelDetails))
    return found


class _Models(Mapping[str, ModelShape]):
    """Models by name, made when they are asked for."""

    def __getitem__(self, name: str) -> ModelShape:
        if name not in _known():
            raise KeyError(name)
        return read_model(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_known())

    def __len__(self) -> int:
        return len(_known())


MODELS: Mapping[str, ModelShape] = _Models()
"""The models as they are published."""
