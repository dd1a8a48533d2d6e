"""A model for any graph of blocks: every forward block is a small residual perceptron.

A block without inputs embeds the bytes of the micro-batch; any other adds up its inputs, each with a
weight of its own. A block whose output nobody reads adds an output layer and the cross entropy of the
next bytes; the loss of a micro-batch is the sum over these blocks. Separate graphs of blocks read
micro-batches of their own, and the loss is their mean. Blocks on several devices are cut into shards
throughout, each data-parallel group by itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from placements import Kind, Placement
from runtime.models.core.layered_block import LayeredBlock
from runtime.models.core.layers import Embedding, FeedForward, Output
from runtime.models.core.options import ModelOptions
from runtime.program.tensor_flow import computes_loss, forward_inputs


def blocks(placement: Placement, options: ModelOptions) -> Mapping[str, LayeredBlock]:
    """Return the module of each forward block."""
    forward = [block.name for block in placement.topological_order if block.kind is Kind.F]
    return {name: _block(name, placement, options) for name in forward}


def _block(name: str, placement: Placement, options: ModelOptions) -> LayeredBlock:
    made = LayeredBlock(options)
    if not forward_inputs(placement, name):
        made.start = Embedding(f"{name}.embedding.tokens", f"{name}.embedding.positions", options)
    made.layers.append(FeedForward(f"{name}.feed_forward", options))
    if computes_loss(placement, name):
        made.output = Output(f"{name}.output", f"{name}.output.tokens", options)
    return made
