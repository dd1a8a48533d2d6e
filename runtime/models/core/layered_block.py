"""A forward block of our models as a torch module: layers, perhaps with a start that reads, or a loss.

It is called as every block's module is: with the outputs of the blocks before, then with the part of a
micro-batch that it reads, then with the targets if it computes the loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from runtime.models.core.layers import Output
from runtime.models.core.options import ModelOptions
from runtime.program.tensor_spec import TOKENS


class LayeredBlock(nn.Module):
    """Layers one after the other.

    Attributes:
        start: Makes hidden values of the part of a micro-batch that it `reads`, as an embedding; None in a
            block that only continues.
        layers: Each from hidden values to hidden values, of shape ``(rows, positions, hidden_size)``.
        output: Returns the loss; None in a block that feeds others.
        returns: Shapes of its outputs, for all samples.
        branches: Blocks each of which that runs in a micro-batch brings it as many positions as there are
            tokens; empty if all bring the same positions.
    """

    start: nn.Module | None
    output: Output | None
    branches: tuple[str, ...] = ()

    def __init__(self, options: ModelOptions) -> None:
        super().__init__()
        self.register_module("start", None)
        self.layers = nn.ModuleList()
        self.register_module("output", None)
        length = options.sequence_length if options.sequence_lengths is None else TOKENS
        self.returns = [(options.micro_batch_size, length, options.hidden_size)]

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the parts of `runtime.models.core.tokens.Tokens` that it reads, at most one."""
        return () if self.start is None else (str(self.start.reads),)

    @property
    def target_names(self) -> tuple[str, ...]:
        """Names of the parts that it compares its output with, likewise."""
        return () if self.output is None else (self.output.truth,)

    def started(self, given: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the hidden values before the first layer, and the last argument: the targets, if any."""
        before = given[:-1] if self.output is not None else given
        return (self.join(before) if self.start is None else self.start(*before)), given[-1]

    def forward(self, *given: Tensor) -> Any:
        """Return the hidden values after the last layer, or the scalar loss."""
        hidden, truth = self.started(given)
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden if self.output is None else self.output(hidden, truth)

    def join(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return one tensor of the outputs of all blocks before.

        It is the first plus half the second plus a third of the third: a sum would not notice a mix-up.
        """
        hidden = inputs[0]
        for position, other in enumerate(inputs[1:], start=2):
            hidden = hidden + other / position
        return hidden
