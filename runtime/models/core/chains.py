"""Chains of forward blocks, and the layers of a transformer's stages: as many as given, or shared evenly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from placements import Block, Placement
from runtime.models.core.attention import Attention
from runtime.models.core.layers import FeedForward, ShardedLayer
from runtime.models.core.options import ModelError, ModelOptions
from runtime.models.core.slices import SliceAttention
from runtime.program.tensor_flow import forward_graphs, forward_inputs

REMEDY = "use the model 'synthetic'"
_FIELD = "layers_per_block"


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
    devices = set(chain[place].devices)
    return bool(neighbors) and all(devices > set(other.devices) for other in neighbors)


def stages(chain: Sequence[Block]) -> list[Block]:
    """Return the blocks of a chain that share its layers."""
    return [block for place, block in enumerate(chain) if not is_beside(chain, place)]


def transformer_layer(
    name: str, options: ModelOptions, causal: bool, sliced: bool = False
) -> tuple[ShardedLayer, ShardedLayer]:
    """Return self-attention, of slices of a sequence or the whole, and a perceptron."""
    attention = SliceAttention if sliced else Attention
    return attention(f"{name}.attention", options, causal), FeedForward(f"{name}.feed_forward", options)


def check_holders(placement: Placement, holders: Sequence[Block], options: ModelOptions) -> None:
    """Ensure that the blocks that hold layers can be cut, and that `layers_per_block` names all of them.

    Raises:
        ModelError: The heads do not share the hidden size evenly, or are fewer than the devices of a group; a
            block of `layers_per_block` is unknown, holds no layers, or is left out.
    """
    if options.hidden_size % options.num_heads:
        raise ModelError(
            f"{options.num_heads} does not divide hidden_size {options.hidden_size}; use a divisor",
            "num_heads",
        )
    if options.num_heads < (num_shards := max_shards(holders)):
        raise ModelError(
            f"{options.num_heads} cannot be cut over {num_shards} devices; "
            f"use at least {num_shards}, or the model 'synthetic'",
            "num_heads",
        )
    if (given := options.layers_per_block) is None:
        return
    names = [block.name for block in holders]
    for name in given:
        if name not in names:
            known = "holds no layers" if name in placement.by_name else "is not there"
            raise ModelError(f"{name!r} {known} in {placement.name}; give {', '.join(names)}", _FIELD)
    if missing := [name for name in names if name not in given]:
        raise ModelError(
            f"lacks {', '.join(missing)}; give each of {', '.join(names)} its number of layers", _FIELD
        )


def max_shards(blocks: Iterable[Block]) -> int:
    """Return the largest number of devices over which a block is cut."""
    return max(len(block.groups[0]) for block in blocks)


def share(
    blocks: Sequence[Block], num_layers: int | None, options: ModelOptions, where: str
) -> list[tuple[str, int]]:
    """Return the layers in order: as given block by block, or evenly, earlier blocks get the extra.

    Args:
        blocks: At least one, in order.
        num_layers: Number of layers of all of them; None for the sum of those given.
        options: May give each block its number.
        where: The blocks in words, for the error.

    Returns:
        Each layer's block, by name, and its index.

    Raises:
        ModelError: There are fewer layers than blocks, or others than are given.
    """
    if (given := options.layers_per_block) is not None:
        counts = [given[block.name] for block in blocks]
        if num_layers not in (None, sum(counts)):
            raise ModelError(
                f"gives {where} {sum(counts)} layers, where num_layers makes it {num_layers}; "
                "change one, or leave num_layers out (null)",
                _FIELD,
            )
    else:
        assert num_layers is not None, "options without counts have a number"
        if num_layers < len(blocks):
            raise ModelError(
                f"{num_layers} is fewer than the {len(blocks)} stages of {where}; use at least {len(blocks)}",
                "num_layers",
            )
        small, larger = divmod(num_layers, len(blocks))
        counts = [small + (i < larger) for i in range(len(blocks))]
    names = (block.name for block, count in zip(blocks, counts, strict=True) for _ in range(count))
    return [(name, index) for index, name in enumerate(names)]
