"""Parameters that know their name in the whole model, how they are cut into shards, and their first values.

A parameter of torch has no name of its own. One made by `parameter` has: modules that give two parameters one
name share it, in whichever blocks and processes they are. It is built without values; what it begins with
depends on its name and the seed alone, so that every process draws the same.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

INITIAL_SPREAD = 0.02
"""Standard deviation of initial weights (GPT-2's)."""

Weights = Mapping[str, Tensor]
"""For each parameter this device's shard, or all of it if it is not cut."""


@dataclass(frozen=True)
class Parameter:
    """A parameter before it is cut.

    Attributes:
        name: Unique within the model; blocks that name the same parameter share it.
        shape: Shape of the full tensor.
        split: The dimension cut into shards, or None if every shard has the full tensor.
        mean: Mean of the initial values.
        spread: Standard deviation of the initial values.
        trains: Whether it has a gradient; every parameter but those that a user froze.
    """

    name: str
    shape: tuple[int, ...]
    split: int | None = None
    mean: float = 0.0
    spread: float = INITIAL_SPREAD
    trains: bool = True

    @property
    def numel(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


def parameter(name: str, shape: tuple[int, ...], split: int | None = None, mean: float = 0.0) -> nn.Parameter:
    """Return a parameter of a module, of the full shape and without values, that knows its `Parameter`."""
    made = nn.Parameter(torch.empty(shape))
    made.described = Parameter(name, shape, split, mean)  # type: ignore[attr-defined]
    return made


def description_of(tensor: Tensor) -> Parameter | None:
    """Return what a parameter knows of itself; None of one that `parameter` has not made."""
    found: Parameter | None = getattr(tensor, "described", None)
    return found


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
