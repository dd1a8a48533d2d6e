"""Shapes of models: what a name and some sizes make a chain of layers. Knows no model by its name.

A shape is a function of a name and sizes that raises a `PlacementError` where one is out of its range. Sizes
of several are ``num_layers`` (transformer layers), ``vocab_size`` (rows of the table), ``sequence_length``
(tokens of a sample), ``tied`` (the output layer's table is the embedding's), ``image_size`` (pixels of a
side), ``patch_size`` (side of a patch, a divisor), ``num_classes`` (classes of the output layer) and
``precision`` (a key of `placements.models.layers.PRECISIONS`); all others are those of a
`placements.models.transformer.TransformerLayer`.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from itertools import groupby
from typing import Annotated, Any, Literal

from placements.block import PlacementError
from placements.forms.meaning import Meaning
from placements.forms.reading import Field
from placements.models.chain import ModelShape
from placements.models.end_layers import CustomLayer, EmbeddingLayer, OutputLayer, ProjectionLayer
from placements.models.layers import HALF, PRECISIONS, Layer, Precision
from placements.models.mamba import MambaLayer
from placements.models.transformer import TransformerLayer

_Layers = list[Layer]

Shape = Callable[..., ModelShape]

SHAPES: dict[str, Shape] = {}
"""The shapes by name."""

REQUIRED = inspect.Parameter.empty
"""What `sizes_of` has for a size without a default."""


@cache
def sizes_of(shape: Shape) -> dict[str, Any]:
    """Return the sizes of a shape with their defaults, or `REQUIRED`."""
    own, layers = dict(inspect.signature(shape).parameters), inspect.signature(TransformerLayer).parameters
    own.pop("numbers", None)
    if own.pop("layer", None):
        set_by_shapes = ("sequence_length", "window", "cross_length", "parts")
        own = {name: layers[name] for name in layers if name not in (*set_by_shapes, "name")} | own
    return {name: each.default for name, each in own.items()} | {"precision": "half"}


def size_in(field: Field, default: Any) -> Any:
    """Return a size as it is given: true or false, or a whole number, which may be 0 where its default is."""
    if isinstance(default, bool):
        return field.typed(bool)
    least = 0 if default == 0 else 1
    return field.whole(f"a whole number of at least {least}", min=least)


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """Return a remedy for a name that is not known: the nearest that is, or all."""
    names = list(known)
    close = difflib.get_close_matches(wrong, names, n=1)
    return f"did you mean {close[0]}?" if close else f"use one of {', '.join(names)}"


def _shape(layers_of: Callable[..., _Layers | dict[str, _Layers]]) -> Shape:
    """Make a shape of a function of sizes, whose layers are those of branches too where they have names."""
    own = inspect.signature(layers_of).parameters

    @wraps(layers_of)
    def shaped(name: str, *, precision: str = "half", **sizes: Any) -> ModelShape:
        known = sizes_of(shaped)
        for each in sizes:
            if each not in known:
                raise PlacementError(f"{each}: is no size of {name}; {suggestion(each, known)}")
        for each, default in known.items():
            if default is REQUIRED and each not in sizes:
                raise PlacementError(f"{each}: is missing for {name}; add it")
        for each, size in sizes.items():
            kind = own[each].annotation if each in own else ""
            if kind in ("int", "bool") or (kind == "int | None" and size is not None):
                sizes[each] = size_in(Field(size, each, PlacementError), known[each])
        numbers = PRECISIONS[Field(precision, "precision", PlacementError).choice(tuple(PRECISIONS))]
        found = layers_of(**sizes, **({"numbers": numbers} if "numbers" in own else {}))
        *branches, chain = (
            ModelShape(each, tuple((len([*run]), layer) for layer, run in groupby(layers)), numbers)
            for each, layers in (found if isinstance(found, dict) else {name: found}).items()
        )
        return replace(chain, name=name, branches=tuple(branches))

    SHAPES[layers_of.__name__] = shaped
    return shaped


@_shape
def decoder(
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
    **layer: Any,
) -> _Layers:
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
    if num_dense_layers >= num_layers:
        raise PlacementError(
            f"num_dense_layers: {num_dense_layers} is not from 0 to below num_layers {num_layers}; give fewer"
        )
    layers: _Layers = [*[dense] * num_dense_layers, *[usual] * (num_layers - num_dense_layers)]
    if window_every:
        for i in range(window_every - 1, num_layers, window_every):
            layers[i] = replace(layers[i], window=None)  # type: ignore[call-arg]
    one, width = partial(ProjectionLayer, sequence_length=sequence_length), usual.hidden_size
    positions = sequence_length if learned_positions else 0
    embedding, output = _ends(embedding_size or width, vocab_size, sequence_length, tied)
    if embedding_size is None:
        embedding = replace(embedding, num_positions=positions)
    else:
        widen = one(name="widen", input_size=embedding_size, hidden_size=width, num_positions=positions)
        narrow = one(name="narrow", input_size=width, hidden_size=embedding_size)
        layers = [widen, *layers, narrow]
    joined = one(name="two states", input_size=2 * width, hidden_size=width, normed=True)
    again = replace(output, name="output of the next token", tied=True)
    predicting = [each for each in (joined, usual, again) for _ in range(num_predict_layers)]
    return [embedding, *layers, output, *predicting]


@_shape
def hybrid(
    *,
    pattern: str,
    vocab_size: int,
    sequence_length: int,
    mamba_heads: int,
    mamba_head_width: int = 64,
    state_size: int = 128,
    mamba_groups: int = 8,
    tied: bool = False,
    **layer: Any,
) -> _Layers:
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
    return [embedding, *(kinds[letter] for letter in pattern), output]


@_shape
def encoder_decoder(
    *,
    num_layers: int,
    vocab_size: int,
    sequence_length: int,
    decoder_length: int | None = None,
    tied: bool = True,
    second_lookup: bool = False,
    **layer: Any,
) -> _Layers:
    """Return a T5: a chain of encoder layers, then as many decoder layers, which read the encoder's output.

    The table is looked up for both; its time is that of the longer of both, at the beginning, unless the
    decoder has a lookup of its own. Positions are relative and have few parameters, which are left out.

    - `num_layers`: of encoder and decoder together, half of them in each
    - `sequence_length`: tokens that the encoder reads
    - `decoder_length`: tokens that the decoder writes; None for as many
    - `second_lookup`: before the decoder's layers there is an embedding too, of the same table
    """
    if num_layers % 2:
        raise PlacementError(
            f"num_layers: {num_layers} is not an even number of at least 2; half are the encoder's"
        )
    length = decoder_length or sequence_length
    written: dict[str, Any] = {"sequence_length": length, "cross_length": sequence_length}
    one = partial(TransformerLayer, **{"biases": False} | layer)
    encoder = one(name="encoder", sequence_length=sequence_length)
    embedding, output = _ends(encoder.hidden_size, vocab_size, sequence_length, tied)
    again = replace(embedding, name="embedding2", tied=True, **written)
    output = replace(output, sequence_length=length)
    half = num_layers // 2
    writing = [one(name="decoder", **written)] * half
    return [embedding, *[encoder] * half, *[again] * second_lookup, *writing, output]


@_shape
def image_encoder(
    *, num_layers: int, image_size: int = 224, patch_size: int = 16, num_classes: int = 1000, **layer: Any
) -> _Layers:
    """Return a ViT: patches embedded, equal layers on these and one token more, and classes of that token."""
    layers = _image("layer", num_layers, image_size, patch_size, layer)
    return [*layers, _ends(layers[0].hidden_size, num_classes)[1]]


@_shape
def window_encoder(
    *,
    layers_by_level: Sequence[int],
    hidden_size: int,
    num_heads: int,
    window_size: int = 7,
    image_size: int = 224,
    patch_size: int = 4,
    num_classes: int = 1000,
    **layer: Any,
) -> _Layers:
    """Return a Swin: levels of layers with attention in windows; between two, four patches become one.

    Width and heads are those of the first level; each next one has twice as many. Windows are measured in
    patches of a side.
    """
    side, width = _patches(image_size, patch_size), hidden_size
    layers: _Layers = [_pixels(patch_size, hidden_size, side * side)]
    counts = Field(layers_by_level, "layers_by_level", PlacementError).items("a list of layers")
    for level, count in enumerate(counts):
        if level:
            side, width = _patches(side, 2), 2 * width
            merge = ProjectionLayer(
                name=f"merge{level}",
                input_size=2 * width,
                hidden_size=width,
                sequence_length=side * side,
                normed=True,
            )
            layers.append(merge)
        one = TransformerLayer(
            **{"dropout": False} | layer,
            name=f"level{level}",
            hidden_size=width,
            num_heads=num_heads * 2**level,
            sequence_length=side * side,
            window=window_size**2,
        )
        layers += [one] * size_in(count, REQUIRED)
    return [*layers, _ends(width, num_classes)[1]]


@_shape
def joined_encoders(
    *,
    num_layers: int,
    vocab_size: int,
    sequence_length: int,
    image_size: int = 224,
    patch_size: int = 16,
    **layer: Any,
) -> dict[str, _Layers]:
    """Return a Flava: an image's and a text's encoder, whose outputs a third one of as many layers reads."""
    image = _image("image", num_layers, image_size, patch_size, layer)
    one = partial(TransformerLayer, **{"dropout": False} | layer)
    text = one(name="text", sequence_length=sequence_length)
    table = _ends(text.hidden_size, vocab_size, sequence_length)[0]
    both = one(name="both", sequence_length=image[0].sequence_length + sequence_length)
    return {
        "image": [*image],
        "text": [replace(table, num_positions=sequence_length), *[text] * num_layers],
        "both": [both] * num_layers,
    }


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


@_shape
def convolutional(*, layers: Sequence[Any], image_size: int = 224, numbers: Precision = HALF) -> _Layers:
    """Return a convolutional network, whose layers no GPUs share; `layers` have the fields of `ImageLayer`.

    Operations count two for each multiply and add; norms, activations and pools count none. A bottleneck has
    convolutions of 1, 3 and 1 with a norm behind each, and a fourth one around them where channels change. A
    layer keeps its input, and the outputs of its convolutions before and behind their norms, but those that a
    bottleneck adds up before alone.
    """
    before, side, found = 3, image_size, list[Layer]()
    for row in Field(layers, "layers", PlacementError).typed(tuple[ImageLayer, ...]):
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
        found += [_ends(before, after)[1] if row.kind == "classes" else layer] * row.times
        before = after
    return found


def _ends(width: int, rows: int, tokens: int = 1, tied: bool = False) -> tuple[EmbeddingLayer, OutputLayer]:
    """Return the layers of a table: one that looks rows up, and the output layer."""
    sizes: dict[str, Any] = {"hidden_size": width, "vocab_size": rows, "sequence_length": tokens}
    return EmbeddingLayer(name="embedding", **sizes), OutputLayer(name="output", **sizes, tied=tied)


def _pixels(patch_size: int, width: int, tokens: int, positions: int = 0) -> ProjectionLayer:
    """Return the embedding of patches of three colors."""
    return ProjectionLayer(
        name="embedding",
        input_size=3 * patch_size**2,
        hidden_size=width,
        sequence_length=tokens,
        num_positions=positions,
    )


def _image(
    name: str, num_layers: int, image_size: int, patch_size: int, layer: Mapping[str, Any]
) -> list[ProjectionLayer | TransformerLayer]:
    """Return the embedding of an image, and layers on its patches and one token more."""
    tokens = _patches(image_size, patch_size) ** 2 + 1
    one = TransformerLayer(**{"dropout": False, **layer}, name=name, sequence_length=tokens)
    return [_pixels(patch_size, one.hidden_size, tokens, tokens), *[one] * num_layers]


def _patches(size: int, patch_size: int) -> int:
    """Return the patches of a side."""
    if size % patch_size:
        raise PlacementError(f"image_size: {size} has no whole patches of {patch_size}; give a multiple")
    return size // patch_size


def _slid(side: int, kernel: int, stride: int, padding: int) -> int:
    """Return the side of what kernels or pools make of an image."""
    return (side + 2 * padding - kernel) // stride + 1
