"""Models of the `config.json` that Hugging Face keeps beside the weights of each.

What the keys of each ``model_type`` mean, and what files may leave out, is in `config_types.yaml`. Biases of
single matrices and attention sinks are left out: less than two thousandths of the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from placements.block import PlacementError
from placements.forms.reading import Field, json_file
from placements.forms.texts import read_yaml
from placements.models.chain import ModelDetails, ModelShape
from placements.models.zoo.shapes import REQUIRED, SHAPES, size_in, sizes_of, suggestion

_LENGTHS = ("original_max_position_embeddings", "n_positions", "max_position_embeddings")
"""Keys of the tokens of a sample, the first that a file has."""

_EXPERTS = {"experts_per_token": None, "expert_size": None, "shared_expert_size": 0, "num_shared_experts": 0}
_EXPERTS |= {"num_experts": None, "num_dense_layers": 0}
"""Sizes of experts, and what they are without."""

_LISTS = ("dense_layers", "pattern", "window_every")
"""Sizes that files have as lists."""

_LETTERS = {"mamba": "M", "linear_attention": "M", "attention": "*", "full_attention": "*", "mlp": "-"}
"""Letters of the kinds of a hybrid's layers; those with experts are not among them."""

_FACTS = {
    "rope_base": "rope_theta rotary_emb_base",
    "rope_share": "partial_rotary_factor rotary_pct",
    "norm_epsilon": "rms_norm_eps layer_norm_eps layer_norm_epsilon",
}
_ROUTER = {
    "router_groups": "n_group",
    "chosen_groups": "topk_group",
    "router_scaling": "routed_scaling_factor",
    "balance_loss": "router_aux_loss_coef aux_loss_alpha",
}
"""Keys of details, and of those of models with experts."""

_USUAL = {"rope_theta": 1e4, "rms_norm_eps": 1e-6, "router_aux_loss_coef": 0.001, "topk_group": 1}
"""What files of most types of transformers 5 may leave out."""


def read_config(path: str | Path, /, **overrides: Any) -> ModelShape:
    """Return the model of a `config.json`, with some of its sizes changed.

    A sample has as many tokens as the model was first trained with: those before its context was extended,
    where the file has them, else the longest context. `sequence_length` changes that.

    Args:
        path: The file. The model is called as the folder of a `config.json`, else as the file.
        overrides: Sizes of the model's shape in `placements.models.zoo.shapes`.

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
            given = next((each for each in lengths if each.value is not None), lengths[-1])
            sizes["sequence_length"] = given.whole(min=1)
        name = file.resolve().parent.name if file.name == "config.json" else file.stem
        return replace(SHAPES[config.type["shape"]](name, **sizes), details=_details(config))


@dataclass(frozen=True)
class _Config:
    """A file's fields, and what they mean."""

    data: Field
    type: Mapping[str, Any]

    def read(self, *keys: str) -> Field:
        """Return the field of the first of some keys that the file has, else with the type's default."""
        data = self.data.value
        given = sorted((key for key in keys if key in data), key=lambda key: data[key] is None)
        return self.data.get([*given, *keys][0], (_USUAL | self.type["defaults"]).get(keys[0]))

    def size(self, name: str) -> Field:
        """Return the field of a size; without value where the type has none."""
        keys = self.type["keys"].get(name)
        return replace(self.data, value=None) if keys is None else self.read(*keys.split())


@cache
def _types() -> dict[str, Any]:
    types: dict[str, Any] = read_yaml(Path(__file__).with_name("config_types.yaml"), PlacementError)  # type: ignore[assignment]
    return types


def _config_of(data: Field) -> _Config:
    """Return the config with facts of rotary positions beside the others, and what its type says of them."""
    name = data["model_type"].text()
    if name not in _types():
        own = "give its text_config as a file of its own" if "text_config" in data.value else ""
        raise data["model_type"].mistake(f"{name!r} is not known; {own or suggestion(name, _types())}")
    rotary = [data.get(key).value for key in ("rope_parameters", "rope_scaling")]
    inside = {key: value for each in rotary if isinstance(each, dict) for key, value in each.items()}
    given = {key: value for key, value in inside.items() if value is not None}
    return _Config(replace(data, value=data.value | given), _types()[name])


def _sizes(config: _Config) -> dict[str, Any]:
    """Return the sizes of the model's shape."""
    sizes = dict(config.type.get("sizes", {}))
    known = {**sizes_of(SHAPES[config.type["shape"]]), **_EXPERTS, "feed_forward_size": REQUIRED, **sizes}
    for name in config.type["keys"]:
        default, field = known.get(name), config.size(name)
        if name not in _LISTS and (field.value is not None or default == REQUIRED):
            sizes[name] = size_in(field, default)
    if "pattern" in config.type["keys"]:
        return sizes | {"pattern": _pattern(config.size("pattern"))}
    if "window_every" in config.type["keys"] and "window" in sizes:
        sizes["window_every"] = _full_every(config.size("window_every"), sizes["num_layers"])
    return sizes | _experts(config, {name: sizes.pop(name, none) for name, none in _EXPERTS.items()}, sizes)


def _experts(config: _Config, found: Mapping[str, Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes of experts, which all layers have but the first ones."""
    listed, inner = config.size("dense_layers"), sizes["feed_forward_size"]
    dense_layers = sorted({*listed.typed(tuple[int, ...])}) if listed.value is not None else []
    if dense_layers != [*range(len(dense_layers))]:
        raise listed.mistake(
            f"layers {dense_layers} have no experts; there is a shape for the first layers alone"
        )
    num_dense = found["num_dense_layers"] or len(dense_layers)
    if found["num_experts"] is None or num_dense >= sizes["num_layers"]:
        return {}
    each = found["expert_size"] or inner
    return {
        "num_experts": found["num_experts"],
        "experts_per_token": found["experts_per_token"],
        "feed_forward_size": each,
        "shared_expert_size": found["shared_expert_size"] or found["num_shared_experts"] * each,
        "num_dense_layers": num_dense,
        "dense_feed_forward_size": inner,
    }


def _full_every(kinds: Field, num_layers: int) -> int:
    """Return which of a model's layers attend to all tokens: each n-th, or 0 for none."""
    if kinds.value is None:
        return 2
    found = [each.value for each in kinds.items()]
    every = found.index("full_attention") + 1 if "full_attention" in found else 0
    full = range(every - 1, num_layers, every) if every else ()
    if found != [f"{'full' if i in full else 'sliding'}_attention" for i in range(num_layers)]:
        raise kinds.wrong(
            f"a list of {num_layers} sliding_attention, of which each n-th is full_attention",
            "give one for each layer",
        )
    return every


def _pattern(field: Field) -> str:
    """Return the letters of a hybrid's layers."""
    if not isinstance(field.value, list):
        return field.text()
    return "".join(_LETTERS[each.choice(tuple(_LETTERS))] for each in field.items())


def _details(config: _Config) -> ModelDetails:
    """Return what a file says beside the sizes."""
    facts = _numbers(config, _FACTS) | {"qkv_biases": config.read("attention_bias").value is True}
    facts["rope_base"] = facts["rope_base"] or None
    if config.size("num_experts").value is not None:
        facts |= _numbers(config, _ROUTER)
        scores, norms_chosen = config.read("scoring_func").value or "softmax", config.read("norm_topk_prob")
        facts |= {"router_scores": scores, "router_biases": scores == "sigmoid"}
        facts["scores_before_choice"] = scores == "softmax" and norms_chosen.value is not True
        if facts.get("router_groups", 1) <= 1:
            facts |= {"router_groups": None, "chosen_groups": None}
        if facts.get("router_scaling") == 1:
            facts["router_scaling"] = None
    return ModelDetails(**facts | config.type.get("details", {}))


def _numbers(config: _Config, keys: Mapping[str, str]) -> dict[str, Any]:
    """Return details that are numbers and that a file has."""
    read = {name: config.read(*each.split()) for name, each in keys.items()}
    return {name: field.number() for name, field in read.items() if field.value is not None}
