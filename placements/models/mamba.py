"""Layers with a state space in place of an attention (Mamba-2; Dao and Gu, 2024), by their shape."""

from __future__ import annotations

from dataclasses import dataclass

from placements.models.layers import Layer
from placements.models.operators import Kernel, Product, Work

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
        num_heads: Heads of the state space, each `head_width` wide.
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
    shared_sizes = ("num_heads", "num_groups")

    def fill(self, work: Work) -> None:
        """Add projections and kernels, and the state space in chunks.

        Its parameters are those of projections, of the convolution with biases, three numbers for each head,
        and norms. Its core has scores for each group, outputs for each head, and states in and out.
        """
        s, h, t, width = self.sequence_length, self.hidden_size, work.t, self.num_heads * self.head_width
        stream, shared, states = s * h, self.num_groups * self.state_size, width * self.state_size
        convolved = width + 2 * shared
        projected = width + convolved + self.num_heads
        work.inputs = work.outputs = stream
        others = (_KERNEL_WIDTH + 1) * convolved + 3 * self.num_heads + h + width
        work.parameters = ((projected + width) * h + others) / t
        work.products += [
            Product("state space in", h, projected / t, s, "outputs"),
            Product("state space out", width / t, h, s, "inputs"),
        ]
        work.other_core_flops = (2 * s * _CHUNK * (shared + width) + 4 * s * states) / t
        work.kernels += [
            Kernel("norm", 2 * stream, 5 * stream, is_whole=True, launches=(1, 2)),
            Kernel("residual", 3 * stream, 3 * stream, is_whole=True),
            Kernel("convolution", 2 * s * convolved / t, 3 * s * convolved / t),
            Kernel("gated norm", 3 * s * width / t, 5 * s * width / t),
        ]
        work.keep("input of the norm", stream, is_whole=True)
        work.keep("input of the first projection", stream, work.product_bytes, is_whole=True)
        work.keep("gate, inputs of the convolution, steps", s * projected / t)
        work.keep("inputs of the state space", s * convolved / t)
        work.keep("states between chunks", s / _CHUNK * states / t, 4)
        work.keep("outputs of the state space", s * width / t)
        work.keep("input of the last projection", s * width / t, work.product_bytes)
        work.reduces.append((stream, stream))
