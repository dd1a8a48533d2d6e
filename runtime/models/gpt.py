"""A byte-level decoder-only transformer over the stages of a chain.

The single-device forward blocks share the layers evenly, earlier ones get the extra. A first block on
several devices is a vocabulary-parallel embedding, a last one a vocabulary-parallel output layer with the
loss (the M-shape; Tessel, Fig. 1c); without them the first and the last stage hold these. Embedding and
output are tied where they stand on the same devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placements import Block, Kind, Placement
from runtime.models.layers import Attention, Embedding, FeedForward, Layer, Output
from runtime.models.options import ModelError, ModelOptions

REMEDY = "use model=synthetic"


def layers(placement: Placement, options: ModelOptions) -> Mapping[str, tuple[Layer, ...]]:
    """Return the layers of each forward block.

    Raises:
        ModelError: The placement's forward blocks are not a chain of single-device stages between at most
            one block on several devices at each end, or there are fewer layers than stages.
    """
    chain = forward_chain(placement)
    if options.hidden_size % options.num_heads:
        raise ModelError(
            f"model.num_heads: {options.num_heads} does not divide hidden_size {options.hidden_size}; "
            "use a divisor"
        )
    stages = [block for block in chain if len(block.devices) == 1]
    if options.num_layers < len(stages):
        raise ModelError(
            f"model.num_layers: {options.num_layers} is fewer than the {len(stages)} stages of "
            f"{placement.name}; use at least {len(stages)}"
        )
    found: dict[str, list[Layer]] = {block.name: [] for block in chain}
    for block, first, end in _share(stages, options.num_layers):
        for index in range(first, end):
            found[block.name] += _transformer_layer(f"layer{index}", options)
    embedding, output = _ends(chain, options)
    found[chain[0].name].insert(0, embedding)
    found[chain[-1].name].append(output)
    return {name: tuple(block_layers) for name, block_layers in found.items()}


def forward_chain(placement: Placement) -> list[Block]:
    """Return the forward blocks in order.

    Raises:
        ModelError: They are not a chain that the transformer can be cut into.
    """
    chain = [block for block in placement.topological_order if block.kind is Kind.F]
    names = {block.name for block in chain}
    for i, block in enumerate(chain):
        before = [name for name in block.after if name in names]
        if before != [other.name for other in chain[:i]][-1:]:
            raise ModelError(
                f"model: gpt needs a chain of forward blocks, where {block.name} branches; {REMEDY}"
            )
    for block in chain[1:-1]:
        if len(block.devices) > 1:
            raise ModelError(f"model: gpt cannot run {block.name} in the middle on several devices; {REMEDY}")
    if all(len(block.devices) > 1 for block in chain):
        raise ModelError(
            f"model: gpt needs a forward block on a single device, {placement.name} has none; {REMEDY}"
        )
    return chain


def _share(stages: Sequence[Block], num_layers: int) -> list[tuple[Block, int, int]]:
    """Return each stage with its first layer and the layer after its last."""
    small, larger = divmod(num_layers, len(stages))
    ends = [(i + 1) * small + min(i + 1, larger) for i in range(len(stages))]
    return list(zip(stages, [0, *ends[:-1]], ends, strict=True))


def _transformer_layer(name: str, options: ModelOptions) -> list[Layer]:
    attention = Attention(f"{name}.attention", options.hidden_size, options.num_heads)
    return [attention, FeedForward(f"{name}.feed_forward", options.hidden_size)]


def _ends(chain: Sequence[Block], options: ModelOptions) -> tuple[Embedding, Output]:
    """Return the embedding of the first block and the output layer of the last."""
    tied = chain[0].devices == chain[-1].devices
    embedding = Embedding(
        "embedding.tokens",
        "embedding.positions",
        options.vocab_size,
        options.sequence_length,
        options.hidden_size,
    )
    table = embedding.tokens if tied else "output.tokens"
    return embedding, Output("output", table, options.vocab_size, options.hidden_size)
