"""Chains of forward blocks, and the layers of a transformer's stages."""

from __future__ import annotations

from collections.abc import Sequence

from placements import Block, Placement
from runtime.models.core.attention import Attention
from runtime.models.core.layers import FeedForward, ShardedLayer
from runtime.models.core.options import ModelError, ModelOptions
from runtime.models.core.slices import SliceAttention
from runtime.program.tensor_flow import forward_graphs, forward_inputs

REMEDY = "use the model 'synthetic'"


def forward_chains(placement: Placement, model: str) -> list[list[Block]]:
    """Return the chains of forward blocks, each in order; a graph of slices has one for each slice.

    Raises:
        ModelError: A block branches; the error names the model.
    """
    by_name, chains = placement.by_name, []
    for graph in forward_graphs(placement):
        for i in sorted({by_name[name].sequence_slice for name in graph}):
            chain = tuple(name for name in graph if by_name[name].sequence_slice == i)
            for place, name in enumerate(chain):
                if forward_inputs(placement, name) != chain[:place][-1:]:
                    raise ModelError(
                        f"{model} needs a chain of forward blocks, where {name} branches; {REMEDY}", "name"
                    )
            chains.append([by_name[name] for name in chain])
    return chains


def is_beside(chain: Sequence[Block], place: int) -> bool:
    """Tell whether a block of a chain stands beside the stages rather than is one.

    Its devices are those of each of its neighbors and more: so stands the vocabulary's part, over the devices
    of several stages. A stage has devices of its own, one or several.
    """
    neighbors = [*chain[max(place - 1, 0) : place], *chain[place + 1 : place + 2]]
    own = set(chain[place].devices)
    return bool(neighbors) and all(own > set(other.devices) for other in neighbors)


def stages(chain: Sequence[Block]) -> list[Block]:
    """Return the blocks of a chain that share its layers."""
    return [block for place, block in enumerate(chain) if not is_beside(chain, place)]


def transformer_layer(
    name: str, options: ModelOptions, causal: bool, sliced: bool = False
) -> tuple[ShardedLayer, ShardedLayer]:
    """Return self-attention, of slices of a sequence or the whole, and a perceptron."""
    attention = SliceAttention if sliced else Attention
    return attention(f"{name}.attention", options, causal), FeedForward(f"{name}.feed_forward", options)
