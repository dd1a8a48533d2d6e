"""Two encoders and a cross-encoder in the manner of Flava, over two branches and a join: the K-shape.

(Tessel, Fig. 1d and 8g.) The first branch encodes an image, the second a text, each on devices of its own.
The join and the blocks after it are the cross-encoder. Attention and perceptrons of blocks on several devices
are cut over these by columns and rows, as in Megatron-LM. The text lacks every fourth byte, and the loss is
the cross entropy of these bytes, Flava's masked modelling of both modalities. The image shows the whole text,
a patch of 8 pixels for each byte, which are its bits: so a model that looks can fill the gaps.

Each encoder has `num_layers` layers, the cross-encoder half as many, at least one for each of its blocks;
or each block has as many as the options say.
Flava's contrastive and single-modality losses are left out.

A micro-batch may leave out one of the branches, as one without images does. The cross-encoder then sees the
positions of the other alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from placements import Block, Placement
from runtime.models.core.chains import REMEDY, check_holders, share, transformer_layer
from runtime.models.core.layered_block import LayeredBlock
from runtime.models.core.layers import Embedding, Normalization, Output
from runtime.models.core.options import ModelError, ModelOptions
from runtime.models.core.parameters import parameter
from runtime.models.core.tokens import MASK_STRIDE
from runtime.program.tensor_flow import forward_consumers, forward_graphs, forward_inputs
from runtime.program.tensor_spec import TOKENS

PATCH_SIZE = 8
"""Pixels of a patch: the bits of a byte."""


class Patches(nn.Module):
    """Project the patches of the image, and add positions; not cut, each shard does all."""

    reads = "inputs"

    def __init__(self, options: ModelOptions) -> None:
        super().__init__()
        self.projection = parameter("image.patches", (PATCH_SIZE, options.hidden_size))
        self.positions = parameter("image.positions", (options.sequence_length, options.hidden_size))

    def forward(self, values: Tensor) -> Tensor:
        """Return the embedded image; shape ``(rows, sequence_length, hidden_size)``."""
        bits = torch.arange(PATCH_SIZE, device=self.projection.device)
        pixels = (values.unsqueeze(-1) >> bits & 1) * 2 - 1
        return pixels.to(self.projection.dtype) @ self.projection + self.positions[: values.shape[1]]


class HiddenBytes(Output):
    """Score the bytes that the model has to restore, which are among the first positions."""

    def forward(self, hidden: Tensor, truth: Tensor) -> Tensor:
        """Return the loss: a scalar."""
        return super().forward(hidden[:, ::MASK_STRIDE][:, : truth.shape[1]], truth)


class CrossBlock(LayeredBlock):
    """Layers of the cross-encoder, over text and image one after the other: twice the positions.

    The branches are the last blocks of image and text, of which some micro-batch may leave one out.
    """

    def __init__(self, options: ModelOptions, branches: tuple[str, str], varies: bool) -> None:
        super().__init__(options)
        (rows, length, width), self.branches = self.returns[0], branches
        self.returns = [(rows, TOKENS if varies else 2 * length, width)]

    def join(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return text and image one after the other, along the positions, as far as they are there."""
        return torch.cat(list(inputs)[::-1], dim=1)


class Parts(NamedTuple):
    """The forward blocks of the two branches and of the cross-encoder, each in order."""

    image: list[Block]
    text: list[Block]
    cross: list[Block]


def blocks(placement: Placement, options: ModelOptions) -> Mapping[str, LayeredBlock]:
    """Return the module of each forward block.

    Raises:
        ModelError: The forward blocks are not two branches and a join, or layers or heads do not fit them.
    """
    image, text, cross = parts(placement)
    check_holders(placement, (*image, *text, *cross), options)
    # A block without time is left out of some micro-batch.
    before = [block.name for block in (*image, *text)]
    choices = (choice for decision in placement.decisions for choice in decision.choices)
    leaves_out = any(b.name in before and not b.time for choice in choices for b in choice.blocks)
    varies = options.sequence_lengths is not None or leaves_out
    modules = {name: LayeredBlock(options) for name in before}
    ends = image[-1].name, text[-1].name
    modules |= {block.name: CrossBlock(options, ends, varies) for block in cross}
    modules[image[0].name].start = Patches(options)
    modules[text[0].name].start = Embedding("text.tokens", "text.positions", options, reads="masked")
    for name, part in (("image", image), ("text", text), ("cross", cross)):
        num_layers = options.num_layers
        if name == "cross" and num_layers is not None:
            num_layers = max(len(cross), num_layers // 2)
        where = f"the {name} encoder in {placement.name}"
        for block, index in share(part, num_layers, options, where):
            modules[block].layers.extend(transformer_layer(f"{name}{index}", options, causal=False))
        if name != "cross":
            modules[part[-1].name].layers.append(Normalization(name, options))
    modules[cross[-1].name].output = HiddenBytes("output", "output.tokens", options, truth="hidden")
    return modules


def parts(placement: Placement) -> Parts:
    """Return the branches and the cross-encoder.

    Raises:
        ModelError: The forward blocks are something else.
    """
    graphs = forward_graphs(placement)
    before = {name: forward_inputs(placement, name) for graph in graphs for name in graph}
    joins = [name for name in before if len(before[name]) > 1]
    sources = [name for name in before if not before[name]]
    branching = [name for name in before if len(forward_consumers(placement, name)) > 1]
    if len(graphs) != 1 or len(sources) != 2 or len(joins) != 1 or branching:
        raise ModelError(f"flava needs two branches and a join, {placement.name} is not so; {REMEDY}", "name")
    branches = []
    for end in before[joins[0]]:
        branch = [end]
        while before[branch[0]]:
            branch.insert(0, before[branch[0]][0])
        branches.append(branch)
    cross = [name for name in graphs[0] if name not in branches[0] + branches[1]]
    image, text, after = ([placement.by_name[name] for name in part] for part in (*branches, cross))
    return Parts(image, text, after)
