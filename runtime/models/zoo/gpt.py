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

Where sequences are cut into slices, each slice is a chain too. The slices of a stage stand on the same
devices, and share its parameters, keys and values; see `runtime.models.core.slices`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placements import Block, Placement
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
from runtime.models.core.layers import WHOLE_SEQUENCE, Embedding, Output
from runtime.models.core.options import ModelError, ModelOptions
from runtime.models.core.slices import KeysAndValues, SlicedBlock, slice_spans


def blocks(placement: Placement, options: ModelOptions) -> Mapping[str, LayeredBlock]:
    """Return the module of each forward block.

    Raises:
        ModelError: The placement's forward blocks are not chains of stages, or layers, heads or slices do not
            fit them.
    """
    chains = chains_of_stages(placement)
    check_holders(placement, [block for chain in chains for block in stages(chain)], options)
    if options.layers_per_block is not None:
        counts = [sum(options.layers_per_block[block.name] for block in stages(chain)) for chain in chains]
        for chain, count in zip(chains, counts, strict=True):
            if count != counts[0]:
                raise ModelError(
                    f"the chain from {chain[0].name} has {count} layers, that from {chains[0][0].name} "
                    f"{counts[0]}, of which it is a replica; give both as many",
                    "layers_per_block",
                )
    is_tied = all(chain[0].groups == chain[-1].groups for chain in chains)
    is_sliced, spans = placement.num_slices > 1, [WHOLE_SEQUENCE]
    if is_sliced:
        made, spans = _sliced(placement, chains, options), slice_spans(options, placement.num_slices)
    elif options.slice_lengths is not None:
        raise ModelError(f"{placement.name} has whole sequences; leave it out (null)", "slice_lengths")
    else:
        made = {block.name: LayeredBlock(options) for chain in chains for block in chain}
    for chain in chains:
        span, table = spans[chain[0].sequence_slice], "embedding.tokens" if is_tied else "output.tokens"
        made[chain[0].name].start = Embedding("embedding.tokens", "embedding.positions", options, span=span)
        for name, index in share(stages(chain), options.num_layers, options, placement.name):
            layer = transformer_layer(f"layer{index}", options, causal=True, sliced=is_sliced)
            made[name].layers.extend(layer)
        made[chain[-1].name].output = Output("output", table, options, span=span)
    return made


def _sliced(
    placement: Placement, chains: Sequence[Sequence[Block]], options: ModelOptions
) -> dict[str, LayeredBlock]:
    """Return the module of each block of slices, without layers."""
    number = placement.num_slices
    spans = slice_spans(options, number)
    modules: dict[str, LayeredBlock] = {}
    for first in range(0, len(chains), number):
        slices = chains[first : first + number]
        if [chain[0].sequence_slice for chain in slices] != list(range(number)):
            raise ModelError(f"gpt needs every slice of a sequence, {placement.name} lacks some", "name")
        for stage in zip(*slices, strict=False):
            kept = KeysAndValues()
            for i, (block, before) in enumerate(zip(stage, (None, *stage), strict=False)):
                length = spans[i].stop - spans[i].start
                modules[block.name] = SlicedBlock(options, i, i == number - 1, length, kept)
                if before is not None and (block.groups != before.groups or before.name not in block.after):
                    raise ModelError(
                        f"gpt needs {block.name} on the devices of {before.name} and after it, whose keys "
                        f"and values it reads; change {placement.name}",
                        "name",
                    )
    return modules


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
