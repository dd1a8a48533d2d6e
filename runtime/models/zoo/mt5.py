"""A byte-level encoder-decoder transformer in the manner of mT5 over a chain: the NN-shape (Tessel, Fig. 8d).

The encoder reads the bytes before a sample, the decoder the sample, whose next bytes it predicts. The chain
is: an embedding, the encoder's stages, the decoder's embedding, the decoder's stages, and perhaps an output
layer; without it the last stage holds the output and the loss. Embeddings and output layer stand on the
devices of the stages beside them and more. They are vocabulary-parallel and share one table where they stand
on the same devices in equal groups. Stages on several devices are cut as in `runtime.models.zoo.gpt`.

Every decoder stage attends to the encoder's output. So from the decoder's embedding on, a block hands over
two tensors in one, the encoder's output and its own hidden values: the chain needs no other edges, and the
gradients of all cross-attentions add up on their way back. Unlike mT5 there are learned positions, biases
and plain layer normalization, as in our GPT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from placements import Block, Placement
from runtime.models.core.attention import CrossAttention
from runtime.models.core.chains import REMEDY, forward_chains, is_beside, stages, transformer_layer
from runtime.models.core.layer_counts import check_holders, share
from runtime.models.core.layers import Embedding, Layer, Normalization, Output, Parameter, Weights
from runtime.models.core.options import ModelError, ModelOptions
from runtime.models.core.tokens import Tokens
from runtime.transport.shards import Shards


@dataclass(frozen=True)
class BesideEncoder:
    """Begin the decoder: return the input, which is the encoder's output, and an embedding as one tensor.

    Attributes:
        embedding: Of what the decoder reads.
    """

    embedding: Embedding

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the embedding's parameters."""
        return self.embedding.parameters()

    def forward(self, hidden: Tensor | None, tokens: Tokens, weights: Weights, shards: Shards) -> Tensor:
        """Return both; shape ``(rows, 2, length, hidden_size)``."""
        assert hidden is not None, "the decoder comes after the encoder"
        return torch.stack([hidden, self.embedding.forward(None, tokens, weights, shards)], 1)


@dataclass(frozen=True)
class InDecoder:
    """Apply a layer to the decoder's hidden values, and leave the encoder's output as it is.

    Attributes:
        layer: Any layer; what an `Output` returns is handed on alone.
    """

    layer: Layer

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the layer's parameters."""
        return self.layer.parameters()

    def forward(self, hidden: Tensor | None, tokens: Tokens, weights: Weights, shards: Shards) -> Tensor:
        """Return both again, or the scalar loss."""
        assert hidden is not None, "the decoder comes after the encoder"
        memory, own = hidden.unbind(1)
        after = self.layer.forward(own, tokens, weights, shards)
        return after if isinstance(self.layer, Output) else torch.stack([memory, after], 1)


def layers(placement: Placement, options: ModelOptions) -> Mapping[str, Sequence[Layer]]:
    """Return the layers of each forward block.

    Raises:
        ModelError: The forward blocks are not such a chain, or there are fewer layers than stages, layers per
            block that are not these stages', or fewer heads than devices of a group.
    """
    chain, middle = encoder_and_decoder(placement)
    check_holders(placement, stages(chain), options)
    first, begin, last = chain[0], chain[middle], chain[-1]
    one_table = "embedding.tokens"
    begin_table = one_table if begin.groups == first.groups else "decoder.embedding.tokens"
    out_table = one_table if last.groups == first.groups else "output.tokens"
    halves = chain[:middle], chain[middle:]
    found: dict[str, list[Layer]] = {block.name: [] for block in chain}
    found[first.name].append(Embedding(one_table, "encoder.positions", options, "context"))
    found[begin.name].append(BesideEncoder(Embedding(begin_table, "decoder.positions", options)))
    encoder, decoder = ([block for block in stages(chain) if block in half] for half in halves)
    for name, index in share(encoder, options.num_layers, options, f"the encoder in {placement.name}"):
        found[name] += transformer_layer(f"encoder{index}", options, causal=False)
    found[encoder[-1].name].append(Normalization("encoder.norm", options))
    for name, index in share(decoder, options.num_layers, options, f"the decoder in {placement.name}"):
        found[name] += _decoder_layer(f"decoder{index}", options)
    found[last.name].append(InDecoder(Output("output", out_table, options)))
    return found


def output_shape(placement: Placement, options: ModelOptions, block: str) -> tuple[int, ...]:
    """Return the shape of the output of a forward block that computes no loss."""
    chain, middle = encoder_and_decoder(placement)
    encoder = {other.name for other in chain[:middle]}
    rows, one = options.micro_batch_size, (options.sequence_length, options.hidden_size)
    return (rows, *one) if block in encoder else (rows, 2, *one)


def encoder_and_decoder(placement: Placement) -> tuple[Sequence[Block], int]:
    """Return the chain, and where in it the decoder's embedding stands.

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


def _decoder_layer(name: str, options: ModelOptions) -> list[Layer]:
    attention, feed_forward = transformer_layer(name, options, causal=True)
    cross = CrossAttention(f"{name}.cross_attention", options)
    return [InDecoder(attention), cross, InDecoder(feed_forward)]
