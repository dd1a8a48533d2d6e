"""Shapes of models: what a name and some sizes make a chain of layers. Knows no model by its name.

A shape is a function that raises a `PlacementError` where a size is out of its range. Sizes of several are
``num_layers`` (transformer layers), ``vocab_size`` (rows of the table), ``sequence_length`` (tokens of a
sample), ``tied`` (the output layer's table is the embedding's), ``image_size`` (pixels of a side),
``patch_size`` (side of a patch, a divisor), ``num_classes`` (classes of the output layer) and ``precision``
(a key of `placements.models.layers.PRECISIONS`); all others are those of a
`placements.models.transformer.TransformerLayer`.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Annotated, Any, Literal

from placements.block import PlacementError
from placements.meaning import Meaning
from placements.models.chain import ModelShape
from placements.models.end_layers import CustomLayer, EmbeddingLayer, OutputLayer, ProjectionLayer
from placements.models.layers import PRECISIONS, Layer, Precision
from placements.models.mamba import MambaLayer
from placements.models.transformer import TransformerLayer

_Runs = list[tuple[int, Layer]]


def decoder(
    name: str,
    *,
    num_layers: int,
    vocab_size: int,
    sequence_length: int,
    embedding_size: int | None = None,
    learned_positions: bool = True,
    tied: bool = True,
    window: int | None = None,
    window_every: int = 0,
    num_dense_layers: int = 0,
    dense_feed_forward_size: int | None = None,
    num_predict_layers: int = 0,
    precision: str = "half",
    **layer: Any,
) -> ModelShape:
    """Return a language model: embedding, layers, and an output layer for every token.

    Encoders such as BERT, whose output layer is computed for every token too, are of this shape.

    - `embedding_size`: width of the table, which projections change to the layers' and back; None for theirs
    - `learned_positions`: one for each token of a sample
    - `window_every`: of so many layers the last attends to all tokens in spite of the window; 0 for none
    - `num_dense_layers`: layers at the beginning that have a feed-forward part in place of experts
    - `dense_feed_forward_size`: its width
    - `num_predict_layers`: modules of multi-token prediction (DeepSeek-V3, Sec. 2.2): each has a projection
      of two tokens' states, a layer, and the output layer's product again, on the same table
    """
    usual = TransformerLayer(name="layer", sequence_length=sequence_length, window=window, **layer)
    if usual.num_kv_heads == usual.num_heads:
        usual = replace(usual, num_kv_heads=None)  # as files say it of plain attention
    if usual.kv_rank is None and (usual.head_width or 0) * usual.num_heads == usual.hidden_size:
        usual = replace(usual, head_width=None)
    dense = replace(
        usual,
        name="dense layer",
        feed_forward_size=dense_feed_forward_size or usual.feed_forward_size,
        num_experts=1,
        experts_per_token=1,
        shared_expert_size=0,
        imbalance=1.0,
    )
    count, hidden_size = _whole("num_layers", num_layers), usual.hidden_size
    if not 0 <= num_dense_layers < count:
        raise PlacementError(
            f"num_dense_layers: {num_dense_layers} is not from 0 to below num_layers {count}; give fewer"
        )
    layers = [dense if i < num_dense_layers else usual for i in range(count)]
    if window is not None and window_every:
        for i in range(window_every - 1, count, window_every):
            layers[i] = replace(layers[i], window=None)
    runs = _equal(layers)
    positions = sequence_length if learned_positions else 0
    one = partial(ProjectionLayer, sequence_length=sequence_length)
    if embedding_size is not None:
        widen = one(name="widen", input_size=embedding_size, hidden_size=hidden_size, num_positions=positions)
        runs = [(1, widen), *runs]
        runs.append((1, one(name="narrow", input_size=hidden_size, hidden_size=embedding_size)))
    width = hidden_size if embedding_size is None else embedding_size
    embedding, output = _ends(width, vocab_size, sequence_length, tied)
    if embedding_size is None:
        embedding = replace(embedding, num_positions=positions)
    joined = one(name="two states", input_size=2 * hidden_size, hidden_size=hidden_size, normed=True)
    again = replace(output, name="output of the next token", tied=True)
    runs += [(1, output), *[(1, each) for each in (joined, usual, again) for _ in range(num_predict_layers)]]
    return ModelShape(name, ((1, embedding), *runs), precision_of(precision))


def hybrid(
    name: str,
    *,
    pattern: str,
    vocab_size: int,
    sequence_length: int,
    mamba_heads: int,
    mamba_head_width: int = 64,
    state_size: int = 128,
    mamba_groups: int = 8,
    tied: bool = False,
    precision: str = "half",
    **layer: Any,
) -> ModelShape:
    """Return a language model of state spaces, attentions and feed-forward parts, each a layer of its own.

    The pattern has a letter for each layer: ``M`` for a state space, ``*`` for an attention, ``-`` for a
    feed-forward part (Nemotron-H, Sec. 2.1). Heads, their width, states and groups of state spaces are as in
    `placements.models.mamba.MambaLayer`.
    """
    if not pattern or set(pattern) - set("M*-"):
        raise PlacementError(
            f"pattern: {pattern!r} is not of the letters M, * and -; give one for each layer"
        )
    layer = {"dropout": False, "biases": False} | layer
    part = partial(TransformerLayer, **layer, sequence_length=sequence_length)
    attention = part(name="attention", parts="attention")
    state_space = MambaLayer(
        name="state space",
        hidden_size=attention.hidden_size,
        sequence_length=sequence_length,
        num_heads=mamba_heads,
        head_width=mamba_head_width,
        state_size=state_size,
        num_groups=mamba_groups,
    )
    kinds = {"M": state_space, "*": attention, "-": part(name="feed-forward", parts="feed_forward")}
    embedding, output = _ends(attention.hidden_size, vocab_size, sequence_length, tied)
    runs = _equal([kinds[letter] for letter in pattern])
    return ModelShape(name, ((1, embedding), *runs, (1, output)), precision_of(precision))


def encoder_decoder(
    name: str,
    *,
    num_layers: int,
    vocab_size: int,
    sequence_length: int,
    decoder_length: int | None = None,
    tied: bool = True,
    second_lookup: bool = False,
    precision: str = "half",
    **layer: Any,
) -> ModelShape:
    """Return a T5: a chain of encoder layers, then as many decoder layers, which read the encoder's output.

    The table is looked up for both; its time is that of the longer of both, at the beginning, unless the
    decoder has a lookup of its own. Positions are relative and have few parameters, which are left out.

    - `num_layers`: of encoder and decoder together, half of them in each
    - `sequence_length`: tokens that the encoder reads
    - `decoder_length`: tokens that the decoder writes; None for as many
    - `second_lookup`: before the decoder's layers there is an embedding too, of the same table
    """
    if type(num_layers) is not int or num_layers < 2 or num_layers % 2:
        raise PlacementError(
            f"num_layers: {num_layers!r} is not an even number of at least 2; half are the encoder's"
        )
    written = sequence_length if decoder_length is None else decoder_length
    one = partial(TransformerLayer, **{"biases": False} | layer)
    encoder = one(name="encoder", sequence_length=sequence_length)
    writer = one(name="decoder", sequence_length=written, cross_length=sequence_length)
    embedding, output = _ends(encoder.hidden_size, vocab_size, sequence_length, tied)
    again = replace(
        embedding, name="embedding2", sequence_length=written, cross_length=sequence_length, tied=True
    )
    runs: _Runs = [(1, embedding), (num_layers // 2, encoder), *[(1, again)] * second_lookup]
    runs += [(num_layers // 2, writer), (1, replace(output, sequence_length=written))]
    return ModelShape(name, tuple(runs), precision_of(precision))


def image_encoder(
    name: str,
    *,
    num_layers: int,
    image_size: int = 224,
    patch_size: int = 16,
    num_classes: int = 1000,
    precision: str = "half",
    **layer: Any,
) -> ModelShape:
    """Return a ViT: patches embedded, equal layers on these and one token more, and classes of that token."""
    tokens = _patches(image_size, patch_size) ** 2 + 1
    one = TransformerLayer(**{"dropout": False} | layer, name="layer", sequence_length=tokens)
    classes = _ends(one.hidden_size, num_classes, 1, tied=False)[1]
    pixels = _pixels(patch_size, one.hidden_size, tokens, num_positions=tokens)
    runs = ((1, pixels), (_whole("num_layers", num_layers), one), (1, classes))
    return ModelShape(name, runs, precision_of(precision))


def window_encoder(
    name: str,
    *,
    layers_by_level: Sequence[int],
    hidden_size: int,
    num_heads: int,
    window_size: int = 7,
    image_size: int = 224,
    patch_size: int = 4,
    num_classes: int = 1000,
    precision: str = "half",
    **layer: Any,
) -> ModelShape:
    """Return a Swin: levels of layers with attention in windows; between two, four patches become one.

    Width and heads are those of the first level; each next one has twice as many. Windows are measured in
    patches of a side.
    """
    if not isinstance(layers_by_level, (tuple, list)) or not layers_by_level:
        raise PlacementError(f"layers_by_level: {layers_by_level!r} is not a list of layers; give one")
    side, width = _patches(image_size, patch_size), hidden_size
    runs: _Runs = [(1, _pixels(patch_size, hidden_size, side * side))]
    for level, count in enumerate(layers_by_level):
        if level:
            side, width = _patches(side, 2), 2 * width
            merge = ProjectionLayer(
                name=f"merge{level}",
                input_size=2 * width,
                hidden_size=width,
                sequence_length=side * side,
                normed=True,
            )
            runs.append((1, merge))
        one = TransformerLayer(
            **{"dropout": False} | layer,
            name=f"level{level}",
            hidden_size=width,
            num_heads=num_heads * 2**level,
            sequence_length=side * side,
            window=_whole("window_size", window_size) ** 2,
        )
        runs.append((_whole(f"layers_by_level[{level}]", count), one))
    runs.append((1, _ends(width, num_classes, 1, tied=False)[1]))
    return ModelShape(name, tuple(runs), precision_of(precision))


def joined_encoders(
    name: str,
    *,
    num_layers: int,
    vocab_size: int,
    sequence_length: int,
    image_size: int = 224,
    patch_size: int = 16,
    precision: str = "half",
    **layer: Any,
) -> ModelShape:
    """Return a Flava: an image's and a text's encoder, whose outputs a third one of as many layers reads."""
    count, numbers = _whole("num_layers", num_layers), precision_of(precision)
    tokens = _patches(image_size, patch_size) ** 2 + 1
    one = partial(TransformerLayer, **{"dropout": False} | layer)
    both = one(name="both", sequence_length=tokens + sequence_length)
    pixels = _pixels(patch_size, both.hidden_size, tokens, num_positions=tokens)
    table = _ends(both.hidden_size, vocab_size, sequence_length, tied=False)[0]
    table = replace(table, num_positions=sequence_length)
    image = ModelShape("image", ((1, pixels), (count, one(name="image", sequence_length=tokens))), numbers)
    read = one(name="text", sequence_length=sequence_length)
    text = ModelShape("text", ((1, table), (count, read)), numbers)
    return ModelShape(name, ((count, both),), numbers, (image, text))


@dataclass(frozen=True)
class ImageLayer:
    """A layer of a convolutional network: between two a pipeline can be cut."""

    name: Annotated[str, Meaning("name in the model")]
    kind: Annotated[
        Literal["convolution", "bottleneck", "full", "averaged", "classes"],
        Meaning("`averaged`: a matrix and biases on the mean of the image; `classes`: without biases"),
    ]
    channels: Annotated[int, Meaning("channels of its output", min=1)]
    inner: Annotated[int, Meaning("channels inside a bottleneck", min=1)] = 1
    kernel: Annotated[int, Meaning("side of the kernels", min=1)] = 3
    stride: Annotated[int, Meaning("pixels from one place of a kernel to the next", min=1)] = 1
    padding: Annotated[int | None, Meaning("pixels around; without, half of a kernel", min=0)] = None
    normed: Annotated[bool, Meaning("norm in place of biases")] = False
    pool: Annotated[int, Meaning("side of the pool behind it, of stride 2; 0 for none", min=0)] = 0
    pool_padding: Annotated[int, Meaning("pixels around the image that is pooled", min=0)] = 0
    times: Annotated[int, Meaning("such layers one after the other", min=1)] = 1


def convolutional(
    name: str, *, layers: Sequence[ImageLayer], image_size: int = 224, precision: str = "half"
) -> ModelShape:
    """Return a convolutional network. No layer can be shared by tensor parallelism.

    Operations count two for each multiply and add; norms, activations and pools count none. A bottleneck has
    convolutions of 1, 3 and 1 with a norm behind each, and a fourth one around them where channels change. A
    layer keeps its input, and the outputs of its convolutions before and behind their norms, but those that a
    bottleneck adds up before alone.
    """
    numbers, before, side = precision_of(precision), 3, _whole("image_size", image_size)
    runs: _Runs = []
    for row in layers:
        inner, after, wide, read = row.inner, row.channels, side, before * side * side
        # Of each convolution: numbers of an output, channels, side, whether normed, times that it is kept.
        if row.kind == "convolution":
            padding = row.kernel // 2 if row.padding is None else row.padding
            side = _slid(side, row.kernel, row.stride, padding)
            parts = [(before * row.kernel**2, after, side, row.normed, 1 + row.normed)]
        elif row.kind == "bottleneck":
            side = _slid(side, 3, row.stride, 1)
            parts = [(before, inner, wide, True, 2), (9 * inner, inner, side, True, 2)]
            parts += [(each, after, side, True, 1) for each in (inner, before)[: 1 + (before != after)]]
        else:
            side = 1
            parts = [(read if row.kind == "full" else before, after, 1, False, 1)]
        kept = read + sum(times * made * pixels**2 for _, made, pixels, _, times in parts)
        side = _slid(side, row.pool, 2, row.pool_padding) if row.pool else side
        layer: Layer = CustomLayer(
            name=row.name,
            num_weights=sum((inputs + 1 + normed) * made for inputs, made, _, normed, _ in parts),
            flops=sum(2 * inputs * made * pixels**2 for inputs, made, pixels, _, _ in parts),
            kept_bytes=numbers.number_bytes * kept,
            input_numbers=read,
            output_numbers=after * side * side,
        )
        if row.kind == "classes":
            layer = _ends(before, after, 1, tied=False)[1]
        runs.append((row.times, layer))
        before = after
    return ModelShape(name, tuple(runs), numbers)


Shape = Callable[..., ModelShape]

SHAPES: Mapping[str, Shape] = {
    shape.__name__: shape
    for shape in (
        decoder,
        hybrid,
        encoder_decoder,
        image_encoder,
        window_encoder,
        joined_encoders,
        convolutional,
    )
}
"""The shapes by name."""


def sizes_of(shape: Shape) -> dict[str, Any]:
    """Return the sizes of a shape with their defaults, ``inspect.Parameter.empty`` for none."""
    own = dict(inspect.signature(shape).parameters)
    if own.pop("layer", None):
        layers = inspect.signature(TransformerLayer).parameters
        set_by_shapes = ("sequence_length", "window", "cross_length", "parts")
        own = {name: layers[name] for name in layers if name not in set_by_shapes} | own
    return {name: each.default for name, each in own.items() if name != "name"}


def shaped(shape: Shape, name: str, sizes: Mapping[str, Any]) -> ModelShape:
    """Return a model of a shape, or raise a `PlacementError` where a size is not known, missing or wrong."""
    known = sizes_of(shape)
    for each in sizes:
        if each not in known:
            raise PlacementError(f"{each}: is no size of {name}; {suggestion(each, known)}")
    for each, default in known.items():
        if default is inspect.Parameter.empty and each not in sizes:
            raise PlacementError(f"{each}: is missing for {name}; add it")
    return shape(name, **sizes)


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """Return a remedy for a name that is not known: the nearest that is, or all."""
    names = list(known)
    close = difflib.get_close_matches(wrong, names, n=1)
    return f"did you mean {close[0]}?" if close else f"use one of {', '.join(names)}"


def precision_of(name: str) -> Precision:
    """Return a precision by its name, or raise a `PlacementError`."""
    if not isinstance(name, str) or name not in PRECISIONS:
        raise PlacementError(f"precision: {name!r} is not known; use one of {', '.join(PRECISIONS)}")
    return PRECISIONS[name]


def _equal(layers: Sequence[Layer]) -> _Runs:
    """Return how many equal layers follow each other."""
    return [(len(list(equal)), layer) for layer, equal in groupby(layers)]


def _ends(width: int, rows: int, tokens: int, tied: bool) -> tuple[EmbeddingLayer, OutputLayer]:
    """Return the layers of a table: one that looks rows up, and the output layer."""
    sizes: dict[str, Any] = {"hidden_size": width, "vocab_size": rows, "sequence_length": tokens}
    return EmbeddingLayer(name="embedding", **sizes), OutputLayer(name="output", **sizes, tied=tied)


def _pixels(patch_size: int, hidden_size: int, tokens: int, num_positions: int = 0) -> ProjectionLayer:
    """Return the embedding of patches of three colors."""
    return ProjectionLayer(
        name="embedding",
        input_size=3 * patch_size**2,
        hidden_size=hidden_size,
        sequence_length=tokens,
        num_positions=num_positions,
    )


def _patches(size: int, patch_size: int) -> int:
    """Return the patches of a side."""
    _whole("image_size", size)
    if size % _whole("patch_size", patch_size):
        raise PlacementError(f"image_size: {size} has no whole patches of {patch_size}; give a multiple")
    return size // patch_size


def _slid(side: int, kernel: int, stride: int, padding: int) -> int:
    """Return the side of what kernels or pools make of an image."""
    return (side + 2 * padding - kernel) // stride + 1


def _whole(name: str, value: object) -> int:
    if type(value) is not int or value < 1:
        raise PlacementError(f"{name}: {value!r} is not a whole number of at least 1; give one")
    return value
