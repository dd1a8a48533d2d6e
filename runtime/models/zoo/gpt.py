"""A byte-level decoder-only transformer over the stages of a chain, or of several chains as replicas.

The stages share the layers evenly, earlier ones get the extra, unless each is given its number. A first block
on the devices of the second and more is no stage but a vocabulary-parallel embedding, a last one on those of
the one before it and more a vocabulary-parallel output layer with the loss (the M-shape; Tessel, Fig. 1c);
without them the first and the last stage hold these. Embedding and output are tied where they stand on the
same devices in equal groups.

A stage on several devices is cut as in Megatron-LM: attention and perceptrons by columns and rows, embedding
and output by the vocabulary; in data-parallel groups, each group so.

Several chains are replicas of one model with micro-batches of their own, as the two directions of Chimera
(the X-shape; Tessel, Fig. 1b): each device that has a parameter has a replica of it, and the replicas'
gradients are added up before the step; see `runtime.training.copies`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placements import Block, Placement
from runtime.models.core.chains import REMEDY, forward_chains, is_beside, stages, transformer_layer
from runtime.models.core.layer_counts import check_holders, share
from runtime.models.core.layered_block import LayeredBlock
from runtime.models.core.layers import Embedding, Output
from runtime.models.core.options import ModelError, ModelOptions


def blocks(placement: Placement, options: ModelOptions) -> Mapping[str, LayeredBlock]:
    """Return the module of each forward block.

    Raises:
        ModelError: The placement's forward blocks are not chains of stages, or there are fewer layers than
            stages, layers per block that are not these stages', or fewer heads than devices of a group.
    """
    chains = chains_of_stages(placement)
    check_holders(placement, [block for chain in chains for block in stages(chain)], options)
    _check_replicas(chains, options)
    tied = all(chain[0].groups == chain[-1].groups for chain in chains)
    table = "embedding.tokens" if tied else "output.tokens"
    found = {block.name: LayeredBlock(options) for chain in chains for block in chain}
    for chain in chains:
        found[chain[0].name].start = Embedding("embedding.tokens", "embedding.positions", options)
        for name, index in share(stages(chain), options.num_layers, options, placement.name):
            found[name].layers.extend(transformer_layer(f"layer{index}", options, causal=True))
        found[chain[-1].name].output = Output("output", table, options)
    return found


def chains_of_stages(placement: Placement) -> Sequence[Sequence[Block]]:
    """Return the chains that the transformer can be cut into.

    Raises:
        ModelError: There are none, or something else.
    """
    chains = forward_chains(placement, "gpt")
    for chain in chains:
        for place in range(1, len(chain) - 1):
            if is_beside(chain, place):
                raise ModelError(
                    f"gpt cannot run {chain[place].name} in the middle on the devices of its "
                    f"neighbors and more; {REMEDY}",
                    "name",
                )
    return chains


def _check_replicas(chains: Sequence[Sequence[Block]], options: ModelOptions) -> None:
    """Ensure that all chains, which are replicas of one model, are given as many layers."""
    if options.layers_per_block is None:
        return
    first, *others = (sum(options.layers_per_block[b.name] for b in stages(chain)) for chain in chains)
    for chain, count in zip(chains[1:], others, strict=True):
        if count != first:
            raise ModelError(
                f"the chain from {chain[0].name} has {count} layers, that from "
                f"{chains[0][0].name} {first}, of which it is a replica; give both as many",
                "layers_per_block",
            )
