"""Kinds of language models: what a name and some sizes make a chain of layers.

The module knows shapes alone, and no model by its name.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from placements.models.chain import ModelShape
from placements.models.end_layers import EmbeddingLayer, OutputLayer, ProjectionLayer
from placements.models.layers import AttentionKind, Layer, TransformerLayer
from placements.models.zoo.sizes import precision_of, whole
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
    attention: AttentionKind = "flash",
    num_experts: int = 1,
    experts_per_token: int = 1,
    embedding_size: int | None = None,
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
        biases: Whether matrices and norms have biases.
        learned_positions: One for each token of a sample.
        tied: The output layer's table is the embedding's.
        attention: What it keeps of scores.
        num_experts: Experts of each layer.
        experts_per_token: Experts that each token takes.
        embedding_size: Width of the table, which projections change to the layers' and back; None for the
            layers'.
        precision: ``half``, ``single`` or ``tf32``.

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
    width = hidden_size if embedding_size is None else embedding_size
    table: dict[str, Any] = {
        "hidden_size": width,
        "vocab_size": vocab_size,
        "sequence_length": sequence_length,
    }
    embedding = EmbeddingLayer(
        name="embedding", **table, num_positions=positions if embedding_size is None else 0
    )
    output = OutputLayer(name="output", **table, tied=tied)
    layers: list[tuple[int, Layer]] = [(whole("num_layers", num_layers), layer)]
    if embedding_size is not None:
        one = partial(ProjectionLayer, sequence_length=sequence_length)
        widen = one(name="widen", input_size=width, hidden_size=hidden_size, num_positions=positions)
        layers = [(1, widen), *layers, (1, one(name="narrow", input_size=hidden_size, hidden_size=width))]
    return ModelShape(name, ((1, embedding), *layers, (1, output)), precision_of(precision))


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
    second_lookup: bool = False,
    attention: AttentionKind = "flash",
    precision: str = "half",
) -> ModelShape:
    """Return a T5: a chain of encoder layers, then as many decoder layers, which read the encoder's output.

    The table is looked up for both; its time is that of the longer of both, at the beginning, unless the
    decoder has a lookup of its own. Positions are relative and have few parameters, which are left out.

    Args:
        name: What it is known by.
        num_layers: Layers of encoder and decoder together, half of them in each.
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
        second_lookup: Before the decoder's layers there is an embedding too, of the same table.
        attention: What it keeps of scores.
        precision: ``half``, ``single`` or ``tf32``.

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
    again = replace(
        embedding, name="embedding2", sequence_length=written, cross_length=sequence_length, tied=True
    )
    lookup: tuple[tuple[int, Layer], ...] = ((1, again),) if second_lookup else ()
    runs: tuple[tuple[int, Layer], ...] = (
        (1, embedding),
        (num_layers // 2, one(name="encoder", sequence_length=sequence_length)),
        *lookup,
        (num_layers // 2, one(name="decoder", sequence_length=written, cross_length=sequence_length)),
        (1, output),
    )
    return ModelShape(name, runs, precision_of(precision))
