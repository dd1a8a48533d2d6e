"""A byte-level decoder-only transformer over the stages of a chain, or of several chains as replicas.

The single-device forward blocks share the layers evenly, earlier ones get the extra. A first block on
several devices is a vocabulary-parallel embedding, a last one a vocabulary-parallel output layer with the
loss (the M-shape; Tessel, Fig. 1c); without them the first and the last stage hold these. Embedding and
output are tied where they stand on the same devices.

Several chains are replicas of one model with micro-batches of their own, as the two directions of Chimera
(the X-shape; Tessel, Fig. 1b): a parameter has a copy on each device that holds it, and the copies'
gradients are added up before the step; see `runtime.models.model.Model.sum_copies`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placements import Block, Placement
from runtime.models.attention import check_heads
from runtime.models.chains import REMEDY, forward_chains, share, stages, transformer_layer
from runtime.models.layers import Embedding, Layer, Output
from runtime.models.options import ModelError, ModelOptions


def layers(placement: Placement, options: ModelOptions) -> Mapping[str, tuple[Layer, ...]]:
    """Return the layers of each forward block.

    Raises:
        ModelError: The placement's forward blocks are not chains of single-device stages between at most
            one block on several devices at each end, or there are fewer layers than stages.
    """
    chains = chains_of_stages(placement)
    check_heads(options)
    tied = all(chain[0].devices == chain[-1].devices for chain in chains)
    embedding, output = _ends(options, tied, len(chains))
    found: dict[str, tuple[Layer, ...]] = {}
    for chain in chains:
        of_chain: dict[str, list[Layer]] = {block.name: [] for block in chain}
        for block, indices in share(stages(chain), options.num_layers, placement.name):
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
        for block in chain[1:-1]:
            if len(block.devices) > 1:
                raise ModelError(
                    f"model: gpt cannot run {block.name} in the middle on several devices; {REMEDY}"
                )
        if not stages(chain):
            raise ModelError(
                f"model: gpt needs a forward block on a single device, {placement.name} has none; {REMEDY}"
            )
    return chains


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
