"""Models of the `config.json` that Hugging Face keeps beside the weights of each.

A file is read by its ``model_type``; what it leaves out is as `transformers` 5.24 has it for the type, whose
names are read beside those of release 4. Biases of single matrices, norms of queries and keys, and attention
sinks are left out: together they are less than two thousandths of the parameters. The module knows no model
by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from placements.block import PlacementError
from placements.forms.reading import Field, json_file
from placements.models.chain import ModelShape
from placements.models.zoo.config_details import details_of
from placements.models.zoo.language import decoder, hybrid
from placements.models.zoo.sizes import check_overrides, suggestion

_Sizes = dict[str, Any]

_MODERN: Mapping[str, Any] = {
    "gated": True,
    "dropout": False,
    "biases": False,
    "learned_positions": False,
}
"""What all but GPT-2 and GPT-NeoX have in common."""

_TYPES = Path(__file__).with_name("config_defaults.json")
"""What files may leave out, by ``model_type``; and names of another release with those that are read here."""


def read_config(path: str | Path, /, **overrides: Any) -> ModelShape:
    """Return the model of a `config.json`, with some of its sizes changed.

    A sample has as many tokens as the model was first trained with: those before its context was extended,
    where the file has them, else the longest context. `sequence_length` changes that.

    Args:
        path: The file. The model is called as the folder of a `config.json`, else as the file.
        overrides: Overrides by the name of an argument of `decoder` or `hybrid`.

    Raises:
        PlacementError: The file cannot be read, its model is of another kind, or a size is missing or wrong.
    """
    with json_file(path, "a config.json of a model", PlacementError) as data:
        make, sizes_of = _kind_of(data)
        data = _completed(data)
        file, sizes = Path(path), sizes_of(data) | overrides
        name = file.resolve().parent.name if file.name == "config.json" else file.stem
        check_overrides(make, name, overrides)
        if "sequence_length" not in sizes:
            sizes["sequence_length"] = _trained_length(data)
        return replace(make(name, **sizes), details=details_of(data))


def _kind_of(data: Field) -> tuple[Callable[..., ModelShape], Callable[[Field], _Sizes]]:
    kind = data["model_type"].text()
    if kind not in _KINDS:
        if "text_config" in data.value:
            raise data["model_type"].mistake(
                f"{kind!r} is not of text alone; give its text_config as a file of its own"
            )
        raise data["model_type"].mistake(f"{kind!r} is not known; {suggestion(kind, _KINDS)}")
    return (hybrid if kind == "nemotron_h" else decoder), _KINDS[kind]


def _completed(data: Field) -> Field:
    """Return a config with the type's defaults for what it leaves out, under the names that are read here."""
    types, kind, known = json.loads(_TYPES.read_text()), data["model_type"].text(), data.mapping()
    names = types["other_names"].get(kind, {})
    given = {names.get(name, name): value for name, value in known.items() if names.get(name) not in known}
    return replace(data, value=types["defaults"].get(kind, {}) | given)


def _trained_length(data: Field) -> int:
    for name in ("rope_scaling", "rope_parameters"):
        scaling = data.get(name)
        if isinstance(scaling.value, dict) and "original_max_position_embeddings" in scaling.value:
            return _size(scaling, "original_max_position_embeddings")
    return _size(data, "n_positions" if "n_positions" in data.value else "max_position_embeddings")


def _size(data: Field, name: str, least: int = 1) -> int:
    """Return a size that has to be there."""
    return data[name].whole(f"a whole number of at least {least}", min=least)


def _size_or(data: Field, name: str, default: int | None, least: int = 1) -> int | None:
    """Return a size, or a default where it is missing or null."""
    return default if data.get(name).value is None else _size(data, name, least)


def _flag(data: Field, name: str, default: bool) -> bool:
    flag: bool = data.get(name, default).typed(bool)
    return flag


def _equals(data: Field, name: str, wanted: object) -> None:
    """Ensure that a field has the only value that there is a shape for, or is missing or null."""
    if data.get(name).value not in (wanted, None):
        raise data[name].wrong(repr(wanted), "there is no shape for other values")


def _attention(data: Field) -> _Sizes:
    """Return the sizes of grouped-query attention, those that are usual left out."""
    hidden, heads = _size(data, "hidden_size"), _size(data, "num_attention_heads")
    kv_heads = _size_or(data, "num_key_value_heads", heads)
    width = _size_or(data, "head_dim", None)
    sizes: _Sizes = {"hidden_size": hidden, "num_heads": heads}
    sizes |= {} if kv_heads == heads else {"num_kv_heads": kv_heads}
    return sizes | ({} if width is None or width * heads == hidden else {"head_width": width})


def _common(data: Field) -> _Sizes:
    """Return the sizes of a decoder besides attention and feed-forward part."""
    return {
        **_MODERN,
        "num_layers": _size(data, "num_hidden_layers"),
        "vocab_size": _size(data, "vocab_size"),
        "tied": _flag(data, "tie_word_embeddings", False),
    }


def _llama(data: Field) -> _Sizes:
    return {**_common(data), **_attention(data), "feed_forward_size": _size(data, "intermediate_size")}


def _mistral(data: Field) -> _Sizes:
    window = _size_or(data, "sliding_window", None)
    return _llama(data) | ({} if window is None else {"window": window})


def _qwen(data: Field) -> _Sizes:
    _equals(data, "use_sliding_window", False)
    return _llama(data)


_NORMED = {"query_key_norms": True}
"""Qwen3 norms queries and keys."""


def _experts(data: Field, count: str) -> _Sizes:
    return {"num_experts": _size(data, count), "experts_per_token": _size(data, "num_experts_per_tok")}


def _qwen_moe(data: Field) -> _Sizes:
    sizes, every = _qwen(data), _size_or(data, "decoder_sparse_step", 1) or 1
    without = {*data.get("mlp_only_layers", []).typed(tuple[int, ...])}
    dense = [i for i in range(sizes["num_layers"]) if i in without or (i + 1) % every]
    if dense != [*range(len(dense))]:
        name = "mlp_only_layers" if every == 1 else "decoder_sparse_step"
        raise data[name].mistake(
            f"layers {dense} have no experts; there is a shape for the first layers alone"
        )
    shared = _size_or(data, "shared_expert_intermediate_size", 0, least=0)
    return _with_experts(sizes, data, "num_experts", shared or 0, len(dense))


def _with_experts(sizes: _Sizes, data: Field, count: str, shared: int, num_dense: int) -> _Sizes:
    """Return sizes with experts in all layers but the first ones."""
    if num_dense >= sizes["num_layers"]:
        return sizes
    dense = {"num_dense_layers": num_dense, "dense_feed_forward_size": sizes["feed_forward_size"]}
    return {
        **sizes,
        **_experts(data, count),
        **({"shared_expert_size": shared} if shared else {}),
        **(dense if num_dense else {}),
        "feed_forward_size": _size(data, "moe_intermediate_size"),
    }


def _deepseek(data: Field) -> _Sizes:
    """Return the sizes of multi-head latent attention and, where there are experts, of these."""
    _equals(data, "moe_layer_freq", 1)
    return _routed(
        data,
        {
            **_common(data),
            "hidden_size": _size(data, "hidden_size"),
            "num_heads": _size(data, "num_attention_heads"),
            "feed_forward_size": _size(data, "intermediate_size"),
            "head_width": _size(data, "qk_nope_head_dim"),
            "rope_width": _size(data, "qk_rope_head_dim"),
            "value_width": _size(data, "v_head_dim"),
            "kv_rank": _size(data, "kv_lora_rank"),
            "query_rank": _size_or(data, "q_lora_rank", None),
        },
    )


def _glm_moe(data: Field) -> _Sizes:
    return _routed(data, _llama(data) | {"query_key_norms": _flag(data, "use_qk_norm", False)})


def _routed(data: Field, sizes: _Sizes) -> _Sizes:
    """Return sizes with modules that predict more tokens and, where there are some, experts."""
    sizes["num_predict_layers"] = _size_or(data, "num_nextn_predict_layers", 0, least=0)
    if data.get("n_routed_experts").value is None:
        return sizes
    shared = _size(data, "moe_intermediate_size") * (_size_or(data, "n_shared_experts", 0, least=0) or 0)
    num_dense = _size_or(data, "first_k_dense_replace", 0, least=0) or 0
    return _with_experts(sizes, data, "n_routed_experts", shared, num_dense)


def _gpt_oss(data: Field) -> _Sizes:
    sizes = _llama(data) | _experts(data, "num_local_experts")
    window = _size_or(data, "sliding_window", None)
    every = _full_every(data.get("layer_types"), sizes["num_layers"])
    return sizes if window is None or every == 1 else sizes | {"window": window, "window_every": every}


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


_HYBRID_KINDS = {"mamba": "M", "linear_attention": "M", "attention": "*", "full_attention": "*", "mlp": "-"}
"""Letters of the kinds of layers; those with experts are not among them."""


def _nemotron_h(data: Field) -> _Sizes:
    pattern = data[
        "hybrid_override_pattern" if data.get("layers_block_type").value is None else "layers_block_type"
    ]
    if pattern.where.endswith("layers_block_type"):
        letters = "".join(_HYBRID_KINDS[each.choice(tuple(_HYBRID_KINDS))] for each in pattern.items())
    else:
        letters = pattern.text()
    num_layers = _size_or(data, "num_hidden_layers", len(letters))
    for i, letter in enumerate(letters):
        if letter not in "M*-":
            raise pattern.mistake(f"layer {i} is {letter!r}; the layers are M, * and -")
    if len(letters) != num_layers:
        raise pattern.mistake(f"has {len(letters)} layers for num_hidden_layers {num_layers}; give one each")
    return {
        "pattern": letters,
        "hidden_size": _size(data, "hidden_size"),
        "num_heads": _size(data, "num_attention_heads"),
        "num_kv_heads": _size(data, "num_key_value_heads"),
        "head_width": _size(data, "head_dim"),
        "feed_forward_size": _size(data, "intermediate_size"),
        "vocab_size": _size(data, "vocab_size"),
        "state_size": _size(data, "ssm_state_size"),
        "mamba_heads": _size(data, "mamba_num_heads"),
        "mamba_head_width": _size(data, "mamba_head_dim"),
        "mamba_groups": _size(data, "n_groups"),
        "tied": _flag(data, "tie_word_embeddings", False),
    }


def _gpt2(data: Field) -> _Sizes:
    sizes = {
        "num_layers": _size(data, "n_layer"),
        "hidden_size": _size(data, "n_embd"),
        "num_heads": _size(data, "n_head"),
        "vocab_size": _size(data, "vocab_size"),
        "tied": _flag(data, "tie_word_embeddings", True),
    }
    inner = _size_or(data, "n_inner", None)
    return sizes if inner is None else sizes | {"feed_forward_size": inner}


_KINDS: Mapping[str, Callable[[Field], _Sizes]] = {
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "glm4_moe": _glm_moe,
    "gpt2": _gpt2,
    "gpt_neox": lambda data: _llama(data) | {"gated": False, "biases": True},
    "gpt_oss": _gpt_oss,
    "kimi_k2": _deepseek,
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": lambda data: _mistral(data) | _experts(data, "num_local_experts"),
    "nemotron_h": _nemotron_h,
    "phi3": _llama,
    "qwen2": _qwen,
    "qwen2_moe": _qwen_moe,
    "qwen3": lambda data: _qwen(data) | _NORMED,
    "qwen3_moe": lambda data: _qwen_moe(data) | _NORMED,
    "seed_oss": _llama,
}
"""The sizes of each kind of model that is known, by its ``model_type``."""
