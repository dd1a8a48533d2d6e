"""The parameters of a process, and the forward pass of each block."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from placements import Kind, Placement
from runtime.models import flava, gpt, mt5
from runtime.models.body import ARCHITECTURES, Body, Data, body_of
from runtime.models.layers import Parameter
from runtime.models.optimizer import Optimizer
from runtime.models.options import ModelError, ModelOptions
from runtime.models.shards import Shards, split, sum_in_order

Devices = tuple[int, ...]
"""Devices of one block, or of the copies of one parameter; ascending."""


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
        num_heads: Attention heads there are, or None for enough; ``flava`` cuts them over the join's devices.

    >>> from placements.shapes import k_shape, m_shape, nn_shape
    >>> suitable_model(m_shape()), suitable_model(nn_shape()), suitable_model(k_shape())
    ('gpt', 'mt5', 'flava')
    """
    found = next(name for name in ARCHITECTURES if fits(placement, name))
    if found == "flava" and num_heads is not None:
        most = max(len(block.devices) for block in flava.parts(placement).cross)
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


def copied_parameters(body: Body, placement: Placement) -> dict[Devices, list[str]]:
    """Return the parameters that blocks on different devices share, by the devices that hold a copy.

    Returns:
        Devices of the copies, ascending -> names in the order of the blocks; the same in every process.

    Raises:
        ModelError: A block on several devices shares a parameter with one on other devices.
    """
    homes: dict[str, set[Devices]] = {}
    for block in placement.topological_order:
        for parameter in body.parameters(block.name) if block.kind is Kind.F else ():
            homes.setdefault(parameter.name, set()).add(block.devices)
    found: dict[Devices, list[str]] = {}
    for name, where in homes.items():
        if len(where) > 1:
            if any(len(devices) > 1 for devices in where):
                raise ModelError(
                    f"model: blocks on devices {' and on '.join(map(str, sorted(where)))} share {name}; only "
                    "single-device blocks, or blocks on the same devices, can share a parameter"
                )
            found.setdefault(tuple(sorted(device for (device,) in where)), []).append(name)
    return dict(sorted(found.items()))


class Model:
    """The parameters that a process holds, and what its blocks compute forward.

    Every set of devices builds the same full tensors before it cuts them. A parameter that blocks on
    different devices name has a copy on each of these devices; `sum_copies` keeps the copies equal.

    Attributes:
        options: What was asked for.
        dtype: Of parameters, outputs and gradients.
        device: Where they are.
        parameters: The local parameters; of several local copies the first.
        copies: For the devices of each set of copies the names of the parameters; of all processes.

    Args:
        options: Shape and seed.
        placement: What runs where.
        shards: The forward blocks that this process computes, and which of their shards.
        device: Where the parameters are put.
        homes: Blocks with the same one share tensors here; by default that is their devices.

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
        homes: Mapping[str, Hashable] | None = None,
    ) -> None:
        """Build the parameters of the blocks."""
        self.options = options
        self.dtype: torch.dtype = getattr(torch, options.dtype)
        self.device = torch.device(device)
        self.parameters: dict[ParameterShard, Tensor] = {}
        self._body = body_of(options, placement)
        self.copies = {} if homes else copied_parameters(self._body, placement)
        self._shards = shards
        self._homes = homes or {block: placement.by_name[block].devices for block in shards}
        self._weights: dict[Hashable, dict[str, list[Tensor]]] = {home: {} for home in self._homes.values()}
        for block, block_shards in shards.items():
            for parameter in self._body.parameters(block):
                self._add(parameter, self._homes[block], block_shards)
        every = (each for by_name in self._weights.values() for each in by_name.values())
        self.optimizer = Optimizer(options, [weight for weights in every for weight in weights])

    def data(self, num_micro_batches: int) -> Data:
        """Return what the blocks read.

        Raises:
            ModelError: It cannot be read.
        """
        return self._body.data(num_micro_batches, self.device)

    def forward(self, block: str, inputs: Sequence[Tensor], sample: Any) -> Tensor:
        """Return a forward block's output, or its loss if no other block reads its output.

        Args:
            block: One of the blocks that this process computes.
            inputs: The outputs of the blocks that it is after, in that order.
            sample: What `data` gives the block to read.
        """
        weights = self._weights[self._homes[block]]
        output = self._body.forward(block, inputs, sample, weights, self._shards[block])
        assert output.shape == self.output_shape(block), f"{block} returned a wrong shape"
        return output

    def output_shape(self, block: str) -> tuple[int, ...]:
        """Return the shape of a forward block's output, of which its input gradients have the same."""
        return self._body.output_shape(block)

    def parameters_of(self, block: str) -> list[Tensor]:
        """Return the local parameters of a block that are trained, each once."""
        weights = self._weights[self._homes[block]]
        return [
            weight
            for parameter in self._body.parameters(block)
            for weight in weights[parameter.name]
            if weight.requires_grad
        ]

    def trained(self, block: str) -> dict[str, Tensor]:
        """Return the parameters of a block that are trained, by name, where none is cut."""
        weights = self._weights[self._homes[block]]
        found = {each.name: weights[each.name] for each in self._body.parameters(block)}
        return {name: weight for name, (weight,) in found.items() if weight.requires_grad}

    def sum_copies(self, shards_of: Callable[[Devices], Shards]) -> None:
        """Give every copy of a parameter the sum of all copies' gradients, in the order of the devices.

        Every process must call it at the same place, after its last backward block and before `step`.

        Args:
            shards_of: Returns for the devices of a set of copies who holds which: one copy is one shard.
        """
        for devices, names in self.copies.items():
            local = [(device,) for device in devices if (device,) in self._weights]
            if not local:
                continue
            flat = [torch.cat([self._gradient(home, name).flatten() for name in names]) for home in local]
            total = sum_in_order(shards_of(devices).gather(flat))
            for home in local:
                weights = [self._weights[home][name][0] for name in names]
                pieces = torch.split(total, [weight.numel() for weight in weights])
                for weight, piece in zip(weights, pieces, strict=True):
                    if weight.requires_grad:
                        weight.grad = piece.view_as(weight).clone()

    def step(self) -> None:
        """Move every parameter by its gradient, and forget the gradients."""
        self.optimizer.step()

    def recomputes(self, block: str) -> bool:
        """Tell whether a forward block keeps only its inputs for the backward."""
        return self.options.recompute == "all" or block in self.options.recompute

    def gradients(self) -> dict[ParameterShard, Tensor]:
        """Return the accumulated gradient of every parameter, zeros where there is none."""
        return {
            shard: torch.zeros_like(weight) if weight.grad is None else weight.grad
            for shard, weight in self.parameters.items()
        }

    def _gradient(self, home: Hashable, name: str) -> Tensor:
        (weight,) = self._weights[home][name]
        return torch.zeros_like(weight) if weight.grad is None else weight.grad

    def _add(self, parameter: Parameter, home: Hashable, shards: Shards) -> None:
        if parameter.name in self._weights[home]:
            return
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
