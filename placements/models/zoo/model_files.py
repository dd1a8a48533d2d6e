"""Models of files: YAML with published sizes, and the `config.json` that Hugging Face keeps beside weights.

A YAML file is a list of families of one ``source``; the project's are `language.yaml` and `images.yaml`.
Their ``shape`` is one of `placements.models.zoo.shapes`, ``sizes`` are common to all models, ``models`` has
the sizes of each by its name. ``details``, of a family or among the sizes of a model, are facts for trainers;
the published number of ``parameters`` is not read.

The meaning and default of each key of a `config.json`, by ``model_type``, is in `config_types.yaml`. Biases
of single matrices and attention sinks are left out: less than two thousandths of the parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from placements.block import PlacementError
from placements.forms.reading import Field, in_file, json_file
from placements.forms.texts import read_yaml
from placements.models.chain import ModelDetails, ModelShape
from placements.models.zoo.shapes import REQUIRED, SHAPES, Shape, size_in, sizes_of, suggestion

_Published = dict[str, tuple[Shape, dict[str, Any], ModelDetails]]
"""Models of a file by name."""


def read_model(name: str, /, **overrides: Any) -> ModelShape:
    """Return a model by its name, with some of its sizes changed.

    Args:
        name: One of `MODELS`; a model of your own file, as ``mine.yaml:name``; or the path of a `config.json`
            of Hugging Face, see `read_config`.
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
    path, ending, rest = str(name).partition(".yaml")
    with in_file(path + ending, PlacementError) if ending else nullcontext():
        known, name = (_read(path + ending), rest.removeprefix(":")) if ending else (_known(), name)
        if name not in known:
            raise PlacementError(f"model: {name!r} is not known; {suggestion(str(name), known)}")
        shape, sizes, details = known[name]
        return replace(shape(name, **sizes | overrides), details=details)


@cache
def _known() -> _Published:
    files = (Path(__file__).with_name(f"{name}.yaml") for name in ("language", "images"))
    return {name: model for file in files for name, model in _read(file).items()}


def _read(path: str | Path) -> _Published:
    published: _Published = {}
    data = Field(read_yaml(path, PlacementError), "families", PlacementError)
    for family in data.items("a list of families"):
        family.only(("source", "shape", "models"), ("sizes", "details"))
        shape = SHAPES[family["shape"].choice(tuple(SHAPES))]
        shared, models = family.get("sizes", {}).mapping(), family["models"]
        for name in models.mapping():
            model = models.inside(name, shared | models[name].mapping())
            sizes = {key: size for key, size in model.value.items() if key not in ("details", "parameters")}
            details = (model if "details" in model.value else family).get("details", {})
            published[name] = shape, sizes, details.record(ModelDetails)
    return published


class _Models(Mapping[str, ModelShape]):
    """Models by name, made on first use."""

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

_LENGTHS = ("original_max_position_embeddings", "n_positions", "max_position_embeddings")
"""Keys of the tokens of a sample, the first that a file has."""

_LETTERS = {"mamba": "M", "linear_attention": "M", "attention": "*", "full_attention": "*", "mlp": "-"}
"""Letters of the kinds of a hybrid's layers; those with experts are not among them."""


def read_config(path: str | Path, /, **overrides: Any) -> ModelShape:
    """Return the model of a `config.json`, with some of its sizes changed.

    A sample has the context length of the first training, before an extension; where the file has none, the
    longest context. The size `sequence_length` of a shape in `placements.models.zoo.shapes` changes it. The
    model has the name of the folder if the file is `config.json`, else of the file.

    Raises:
        PlacementError: The file cannot be read, its model is of another kind, or a size is missing or wrong.
    """
    with json_file(path, "a config.json of a model", PlacementError) as data:
        config, file = _config_of(data), Path(path)
        for key, wanted in config.type.get("only", {}).items():
            if data.get(key).value not in (wanted, None):
                raise data[key].wrong(repr(wanted), "there is no shape for other values")
        sizes = _sizes(config) | overrides
        if "sequence_length" not in sizes:
            lengths = [config.read(name) for name in _LENGTHS]
            given = next((length for length in lengths if length.value is not None), lengths[-1])
            sizes["sequence_length"] = given.whole(min=1)
        name = file.resolve().parent.name if file.name == "config.json" else file.stem
        return replace(SHAPES[config.type["shape"]](name, **sizes), details=_details(config))


@dataclass(frozen=True)
class _Config:
    """The fields of a `config.json`, and the meaning of its keys by model type."""

    data: Field
    type: Mapping[str, Any]

    def read(self, *keys: str) -> Field:
        """Return the field of the first of some keys that the file has, else with the type's default."""
        data = self.data.value
        given = sorted((key for key in keys if key in data), key=lambda key: data[key] is None)
        return self.data.get([*given, *keys][0], self.type["defaults"].get(keys[0]))

    def size(self, name: str) -> Field:
        """Return the field of a size; its value is None if the model type lacks the size."""
        keys = self.type["keys"].get(name)
        return replace(self.data, value=None) if keys is None else self.read(*keys.split())


@cache
def _types() -> Any:
    return read_yaml(Path(__file__).with_name("config_types.yaml"), PlacementError)


def _config_of(data: Field) -> _Config:
    """Return the config with its rotary facts beside the other fields, and the keys of its model type."""
    name = data["model_type"].text()
    if name not in _types():
        remedy = "give its text_config as a file of its own" if "text_config" in data.value else ""
        raise data["model_type"].mistake(f"{name!r} is not known; {remedy or suggestion(name, _types())}")
    rotary = [data.get(key).value for key in ("rope_parameters", "rope_scaling")]
    inside = {key: value for part in rotary if isinstance(part, dict) for key, value in part.items()}
    given = {key: value for key, value in inside.items() if value is not None}
    return _Config(replace(data, value=data.value | given), _types()[name])


def _sizes(config: _Config) -> dict[str, Any]:
    """Return the sizes of the model's shape."""
    sizes = dict(config.type.get("sizes", {}))
    known = {**sizes_of(SHAPES[config.type["shape"]]), "feed_forward_size": REQUIRED, **sizes}
    for name in config.type["keys"]:
        default, field = known.get(name, 0), config.size(name)
        is_list = name in ("dense_layers", "pattern", "window_every")
        if not is_list and (field.value is not None or default == REQUIRED):
            sizes[name] = size_in(field, default)
    if "pattern" in config.type["keys"]:
        return sizes | {"pattern": _pattern(config.size("pattern"))}
    if "window_every" in config.type["keys"] and "window" in sizes:
        sizes["window_every"] = _full_every(config.size("window_every"), sizes["num_layers"])
    return sizes | _experts(sizes, config.size("dense_layers"))


def _experts(sizes: dict[str, Any], listed: Field) -> dict[str, Any]:
    """Take the sizes of experts out of `sizes`, and return them by the shape's names; {} without experts."""
    first = sorted({*listed.typed(tuple[int, ...])}) if listed.value is not None else []
    if first != [*range(len(first))]:
        raise listed.mistake(f"layers {first} have no experts; there is a shape for the first layers alone")
    number, per_token = sizes.pop("num_experts", 0), sizes.pop("experts_per_token", None)
    num_dense, inner = sizes.pop("num_dense_layers", 0) or len(first), sizes["feed_forward_size"]
    expert_size = sizes.pop("expert_size", 0) or inner
    shared, num_shared = (sizes.pop(name, 0) for name in ("shared_expert_size", "num_shared_experts"))
    if not number or num_dense >= sizes["num_layers"]:
        return {}
    return {
        "num_experts": number,
        "experts_per_token": per_token,
        "feed_forward_size": expert_size,
        "shared_expert_size": shared or num_shared * expert_size,
        "num_dense_layers": num_dense,
        "dense_feed_forward_size": inner,
    }


def _full_every(kinds: Field, num_layers: int) -> int:
    """Return which of a model's layers attend to all tokens: each n-th, or 0 for none."""
    if kinds.value is None:
        return 2
    names = [kind.value for kind in kinds.items()]
    every = names.index("full_attention") + 1 if "full_attention" in names else 0
    full = range(every - 1, num_layers, every) if every else ()
    if names != [f"{'full' if i in full else 'sliding'}_attention" for i in range(num_layers)]:
        raise kinds.wrong(
            f"a list of {num_layers} sliding_attention, of which each n-th is full_attention",
            "give one for each layer",
        )
    return every


def _pattern(field: Field) -> str:
    """Return the letters of a hybrid's layers."""
    if not isinstance(field.value, list):
        return field.text()
    return "".join(_LETTERS[layer.choice(tuple(_LETTERS))] for layer in field.items())


def _details(config: _Config) -> ModelDetails:
    """Return a config's facts besides the sizes."""
    facts: dict[str, Any] = {}
    for name, (usual, *keys) in config.type["facts"].items():
        field = config.read(*keys)
        facts[name] = usual if field.value is None else field.typed(type(usual))
    known = {name: facts[name] for name in ("rope_share", "norm_epsilon", "qkv_biases")}
    if config.size("num_experts").value is not None:
        scores, groups, scaling = facts["router_scores"], facts["router_groups"], facts["router_scaling"]
        known |= {
            "router_scores": scores,
            "scores_before_choice": scores == "softmax" and not facts["norms_chosen"],
            "router_groups": groups if groups > 1 else None,
            "chosen_groups": facts["chosen_groups"] if groups > 1 else None,
            "router_scaling": None if scaling == 1 else scaling,
            "router_biases": scores == "sigmoid",
            "balance_loss": facts["balance_loss"],
        }
    return ModelDetails(rope_base=facts["rope_base"] or None, **known | config.type.get("details", {}))
