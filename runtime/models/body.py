"""What a model computes, block by block, apart from who holds its parameters; and the models by name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from placements import Block, Kind, Placement
from runtime.models.core.layers import Layer, Parameter, Weights
from runtime.models.core.options import USER_MODEL, ModelError, ModelOptions
from runtime.models.core.tokens import Text, Tokens
from runtime.models.user.user import UserModules
from runtime.models.zoo import flava, gpt, mt5, synthetic
from runtime.program.tensor_flow import computes_loss, forward_graphs
from runtime.transport.shards import Shards


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
        """Return the shape of a forward block's output, of all samples of a micro-batch."""

    def data(self, num_micro_batches: int, device: torch.device | str) -> Data:
        """Return what the blocks read."""


def hidden_shape(placement: Placement, options: ModelOptions, block: str) -> tuple[int, ...]:
    """Return ``(micro_batch_size, sequence_length, hidden_size)``, or that of a loss."""
    if computes_loss(placement, block):
        return ()
    return (options.micro_batch_size, options.sequence_length, options.hidden_size)


def weighted_sum(inputs: Sequence[Tensor]) -> Tensor:
    """Return the first plus half the second plus a third of the third: a sum would not notice a mix-up."""
    hidden = inputs[0]
    for position, other in enumerate(inputs[1:], start=2):
        hidden = hidden + other / position
    return hidden


class Architecture(NamedTuple):
    """How a model is cut into the blocks of a placement.

    Attributes:
        layers: Returns the layers of each forward block, or raises a `ModelError`.
        join: Makes one tensor of a block's inputs.
        output_shape: Of a forward block.
        replicates: Whether separate graphs of forward blocks read micro-batches of their own.
    """

    layers: Callable[[Placement, ModelOptions], Mapping[str, tuple[Layer, ...]]]
    join: Callable[[Sequence[Tensor]], Tensor] = weighted_sum
    output_shape: Callable[[Placement, ModelOptions, str], tuple[int, ...]] = hidden_shape
    replicates: bool = False


ARCHITECTURES: Mapping[str, Architecture] = {
    "gpt": Architecture(gpt.layers, replicates=True),
    "mt5": Architecture(mt5.layers, output_shape=mt5.output_shape),
    "flava": Architecture(flava.layers, flava.join, flava.output_shape),
    "synthetic": Architecture(synthetic.layers),
}
"""The models that come with the project; the last one runs any placement."""

MODEL_NAMES = (*ARCHITECTURES, USER_MODEL)
"""All values of `ModelOptions.name`."""


def layers(placement: Placement, options: ModelOptions) -> Mapping[str, tuple[Layer, ...]]:
    """Return the layers of each forward block.

    Raises:
        ModelError: There is no such model, or it does not fit the placement or its own options.
    """
    if options.name not in ARCHITECTURES:
        raise ModelError(f"model.name: {options.name!r} is not a model; use {' or '.join(MODEL_NAMES)}")
    for block in placement.blocks:
        if block.kind is Kind.F:
            _check_cuts(block, options)
    _check_recompute(options, placement)
    return ARCHITECTURES[options.name].layers(placement, options)


def body_of(options: ModelOptions, placement: Placement) -> Body:
    """Return what the model computes.

    Raises:
        ModelError: The model does not fit the placement, or a user's file does not make one.
    """
    if options.name == USER_MODEL:
        _check_recompute(options, placement)
        return UserModules(options, placement)
    return LayeredBody(options, placement)


def _check_cuts(block: Block, options: ModelOptions) -> None:
    if (count := len(block.groups[0])) > options.vocab_size:
        raise ModelError(f"model.vocab_size: {options.vocab_size} rows cannot be cut over {count} devices")
    if options.micro_batch_size % block.data_parallel:
        raise ModelError(
            f"model.micro_batch_size: {options.micro_batch_size} samples have no equal shares for the "
            f"{block.data_parallel} data-parallel groups of {block.name}; use a multiple of "
            f"{block.data_parallel}"
        )


def _check_recompute(options: ModelOptions, placement: Placement) -> None:
    forward = {block.name for block in placement.blocks if block.kind is Kind.F}
    for name in () if options.recompute == "all" else options.recompute:
        if name not in forward:
            raise ModelError(
                f"model.recompute: {placement.name} has no forward block {name!r}; use 'all' or of "
                f"{', '.join(sorted(forward))}"
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
        """Return the shape of a forward block's output."""
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
