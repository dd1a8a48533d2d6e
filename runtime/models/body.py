"""What a model computes, block by block, apart from who holds its parameters."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from placements import Kind, Placement
from runtime.models.architectures import ARCHITECTURES, check_recompute, layers
from runtime.models.core.compiling import check_compile, compiled
from runtime.models.core.layers import Layer, Parameter, Weights
from runtime.models.core.options import GIVEN_MODEL, USER_MODEL, ModelError, ModelOptions
from runtime.models.core.tokens import Text, Tokens
from runtime.models.optimizer import Optimizer
from runtime.models.user.tracing import forms_to_plain
from runtime.models.user.user import UserModules, check_trained
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
        """Return a block's parameters; blocks that name the same parameter share it.

        Of blocks that are not computed here it may know none, if these share nothing.
        """

    def initial(self, parameter: Parameter) -> Tensor:
        """Return the initial values of the full parameter, in any type of floats, for the caller to keep."""

    def forward(
        self, block: str, inputs: Sequence[Tensor], sample: Any, weights: Weights, shards: Shards
    ) -> Tensor:
        """Return a block's output, or its loss; see `runtime.models.model.Model.forward`."""

    def output_shape(self, block: str) -> tuple[int, ...]:
        """Return the shape of the output, for all samples, of a block that computes no loss."""

    def data(self, num_micro_batches: int, device: torch.device | str) -> Data:
        """Return what the blocks read."""

    @property
    def weight_of_loss(self) -> Callable[[Any], float] | None:
        """What the loss of a block counts that has read a `Sample`; None if all count the same."""

    def state_names(self, block: str) -> Mapping[str, tuple[str, ...]]:
        """Return the names that each of a block's parameters has in the state dict of the whole model."""

    def state_buffers(self, block: str) -> Mapping[str, tuple[str, Tensor]]:
        """Return what a state dict has of a block beside parameters: its name there -> key and form."""

    def buffer_values(self, key: str) -> Tensor:
        """Return the values of a buffer, by its key."""

    def load_buffer(self, key: str, values: Tensor) -> None:
        """Give a buffer other values, by its key."""

    def held_buffers(self, block: str, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """Return the buffers that the next call of a block finds, by the module's names, on a device."""

    def hold_buffers(self, block: str, buffers: dict[str, Tensor]) -> None:
        """Let the next call of a block find these buffers."""


def body_of(options: ModelOptions, placement: Placement, own: Collection[str] | None = None) -> Body:
    """Return what the model computes.

    Args:
        options: The model.
        placement: What runs where.
        own: The forward blocks that are computed here; None for all.

    Raises:
        ModelError: The model does not fit the placement, or a user's file does not make one.
    """
    if options.name == GIVEN_MODEL:
        raise ModelError(
            f"{GIVEN_MODEL!r} has no modules but those that a script of your own gives to "
            f"runtime.Pipeline; start that script, or use the model {USER_MODEL!r}",
            "name",
        )
    check_compile(options, placement)
    body: Body
    if options.name == USER_MODEL:
        check_recompute(options, placement)
        body = UserModules(options, placement, own)
    else:
        body = LayeredBody(options, placement)
        check_trained(placement, body.parameters)
    _check_separate(options, placement, body)
    return body


def check_parameters(options: ModelOptions, placement: Placement, body: Body) -> None:
    """Ensure that the optimizer's options are for the parameters that a model has.

    Raises:
        ModelError: A group matches no parameter, or the optimizer does not take the parameters, or parts of
            them.
    """
    found: dict[str, Parameter] = {}
    cut: list[str] = []
    for block in placement.topological_order:
        for parameter in body.parameters(block.name) if block.kind is Kind.F else ():
            found[parameter.name] = parameter
            if parameter.split is not None and len(block.groups[0]) > 1:
                cut.append(parameter.name)
    options.check_parameters(list(found), cut)
    if options.uses_torch_optimizer:
        values = [torch.empty(each.shape, device="meta").requires_grad_() for each in found.values()]
        Optimizer(options, values, list(found))


def traced(options: ModelOptions, placement: Placement) -> ModelOptions:
    """Return the options with what the blocks of a user's model hand over, so that no process need find it.

    Raises:
        ModelError: See `body_of`.
    """
    if options.name != USER_MODEL or options.handed_over is not None:
        return options
    body = body_of(options, placement)
    assert isinstance(body, UserModules), "a module's body"
    return replace(options, handed_over=forms_to_plain(body.forms))


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
                f"{options.weight_versions} is not known for the data-parallel "
                f"groups of {block.name}; use {WeightMode.FLUSH}",
                "weight_versions",
            )
        for parameter in body.parameters(block.name):
            other = holder.setdefault(parameter.name, block.name)
            if other != block.name:
                raise ModelError(
                    f"{options.weight_versions} updates every block by itself, "
                    f"but {other} and {block.name} share {parameter.name}; use {WeightMode.FLUSH} or the "
                    "model 'synthetic'",
                    "weight_versions",
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
        self._through = {block: compiled(_through, block, options.compile) for block in self._layers}
        self._architecture = ARCHITECTURES[options.name]
        self._options = options
        self._placement = placement

    def parameters(self, block: str) -> tuple[Parameter, ...]:
        """Return the parameters of the block's layers, each once."""
        return self._parameters[block]

    def initial(self, parameter: Parameter) -> Tensor:
        """Return normally distributed values; they depend on the name and the seed alone."""
        return initial_values(parameter, self._options.seed, getattr(torch, self._options.dtype))

    def forward(
        self, block: str, inputs: Sequence[Tensor], sample: Any, weights: Weights, shards: Shards
    ) -> Tensor:
        """Return what the last layer returns; `sample` are the micro-batch's `Tokens`."""
        hidden = self._architecture.join(inputs) if inputs else None
        if self._options.compile is not None:
            sample = sample.at_hand()
        return self._through[block](self._layers[block], hidden, sample, weights, shards)

    def output_shape(self, block: str) -> tuple[int, ...]:
        """Return the shape of a block's output."""
        return self._architecture.output_shape(self._placement, self._options, block)

    @property
    def weight_of_loss(self) -> None:
        """Nothing: every micro-batch of a text has as many tokens."""

    def data(self, num_micro_batches: int, device: torch.device | str) -> Data:
        """Return the text, cut for the placement's graphs.

        Raises:
            ModelError: It cannot be read, or is too short.
        """
        graphs = forward_graphs(self._placement) if self._architecture.replicates else [self._layers]
        graph_of = {block: i for i, graph in enumerate(graphs) for block in graph}
        text = Text(self._options, num_micro_batches * len(graphs), device)
        return _TextOfGraphs(text, graph_of, len(graphs))

    def state_names(self, block: str) -> Mapping[str, tuple[str, ...]]:
        """Return each parameter's own name."""
        return {each.name: (each.name,) for each in self._parameters[block]}

    def state_buffers(self, block: str) -> Mapping[str, tuple[str, Tensor]]:
        """Return nothing: the layers have parameters alone."""
        return {}

    def buffer_values(self, key: str) -> Tensor:
        """Return nothing: there is no buffer."""
        raise KeyError(key)

    def load_buffer(self, key: str, values: Tensor) -> None:
        """Take nothing: there is no buffer."""
        raise KeyError(key)

    def held_buffers(self, block: str, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """Return nothing: there is no buffer."""
        return {}

    def hold_buffers(self, block: str, buffers: dict[str, Tensor]) -> None:
        """Take nothing: there is no buffer."""


def _parameters(layers: Sequence[Layer]) -> tuple[Parameter, ...]:
    found = {parameter.name: parameter for layer in layers for parameter in layer.parameters()}
    return tuple(found.values())


def _through(
    layers: Sequence[Layer], hidden: Tensor | None, tokens: Tokens, weights: Weights, shards: Shards
) -> Tensor:
    """Return what the last of several layers returns."""
    for layer in layers:
        hidden = layer.forward(hidden, tokens, weights, shards)
    assert hidden is not None, "a block has a layer"
    return hidden


class _TextOfGraphs(NamedTuple):
    """A text of which each graph of blocks reads every so-manyth micro-batch."""

    text: Text
    graph_of: Mapping[str, int]
    num_graphs: int

    def read(self, block: str, iteration: int, micro_batch: int) -> Tokens:
        return self.text.micro_batch(iteration, micro_batch * self.num_graphs + self.graph_of[block])


_DRAWN = 1 << 18
"""Values drawn at once, which as float64 are 2 MiB; a multiple of the 16 that torch draws together."""


def initial_values(parameter: Parameter, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return normally distributed values, drawn in float64 so that all types round the same.

    They are drawn piece by piece, so that no float64 copy of them all is held; torch draws the same.
    """
    digest = hashlib.sha256(f"{seed}:{parameter.name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))
    values = torch.empty(parameter.numel, dtype=dtype)
    first = 0
    while first < parameter.numel:
        # The last piece is not left with fewer than 16, which torch draws in another way.
        is_last = parameter.numel - first < 2 * _DRAWN
        size = parameter.numel - first if is_last else _DRAWN
        drawn = torch.randn(size, generator=generator, dtype=torch.float64)
        values[first : first + size] = drawn.mul_(parameter.spread).add_(parameter.mean)
        first += size
    return values.view(parameter.shape)
