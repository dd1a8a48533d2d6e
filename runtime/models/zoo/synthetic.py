"""A model for any graph of blocks: every forward block is a small residual perceptron.

A block without inputs embeds the bytes of the micro-batch; any other adds up its inputs, each with a
weight of its own. A block whose output nobody reads adds an output layer and the cross entropy of the
next bytes; the loss of a micro-batch is the sum over these blocks. Blocks on several devices are cut
into shards throughout, each data-parallel group by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placements import Block, Kind, Placement
from runtime.models.core.layers import Embedding, FeedForward, Layer, Output
from runtime.models.core.options import ModelOptions


def layers(placement: Placement, options: ModelOptions) -> Mapping[str, Sequence[Layer]]:
    """Return the layers of each forward block."""
    forward = [block for block in placement.topological_order if block.kind is Kind.F]
    return {block.name: _block_layers(block, placement, options) for block in forward}


def _block_layers(block: Block, placement: Placement, options: ModelOptions) -> list[Layer]:
    kind_of = {other.name: other.kind for other in placement.blocks}
    found: list[Layer] = []
    if not any(kind_of[name] is Kind.F for name in block.after):
        name = f"{block.name}.embedding"
        found.append(Embedding(f"{name}.tokens", f"{name}.positions", options))
    found.append(FeedForward(f"{block.name}.feed_forward", options))
    if not any(kind_of[name] is Kind.F for name in placement.successors[block.name]):
        found.append(Output(f"{block.name}.output", f"{block.name}.output.tokens", options))
    return found
