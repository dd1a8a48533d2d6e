"""A byte-level decoder-only transformer with experts: each layer is four blocks of a chain, one by one.

    attention   self-attention, and the router: the weights of each token's experts
    dispatch    tokens go to the devices of their experts
    experts     a perceptron for each expert, over its tokens
    combine     the experts' results go back, weighted, and are added to the attention's

The four stand on the same devices. Over several devices of a group attention is cut by heads, and experts are
spread evenly, as many whole ones on each as there are. Tokens are then cut into shares: each device sends
those of its share to their experts and gets them back (expert parallelism), and all shares are put together
again. An expert has its tokens in the order of the text, however they came: so its sums have the same bits as
in one piece. A last block of a chain with one more has the output layer and the loss, else the last combine.

No token is left out: a block hands over room for all of them, in case that one device has all experts asked
for. Only the rows that are there go between devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as functional
from torch import Tensor

from placements import Block, Placement
from runtime.models.core.attention import Attention
from runtime.models.core.chains import REMEDY, check_holders, forward_chains
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
        ModelError: The placement's forward blocks are not chains of layers, or layers, experts, heads or
            tokens do not fit them.
    """
    chains = chains_of_layers(placement)
    check_holders(placement, [block for chain in chains for block in chain], options)
    ends = [(chain[0], chain[-1]) for chain in chains]
    is_tied = all((first.groups, first.stream) == (last.groups, last.stream) for first, last in ends)
    modules: dict[str, LayeredBlock] = {}
    for chain in chains:
        _check_sizes(chain, options)
        made = [_ExpertBlock(options) for _ in chain]
        made[0].start = Embedding("embedding.tokens", "embedding.positions", options)
        for place in range(len(chain) // BLOCKS_OF_LAYER * BLOCKS_OF_LAYER):
            made[place].add(place % BLOCKS_OF_LAYER, f"layer{place // BLOCKS_OF_LAYER}", options)
        made[-1].output = Output("output", "embedding.tokens" if is_tied else "output.tokens", options)
        modules |= {block.name: module for block, module in zip(chain, made, strict=True)}
    return modules


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
                    f"{block.name} is not on the devices of {first.name}; {REMEDY}",
                    "name",
                )
    return chains


def _check_sizes(chain: Sequence[Block], options: ModelOptions) -> None:
    num_layers = len(chain) // BLOCKS_OF_LAYER
    if options.layers_per_block is not None or options.num_layers != num_layers:
        raise ModelError(
            f"the chain from {chain[0].name} has {num_layers} layers of {BLOCKS_OF_LAYER} blocks; use "
            f"num_layers={num_layers} and no layers_per_block",
            "num_layers" if options.layers_per_block is None else "layers_per_block",
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
    """A block of the model; it hands over hidden values, alone or with gates and tokens on their way."""

    def add(self, part: int, name: str, options: ModelOptions) -> None:
        """Add one of the four parts of a layer, whose parameters begin with a name."""
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
            self.layers.append(_Combine())

    def forward(self, *given: Tensor) -> Any:
        """Return the last layer's result, or the scalar loss."""
        truth, before = given[-1], given[:-1] if self.output is not None else given
        values = before if self.start is None else (self.start(*before),)
        for layer in self.layers:
            result = layer(*values)
            values = result if isinstance(result, tuple) else (result,)
        if self.output is not None:
            return self.output(values[0], truth)
        return values if len(values) > 1 else values[0]


class _Router(Normed):
    """Choose the experts of each token; every shard does so for all of them."""

    def __init__(self, name: str, options: ModelOptions) -> None:
        super().__init__(name, options)
        self._num_chosen = options.experts_per_token
        self.scores = parameter(f"{name}.weight", (options.hidden_size, options.num_experts))

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the input, the weight of each expert (0 where it is not chosen), and the experts' input."""
        normal = functional.layer_norm(hidden, (hidden.shape[-1],), self.norm_weight, self.norm_bias)
        shares = torch.softmax(normal @ self.scores, dim=-1)
        chosen = torch.zeros_like(shares).scatter(-1, shares.topk(self._num_chosen, dim=-1).indices, 1.0)
        return hidden, shares * chosen, normal


class _Routes(NamedTuple):
    """Numbers of rows that a shard sends to and gets from each, and has for each of its experts.

    The order has the places of its experts' rows among those that it gets, expert by expert.
    """

    sent: list[int]
    received: list[int]
    by_expert: list[int]
    order: Tensor


def _routes(gates: Tensor, shards: Shards) -> _Routes:
    """Return the ways of the tokens, which every shard knows; experts are cut as `Shards.of` cuts."""
    num_experts = gates.shape[-1]
    counts = (gates.detach() != 0).view(shards.count, -1, num_experts).sum(1).cpu()
    experts = torch.arange(num_experts).tensor_split(shards.count)
    sent = [int(counts[shards.index, of_shard].sum()) for of_shard in experts]
    local = counts[:, experts[shards.index]]
    expert_of_row = torch.arange(local.shape[1]).repeat(shards.count).repeat_interleave(local.flatten())
    order = expert_of_row.argsort(stable=True).to(gates.device)
    return _Routes(sent, local.sum(1).tolist(), local.sum(0).tolist(), order)


def _chosen(gates: Tensor, shards: Shards) -> tuple[Tensor, Tensor]:
    """Return expert and token, of this shard's share, of each row that is sent; expert by expert."""
    share = own_share(gates.detach().flatten(0, 1), shards)
    expert, token = (share != 0).T.nonzero(as_tuple=True)
    return expert, token


def _with_room(rows: Tensor, shape: Sequence[int]) -> Tensor:
    """Return rows with zeros behind them, in the shape that they have if all tokens come."""
    return functional.pad(rows, (0, 0, 0, shape[0] * shape[1] - len(rows))).view(*shape)


class _Dispatch(ShardedLayer):
    """Send each token to its experts."""

    def __init__(self, options: ModelOptions) -> None:
        super().__init__()
        self._num_chosen = options.experts_per_token

    def forward(self, hidden: Tensor, gates: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the first two, and the tokens of this shard's experts, expert by expert."""
        routes = _routes(gates, self.shards)
        _, token = _chosen(gates, self.shards)
        rows = own_share(tokens.flatten(0, 1), self.shards).index_select(0, token)
        rows = exchange(rows, routes.sent, routes.received, self.shards).index_select(0, routes.order)
        samples, positions, width = tokens.shape
        return hidden, gates, _with_room(rows, (samples, positions * self._num_chosen, width))


class _Experts(ShardedLayer):
    """A two-layer perceptron for each expert, in the middle four times as wide; a shard has some of them."""

    def __init__(self, name: str, options: ModelOptions) -> None:
        super().__init__()
        number, hidden, middle = options.num_experts, options.hidden_size, 4 * options.hidden_size
        self.up = parameter(f"{name}.up.weight", (number, hidden, middle), split=0)
        self.up_bias = parameter(f"{name}.up.bias", (number, middle), split=0)
        self.down = parameter(f"{name}.down.weight", (number, middle, hidden), split=0)
        self.down_bias = parameter(f"{name}.down.bias", (number, hidden), split=0)

    def forward(self, hidden: Tensor, gates: Tensor, routed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the first two, and each expert's results for its tokens."""
        numbers = _routes(gates, self.shards).by_expert
        rows = routed.flatten(0, 1)[: sum(numbers)].split_with_sizes(numbers)
        made = [
            functional.gelu(tokens @ self.up[i] + self.up_bias[i]) @ self.down[i] + self.down_bias[i]
            for i, tokens in enumerate(rows)
        ]
        return hidden, gates, _with_room(torch.cat(made), routed.shape)


class _Combine(ShardedLayer):
    """Send the experts' results back, and add them up token by token."""

    def forward(self, hidden: Tensor, gates: Tensor, routed: Tensor) -> Tensor:
        """Return the hidden values with the experts' sum added."""
        routes = _routes(gates, self.shards)
        rows = routed.flatten(0, 1)[: sum(routes.received)].index_select(0, routes.order.argsort())
        rows = exchange(rows, routes.received, routes.sent, self.shards)
        expert, token = _chosen(gates, self.shards)
        weights = own_share(gates.flatten(0, 1), self.shards)[token, expert]
        total = torch.zeros_like(own_share(hidden.detach().flatten(0, 1), self.shards))
        total = total.index_add(0, token, rows * weights.unsqueeze(-1))
        return hidden + join_shares(total, self.shards).view_as(hidden)
