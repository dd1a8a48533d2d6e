"""A byte-level decoder-only transformer over the stages of a chain, or of several chains as replicas.

The stages share the layers evenly, earlier ones get the extra, unless each is given its number. A first block
on the devices of the second and more is no stage but a vocabulary-parallel embedding, a last one on those of
the one before it and more a vocabulary-parallel output layer with the loss (the M-shape; Tessel, Fig. 1c);
without them the first and the last stage hold these. Embedding and output are tied where they stand on the
same devices in equal groups.

A stage on several devices is cut as in Megatron-LM: attention and perceptrons by columns and rows, embedding
and output by the vocabulary; in data-parallel groups, each group so.

Several chains are replicas of one model with micro-batches of their own, as the two directions of Chimera
(the X-shape; Tessel, Fig. 1b): a parameter has a copy on each device that holds it, and the copies'
gradients are added up before the step; see `runtime.models.model.Model.sum_copies`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placements import Block, Placement
from runtime.models.core.attention import check_heads
from runtime.models.core.chains import (
    REMEDY,
    forward_chains,
    is_beside,
    most_shards,
    stages,
    transformer_layer,
)
from runtime.models.core.layer_counts import check_counts, share
from runtime.models.core.layers import Embedding, Layer, Output
from runtime.models.core.options import ModelError, ModelOptions


def layers(placement: Placement, options: ModelOptions) -> Mapping[str, tuple[Layer, ...]]:
    """Return the layers of each forward block.

    Raises:
        ModelError: The placement's forward blocks are not chains of stages, or there are fewer layers than
            stages, layers per block that are not these stages', or fewer heads than devices of a group.
    """
    chains = chains_of_stages(placement)
    holders = [block for chain in chains for block in stages(chain)]
    check_heads(options, most_shards(holders))
    check_counts(placement, holders, options)
    _check_replicas(chains, options)
    tied = all(chain[0].groups == chain[-1].groups for chain in chains)
    embedding, output = _ends(options, tied, len(chains))
    found: dict[str, tuple[Layer, ...]] = {}
    for chain in chains:
        of_chain: dict[str, list[Layer]] = {block.name: [] for block in chain}
        shared = share(stages(chain), options.num_layers, options.layers_per_block, placement.name)
        for block, indices in shared:
            for index in indices:
                of_chain[block.name] += transformer_layer(f"layer{index}", options, causal=True)
        of_chain[chain[0].name].insert(0, embedding)
        of_chain[chain[-1].name].append(output)
        found |= {name: tuple(block_layers) for name, block_layers in of_chain.items()}
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
                    f"model: gpt cannot run {chain[place].name} in the middle on the devices of its "
                    f"neighbors and more; {REMEDY}"
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
                f"model.layers_per_block: the chain from {chain[0].name} has {count} layers, that from "
                f"{chains[0][0].name} {first}, of which it is a replica; give both as many"
            )


def _ends(options: ModelOptions, tied: bool, replicas: int) -> tuple[Embedding, Output]:
    """Return the embedding of the first blocks and the output layer of the last."""
    embedding = Embedding(
        "embedding.tokens",
        "embedding.positions",
        options.vocab_size,
        options.sequence_length,
        options.hidden_size,
    )
    table = embedding.tokens if tied else "output.tokens"
    return embedding, Output("output", table, options.vocab_size, options.hidden_size, replicas=replicas)
