"""Layers known by measurements, not by their shape.

The module does not know their times; the profile's owner does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from placements.models.layers import Layer
from placements.models.operators import Work

Role = Literal["embedding", "block", "head"]
"""Place of a layer in its model: the first one, one of those between, or the last one with the loss."""


@dataclass(frozen=True, kw_only=True)
class ProfiledLayer(Layer):
    """A layer of a profile.

    Attributes:
        number: Number of the profile's entry with its figures, from 0; equal layers have one number.
        kept_bytes: Kept by one sample from the forward to the backward, on one GPU.
        input_numbers: Numbers of its input; 0 for what is not kept, as tokens.
    """

    role: Role
    number: int
    num_weights: int
    kept_bytes: int
    input_numbers: int
    output_numbers: int
    may_be_zero = ("number", "num_weights", "kept_bytes", "input_numbers", "output_numbers")

    def fill(self, work: Work) -> None:
        """Add equal shares of the measured weights and kept bytes; operations are unknown."""
        work.inputs, work.outputs = self.input_numbers, self.output_numbers
        work.parameters = self.num_weights / work.t
        work.keep("all tensors, as measured", self.kept_bytes / work.t, 1)
