"""Models of the `config.json` that Hugging Face keeps beside the weights of each.

What the keys of each ``model_type`` mean, and what files may leave out, is in `config_types.yaml`. Biases of
single matrices and attention sinks are left out: less than two thousandths of the parameters.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from placements.block import PlacementError
from placements.forms.texts import read_yaml
from placements.models.chain import ModelDetails, ModelShape
from placements.models.zoo.shapes import SHAPES, shaped, sizes_of, suggestion
from placements.plain_data import Field, json_file


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
        config, file = _Config(_with_rotary(data), _type_of(data)), Path(path)
        for key, wanted in config.type.get("only", {}).items():
            if data.get(key).value not in (wanted, None):
                raise data[key].wrong(repr(wanted), "there is no shape for other values")
        sizes = _sizes(config) | overrides
        if "sequence_length" not in sizes:
            names = ("original_max_position_embeddings", "n_positions", "max_position_embeddings")
            known = [each for each in names if config.read(each).value is not None]
            sizes["sequence_length"] = config.read(known[0]).whole(min=1) if known else data[names[-1]]
        name = file.resolve().parent.name if file.name == "config.json" else file.stem
        return replace(shaped(SHAPES[config.type["shape"]], name, sizes), details=_details(config))


@cache
def _types() -> dict[str, Any]:
    types: dict[str, Any] = read_yaml(Path(__file__).with_name("config_types.yaml"), PlacementError)  # type: ignore[assignment]
    return types


def _type_of(data: Field) -> dict[str, Any]:
    name = data["model_type"].text()
    if name in _types():
        found: dict[str, Any] = _types()[name]
        return found
    if "text_config" in data.value:
        text = f"{name!r} is not of text alone; give its text_config as a file of its own"
    else:
        text = f"{name!r} is not known; {suggestion(name, _types())}"
    raise data["model_type"].mistake(text)


def _with_rotary(data: Field) -> Field:
    """Return a config whose facts of rotary positions stand beside the others."""
    rotary = [data.get(name).value for name in ("rope_parameters", "rope_scaling")]
    inside = {key: value for each in rotary if isinstance(each, dict) for key, value in each.items()}
    given = {key: value for key, value in inside.items() if value is not None}
    return replace(data, value=data.value | given)


@dataclass(frozen=True)
class _Config:
    """A file's fields, and what they mean."""

    data: Field
    type: Mapping[str, Any]

    def read(self, *keys: str) -> Field:
        """Return the field of the first of some keys that the file has, else with the type's default."""
        given = [key for key in keys if key in self.data.value]
        first = next((key for key in given if self.data.value[key] is not None), [*given, *keys][0])
        return self.data.get(first, self.type["defaults"].get(keys[0]))

    def size(self, name: str) -> Field:
        """Return the field of a size; without value where the type has none."""
        keys = self.type["keys"].get(name, ())
        keys = [keys] if isinstance(keys, str) else keys
        return self.read(*keys) if keys else replace(self.data, value=None)


_EXPERTS = {"experts_per_token": None, "expert_size": None, "shared_expert_size": 0, "num_shared_experts": 0}
_EXPERTS |= {"num_experts": None, "num_dense_layers": 0}
"""Sizes of experts, and what they are without."""


def _sizes(config: _Config) -> dict[str, Any]:
    """Return the sizes of the model's shape."""
    sizes, required = dict(config.type.get("sizes", {})), inspect.Parameter.empty
    known = sizes_of(SHAPES[config.type["shape"]]) | _EXPERTS | {"feed_forward_size": required} | sizes
    for name in config.type["keys"]:
        default, field = known.get(name), config.size(name)
        if name in _LISTS or (field.value is None and default is not required):
            continue
        if field.value is None:
            config.data[field.where]  # which says that it is missing
        if isinstance(default, bool):
            sizes[name] = field.typed(bool)
        else:
            least = 0 if default == 0 else 1
            sizes[name] = field.whole(f"a whole number of at least {least}", min=least)
    if "pattern" in config.type["keys"]:
        return sizes | {"pattern": _pattern(config)}
    if "window_every" in config.type["keys"] and "window" in sizes:
        every = _full_every(config.size("window_every"), sizes["num_layers"])
        sizes |= {"window_every": every, "window": None if every == 1 else sizes["window"]}
    return sizes | _experts(config, {name: sizes.pop(name, none) for name, none in _EXPERTS.items()}, sizes)


_LISTS = ("dense_layers", "experts_every", "pattern", "window_every")
"""Keys of lists, and of what belongs to them."""


def _experts(config: _Config, found: Mapping[str, Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes of experts, which all layers have but the first ones."""
    num_dense = found["num_dense_layers"] or _num_dense(config, sizes["num_layers"])
    if found["num_experts"] is None or num_dense >= sizes["num_layers"]:
        return {}
    per_token = found["experts_per_token"] or config.data["num_experts_per_tok"].whole(min=1)
    experts = {"num_experts": found["num_experts"], "experts_per_token": per_token}
    if each := found["expert_size"]:
        shared = found["shared_expert_size"] or found["num_shared_experts"] * each
        experts |= {"feed_forward_size": each, "shared_expert_size": shared}
    dense = {"num_dense_layers": num_dense, "dense_feed_forward_size": sizes["feed_forward_size"]}
    return experts | (dense if num_dense else {})


def _num_dense(config: _Config, num_layers: int) -> int:
    """Return how many of the first layers have no experts where these are listed."""
    listed, step = config.size("dense_layers"), config.size("experts_every")
    without = [] if listed.value is None else listed.typed(tuple[int, ...])
    every = 1 if step.value is None else step.whole(min=1)
    dense = [i for i in range(num_layers) if i in without or (i + 1) % every]
    if dense != [*range(len(dense))]:
        raise (listed if every == 1 else step).mistake(
            f"layers {dense} have no experts; there is a shape for the first layers alone"
        )
    return len(dense)


def _full_every(kinds: Field, num_layers: int) -> int:
    """Return which of a model's layers attend to all tokens: each n-th, each, which is 1, or 0 for none."""
    if kinds.value is None:
        return 2
    found = [each.choice(("sliding_attention", "full_attention")) for each in kinds.items()]
    full = [i for i, kind in enumerate(found) if kind == "full_attention"]
    every = full[0] + 1 if full else 0
    if len(found) != num_layers or (every and full != list(range(every - 1, num_layers, every))):
        raise kinds.wrong(
            f"a list of {num_layers} in which each n-th is full_attention", "give one kind for each layer"
        )
    return every


_LETTERS = {"mamba": "M", "linear_attention": "M", "attention": "*", "full_attention": "*", "mlp": "-"}
"""Letters of the kinds of layers; those with experts are not among them."""


def _pattern(config: _Config) -> str:
    """Return the letters of a hybrid's layers."""
    field = config.size("pattern")
    if isinstance(field.value, list):
        letters = "".join(_LETTERS[each.choice(tuple(_LETTERS))] for each in field.items())
    else:
        letters = field.text()
    for i, letter in enumerate(letters):
        if letter not in "M*-":
            raise field.mistake(f"layer {i} is {letter!r}; the layers are M, * and -")
    num_layers = config.read("num_hidden_layers").value
    if num_layers not in (len(letters), None):
        raise field.mistake(f"has {len(letters)} layers for num_hidden_layers {num_layers}; give one each")
    return letters


def _details(config: _Config) -> ModelDetails:
    """Return what a file says beside the sizes, or most types of transformers 5 where it does not."""

    def number(default: float, *keys: str) -> float:
        field = config.read(*keys)
        return default if field.value is None else field.number()

    scores = config.read("scoring_func").value or "softmax"
    norms_chosen, biases = (config.read(name).value is True for name in ("norm_topk_prob", "attention_bias"))
    groups, scaling = number(1, "n_group"), number(1, "routed_scaling_factor")
    details = ModelDetails(
        rope_base=number(1e4, "rope_theta", "rotary_emb_base") or None,
        rope_share=number(1.0, "partial_rotary_factor", "rotary_pct"),
        norm_epsilon=number(1e-6, "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"),
        qkv_biases=biases,
    )
    details = replace(details, **config.type.get("details", {}))
    if config.size("num_experts").value is None:
        return details
    return replace(
        details,
        router_scores=scores,
        scores_before_choice=scores == "softmax" and not norms_chosen,
        router_groups=int(groups) if groups > 1 else None,
        chosen_groups=int(number(1, "topk_group")) if groups > 1 else None,
        router_scaling=None if scaling == 1 else scaling,
        router_biases=scores == "sigmoid",
        balance_loss=number(0.001, "router_aux_loss_coef", "aux_loss_alpha"),
    )
