"""A byte-level encoder-decoder transformer in the manner of mT5 over a chain: the NN-shape (Tessel, Fig. 8d).

The encoder reads the bytes before a sample, the decoder the sample, whose next bytes it predicts. The chain
is: an embedding, the encoder's stages, the decoder's embedding, the decoder's stages, and perhaps an output
layer; without it the last stage holds the output and the loss. Embeddings and output layer stand on the
devices of the stages beside them and more. They are vocabulary-parallel and share one table where they stand
on the same devices in equal groups. Stages on several devices are cut as in `runtime.models.zoo.gpt`.

Every decoder stage attends to the encoder's output. So from the decoder's embedding on, a block hands over
two tensors, its own hidden values and the encoder's output: the chain needs no other edges, and the gradients
of all cross-attentions add up on their way back. Unlike mT5 there are learned positions, biases
and plain layer normalization, as in our GPT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from placements import Block, Placement
from runtime.models.core.attention import CrossAttention
from runtime.models.core.chains import (
    REMEDY,
    check_holders,
    forward_chains,
    is_beside,
    share,
    stages,
    transformer_layer,
)
from runtime.models.core.layered_block import LayeredBlock
from runtime.models.core.layers import Embedding, Normalization, Output
from runtime.models.core.options import ModelError, ModelOptions

_TABLE = "embedding.tokens"


class DecoderBlock(LayeredBlock):
    """Layers of the decoder, which hand the encoder's output on."""

    def __init__(self, options: ModelOptions) -> None:
        super().__init__(options)
        self.returns *= 2

    def forward(self, *given: Tensor) -> Any:
        """Return hidden values and the encoder's output, or the scalar loss.

        The first block is given the encoder's output, and its bytes; others hidden values, the encoder's
        output, and the last one the true bytes.
        """
        if self.start is None:
            hidden, memory = given[:2]
        else:
            memory, hidden = given[0], self.start(given[1])
        for layer in self.layers:
            hidden = layer(hidden, memory) if isinstance(layer, CrossAttention) else layer(hidden)
        return (hidden, memory) if self.output is None else self.output(hidden, given[-1])


def blocks(placement: Placement, options: ModelOptions) -> Mapping[str, LayeredBlock]:
    """Return the module of each forward block.

    Raises:
        ModelError: The forward blocks are not such a chain, or layers or heads do not fit it.
    """
    chain, middle = encoder_and_decoder(placement)
    check_holders(placement, stages(chain), options)
    first, begin, last = chain[0], chain[middle], chain[-1]
    modules = {block.name: LayeredBlock(options) for block in chain[:middle]}
    modules |= {block.name: DecoderBlock(options) for block in chain[middle:]}
    begin_table = _TABLE if begin.groups == first.groups else "decoder.embedding.tokens"
    modules[first.name].start = Embedding(_TABLE, "encoder.positions", options, "context")
    modules[begin.name].start = Embedding(begin_table, "decoder.positions", options)
    encoder, decoder = ([b for b in stages(chain) if b in half] for half in (chain[:middle], chain[middle:]))
    for name, index in share(encoder, options.num_layers, options, f"the encoder in {placement.name}"):
        modules[name].layers.extend(transformer_layer(f"encoder{index}", options, causal=False))
    modules[encoder[-1].name].layers.append(Normalization("encoder", options))
    for name, index in share(decoder, options.num_layers, options, f"the decoder in {placement.name}"):
        attention, feed_forward = transformer_layer(f"decoder{index}", options, causal=True)
        cross_attention = CrossAttention(f"decoder{index}.cross_attention", options)
        modules[name].layers.extend([attention, cross_attention, feed_forward])
    table = _TABLE if last.groups == first.groups else "output.tokens"
    modules[last.name].output = Output("output", table, options)
    return modules


def encoder_and_decoder(placement: Placement) -> tuple[Sequence[Block], int]:
    """Return the chain, and the place of the decoder's embedding in it.

    Raises:
        ModelError: The forward blocks are not a chain that the model can be cut into.
    """
    (chain, *others) = forward_chains(placement, "mt5")
    if others:
        raise ModelError(f"mt5 needs one chain, {placement.name} has {1 + len(others)}; {REMEDY}", "name")
    middle = [place for place in range(1, len(chain) - 1) if is_beside(chain, place)]
    if not is_beside(chain, 0) or len(middle) != 1:
        raise ModelError(
            "mt5 needs a first forward block and one in the middle on the devices of their neighbors "
            f"and more, for the embeddings of encoder and decoder; {REMEDY}",
            "name",
        )
    return chain, middle[0]
