"""A byte-level decoder-only transformer with experts: each layer is four blocks of a chain, one by one.

    attention   self-attention, and the router: how much of which experts each token gets
    dispatch    tokens go to the devices of their experts
    experts     a perceptron for each expert, over its tokens
    combine     what the experts made goes back, weighted, and is added to what the attention left

The four stand on the same devices. Over several devices of a group attention is cut by heads, and experts are
spread evenly, as many whole ones on each as there are. Tokens are then cut into shares: each device sends
those of its share to their experts and gets them back (expert parallelism), and all shares are put together
again. An expert has its tokens in the order of the text, however they came: so its sums have the same bits as
in one piece. A last block of a chain with one more has the output layer and the loss, else the last combine.

No token is left out: a block hands over room for all of them, in case that one device has all experts asked
for. What goes between devices is only what there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor

from placements import Block, Placement
from runtime.models.core.attention import Attention
from runtime.models.core.chains import REMEDY, forward_chains
from runtime.models.core.layer_counts import check_holders
from runtime.models.core.layered_block import LayeredBlock
from runtime.models.core.layers import Embedding, Normed, Output, ShardedLayer
from runtime.models.core.options import ModelError, ModelOptions
from runtime.models.core.parameters import parameter
from runtime.transport.shards import Shards, exchange, join_shares, own_share

BLOCKS_OF_LAYER = 4
"""Forward blocks of each layer."""


def blocks(placement: Placement, options: ModelOptions) -> Mapping[str, LayeredBlock]:
    """Return the module of each forward block.

    Raises:
        ModelError: The placement's forward blocks are not chains of layers, or not of as many layers as the
            options say; or experts, heads or tokens cannot be cut over the devices of a group.
    """
    chains = chains_of_layers(placement)
    check_holders(placement, [block for chain in chains for block in chain], options)
    for chain in chains:
        _check_sizes(chain, options)
    is_tied = all(
        (chain[0].groups, chain[0].stream) == (chain[-1].groups, chain[-1].stream) for chain in chains
    )
    table = "embedding.tokens" if is_tied else "output.tokens"
    found: dict[str, LayeredBlock] = {}
    for chain in chains:
        made = [_ExpertBlock(options) for _ in chain]
        made[0].start = Embedding("embedding.tokens", "embedding.positions", options)
        for place in range(len(chain) // BLOCKS_OF_LAYER * BLOCKS_OF_LAYER):
            made[place].add(place % BLOCKS_OF_LAYER, f"layer{place // BLOCKS_OF_LAYER}", options)
        made[-1].output = Output("output", table, options)
        found |= {block.name: module for block, module in zip(chain, made, strict=True)}
    return found


def chains_of_layers(placement: Placement) -> Sequence[Sequence[Block]]:
    """Return the chains that the model can be cut into.

    Raises:
        ModelError: There are none, or something else.
    """
    chains = forward_chains(placement, "moe")
    for chain in chains:
        if len(chain) < BLOCKS_OF_LAYER or len(chain) % BLOCKS_OF_LAYER > 1:
            raise ModelError(
                f"moe needs {BLOCKS_OF_LAYER} forward blocks a layer (attention, dispatch, experts, combine) "
                f"and at most one more, and the chain from {chain[0].name} has {len(chain)}; {REMEDY}",
                "name",
            )
        for place, block in enumerate(chain[: len(chain) // BLOCKS_OF_LAYER * BLOCKS_OF_LAYER]):
            first = chain[place - place % BLOCKS_OF_LAYER]
            if block.groups != first.groups:
                raise ModelError(
                    f"moe needs the {BLOCKS_OF_LAYER} blocks of a layer on the same devices, and "
                    f"{block.name} is not on those of {first.name}; {REMEDY}",
                    "name",
                )
    return chains


def _check_sizes(chain: Sequence[Block], options: ModelOptions) -> None:
    num_layers = len(chain) // BLOCKS_OF_LAYER
    if options.layers_per_block is not None or options.num_layers != num_layers:
        field = "num_layers" if options.layers_per_block is None else "layers_per_block"
        raise ModelError(
            f"the chain from {chain[0].name} has {num_layers} layers of {BLOCKS_OF_LAYER} blocks; use "
            f"num_layers={num_layers} and no layers_per_block",
            field,
        )
    for block in chain:
        count = len(block.groups[0])
        if options.num_experts < count:
            raise ModelError(
                f"{options.num_experts} cannot be spread over the {count} devices of {block.name}; use at "
                f"least {count}",
                "num_experts",
            )
        rows = options.micro_batch_size // block.data_parallel
        for length in options.sequence_lengths or (options.sequence_length,):
            if rows * length % count:
                raise ModelError(
                    f"{rows * length} tokens of a micro-batch have no equal shares for the {count} devices "
                    f"of {block.name}; use a multiple of {count}",
                    "sequence_length" if options.sequence_lengths is None else "sequence_lengths",
                )


class _ExpertBlock(LayeredBlock):
    """A block of the model; it hands over one tensor, or the hidden values with what is under way."""

    def add(self, part: int, name: str, options: ModelOptions) -> None:
        """Add a part of a layer.

        Args:
            part: Which of the four.
            name: Prefix of the layer's parameters.
            options: Give the sizes.
        """
        (hidden,) = self.returns
        rows, positions, width = hidden
        gates = (rows, positions, options.num_experts)
        routed = (rows, positions * options.experts_per_token, width)
        if part == 0:
            self.layers.extend([Attention(f"{name}.attention", options), _Router(f"{name}.router", options)])
            self.returns = [hidden, gates, hidden]
        elif part == 1:
            self.layers.append(_Dispatch(options))
            self.returns = [hidden, gates, routed]
        elif part == 2:
            self.layers.append(_Experts(f"{name}.experts", options))
            self.returns = [hidden, gates, routed]
        else:
            self.layers.append(_Combine(options))

    def forward(self, *given: Tensor) -> Any:
        """Return what the last layer does, or the scalar loss."""
        truth, before = given[-1], given[:-1] if self.output is not None else given
        values = before if self.start is None else (self.start(*before),)
        for layer in self.layers:
            found = layer(*values)
            values = found if isinstance(found, tuple) else (found,)
        if self.output is not None:
            return self.output(values[0], truth)
        return values if len(values) > 1 else values[0]


class _Router(Normed):
    """Choose the experts of each token; every shard does so for all of them.

    Args:
        name: Prefix of the parameters.
        options: Give the sizes.
    """

    def __init__(self, name: str, options: ModelOptions) -> None:
        """Add the scores of the experts."""
        super().__init__(name, options)
        self.num_chosen = options.experts_per_token
        self.scores = parameter(f"{name}.weight", (options.hidden_size, options.num_experts))

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the input, the weight of each expert (0 where it is not chosen), and what experts see."""
        normal = functional.layer_norm(hidden, (hidden.shape[-1],), self.norm_weight, self.norm_bias)
        shares = torch.softmax(normal @ self.scores, dim=-1)
        chosen = torch.zeros_like(shares).scatter(-1, shares.topk(self.num_chosen, dim=-1).indices, 1.0)
        return hidden, shares * chosen, normal


class _Routed(ShardedLayer):
    """What is done with tokens on their way; who has which experts, and how many tokens go where."""

    def __init__(self, options: ModelOptions) -> None:
        """Keep the numbers of the experts."""
        super().__init__()
        self.num_experts, self.num_chosen = options.num_experts, options.experts_per_token

    def on_device(self, shards: Shards) -> list[int]:
        """Return how many experts each shard has, as `Shards.of` cuts them."""
        small, larger = divmod(self.num_experts, shards.count)
        return [small + (i < larger) for i in range(shards.count)]

    def counts(self, gates: Tensor) -> list[list[int]]:
        """Return for each share of the tokens how many go to each expert; every shard knows all."""
        chosen = gates.detach().flatten(0, 1) != 0
        found: list[list[int]] = chosen.view(self.shards.count, -1, self.num_experts).sum(1).tolist()
        return found

    def numbers(self, gates: Tensor) -> tuple[list[int], list[int]]:
        """Return how many rows this shard sends to each, and how many it gets from each."""
        counts, first = self.counts(gates), [0, *accumulate(self.on_device(self.shards))]
        own, here = self.shards.index, slice(first[self.shards.index], first[self.shards.index + 1])
        sent = [sum(counts[own][a:b]) for a, b in pairwise(first)]
        return sent, [sum(each[here]) for each in counts]

    def by_expert(self, gates: Tensor) -> list[int]:
        """Return how many tokens each expert of this shard has."""
        first = sum(self.on_device(self.shards)[: self.shards.index])
        number = self.on_device(self.shards)[self.shards.index]
        counts = self.counts(gates)
        return [sum(each[i] for each in counts) for i in range(first, first + number)]

    def sorted_rows(self, gates: Tensor) -> Tensor:
        """Return for each row of this shard's experts, expert by expert, its place among those that came."""
        first = sum(self.on_device(self.shards)[: self.shards.index])
        here = range(first, first + self.on_device(self.shards)[self.shards.index])
        counts = self.counts(gates)
        begin = [0, *accumulate(counts[share][i] for share in range(self.shards.count) for i in here)]
        found: list[int] = []
        for place in range(len(here)):
            for share in range(self.shards.count):
                at = share * len(here) + place
                found += range(begin[at], begin[at + 1])
        return torch.tensor(found, dtype=torch.long, device=gates.device)

    def chosen_tokens(self, gates: Tensor) -> tuple[Tensor, Tensor]:
        """Return expert and token, of this shard's share, of each row that is sent; expert by expert."""
        own = own_share(gates.detach().flatten(0, 1), self.shards)
        expert, token = (own != 0).T.nonzero(as_tuple=True)
        return expert, token


class _Dispatch(_Routed):
    """Send each token to its experts."""

    def forward(self, hidden: Tensor, gates: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the first two, and the tokens of this shard's experts, expert by expert."""
        own = own_share(tokens.flatten(0, 1), self.shards)
        _, token = self.chosen_tokens(gates)
        rows = exchange(own.index_select(0, token), *self.numbers(gates), self.shards)
        rows = rows.index_select(0, self.sorted_rows(gates))
        return hidden, gates, _with_room(rows, gates, self.num_chosen)


class _Experts(_Routed):
    """A two-layer perceptron for each expert; a shard has some of them.

    Args:
        name: Prefix of the parameters.
        options: Give the sizes; the middle is four times as wide.
    """

    def __init__(self, name: str, options: ModelOptions) -> None:
        """Add both layers of all experts."""
        super().__init__(options)
        number, hidden, middle = options.num_experts, options.hidden_size, 4 * options.hidden_size
        self.up = parameter(f"{name}.up.weight", (number, hidden, middle), split=0)
        self.up_bias = parameter(f"{name}.up.bias", (number, middle), split=0)
        self.down = parameter(f"{name}.down.weight", (number, middle, hidden), split=0)
        self.down_bias = parameter(f"{name}.down.bias", (number, hidden), split=0)

    def forward(self, hidden: Tensor, gates: Tensor, routed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the first two, and what each expert makes of its tokens."""
        numbers = self.by_expert(gates)
        rows = routed.flatten(0, 1)[: sum(numbers)].split_with_sizes(numbers)
        made = [
            functional.gelu(own @ self.up[i] + self.up_bias[i]) @ self.down[i] + self.down_bias[i]
            for i, own in enumerate(rows)
        ]
        return hidden, gates, _with_room(torch.cat(made), gates, self.num_chosen)


class _Combine(_Routed):
    """Send back what the experts made, and add it up token by token."""

    def forward(self, hidden: Tensor, gates: Tensor, routed: Tensor) -> Tensor:
        """Return the hidden values with the experts' sum added."""
        sent, received = self.numbers(gates)
        rows = routed.flatten(0, 1)[: sum(received)]
        rows = rows.index_select(0, self.sorted_rows(gates).argsort())
        rows = exchange(rows, received, sent, self.shards)
        expert, token = self.chosen_tokens(gates)
        own = own_share(gates.flatten(0, 1), self.shards)
        weighted = rows * own[token, expert].unsqueeze(-1)
        total = torch.zeros_like(own_share(hidden.detach().flatten(0, 1), self.shards))
        total = total.index_add(0, token, weighted)
        return hidden + join_shares(total, self.shards).view_as(hidden)


def _with_room(rows: Tensor, gates: Tensor, num_chosen: int) -> Tensor:
    """Return rows with zeros behind them, as many as if all tokens had come, sample by sample."""
    samples, positions, _ = gates.shape
    room = functional.pad(rows, (0, 0, 0, samples * positions * num_chosen - len(rows)))
    return room.view(samples, positions * num_chosen, rows.shape[1])
