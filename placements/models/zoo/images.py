"""Kinds of models of images, alone or with text: what a name and some sizes make a chain of layers.

The module knows shapes alone, and no model by its name.
"""

from __future__ import annotations

from functools import partial

from placements.block import PlacementError
from placements.models.chain import ModelShape
from placements.models.end_layers import CustomLayer, EmbeddingLayer, OutputLayer, ProjectionLayer
from placements.models.layers import Layer, Precision
from placements.models.transformer import AttentionKind, TransformerLayer
from placements.models.zoo.sizes import precision_of, whole


def image_encoder(
    name: str,
    *,
    num_layers: int,
    hidden_size: int,
    num_heads: int,
    image_size: int = 224,
    patch_size: int = 16,
    num_classes: int = 1000,
    dropout: bool = False,
    attention: AttentionKind = "flash",
    precision: str = "half",
) -> ModelShape:
    """Return a ViT: patches embedded, equal layers on these and one token more, and classes of that token.

    Args:
        name: What it is known by.
        num_layers: Transformer layers.
        hidden_size: Width.
        num_heads: Attention heads.
        image_size: Pixels of a side.
        patch_size: Side of a patch; a divisor.
        num_classes: Classes of the output layer.
        dropout: Masks are kept.
        attention: What it keeps of scores.
        precision: ``half``, ``single`` or ``tf32``.

    Raises:
        PlacementError: A size is out of its range.
    """
    tokens = _patches(image_size, patch_size) ** 2 + 1
    runs: tuple[tuple[int, Layer], ...] = (
        (1, _pixels(patch_size, hidden_size, tokens, num_positions=tokens)),
        (
            whole("num_layers", num_layers),
            TransformerLayer(
                name="layer",
                hidden_size=hidden_size,
                num_heads=num_heads,
                sequence_length=tokens,
                dropout=dropout,
                attention=attention,
            ),
        ),
        (1, OutputLayer(name="output", hidden_size=hidden_size, vocab_size=num_classes, sequence_length=1)),
    )
    return ModelShape(name, runs, precision_of(precision))


def window_encoder(
    name: str,
    *,
    layers_by_level: tuple[int, ...],
    hidden_size: int,
    num_heads: int,
    window_size: int = 7,
    image_size: int = 224,
    patch_size: int = 4,
    num_classes: int = 1000,
    dropout: bool = False,
    attention: AttentionKind = "flash",
    precision: str = "half",
) -> ModelShape:
    """Return a Swin: levels of layers with attention in windows; between two, four patches become one.

    Args:
        name: What it is known by.
        layers_by_level: Transformer layers of each level.
        hidden_size: Width of the first level; each next one has twice as much.
        num_heads: Heads of the first level; likewise.
        window_size: Patches of a window's side.
        image_size: Pixels of a side.
        patch_size: Side of a patch; a divisor.
        num_classes: Classes of the output layer.
        dropout: Masks are kept.
        attention: What it keeps of scores.
        precision: ``half``, ``single`` or ``tf32``.

    Raises:
        PlacementError: A size is out of its range.
    """
    side = _patches(image_size, patch_size)
    runs: list[tuple[int, Layer]] = [(1, _pixels(patch_size, hidden_size, side * side))]
    for level, count in enumerate(_levels(layers_by_level)):
        width = hidden_size * 2**level
        if level:
            side = _patches(side, 2)
            merge = ProjectionLayer(
                name=f"merge{level}",
                input_size=2 * width,
                hidden_size=width,
                sequence_length=side * side,
                normed=True,
            )
            runs.append((1, merge))
        layer = TransformerLayer(
            name=f"level{level}",
            hidden_size=width,
            num_heads=num_heads * 2**level,
            sequence_length=side * side,
            window=whole("window_size", window_size) ** 2,
            dropout=dropout,
            attention=attention,
        )
        runs.append((count, layer))
    runs.append((1, OutputLayer(name="output", hidden_size=width, vocab_size=num_classes, sequence_length=1)))
    return ModelShape(name, tuple(runs), precision_of(precision))


def joined_encoders(
    name: str,
    *,
    num_layers: int,
    hidden_size: int,
    num_heads: int,
    vocab_size: int,
    sequence_length: int,
    image_size: int = 224,
    patch_size: int = 16,
    attention: AttentionKind = "flash",
    precision: str = "half",
) -> ModelShape:
    """Return a Flava: an image's and a text's encoder, whose outputs a third one reads together.

    Args:
        name: What it is known by.
        num_layers: Layers of each of the three.
        hidden_size: Width.
        num_heads: Attention heads.
        vocab_size: Rows of the text's table.
        sequence_length: Tokens of the text.
        image_size: Pixels of a side.
        patch_size: Side of a patch; a divisor.
        attention: What it keeps of scores.
        precision: ``half``, ``single`` or ``tf32``.

    Raises:
        PlacementError: A size is out of its range.
    """
    one = partial(
        TransformerLayer, hidden_size=hidden_size, num_heads=num_heads, dropout=False, attention=attention
    )
    count, numbers = whole("num_layers", num_layers), precision_of(precision)
    tokens = _patches(image_size, patch_size) ** 2 + 1
    table = EmbeddingLayer(
        name="embedding",
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        sequence_length=sequence_length,
        num_positions=sequence_length,
    )
    pixels = _pixels(patch_size, hidden_size, tokens, num_positions=tokens)
    image = ModelShape("image", ((1, pixels), (count, one(name="image", sequence_length=tokens))), numbers)
    text = ModelShape(
        "text", ((1, table), (count, one(name="text", sequence_length=sequence_length))), numbers
    )
    both = one(name="both", sequence_length=tokens + sequence_length)
    return ModelShape(name, ((count, both),), numbers, (image, text))


def residual_network(
    name: str,
    *,
    layers_by_level: tuple[int, ...],
    width_factor: int,
    image_size: int = 224,
    num_classes: int = 1000,
    precision: str = "half",
) -> ModelShape:
    """Return a Wide-ResNet (Zagoruyko and Komodakis, 2016): convolutions, bottlenecks in levels, and classes.

    A bottleneck has convolutions of 1, 3 and 1 with a norm after each. It keeps its input, the first two
    outputs before and after their norm, and the third before. No layer can be shared by tensor parallelism.

    Args:
        name: What it is known by.
        layers_by_level: Bottlenecks of each level.
        width_factor: Inner channels of the first level are 64 times this, of each next one twice as many.
        image_size: Pixels of a side; a multiple of 4, halved once more by each level after the first.
        num_classes: Classes of the output layer.
        precision: ``half``, ``single`` or ``tf32``.

    Raises:
        PlacementError: A size is out of its range.
    """
    numbers, levels = precision_of(precision), _levels(layers_by_level)
    whole("width_factor", width_factor)
    side, channels = _patches(image_size, 4), 64
    stem, stem_side = 3 * 64 * 7 * 7, 2 * side
    runs: list[tuple[int, Layer]] = [
        (
            1,
            CustomLayer(
                name="embedding",
                num_weights=stem + 2 * 64,
                flops=2 * stem * stem_side**2,
                kept_bytes=numbers.number_bytes * (3 * image_size**2 + 2 * 64 * stem_side**2),
                input_numbers=3 * image_size**2,
                output_numbers=64 * side**2,
            ),
        )
    ]
    for level, count in enumerate(levels):
        inner, outer = 64 * width_factor * 2**level, 256 * 2**level
        before, side = side, _patches(side, 2) if level else side
        first = _bottleneck(f"level{level}_first", (channels, inner, outer), (before, side), numbers)
        runs.append((1, first))
        if count > 1:
            other = _bottleneck(f"level{level}", (outer, inner, outer), (side, side), numbers)
            runs.append((count - 1, other))
        channels = outer
    runs.append((1, OutputLayer(name="output", hidden_size=outer, vocab_size=num_classes, sequence_length=1)))
    return ModelShape(name, tuple(runs), numbers)


def _bottleneck(
    name: str, channels: tuple[int, int, int], sides: tuple[int, int], precision: Precision
) -> CustomLayer:
    """Return three convolutions, and a fourth where channels change; the second one makes the image small."""
    (before, inner, after), (wide, small) = channels, (side**2 for side in sides)
    shortcut = before * after if before != after else 0
    weights = (before * inner, 9 * inner * inner, inner * after, shortcut)
    norms = 2 * (2 * inner + after + (after if shortcut else 0))
    kept = before * wide + 2 * inner * (wide + small) + (2 if shortcut else 1) * after * small
    return CustomLayer(
        name=name,
        num_weights=sum(weights) + norms,
        flops=2 * (weights[0] * wide + sum(weights[1:]) * small),
        kept_bytes=precision.number_bytes * kept,
        input_numbers=before * wide,
        output_numbers=after * small,
    )


def _levels(layers_by_level: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many layers each level has."""
    if not isinstance(layers_by_level, (tuple, list)) or not layers_by_level:
        raise PlacementError(f"layers_by_level: {layers_by_level!r} is not a list of layers; give one")
    return tuple(whole(f"layers_by_level[{i}]", count) for i, count in enumerate(layers_by_level))


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
    whole("image_size", size)
    if size % whole("patch_size", patch_size):
        raise PlacementError(f"image_size: {size} has no whole patches of {patch_size}; give a multiple")
    return size // patch_size
