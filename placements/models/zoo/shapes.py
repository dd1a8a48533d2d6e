"""Shapes of models: functions that make a chain of layers from a name and sizes. Knows no model by name.

A shape is called with a name and the sizes that `shapes.yaml` has for it; besides, with a ``precision`` (a
key of `placements.models.layers.PRECISIONS`). It raises a `PlacementError` where one is out of its range.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

from placements.block import PlacementError
from placements.forms.meaning import Meaning
from placements.forms.reading import Field
from placements.forms.texts import read_yaml
from placements.models.chain import ModelShape
from placements.models.end_layers import CustomLayer, EmbeddingLayer, OutputLayer, ProjectionLayer
from placements.models.layers import PRECISIONS, Layer
from placements.models.mamba import MambaLayer
from placements.models.transformer import TransformerLayer

_Layers = list[Layer]

_Make = Callable[..., TransformerLayer]
Shape = Callable[..., ModelShape]

SHAPES: dict[str, Shape] = {}
"""The shapes by name."""

REQUIRED = "required"
"""Default of a size that has to be given."""

_OTHERS = ("pattern", "layers_by_level", "layers")
"""Sizes that are no numbers; their shapes read them."""

_SET_BY_SHAPES = ("name", "sequence_length", "window", "cross_length", "parts")


@cache
def _own_sizes() -> Any:
    return read_yaml(Path(__file__).with_name("shapes.yaml"), PlacementError)


@cache
def sizes_of(shape: Shape) -> dict[str, Any]:
    """Return the sizes of a shape with their defaults, or `REQUIRED`."""
    sizes = {**_own_sizes()[shape.__name__], "precision": "half"}
    layer = sizes.pop("layer", None)
    if layer is None:
        return sizes
    known = (field for field in fields(TransformerLayer) if field.name not in _SET_BY_SHAPES)
    usual = {field.name: REQUIRED if field.default is MISSING else field.default for field in known}
    return {**usual, **layer, **sizes}


def size_in(field: Field, default: Any) -> Any:
    """Return a given size: true or false, or a whole number, at least 1, or 0 if the default is 0."""
    if isinstance(default, bool):
        return field.typed(bool)
    least = 0 if default == 0 else 1
    return field.whole(f"a whole number of at least {least}", min=least)


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """Return a remedy for a name that is not known: the nearest that is, or all."""
    names = list(known)
    close = difflib.get_close_matches(wrong, names, n=1)
    return f"did you mean {close[0]}?" if close else f"use one of {', '.join(names)}"


def _shape(layers_of: Callable[[Any, Any], _Layers | dict[str, _Layers]]) -> Shape:
    """Make a shape from a function of its sizes and of a maker of transformer layers.

    The function returns the layers, or by name those of branches and last the model's own.
    """

    def shaped(name: str, **given: Any) -> ModelShape:
        known, listed = sizes_of(shaped), _own_sizes()[layers_of.__name__]
        for size in given:
            if size not in known:
                raise PlacementError(f"{size}: is no size of {name}; {suggestion(size, known)}")
        sizes = known | given
        for size, default in known.items():
            if sizes[size] == REQUIRED:
                raise PlacementError(f"{size}: is missing for {name}; add it")
            if size in listed and size not in _OTHERS and sizes[size] is not default:
                sizes[size] = size_in(Field(sizes[size], size, PlacementError), default)
        precision = Field(sizes.pop("precision"), "precision", PlacementError).choice(tuple(PRECISIONS))
        layer = partial(TransformerLayer, **{size: sizes[size] for size in sizes if size not in listed})
        numbers = PRECISIONS[precision]
        chains = layers_of(SimpleNamespace(**sizes, precision=numbers), layer)
        *branches, chain = (
            ModelShape(branch, tuple((len([*run]), layer) for layer, run in groupby(layers)), numbers)
            for branch, layers in (chains if isinstance(chains, dict) else {name: chains}).items()
        )
        return replace(chain, name=name, branches=tuple(branches))

    shaped.__name__, shaped.__doc__ = layers_of.__name__, layers_of.__doc__
    SHAPES[layers_of.__name__] = shaped
    return shaped


@_shape
def decoder(size: Any, layer: _Make) -> _Layers:
    """Return a language model: embedding, layers, and an output layer for every token.

    Encoders such as BERT, whose output layer is computed for every token too, are of this shape. A module of
    multi-token prediction has a projection of two tokens' states, a layer, and the output layer's product
    again, on the same table.
    """
    usual = layer(name="layer", sequence_length=size.sequence_length, window=size.window)
    if usual.num_kv_heads == usual.num_heads:
        usual = replace(usual, num_kv_heads=None)  # as files say it of plain attention
    if usual.kv_rank is None and (usual.head_width or 0) * usual.num_heads == usual.hidden_size:
        usual = replace(usual, head_width=None)
    dense = replace(
        usual,
        name="dense layer",
        feed_forward_size=size.dense_feed_forward_size or usual.feed_forward_size,
        num_experts=1,
        experts_per_token=1,
        shared_expert_size=0,
        imbalance=1.0,
    )
    if size.num_dense_layers >= size.num_layers:
        fault = f"{size.num_dense_layers} is not from 0 to below num_layers {size.num_layers}"
        raise PlacementError(f"num_dense_layers: {fault}; give fewer")
    layers: _Layers = [*[dense] * size.num_dense_layers, *[usual] * (size.num_layers - size.num_dense_layers)]
    if size.window_every:
        for i in range(size.window_every - 1, size.num_layers, size.window_every):
            layers[i] = replace(layers[i], window=None)  # type: ignore[call-arg]
    width, tokens = usual.hidden_size, size.sequence_length
    positions = tokens if size.learned_positions else 0
    embedding, output = _ends(size.embedding_size or width, size.vocab_size, tokens, size.tied)
    if size.embedding_size is None:
        embedding = replace(embedding, num_positions=positions)
    else:
        widen = _product("widen", size.embedding_size, width, tokens, num_positions=positions)
        layers = [widen, *layers, _product("narrow", width, size.embedding_size, tokens)]
    joined = _product("two states", 2 * width, width, tokens, normed=True)
    again = replace(output, name="output of the next token", tied=True)
    predicting = [layer for layer in (joined, usual, again) for _ in range(size.num_predict_layers)]
    return [embedding, *layers, output, *predicting]


@_shape
def hybrid(size: Any, layer: _Make) -> _Layers:
    """Return a language model of state spaces, attentions and feed-forward parts, each a layer of its own.

    The pattern has a letter for each layer: ``M`` for a state space, ``*`` for an attention, ``-`` for a
    feed-forward part (Nemotron-H, Sec. 2.1).
    """
    if not size.pattern or set(size.pattern) - set("M*-"):
        fault = f"{size.pattern!r} is not of the letters M, * and -"
        raise PlacementError(f"pattern: {fault}; give one for each layer")
    attention = layer(name="attention", parts="attention", sequence_length=size.sequence_length)
    state_space = MambaLayer(
        name="state space",
        hidden_size=attention.hidden_size,
        sequence_length=size.sequence_length,
        num_heads=size.mamba_heads,
        head_width=size.mamba_head_width,
        state_size=size.state_size,
        num_groups=size.mamba_groups,
    )
    feed_forward = replace(attention, name="feed-forward", parts="feed_forward")
    kinds = {"M": state_space, "*": attention, "-": feed_forward}
    embedding, output = _ends(attention.hidden_size, size.vocab_size, size.sequence_length, size.tied)
    return [embedding, *(kinds[letter] for letter in size.pattern), output]


@_shape
def encoder_decoder(size: Any, layer: _Make) -> _Layers:
    """Return a T5: a chain of encoder layers, then as many decoder layers, which read the encoder's output.

    The table is looked up for both; its time is that of the longer of both, at the beginning, unless the
    decoder has a lookup of its own. Positions are relative and have few parameters, which are left out.
    """
    if size.num_layers % 2:
        fault = f"{size.num_layers} is not an even number of at least 2"
        raise PlacementError(f"num_layers: {fault}; half are the encoder's")
    tokens, half = size.sequence_length, size.num_layers // 2
    written = size.decoder_length or tokens
    encoder = layer(name="encoder", sequence_length=tokens)
    writer = layer(name="decoder", sequence_length=written, cross_length=tokens)
    embedding, output = _ends(encoder.hidden_size, size.vocab_size, tokens, size.tied)
    again = replace(embedding, name="embedding2", sequence_length=written, cross_length=tokens, tied=True)
    ends = [*[again] * size.second_lookup, *[writer] * half, replace(output, sequence_length=written)]
    return [embedding, *[encoder] * half, *ends]


@_shape
def image_encoder(size: Any, layer: _Make) -> _Layers:
    """Return a ViT: patches embedded, equal layers on these and one token more, and classes of that token."""
    layers = _image("layer", size, layer)
    return [*layers, _ends(layers[0].hidden_size, size.num_classes)[1]]


@_shape
def window_encoder(size: Any, layer: _Make) -> _Layers:
    """Return a Swin: levels of layers with attention in windows; between two, four patches become one."""
    side, width = _patches(size.image_size, size.patch_size), size.hidden_size
    layers: _Layers = [_product("embedding", 3 * size.patch_size**2, width, side * side)]
    counts = Field(size.layers_by_level, "layers_by_level", PlacementError).items("a list of layers")
    for level, count in enumerate(counts):
        if level:
            side, width = _patches(side, 2), 2 * width
            layers.append(_product(f"merge{level}", 2 * width, width, side * side, normed=True))
        one = layer(
            name=f"level{level}",
            hidden_size=width,
            num_heads=size.num_heads * 2**level,
            sequence_length=side * side,
            window=size.window_size**2,
        )
        layers += [one] * size_in(count, REQUIRED)
    return [*layers, _ends(width, size.num_classes)[1]]


@_shape
def joined_encoders(size: Any, layer: _Make) -> dict[str, _Layers]:
    """Return a Flava: an image's and a text's encoder, whose outputs a third one of as many layers reads."""
    image, count, tokens = _image("image", size, layer), size.num_layers, size.sequence_length
    text = layer(name="text", sequence_length=tokens)
    table = replace(_ends(text.hidden_size, size.vocab_size, tokens)[0], num_positions=tokens)
    both = layer(name="both", sequence_length=image[0].sequence_length + tokens)
    return {"image": [*image], "text": [table, *[text] * count], "both": [both] * count}


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
def convolutional(size: Any, _: object) -> _Layers:
    """Return a convolutional network, whose layers no GPUs share.

    Operations count two for each multiply and add; norms, activations and pools count none. A bottleneck has
    convolutions of 1, 3 and 1 with a norm behind each, and a fourth one around them where channels change. A
    layer keeps its input, and the outputs of its convolutions before and behind their norms, but those that a
    bottleneck adds up before alone.
    """
    before, side, layers = 3, size.image_size, list[Layer]()
    for row in Field(size.layers, "layers", PlacementError).typed(tuple[ImageLayer, ...]):
        inner, after, wide, read = row.inner, row.channels, side, before * side * side
        # Of each convolution: numbers of an output, channels, side, whether normed, times that it is kept.
        if row.kind == "convolution":
            padding = row.kernel // 2 if row.padding is None else row.padding
            side = _slid(side, row.kernel, row.stride, padding)
            parts = [(before * row.kernel**2, after, side, row.normed, 1 + row.normed)]
        elif row.kind == "bottleneck":
            side = _slid(side, 3, row.stride, 1)
            parts = [(before, inner, wide, True, 2), (9 * inner, inner, side, True, 2)]
            parts += [(inputs, after, side, True, 1) for inputs in (inner, before)[: 1 + (before != after)]]
        else:
            side = 1
            parts = [(read if row.kind == "full" else before, after, 1, False, 1)]
        kept = read + sum(times * made * pixels**2 for _, made, pixels, _, times in parts)
        side = _slid(side, row.pool, 2, row.pool_padding) if row.pool else side
        layer: Layer = CustomLayer(
            name=row.name,
            num_weights=sum((inputs + 1 + normed) * made for inputs, made, _, normed, _ in parts),
            flops=sum(2 * inputs * made * pixels**2 for inputs, made, pixels, _, _ in parts),
            kept_bytes=size.precision.number_bytes * kept,
            input_numbers=read,
            output_numbers=after * side * side,
        )
        layers += [_ends(before, after)[1] if row.kind == "classes" else layer] * row.times
        before = after
    return layers


def _ends(width: int, rows: int, tokens: int = 1, tied: bool = False) -> tuple[EmbeddingLayer, OutputLayer]:
    """Return the layers of a table: one that looks rows up, and the output layer."""
    sizes: dict[str, Any] = {"hidden_size": width, "vocab_size": rows, "sequence_length": tokens}
    return EmbeddingLayer(name="embedding", **sizes), OutputLayer(name="output", **sizes, tied=tied)


def _product(name: str, inputs: int, outputs: int, tokens: int, **more: Any) -> ProjectionLayer:
    sizes = {"input_size": inputs, "hidden_size": outputs, "sequence_length": tokens, **more}
    return ProjectionLayer(name=name, **sizes)


def _image(name: str, size: Any, layer: _Make) -> list[ProjectionLayer | TransformerLayer]:
    """Return the embedding of an image, and layers on its patches and one token more."""
    tokens = _patches(size.image_size, size.patch_size) ** 2 + 1
    one = layer(name=name, sequence_length=tokens)
    pixels = _product("embedding", 3 * size.patch_size**2, one.hidden_size, tokens, num_positions=tokens)
    return [pixels, *[one] * size.num_layers]


def _patches(size: int, patch_size: int) -> int:
    """Return the patches of a side."""
    if size % patch_size:
        raise PlacementError(f"image_size: {size} has no whole patches of {patch_size}; give a multiple")
    return size // patch_size


def _slid(side: int, kernel: int, stride: int, padding: int) -> int:
    """Return the side of the output image of a kernel or pool."""
    return (side + 2 * padding - kernel) // stride + 1
