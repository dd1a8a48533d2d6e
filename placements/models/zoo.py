"""Models by name, with the sizes that papers and model cards publish, and ways to change them.

The module knows shapes alone. Where a paper leaves out a size, the comment beside it says what was taken.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from placements.models.chain import ModelShape
from placements.models.end_layers import EmbeddingLayer, OutputLayer
from placements.models.layers import PRECISIONS, Attention, Layer, TransformerLayer
from placements.spec import PlacementError


def decoder(
    name: str,
    *,
    num_layers: int,
    hidden_size: int,
    num_heads: int,
    vocab_size: int,
    sequence_length: int,
    feed_forward_size: int | None = None,
    num_kv_heads: int | None = None,
    gated: bool = False,
    causal: bool = False,
    dropout: bool = True,
    biases: bool = True,
    learned_positions: bool = True,
    tied: bool = True,
    attention: Attention = "flash",
    num_experts: int = 1,
    experts_per_token: int = 1,
    precision: str = "half",
) -> ModelShape:
    """Return a language model: embedding, equal layers, and an output layer for every token.

    Encoders such as BERT, whose output layer is computed for every token too, are of this form.

    Args:
        name: What it is known by.
        num_layers: Transformer layers.
        hidden_size: Width.
        num_heads: Attention heads.
        vocab_size: Rows of the table.
        sequence_length: Tokens of a sample.
        feed_forward_size: See `placements.models.layers.TransformerLayer`, as for those that follow.
        num_kv_heads: Heads of keys and values.
        gated: Three matrices in the feed-forward part.
        causal: Half of the attention's core.
        dropout: Masks are kept.
        biases: Of matrices and norms.
        learned_positions: One for each token of a sample.
        tied: The output layer's table is the embedding's.
        attention: What it keeps of scores.
        num_experts: Of each layer.
        experts_per_token: Of these.
        precision: ``half`` or ``single``.

    Raises:
        PlacementError: A size is out of its range.
    """
    layer = TransformerLayer(
        name="layer",
        hidden_size=hidden_size,
        num_heads=num_heads,
        sequence_length=sequence_length,
        feed_forward_size=feed_forward_size,
        num_kv_heads=num_kv_heads,
        gated=gated,
        causal=causal,
        dropout=dropout,
        biases=biases,
        attention=attention,
        num_experts=num_experts,
        experts_per_token=experts_per_token,
    )
    positions = sequence_length if learned_positions else 0
    embedding = EmbeddingLayer(
        name="embedding",
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        sequence_length=sequence_length,
        num_positions=positions,
    )
    output = OutputLayer(
        name="output",
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        sequence_length=sequence_length,
        tied=tied,
    )
    return ModelShape(name, ((1, embedding), (num_layers, layer), (1, output)), _precision(precision))


def encoder_decoder(
    name: str,
    *,
    num_layers: int,
    hidden_size: int,
    num_heads: int,
    vocab_size: int,
    sequence_length: int,
    decoder_length: int | None = None,
    feed_forward_size: int | None = None,
    head_width: int | None = None,
    gated: bool = False,
    dropout: bool = True,
    tied: bool = True,
    attention: Attention = "flash",
    precision: str = "half",
) -> ModelShape:
    """Return a T5: a chain of encoder layers, then as many decoder layers, which read the encoder's output.

    The table is looked up for both; its time is that of the longer of both, at the beginning. Positions are
    relative and have few parameters, which are left out.

    Args:
        name: What it is known by.
        num_layers: Of encoder and decoder together, half of each.
        hidden_size: Width.
        num_heads: Attention heads.
        vocab_size: Rows of the table.
        sequence_length: Tokens that the encoder reads.
        decoder_length: Tokens that the decoder writes; None for as many.
        feed_forward_size: None for four times the width.
        head_width: None for the width over heads.
        gated: As in T5 1.1 and mT5.
        dropout: Masks are kept.
        tied: The output layer's table is the embedding's.
        attention: What it keeps of scores.
        precision: ``half`` or ``single``.

    Raises:
        PlacementError: A size is out of its range, or the number of layers is odd.
    """
    if type(num_layers) is not int or num_layers < 2 or num_layers % 2:
        raise PlacementError(
            f"num_layers: {num_layers!r} is not an even number of at least 2; half are the encoder's"
        )
    written = sequence_length if decoder_length is None else decoder_length
    one = partial(
        TransformerLayer,
        hidden_size=hidden_size,
        num_heads=num_heads,
        feed_forward_size=feed_forward_size,
        head_width=head_width,
        gated=gated,
        dropout=dropout,
        biases=False,
        attention=attention,
    )
    embedding = EmbeddingLayer(
        name="embedding", hidden_size=hidden_size, vocab_size=vocab_size, sequence_length=sequence_length
    )
    output = OutputLayer(
        name="output", hidden_size=hidden_size, vocab_size=vocab_size, sequence_length=written, tied=tied
    )
    runs: tuple[tuple[int, Layer], ...] = (
        (1, embedding),
        (num_layers // 2, one(name="encoder", sequence_length=sequence_length)),
        (num_layers // 2, one(name="decoder", sequence_length=written, cross_length=sequence_length)),
        (1, output),
    )
    return ModelShape(name, runs, _precision(precision))


def _precision(name: str) -> Any:
    if not isinstance(name, str) or name not in PRECISIONS:
        raise PlacementError(f"precision: {name!r} is not known; use one of {', '.join(PRECISIONS)}")
    return PRECISIONS[name]


def _gpt(num_layers: int, hidden_size: int, num_heads: int, **other: Any) -> Callable[..., ModelShape]:
    sizes = {"num_layers": num_layers, "hidden_size": hidden_size, "num_heads": num_heads}
    return partial(decoder, **({"vocab_size": 50_257, "sequence_length": 2048} | sizes | other))


def _llama(num_layers: int, hidden_size: int, num_heads: int, **other: Any) -> Callable[..., ModelShape]:
    modern = {"gated": True, "dropout": False, "biases": False, "learned_positions": False, "tied": False}
    return _gpt(num_layers, hidden_size, num_heads, **({"vocab_size": 32_000} | modern | other))


_UNFUSED = {"attention": "unfused", "precision": "single"}
"""As Galvatron-BMW's models were trained: its measured activations are those of the unfused softmax."""

_MODELS: dict[str, Callable[..., ModelShape]] = {
    # GPT-3 (Brown et al., 2020, Table 2.1); its 13B has heads of 128 on a width of 5140, here 5120.
    "gpt3_125m": _gpt(12, 768, 12),
    "gpt3_350m": _gpt(24, 1024, 16),
    "gpt3_760m": _gpt(24, 1536, 16),
    "gpt3_1.3b": _gpt(24, 2048, 16),
    "gpt3_2.7b": _gpt(32, 2560, 32),
    "gpt3_6.7b": _gpt(32, 4096, 32),
    "gpt3_13b": _gpt(40, 5120, 40),
    "gpt3_175b": _gpt(96, 12288, 96),
    # Llama 2 (Touvron et al., 2023) and Llama 3 (Meta, 2024).
    "llama2_7b": _llama(32, 4096, 32, feed_forward_size=11_008, sequence_length=4096),
    "llama2_13b": _llama(40, 5120, 40, feed_forward_size=13_824, sequence_length=4096),
    "llama2_70b": _llama(80, 8192, 64, num_kv_heads=8, feed_forward_size=28_672, sequence_length=4096),
}


def read_model(name: str, **overrides: Any) -> ModelShape:
    """Return a model by its name, with some of its sizes changed.

    Args:
        name: Of `MODELS`.
        overrides: By the name of the argument of the model's kind: `decoder`, `encoder_decoder`.

    Raises:
        PlacementError: The name or a size is not known, or a size is out of its range.

    >>> round(read_model("llama2_7b").num_parameters / 1e9, 2)
    6.74
    >>> len(read_model("llama2_7b", num_layers=4).layers)
    6
    """
    if name not in _MODELS:
        raise PlacementError(f"model: {name!r} is not known; {_suggestion(name, _MODELS)}")
    make = _MODELS[name]
    known = [each for each in inspect.signature(make).parameters if each != "name"]
    for each in overrides:
        if each not in known:
            raise PlacementError(f"{each}: is no size of {name}; {_suggestion(each, known)}")
    return make(name, **overrides)


def _suggestion(wrong: str, known: Any) -> str:
    close = difflib.get_close_matches(str(wrong), list(known), n=1)
    return f"did you mean {close[0]}?" if close else f"use one of {', '.join(known)}"


MODELS: Mapping[str, ModelShape] = {name: read_model(name) for name in _MODELS}
"""The models as they are published."""
