"""The parameters of a process, and the forward pass of each block."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from placements import Block, Kind, Placement
from runtime.models.body import ARCHITECTURES, Body, Data, Sample, body_of
from runtime.models.core.chains import most_shards
from runtime.models.core.layers import Parameter
from runtime.models.core.options import ModelError, ModelOptions
from runtime.models.optimizer import Optimizer
from runtime.models.zoo import flava, gpt, mt5
from runtime.transport.shards import WHOLE, Shards, share_shape, split, sum_in_order

Devices = tuple[int, ...]
"""Devices of one data-parallel group of a block, or of the copies of one shard; ascending."""

Homes = tuple[Devices, ...]
"""The groups that hold copies of the same parameters, ascending."""


def fits(placement: Placement, name: str) -> bool:
    """Tell whether a model can run a placement, given enough layers and heads."""
    check: Mapping[str, Callable[[Placement], object]] = {
        "gpt": gpt.chains_of_stages,
        "mt5": mt5.encoder_and_decoder,
        "flava": flava.parts,
    }
    try:
        check.get(name, str)(placement)
    except ModelError:
        return False
    return name in ARCHITECTURES


def suitable_model(placement: Placement, num_heads: int | None = None) -> str:
    """Return the first model that fits: of ``gpt``, ``mt5``, ``flava`` and, for any graph, ``synthetic``.

    Args:
        placement: What is to run.
        num_heads: Attention heads there are, or None for enough; ``flava`` cuts them over the devices of a
            group.

    >>> from placements.shapes import k_shape, m_shape, nn_shape
    >>> suitable_model(m_shape()), suitable_model(nn_shape()), suitable_model(k_shape())
    ('gpt', 'mt5', 'flava')
    """
    found = next(name for name in ARCHITECTURES if fits(placement, name))
    if found == "flava" and num_heads is not None:
        most = most_shards(block for part in flava.parts(placement) for block in part)
        return found if num_heads >= most else "synthetic"
    return found


class ParameterShard(NamedTuple):
    """Which part of which parameter a tensor is.

    Attributes:
        name: The parameter's.
        shard: Index of the shard; 0 for a parameter that is not cut.
        num_shards: Of the parameter; 1 if it is not cut.
        dim: The dimension that is cut.
    """

    name: str
    shard: int
    num_shards: int
    dim: int

    def of(self, full: Tensor) -> Tensor:
        """Return this part of a full tensor."""
        return torch.tensor_split(full, self.num_shards, self.dim)[self.shard]


def copied_parameters(body: Body, placement: Placement) -> dict[Homes, list[str]]:
    """Return the parameters of which several groups of devices hold copies, by these groups.

    They are those of blocks with data-parallel groups, and those that blocks on different devices share.

    Returns:
        Groups, ascending -> names in the order of the blocks; the same in every process.

    Raises:
        ModelError: Groups that share a parameter cut it otherwise, or have some devices in common.
    """
    homes: dict[str, set[Devices]] = {}
    for block in placement.topological_order:
        for parameter in body.parameters(block.name) if block.kind is Kind.F else ():
            homes.setdefault(parameter.name, set()).update(block.groups)
    found: dict[Homes, list[str]] = {}
    for name, where in homes.items():
        if len(where) > 1:
            devices = [device for home in where for device in home]
            if len({len(home) for home in where}) > 1 or len(set(devices)) < len(devices):
                raise ModelError(
                    f"model: blocks on devices {' and on '.join(map(str, sorted(where)))} share {name}; only "
                    "blocks on the same devices, or on as many others, can share a parameter"
                )
            found.setdefault(tuple(sorted(where)), []).append(name)
    return dict(sorted(found.items()))


class Model:
    """The parameters that a process holds, and what its blocks compute forward.

    Every group of devices builds the same full tensors before it cuts them. The groups of a block, and blocks
    on different devices that name the same parameter, have a copy each; `sum_copies` keeps the copies equal.

    Attributes:
        options: What was asked for.
        dtype: Of parameters, outputs and gradients.
        device: Where they are.
        parameters: The local parameters; of several local copies the first.
        copies: For each set of groups with copies the names of the parameters; of all processes.
        groups: The data-parallel groups that this process computes, of each of its forward blocks.

    Args:
        options: Shape and seed.
        placement: What runs where.
        shards: The forward blocks that this process computes, and which of their shards.
        device: Where the parameters are put.
        groups: Which of their data-parallel groups; blocks that it leaves out are computed for all samples.
        homes: Blocks with the same one share tensors here; by default that is the devices of their groups.

    Raises:
        ModelError: The model does not fit the placement.
    """

    def __init__(
        self,
        options: ModelOptions,
        placement: Placement,
        shards: Mapping[str, Shards],
        device: torch.device | str = "cpu",
        *,
        groups: Mapping[str, Shards] | None = None,
        homes: Mapping[str, Hashable] | None = None,
    ) -> None:
        """Build the parameters of the blocks."""
        self.options = options
        self.dtype: torch.dtype = getattr(torch, options.dtype)
        self.device = torch.device(device)
        self.parameters: dict[ParameterShard, Tensor] = {}
        self._body = body_of(options, placement)
        self.copies = {} if homes else copied_parameters(self._body, placement)
        self.groups = dict.fromkeys(shards, WHOLE) | dict(groups or {})
        self._shards = shards
        self._homes: dict[str, tuple[Hashable, ...]] = {}
        self._weights: dict[Hashable, dict[str, list[Tensor]]] = {}
        self._shards_at: dict[Hashable, Shards] = {}
        self._is_cut: dict[str, bool] = {}
        for block, block_shards in shards.items():
            self._homes[block] = (homes[block],) if homes else self._local_homes(placement.by_name[block])
            for home in self._homes[block]:
                self._shards_at[home] = block_shards
                self._weights.setdefault(home, {})
                for parameter in self._body.parameters(block):
                    self._add(parameter, home, block_shards)
        every = (each for by_name in self._weights.values() for each in by_name.values())
        self.optimizer = Optimizer(options, [weight for weights in every for weight in weights])

    def data(self, num_micro_batches: int) -> Data:
        """Return what the blocks read.

        Raises:
            ModelError: It cannot be read.
        """
        return self._body.data(num_micro_batches, self.device)

    def forward(self, block: str, inputs: Sequence[Tensor], sample: Sample, place: int = 0) -> Tensor:
        """Return a forward block's output, or its loss if no other block reads its output.

        Args:
            block: One of the blocks that this process computes.
            inputs: The outputs of the blocks that it is after, in that order, for the group's samples.
            sample: What the block's group reads.
            place: Which of the block's local groups computes it.
        """
        weights = self._weights[self._homes[block][place]]
        output = self._body.forward(block, inputs, sample, weights, self._shards[block])
        expected = share_shape(self.output_shape(block), self.groups[block].count)
        assert output.shape == expected, f"{block} returned a wrong shape"
        return output

    def output_shape(self, block: str) -> tuple[int, ...]:
        """Return the shape of a forward block's output for all samples; its gradient has the same."""
        return self._body.output_shape(block)

    def parameters_of(self, block: str, place: int = 0) -> list[Tensor]:
        """Return the parameters of one of a block's local groups that are trained, each once."""
        weights = self._weights[self._homes[block][place]]
        return [
            weight
            for parameter in self._body.parameters(block)
            for weight in weights[parameter.name]
            if weight.requires_grad
        ]

    def trained(self, block: str) -> dict[str, Tensor]:
        """Return the parameters of a block that are trained, by name, where none is cut."""
        (home,) = self._homes[block]
        weights = self._weights[home]
        found = {each.name: weights[each.name] for each in self._body.parameters(block)}
        return {name: weight for name, (weight,) in found.items() if weight.requires_grad}

    def sum_copies(self, shards_of: Callable[[Devices], Shards]) -> None:
        """Give every copy of a parameter the sum of all copies' gradients, in the order of the groups.

        Where no copy has a gradient, none gets one, so that the optimizer leaves all of them alone.

        Every process must call it at the same place, after its last backward block and before `step`.

        Args:
            shards_of: Returns for each of the `teams_of_copies` who holds which: one copy is one shard.
        """
        for homes, names in self.copies.items():
            for shard in range(len(homes[0])):
                self._sum_shard(homes, names, shard, shards_of)

    def teams_of_copies(self) -> list[Devices]:
        """Return the sets of devices that hold copies of the same shards, of all processes."""
        teams = (_team(homes, shard) for homes in self.copies for shard in range(len(homes[0])))
        return list(dict.fromkeys(teams))

    def _sum_shard(
        self, homes: Homes, names: Sequence[str], shard: int, shards_of: Callable[[Devices], Shards]
    ) -> None:
        """Sum the copies of one shard; with it those of what is not cut, by whoever holds it first."""
        here = [home for home in homes if home in self._weights and shard in self._shards_at[home].local]
        here.sort(key=lambda home: home[shard])
        weights = [[w for name in names for w in self._weights_in(home, name, shard)] for home in here]
        if not any(weights):
            return
        team = _team(homes, shard)
        gathered = dict(zip(team, shards_of(team).gather([_flat(copies) for copies in weights]), strict=True))
        total = sum_in_order([gathered[home[shard]] for home in homes])
        for copies in weights:
            *pieces, used = torch.split(total, [*(weight.numel() for weight in copies), len(copies)])
            for weight, piece, uses in zip(copies, pieces, used.tolist(), strict=True):
                if weight.requires_grad and uses:
                    weight.grad = piece.view_as(weight).clone()

    def _weights_in(self, home: Devices, name: str, shard: int) -> list[Tensor]:
        """Return a parameter's shard in a group, or all of it if it is not cut and this is the first here."""
        place = self._shards_at[home].local.index(shard)
        weights = self._weights[home][name]
        if self._is_cut[name]:
            return [weights[place]]
        return weights if place == 0 else []

    def step(self) -> None:
        """Move every parameter by its gradient, and forget the gradients."""
        self.optimizer.step()

    def recomputes(self, block: str) -> bool:
        """Tell whether a forward block keeps only its inputs for the backward."""
        return self.options.recompute == "all" or block in self.options.recompute

    def gradients(self) -> dict[ParameterShard, Tensor]:
        """Return the accumulated gradient of every parameter, zeros where there is none."""
        return {shard: _gradient(weight) for shard, weight in self.parameters.items()}

    def _local_homes(self, block: Block) -> Homes:
        """Return the devices of each of a block's groups that this process computes."""
        groups = self.groups[block.name]
        return tuple(block.groups[i] for i in groups.local) if groups.count > 1 else (block.devices,)

    def _add(self, parameter: Parameter, home: Hashable, shards: Shards) -> None:
        if parameter.name in self._weights[home]:
            return
        self._is_cut[parameter.name] = parameter.split is not None
        full = self._body.initial(parameter).to(self.dtype)
        if parameter.split is None:
            named = [(ParameterShard(parameter.name, 0, 1, 0), full)]
        else:
            named = [
                (ParameterShard(parameter.name, index, shards.count, parameter.split), piece)
                for index, piece in zip(shards.local, split(full, parameter.split, shards), strict=True)
            ]
        leaves = {
            shard: piece.detach().clone().to(self.device).requires_grad_(parameter.trains)
            for shard, piece in named
        }
        self._weights[home][parameter.name] = list(leaves.values())
        for shard, leaf in leaves.items():
            self.parameters.setdefault(shard, leaf)


def _team(homes: Homes, shard: int) -> Devices:
    """Return the devices that hold copies of a shard, ascending."""
    return tuple(sorted(home[shard] for home in homes))


def _flat(weights: Sequence[Tensor]) -> Tensor:
    """Return the gradients of some parameters in one row, then for each of them whether it has one."""
    has_one = weights[0].new_tensor([weight.grad is not None for weight in weights])
    return torch.cat([*(_gradient(weight).flatten() for weight in weights), has_one])


def _gradient(weight: Tensor) -> Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad
