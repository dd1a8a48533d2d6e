"""The parameters of a process, and the forward pass of each block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from placements import Placement
from runtime.models.architectures import body_of
from runtime.models.body import Body
from runtime.models.core.layered_block import LayeredBlock
from runtime.models.core.options import ModelError, ModelOptions
from runtime.models.core.parameters import Parameter, Weights
from runtime.models.core.precision import autocast, compute_type
from runtime.models.optimizer import Optimizer
from runtime.models.user.reading import Sample
from runtime.transport.protocol import Team
from runtime.transport.shards import WHOLE, Shards

ReplicaGroups = tuple[Team, ...]
"""The teams that hold replicas of the same parameters, ascending; each holds one, cut over its devices."""


class ParameterShard(NamedTuple):
    """Part of a parameter: a shard of `num_shards` along a dimension."""

    name: str
    shard: int = 0
    num_shards: int = 1
    dim: int = 0

    def of(self, full: Tensor) -> Tensor:
        """Return this part of a full tensor."""
        return full if self.num_shards == 1 else full.tensor_split(self.num_shards, self.dim)[self.shard]


def replicated_parameters(body: Body, placement: Placement) -> dict[ReplicaGroups, list[str]]:
    """Return the parameters of which several teams hold replicas, by these teams.

    They belong to blocks with data-parallel groups, or to several blocks on different devices. Teams ascend,
    names are in the order of the blocks; both are the same in every process.

    Raises:
        ModelError: Teams that share a parameter cut it otherwise, or have some devices in common.
    """
    teams: dict[str, set[Team]] = {}
    shared: dict[ReplicaGroups, list[str]] = {}
    for name in body.names:
        block = placement.by_name[name]
        if len(block.groups) > 1:
            shared[tuple(sorted(set(block.groups)))] = []  # also where this process knows no parameter of it
        for parameter in body.parameters(name):
            teams.setdefault(parameter.name, set()).update(block.groups)
    for name, where in teams.items():
        if len(where) > 1:
            devices = [device for team in where for device in team]
            if len({len(team) for team in where}) > 1 or len(set(devices)) < len(devices):
                raise ModelError(
                    f"model: blocks on devices {' and on '.join(map(str, sorted(where)))} share {name}; only "
                    "blocks on the same devices, or on as many others, can share a parameter"
                )
            shared.setdefault(tuple(sorted(where)), []).append(name)
    return dict(sorted(shared.items()))


class ReplicaBucket(NamedTuple):
    """Parameters with replicas whose gradients are complete at the same time.

    The forward blocks that have them may be on any device.
    """

    groups: ReplicaGroups
    names: tuple[str, ...]
    blocks: tuple[str, ...]


def replica_buckets(replicas: Mapping[ReplicaGroups, Sequence[str]], body: Body) -> tuple[ReplicaBucket, ...]:
    """Return the parameters with replicas by the blocks that have them; the same in every process.

    Buckets come first whose earliest forward block comes last: usually its backward is the first to be over.
    """
    blocks_of: dict[str, list[str]] = {}
    for block in body.names:
        for parameter in body.parameters(block):
            blocks_of.setdefault(parameter.name, []).append(block)
    by_blocks: dict[tuple[ReplicaGroups, tuple[str, ...]], list[str]] = {}
    for groups, names in replicas.items():
        for name in names:
            by_blocks.setdefault((groups, tuple(blocks_of[name])), []).append(name)
    buckets = [ReplicaBucket(groups, tuple(names), blocks) for (groups, blocks), names in by_blocks.items()]
    return tuple(sorted(buckets, key=lambda bucket: -body.names.index(bucket.blocks[0])))


class Model:
    """The parameters that a device holds, and its forward blocks.

    Every device builds the same full tensors before it cuts them, so parameters need not be sent. A parameter
    of a block on devices 0 to 3 in two data-parallel groups is cut so:

        full tensor --cut--> shard 0 on device 0, shard 1 on device 1     (team of group 0)
        full tensor --cut--> shard 0 on device 2, shard 1 on device 3     (team of group 1)

    Devices 0 and 2 then hold replicas of the same shard, and so do 1 and 3: sums of their gradients keep them
    equal (`runtime.training.copies`). Blocks on different devices that name the same parameter hold replicas
    in the same way. Blocks of one device that do so share one tensor.

    Attributes:
        dtype: Type of outputs and their gradients; with mixed precision the type in which blocks compute.
            Losses, parameters and sums of their gradients are of the options' type.
        shards: Shards of each of its forward blocks.
        groups: Data-parallel groups of each of its forward blocks.
        replicas: The names of the parameters with replicas, by the teams that hold them; of all devices.
        buckets: The same, by the blocks that have them.

    Args:
        groups: Data-parallel groups; blocks that it leaves out are computed for all samples.
        body: Modules of the blocks; by default made of the options. Models that run at the same time, as
            threads do, need one each.

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
        body: Body | None = None,
    ) -> None:
        self.options = options
        self.dtype = compute_type(options.precision, options.dtype)
        self.device = torch.device(device)
        self.groups = dict.fromkeys(shards, WHOLE) | dict(groups or {})
        self.parameters: dict[ParameterShard, Tensor] = {}
        self._placement = placement
        self.shards = dict(shards)
        self.body = body or body_of(options, placement, tuple(shards))
        self.body.place(self.shards)
        self._check_streams()
        self.replicas = replicated_parameters(self.body, placement)
        self.buckets = replica_buckets(self.replicas, self.body)
        self._weights: dict[str, Tensor] = {}
        self._shard_of: dict[str, ParameterShard] = {}
        for block in self._by_team():
            for parameter in self.body.parameters(block):
                if parameter.name not in self._weights:
                    self._add(parameter, shards[block])
        self.optimizer = Optimizer(options, list(self.parameters.values()))

    def _check_streams(self) -> None:
        """Ensure that the gradients of a parameter come from one stream, so in one order."""
        first: dict[str, str] = {}
        stream_of = {block.name: block.stream for block in self._placement.blocks}
        for block in self.shards:
            for parameter in self.body.parameters(block):
                other = first.setdefault(parameter.name, block)
                if stream_of[block] != stream_of[other]:
                    raise ModelError(
                        f"blocks ({block}).stream: {block} shares {parameter.name} with {other}, a block of "
                        f"{stream_of[other]!r}; give both the same stream"
                    )

    def _by_team(self) -> list[str]:
        """Return the blocks, each team's together: so checkpoints number the parameters."""
        teams = {name: self._placement.by_name[name].groups[self.groups[name].index] for name in self.shards}
        order = list(dict.fromkeys(teams.values()))
        return sorted(teams, key=lambda name: order.index(teams[name]))

    def _add(self, parameter: Parameter, shards: Shards) -> None:
        name, dim = parameter.name, parameter.split
        values = self.body.initial(parameter).to(getattr(torch, self.options.dtype))
        shard = ParameterShard(name)
        if dim is not None:
            shard = ParameterShard(name, shards.index, shards.count, dim)
        if dim is not None and shards.count > 1:
            values = shards.of(values, dim).clone()
        weight = values.detach().to(self.device).requires_grad_(parameter.trains)
        self._weights[name] = weight
        self.parameters[shard] = weight
        self._shard_of[name] = shard

    def hold(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on with these leaf tensors, one for each parameter, which take its values and its place."""
        for name, tensor in tensors.items():
            tensor.data = self._weights[name].detach()
            self._replace(name, tensor)

    def copy_weights(self, block: str) -> Weights:
        """Go on with copies of a block's trained parameters, gradients with them; return the originals."""
        before = self.weights(block)
        for name, weight in self.trained(block).items():
            copy = weight.detach().clone().requires_grad_()
            copy.grad, weight.grad = weight.grad, None
            self._replace(name, copy)
        return before

    def _replace(self, name: str, tensor: Tensor) -> None:
        self.optimizer.replace(self._weights[name], tensor)
        self._weights[name] = self.parameters[self._shard_of[name]] = tensor

    def forward(self, block: str, inputs: Sequence[Tensor], sample: Sample, weights: Weights) -> Tensor:
        """Return a forward block's output, or its loss if no other block reads its output.

        Inputs are the outputs of the blocks that it is after, in that order, for the samples of its group.
        """
        with autocast(self.options.precision, self.device):
            return self.body.forward(block, inputs, sample, weights)

    def branches(self, block: str) -> tuple[str, ...]:
        """Return the blocks whose positions a forward block joins; see `LayeredBlock.branches`."""
        module = self.body.modules.get(block)
        return module.branches if isinstance(module, LayeredBlock) else ()

    def weights(self, block: str) -> dict[str, Tensor]:
        """Return the parameters of a block, by name."""
        return {parameter.name: self._weights[parameter.name] for parameter in self.body.parameters(block)}

    def trained(self, block: str) -> dict[str, Tensor]:
        """Return the parameters of a block that are trained, by name."""
        return {name: weight for name, weight in self.weights(block).items() if weight.requires_grad}

    def teams_of_replicas(self) -> list[Team]:
        """Return the teams that hold replicas of the same shards, of all devices."""
        teams = (team_of(groups, shard) for groups in self.replicas for shard in range(len(groups[0])))
        return list(dict.fromkeys(teams))

    def step(self, block: str | None = None) -> None:
        """Update all parameters, or the parameters of one block, and clear their gradients."""
        self.optimizer.step(None if block is None else self.weights(block).values())

    def gradients(self) -> dict[ParameterShard, Tensor]:
        """Return the accumulated gradient of every parameter that has one, dense."""
        return {s: _gradient(weight) for s, weight in self.parameters.items() if weight.grad is not None}

    def state(self) -> dict[ParameterShard, Tensor]:
        """Return the parameters, and the buffers of a state dict, by names that begin with the block."""
        return self.parameters | {
            ParameterShard(f"{block}.{name}"): self.body.held_buffers(block, self.device)[name]
            for block in self.shards
            for name, _ in self.body.state_buffers(block).values()
        }

    def flat_gradients(self, names: Iterable[str]) -> Tensor:
        """Return the gradients of some parameters in one row, then for each of them whether it has one."""
        weights = [self._weights[name] for name in names]
        has_one = weights[0].new_tensor([weight.grad is not None for weight in weights])
        return torch.cat([*(_gradient(weight).flatten() for weight in weights), has_one])

    def set_gradients(self, names: Iterable[str], total: Tensor) -> None:
        """Take gradients out of a row of `flat_gradients`, or the sum of several, where any has one."""
        weights = [self._weights[name] for name in names]
        *pieces, used = torch.split(total, [*(weight.numel() for weight in weights), len(weights)])
        for weight, piece, uses in zip(weights, pieces, used.tolist(), strict=True):
            if weight.requires_grad and uses:
                weight.grad = piece.view_as(weight).clone()


def team_of(groups: ReplicaGroups, shard: int) -> Team:
    """Return the devices that hold replicas of a shard, ascending."""
    return tuple(sorted(group[shard] for group in groups))


def _gradient(weight: Tensor) -> Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad.to_dense()
