"""Kinds of language models: what a name and some sizes make a chain of layers.

The module knows shapes alone, and no model by its name.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import groupby, repeat
from typing import Any

from placements.block import PlacementError
from placements.models.chain import ModelShape
from placements.models.end_layers import EmbeddingLayer, OutputLayer, ProjectionLayer
from placements.models.layers import Layer
from placements.models.mamba import MambaLayer
from placements.models.transformer import AttentionKind, TransformerLayer
from placements.models.zoo.sizes import precision_of, whole


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
    head_width: int | None = None,
    gated: bool = False,
    causal: bool = False,
    dropout: bool = True,
    biases: bool = True,
    learned_positions: bool = True,
    tied: bool = True,
    attention: AttentionKind = "flash",
    query_key_norms: bool = False,
    kv_rank: int | None = None,
    query_rank: int | None = None,
    rope_width: int = 0,
    value_width: int | None = None,
    window: int | None = None,
    window_every: int = 0,
    num_experts: int = 1,
    experts_per_token: int = 1,
    shared_expert_size: int = 0,
    imbalance: float = 1.0,
    num_dense_layers: int = 0,
    dense_feed_forward_size: int | None = None,
    num_predict_layers: int = 0,
    embedding_size: int | None = None,
    precision: str = "half",
) -> ModelShape:
    """Return a language model: embedding, layers, and an output layer for every token.

    Encoders such as BERT, whose output layer is computed for every token too, are of this form.

    Args:
        name: What it is known by.
        num_layers: Transformer layers.
        hidden_size: Width.
        num_heads: Attention heads.
        vocab_size: Rows of the table.
        sequence_length: Tokens of a sample.
        feed_forward_size: See `placements.models.transformer.TransformerLayer`, as for those that follow.
        num_kv_heads: Heads of keys and values.
        head_width: Width of a head.
        gated: Three matrices in the feed-forward part.
        causal: Half of the attention's core.
        dropout: Masks are kept.
        biases: Whether matrices and norms have biases.
        learned_positions: One for each token of a sample.
        tied: The output layer's table is the embedding's.
        attention: What it keeps of scores.
        query_key_norms: Queries and keys are normed.
        kv_rank: Rank of keys and values.
        query_rank: Rank of queries.
        rope_width: Width of a head's part with rotary positions.
        value_width: Width of a head's values.
        window: Tokens that each attends to; None for all.
        window_every: Of so many layers the last attends to all tokens in spite of the window; 0 for none.
        num_experts: Experts of each layer.
        experts_per_token: Experts that each token takes.
        shared_expert_size: Width of the experts that all tokens take.
        imbalance: Tokens of the busiest GPU's experts as a multiple of an equal share.
        num_dense_layers: Layers at the beginning that have a feed-forward part in place of experts.
        dense_feed_forward_size: Its width.
        num_predict_layers: Modules of multi-token prediction (DeepSeek-V3, Sec. 2.2): each has a projection
            of two tokens' states, a layer, and the output layer's product again, on the same table.
        embedding_size: Width of the table, which projections change to the layers' and back; None for the
            layers'.
        precision: A key of `placements.models.layers.PRECISIONS`.

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
        head_width=head_width,
        gated=gated,
        causal=causal,
        dropout=dropout,
        biases=biases,
        attention=attention,
        query_key_norms=query_key_norms,
        kv_rank=kv_rank,
        query_rank=query_rank,
        rope_width=rope_width,
        value_width=value_width,
        window=window,
        num_experts=num_experts,
        experts_per_token=experts_per_token,
        shared_expert_size=shared_expert_size,
        imbalance=imbalance,
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
    one = partial(ProjectionLayer, sequence_length=sequence_length)
    count = whole("num_layers", num_layers)
    if not 0 <= num_dense_layers < count:
        raise PlacementError(
            f"num_dense_layers: {num_dense_layers} is not from 0 to below num_layers {count}; give fewer"
        )
    dense = replace(
        layer,
        name="dense layer",
        feed_forward_size=dense_feed_forward_size or feed_forward_size,
        num_experts=1,
        experts_per_token=1,
        shared_expert_size=0,
        imbalance=1.0,
    )
    layers = [*repeat(dense, num_dense_layers), *repeat(layer, count - num_dense_layers)]
    if window is not None and window_every:
        layers = [
            replace(each, window=None) if i % window_every == window_every - 1 else each
            for i, each in enumerate(layers)
        ]
    runs: list[tuple[int, Layer]] = [(len(list(equal)), each) for each, equal in groupby(layers)]
    if embedding_size is not None:
        widen = one(name="widen", input_size=width, hidden_size=hidden_size, num_positions=positions)
        runs = [(1, widen), *runs, (1, one(name="narrow", input_size=hidden_size, hidden_size=width))]
    joined = one(name="two states", input_size=2 * hidden_size, hidden_size=hidden_size, normed=True)
    again = replace(output, name="output of the next token", tied=True)
    runs += [(1, output), *[(1, each) for each in (joined, layer, again) for _ in range(num_predict_layers)]]
    return ModelShape(name, ((1, embedding), *runs), precision_of(precision))


_HYBRID_LAYERS = "M*-"
"""Letters of a pattern: state space, attention, feed-forward part."""


def hybrid(
    name: str,
    *,
    pattern: str,
    hidden_size: int,
    num_heads: int,
    num_kv_heads: int,
    head_width: int,
    feed_forward_size: int,
    vocab_size: int,
    sequence_length: int,
    mamba_heads: int,
    mamba_head_width: int = 64,
    state_size: int = 128,
    mamba_groups: int = 8,
    gated: bool = False,
    tied: bool = False,
    precision: str = "half",
) -> ModelShape:
    """Return a language model of state spaces, attentions and feed-forward parts, each a layer of its own.

    Args:
        name: What it is known by.
        pattern: A letter for each layer: ``M`` for a state space, ``*`` for an attention, ``-`` for a
            feed-forward part (Nemotron-H, Sec. 2.1).
        hidden_size: Width.
        num_heads: Attention heads.
        num_kv_heads: Heads of keys and values.
        head_width: Width of an attention head.
        feed_forward_size: Width of the feed-forward part.
        vocab_size: Rows of the table.
        sequence_length: Tokens of a sample.
        mamba_heads: See `placements.models.mamba.MambaLayer`, as for those that follow.
        mamba_head_width: Width of a head of the state space.
        state_size: Numbers of a state.
        mamba_groups: Groups of heads.
        gated: Three matrices in the feed-forward part.
        tied: The output layer's table is the embedding's.
        precision: A key of `placements.models.layers.PRECISIONS`.

    Raises:
        PlacementError: A size is out of its range, or a letter is not known.
    """
    if not pattern or set(pattern) - set(_HYBRID_LAYERS):
        raise PlacementError(
            f"pattern: {pattern!r} is not of the letters M, * and -; give one for each layer"
        )
    part = partial(
        TransformerLayer,
        hidden_size=hidden_size,
        num_heads=num_heads,
        sequence_length=sequence_length,
        feed_forward_size=feed_forward_size,
        num_kv_heads=num_kv_heads,
        head_width=head_width,
        gated=gated,
        dropout=False,
        biases=False,
    )
    kinds: dict[str, Layer] = {
        "M": MambaLayer(
            name="state space",
            hidden_size=hidden_size,
            sequence_length=sequence_length,
            num_heads=mamba_heads,
            head_width=mamba_head_width,
            state_size=state_size,
            num_groups=mamba_groups,
        ),
        "*": part(name="attention", parts="attention"),
        "-": part(name="feed-forward", parts="feed_forward"),
    }
    table: dict[str, Any] = {
        "hidden_size": hidden_size,
        "vocab_size": vocab_size,
        "sequence_length": sequence_length,
    }
    runs = [(len(list(equal)), kinds[letter]) for letter, equal in groupby(pattern)]
    embedding = EmbeddingLayer(name="embedding", **table)
    output = OutputLayer(name="output", **table, tied=tied)
    return ModelShape(name, ((1, embedding), *runs, (1, output)), precision_of(precision))


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
