"""Layers with a state space in place of an attention (Mamba-2; Dao and Gu, 2024), by their shape.

As `placements.models.layers`, the module knows shapes alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from placements.block import PlacementError
from placements.models.layers import Layer, Precision
from placements.models.operators import KeptTensor, Kernel, Product

_KERNEL_WIDTH = 4
"""Tokens of the convolution before the state space."""

_CHUNK = 256
"""Tokens of which the products are computed at once; between chunks states are passed on."""


@dataclass(frozen=True, kw_only=True)
class MambaLayer(Layer):
    """A Mamba-2 layer: a projection, a short convolution, the state space, a gate, and a projection.

    Attributes:
        hidden_size: Width of the residual stream.
        sequence_length: Tokens of a sample.
        num_heads: Heads of the state space.
        head_width: Width of a head.
        state_size: Numbers of a state for each number of a head.
        num_groups: Groups of heads that share the projections to and from the state.

    Raises:
        PlacementError: A size is out of its range.
    """

    hidden_size: int
    sequence_length: int
    num_heads: int
    head_width: int = 64
    state_size: int = 128
    num_groups: int = 8

    def check(self, t: int, experts: int) -> None:
        """Ensure that heads and groups divide.

        Raises:
            PlacementError: They do not.
        """
        super().check(t, experts)
        for name, size in (("num_heads", self.num_heads), ("num_groups", self.num_groups)):
            if size % t:
                raise PlacementError(f"tensor_parallel: {t} does not divide {name} {size}; use a divisor")

    def products(self, t: int, experts: int = 1) -> tuple[Product, ...]:
        """Return both projections."""
        into = 2 * self._width + 2 * self._shared_width + self.num_heads
        return (
            Product("state space in", self.hidden_size, into / t, self.sequence_length, "outputs"),
            Product("state space out", self._width / t, self.hidden_size, self.sequence_length, "inputs"),
        )

    def parameters(self, t: int) -> float:
        """Return projections, the convolution with biases, three numbers for each head, and norms."""
        convolved = (_KERNEL_WIDTH + 1) * self._convolved / t
        norms = self.hidden_size + self._width
        return sum(each.weights for each in self.products(t)) + convolved + (3 * self.num_heads + norms) / t

    def forward_flops(self, t: int) -> float:
        """Return both projections and the state space."""
        return sum(each.flops for each in self.products(t)) + self.core_flops(t)

    def core_flops(self, t: int) -> float:
        """Return the products in chunks: scores for each group, outputs for each head, states in and out."""
        s = self.sequence_length
        inside = 2 * s * _CHUNK * (self.num_groups * self.state_size + self._width)
        return (inside + 4 * s * self.state_size * self._width) / t

    def kernels(self, t: int) -> tuple[Kernel, ...]:
        """Return norms, the sum with the residual stream, the convolution, and the gated norm."""
        s, stream = self.sequence_length, self.sequence_length * self.hidden_size
        return (
            Kernel("norm", 2 * stream, 5 * stream, True, "stream", (1, 2)),
            Kernel("residual", 3 * stream, 3 * stream, is_whole=True),
            Kernel("convolution", 2 * s * self._convolved / t, 3 * s * self._convolved / t),
            Kernel("gated norm", 3 * s * self._width / t, 5 * s * self._width / t),
        )

    def kept_tensors(self, precision: Precision, t: int) -> tuple[KeptTensor, ...]:
        """Return inputs of norm, projections, convolution, state space and gate, and the states of chunks."""
        s, stream = self.sequence_length, self.sequence_length * self.hidden_size
        states = s / _CHUNK * self._width * self.state_size / t
        return (
            KeptTensor("input of the norm", stream, is_whole=True),
            KeptTensor("input of the first projection", stream, is_whole=True, is_product_input=True),
            KeptTensor("gate, inputs of the convolution, steps", s * self._projected / t),
            KeptTensor("inputs of the state space", s * self._convolved / t),
            KeptTensor("states between chunks", states, number_bytes=4),
            KeptTensor("outputs of the state space", s * self._width / t),
            KeptTensor("input of the last projection", s * self._width / t, is_product_input=True),
        )

    def input_elements(self) -> int:
        """Return s h."""
        return self.sequence_length * self.hidden_size

    def output_elements(self) -> int:
        """Return s h."""
        return self.input_elements()

    def reduced_elements(self, whole_experts: bool = False) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return s h once, of the last projection and of the first one's gradient."""
        return (self.input_elements(),), (self.input_elements(),)

    @property
    def _width(self) -> int:
        return self.num_heads * self.head_width

    @property
    def _shared_width(self) -> int:
        return self.num_groups * self.state_size

    @property
    def _convolved(self) -> int:
        return self._width + 2 * self._shared_width

    @property
    def _projected(self) -> int:
        return self._width + self._convolved + self.num_heads
