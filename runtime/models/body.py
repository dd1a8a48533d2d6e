"""What a model computes, block by block, apart from who holds its parameters."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from placements import Kind, Placement
from runtime.models.architectures import ARCHITECTURES, check_recompute, layers
from runtime.models.core.layers import Layer, Parameter, Weights
from runtime.models.core.options import GIVEN_MODEL, USER_MODEL, ModelError, ModelOptions
from runtime.models.core.tokens import Text, Tokens
from runtime.models.user.user import UserModules
from runtime.program.tensor_flow import forward_graphs
from runtime.transport.shards import Shards
from schedsearch.semantics.versions import WeightMode


class Sample(Protocol):
    """What a block reads of a micro-batch; only the body knows what it holds."""

    def share(self, index: int, count: int) -> Sample:
        """Return what a data-parallel group reads: one of several equal shares of the samples."""


class Data(Protocol):
    """What the blocks of a process read."""

    def read(self, block: str, iteration: int, micro_batch: int) -> Sample:
        """Return what a forward block is given beside its inputs; the same whenever it is asked for."""


class Body(Protocol):
    """The computation behind the forward blocks; it holds no parameter that is trained.

    A block computes any share of the samples, if it has data-parallel groups: its inputs, what it reads and
    its output are then of those samples, which are dimension 0 of each, and its loss is the mean over them.
    """

    def parameters(self, block: str) -> tuple[Parameter, ...]:
        """Return a block's parameters; blocks that name the same parameter share it."""

    def initial(self, parameter: Parameter) -> Tensor:
        """Return the initial values of the full parameter, in any type of floats."""

    def forward(
        self, block: str, inputs: Sequence[Tensor], sample: Any, weights: Weights, shards: Shards
    ) -> Tensor:
        """Return a block's output, or its loss; see `runtime.models.model.Model.forward`."""

    def output_shape(self, block: str) -> tuple[int, ...]:
        """Return the shape of the output, for all samples, of a block that computes no loss."""

    def data(self, num_micro_batches: int, device: torch.device | str) -> Data:
        """Return what the blocks read."""


def body_of(options: ModelOptions, placement: Placement) -> Body:
    """Return what the model computes.

    Raises:
        ModelError: The model does not fit the placement, or a user's file does not make one.
    """
    if options.name == GIVEN_MODEL:
        raise ModelError(
            f"model.name: {GIVEN_MODEL!r} has no modules but those that a script of your own gives to "
            f"runtime.Pipeline; start that script, or use model={USER_MODEL}"
        )
    if options.name == USER_MODEL:
        check_recompute(options, placement)
    body = (UserModules if options.name == USER_MODEL else LayeredBody)(options, placement)
    _check_separate(options, placement, body)
    return body


def _check_separate(options: ModelOptions, placement: Placement, body: Body) -> None:
    """Ensure that every block can be updated by itself, where that is asked for.

    Raises:
        ModelError: Blocks share a parameter, or have replicas of theirs.
    """
    if options.weight_versions == WeightMode.FLUSH:
        return
    holder: dict[str, str] = {}
    for block in placement.topological_order:
        if block.kind is not Kind.F:
            continue
        if block.data_parallel > 1:
            raise ModelError(
                f"model.weight_versions: {options.weight_versions} is not known for the data-parallel "
                f"groups of {block.name}; use {WeightMode.FLUSH}"
            )
        for parameter in body.parameters(block.name):
            other = holder.setdefault(parameter.name, block.name)
            if other != block.name:
                raise ModelError(
                    f"model.weight_versions: {options.weight_versions} updates every block by itself, "
                    f"but {other} and {block.name} share {parameter.name}; use {WeightMode.FLUSH} or "
                    "model=synthetic"
                )


class LayeredBody:
    """Blocks of layers, see `runtime.models.core.layers`, that read a text.

    Args:
        options: Shape and seed.
        placement: What runs where.

    Raises:
        ModelError: The model does not fit the placement.
    """

    def __init__(self, options: ModelOptions, placement: Placement) -> None:
        """Find the layers."""
        self._layers = layers(placement, options)
        self._parameters = {block: _parameters(found) for block, found in self._layers.items()}
        self._architecture = ARCHITECTURES[options.name]
        self._options = options
        self._placement = placement

    def parameters(self, block: str) -> tuple[Parameter, ...]:
        """Return the parameters of the block's layers, each once."""
        return self._parameters[block]

    def initial(self, parameter: Parameter) -> Tensor:
        """Return normally distributed float64 values; they depend on the name and the seed alone."""
        return initial_values(parameter, self._options.seed)

    def forward(
        self, block: str, inputs: Sequence[Tensor], sample: Any, weights: Weights, shards: Shards
    ) -> Tensor:
        """Return what the last layer returns; `sample` are the micro-batch's `Tokens`."""
        hidden = self._architecture.join(inputs) if inputs else None
        for layer in self._layers[block]:
            hidden = layer.forward(hidden, sample, weights, shards)
        assert hidden is not None, "a block has a layer"
        return hidden

    def output_shape(self, block: str) -> tuple[int, ...]:
        """Return the shape of a block's output."""
        return self._architecture.output_shape(self._placement, self._options, block)

    def data(self, num_micro_batches: int, device: torch.device | str) -> Data:
        """Return the text, cut for the placement's graphs.

        Raises:
            ModelError: It cannot be read, or is too short.
        """
        graphs = forward_graphs(self._placement) if self._architecture.replicates else [self._layers]
        graph_of = {block: i for i, graph in enumerate(graphs) for block in graph}
        text = Text(self._options, num_micro_batches * len(graphs), device)
        return _TextOfGraphs(text, graph_of, len(graphs))


def _parameters(layers: Sequence[Layer]) -> tuple[Parameter, ...]:
    found = {parameter.name: parameter for layer in layers for parameter in layer.parameters()}
    return tuple(found.values())


class _TextOfGraphs(NamedTuple):
    """A text of which each graph of blocks reads every so-manyth micro-batch."""

    text: Text
    graph_of: Mapping[str, int]
    num_graphs: int

    def read(self, block: str, iteration: int, micro_batch: int) -> Tokens:
        return self.text.micro_batch(iteration, micro_batch * self.num_graphs + self.graph_of[block])


def initial_values(parameter: Parameter, seed: int) -> Tensor:
    """Return normally distributed values for a parameter, in float64 so that all types round the same."""
    digest = hashlib.sha256(f"{seed}:{parameter.name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))
    values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return parameter.mean + parameter.spread * values
