"""Chains of forward blocks, and what the stages of a transformer are made of."""

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
    """Return the chains that the forward blocks form, each in order; those of slices one after the other.

    Args:
        placement: What runs where.
        model: The name of the model that asks, for the error.

    Raises:
        ModelError: A block branches.
    """
    chains = []
    for graph in _whole_or_slices(placement):
        for i, name in enumerate(graph):
            if forward_inputs(placement, name) != graph[:i][-1:]:
                raise ModelError(
                    f"{model} needs a chain of forward blocks, where {name} branches; {REMEDY}", "name"
                )
        chains.append([placement.by_name[name] for name in graph])
    return chains


def _whole_or_slices(placement: Placement) -> list[tuple[str, ...]]:
    """Return the forward blocks of each graph, slice by slice."""
    slice_of = {block.name: block.sequence_slice for block in placement.blocks}
    return [
        tuple(name for name in graph if slice_of[name] == i)
        for graph in forward_graphs(placement)
        for i in sorted({slice_of[name] for name in graph})
    ]


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
