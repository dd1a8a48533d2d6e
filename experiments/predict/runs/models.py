"""Models of runs: by name, by the sizes of a row, or by a file in SimuMax's form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from experiments.predict.measured_folder import MeasuredFolderError
from experiments.predict.runs.run import Run
from placements.forms.reading import Field, json_file
from placements.forms.texts import read_yaml
from placements.models.chain import ModelShape
from placements.models.zoo import MODELS, decoder, read_model
from placements.models.zoo.shapes import suggestion

PUBLIC_MODELS = Path(__file__).with_name("public_models.yaml")
"""Models of public tables that are not among those of ``schedsearch plan``."""

_PRECISIONS = {"fp16": "half", "fp32": "single"}
"""Names of tables that are not ours."""

SIZES: Mapping[str, str] = {
    "layers": "num_layers",
    "hidden": "hidden_size",
    "heads": "num_heads",
    "kv_heads": "num_kv_heads",
    "head_width": "head_width",
    "feed_forward": "feed_forward_size",
    "vocab": "vocab_size",
    "experts": "num_experts",
    "top_k": "experts_per_token",
    "shared_expert": "shared_expert_size",
    "dense_layers": "num_dense_layers",
    "predict_layers": "num_predict_layers",
    "kv_rank": "kv_rank",
    "query_rank": "query_rank",
    "rope_width": "rope_width",
    "value_width": "value_width",
    "query_key_norms": "query_key_norms",
    "gated": "gated",
    "biases": "biases",
    "tied": "tied",
    "learned_positions": "learned_positions",
    "dropout": "dropout",
    "attention": "attention",
    "causal": "causal",
}
"""Columns with sizes of a model, and the sizes of `placements.models.zoo.decoder` that they are."""

_NEEDED = ("layers", "hidden", "heads", "vocab")
"""Columns without which a model that has no known name has no sizes."""


def shape_of(run: Run, models: Mapping[str, Mapping[str, Any]]) -> ModelShape:
    """Return the model of a run, with its layers, tokens, precision, and padded vocabulary.

    Raises:
        ValueError: The model is not known, or a size is wrong.
    """
    precision, sizes = run.precision.lower(), run_sizes(run)
    sizes |= {"precision": _PRECISIONS.get(precision, precision)}
    if (known := models.get(run.model)) is not None:
        layers = run.layers or known["num_layers"]
        dense = min(known.get("num_dense_layers", 0), layers - 1)
        sizes = {**known, "num_dense_layers": dense, **sizes}
        sizes["vocab_size"] = _padded(run.vocab or known["vocab_size"], run)
        model = decoder(run.model, **sizes)
    elif run.hidden is not None:
        if missing := [name for name in _NEEDED if getattr(run, name) is None]:
            raise MeasuredFolderError(f"{missing[0]}: is empty, and hidden is not; give all sizes")
        model = decoder(run.model or "model", **sizes, vocab_size=_padded(run.vocab or 1, run))
    else:
        name = _known_name(run.model)
        vocab = run.vocab or read_model(name).layers[0].vocab_size  # type: ignore[attr-defined]
        model = read_model(name, **sizes, vocab_size=_padded(vocab, run))
    numbers = model.precision.with_16_bit_weights if run.weights_16_bit else model.precision
    own = {"gradient_bytes": run.gradient_bytes, "optimizer_bytes": run.optimizer_bytes}
    given: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
    if run.frozen:
        given |= {"gradient_bytes": 0, "optimizer_bytes": 0}
    return replace(model, precision=replace(numbers, **given))


def run_sizes(run: Run) -> dict[str, Any]:
    """Return the sizes that a row gives, as arguments of `decoder`, but for the vocabulary."""
    given = {theirs: getattr(run, ours) for ours, theirs in SIZES.items() if ours != "vocab"}
    sizes = {name: value for name, value in given.items() if value is not None}
    sizes["sequence_length"] = run.sequence_length
    if run.experts is not None and run.experts > 1 and run.expert_feed_forward is not None:
        sizes |= {"feed_forward_size": run.expert_feed_forward}
        sizes |= {"dense_feed_forward_size": run.feed_forward} if run.feed_forward else {}
    return sizes


def _plain(name: str) -> str:
    """Return a name without the marks between its letters and digits."""
    return "".join(filter(str.isalnum, name.lower()))


@cache
def _names() -> dict[str, str]:
    """Return the names of models as `read_model` has them, by their plain names."""
    public = Field(read_yaml(PUBLIC_MODELS, MeasuredFolderError), "", MeasuredFolderError)
    own = [name for family in public.items() for name in family["models"].mapping()]
    return {_plain(name): name for name in MODELS} | {_plain(name): f"{PUBLIC_MODELS}:{name}" for name in own}


def _known_name(name: str) -> str:
    """Return a model's name as `read_model` has it, however it is spelt; an error if it is not known."""
    if not name:
        raise MeasuredFolderError("model: is empty, as is hidden; name a model, or give its sizes")
    if (found := _names().get(_plain(name))) is None:
        known = [each.rpartition(":")[2] for each in _names().values()]
        raise MeasuredFolderError(f"model: {name!r} is not known; {suggestion(name.lower(), known)}")
    return found


def _padded(rows: int, run: Run) -> int:
    multiple = run.vocab_multiple * run.tp
    return -(-rows // multiple) * multiple


_FILE_SIZES = {
    "hidden_size": "hidden_size",
    "num_heads": "head_num",
    "num_layers": "layer_num",
    "vocab_size": "vocab_size",
}
_OPTIONAL_SIZES = {
    "num_kv_heads": "kv_head_num",
    "num_experts": "expert_num",
    "experts_per_token": "topk",
    "shared_expert_size": "moe_shared_expert_intermediate_size",
    "num_dense_layers": "dense_layers",
}
_LATENT_SIZES = {
    "kv_rank": "kv_lora_rank",
    "query_rank": "q_lora_rank",
    "rope_width": "qk_pos_emb_head_dim",
    "value_width": "v_head_dim",
    "head_width": "qk_head_dim",
}
"""Arguments of `placements.models.zoo.decoder`, and the fields of a file that give them."""


def read_models(path: Path) -> dict[str, dict[str, Any]]:
    """Return the arguments of `decoder` for each model of a file in SimuMax's form."""
    with json_file(path, "a file of models", MeasuredFolderError) as data:
        return {name: _sizes(data[name]) for name in data.mapping()}


def _sizes(field: Field) -> dict[str, Any]:
    is_latent = field.get("attention_type", "").value == "mla"
    has_experts = field.get("expert_num", 1).whole(min=1) > 1
    names = {**_FILE_SIZES, **(_LATENT_SIZES if is_latent else {"head_width": "head_size"})}
    sizes: dict[str, Any] = {ours: field[theirs].whole(min=1) for ours, theirs in names.items()}
    for ours, theirs in _OPTIONAL_SIZES.items():
        if field.get(theirs).value is not None:
            sizes[ours] = field[theirs].whole(min=0)
    if is_latent:
        sizes.pop("num_kv_heads", None)
    inner = field["intermediate_size"].whole(min=1)
    sizes["feed_forward_size"] = field["moe_ffn_hidden_size"].whole(min=1) if has_experts else inner
    if has_experts:
        sizes["dense_feed_forward_size"] = inner
    return sizes | {
        "gated": field.get("use_swiglu", True).value is True,
        "query_key_norms": field.get("qk_layernorm", False).value is True,
        "causal": True,
        **dict.fromkeys(("dropout", "biases", "learned_positions", "tied"), False),
    }
