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
from placements.forms.texts import read_yaml
from placements.models.chain import ModelDetails, ModelShape
from placements.models.zoo.config_json import read_config
from placements.models.zoo.shapes import SHAPES, ImageLayer, Shape, shaped, suggestion
from placements.plain_data import Field, in_file

_FILES = ("language.yaml", "images.yaml")
_FACTS = ("details", "parameters")


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
    if isinstance(name, str) and name.lower().endswith(".json"):
        return read_config(name, **overrides)
    path, _, own = str(name).partition(".yaml:")
    if not own:
        known: dict[str, _Published] = {}
        for file in _FILES:
            if name not in known:
                known = known | _own(file)
        return _model(known, name, overrides)
    with in_file(f"{path}.yaml", PlacementError):
        return _model(_read(f"{path}.yaml"), own, overrides)


def _model(known: Mapping[str, _Published], name: str, overrides: dict[str, Any]) -> ModelShape:
    if name not in known:
        raise PlacementError(f"model: {name!r} is not known; {suggestion(str(name), known)}")
    shape, sizes, details = known[name]
    return replace(shaped(shape, name, sizes | overrides), details=details)


@cache
def _own(file: str) -> dict[str, _Published]:
    return _read(Path(__file__).with_name(file))


def _read(path: str | Path) -> dict[str, _Published]:
    found = {}
    with in_file(path, PlacementError):
        for family in Field(read_yaml(path, PlacementError), "families", PlacementError).items(
            "a list of families"
        ):
            family.only(("source", "shape", "models"), ("sizes", "details"))
            shape = SHAPES[family["shape"].choice(tuple(SHAPES))]
            shared, models = family.get("sizes", {}).mapping(), family["models"]
            for name in models.mapping():
                model = models.inside(name, shared | models[name].mapping())
                facts = (model if "details" in model.value else family).get("details", {})
                sizes = {key: model.value[key] for key in model.value if key not in _FACTS}
                if "layers" in sizes:
                    sizes["layers"] = model["layers"].typed(tuple[ImageLayer, ...])
                found[name] = _Published(shape, sizes, facts.record(ModelDetails))
    return found


class _Models(Mapping[str, ModelShape]):
    """Models by name, made when they are asked for."""

    def __getitem__(self, name: str) -> ModelShape:
        if all(name not in _own(file) for file in _FILES):
            raise KeyError(name)
        return read_model(name)

    def __iter__(self) -> Iterator[str]:
        return (name for file in _FILES for name in _own(file))

    def __len__(self) -> int:
        return sum(len(_own(file)) for file in _FILES)


MODELS: Mapping[str, ModelShape] = _Models()
"""The models as they are published."""
