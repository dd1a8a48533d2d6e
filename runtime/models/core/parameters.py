"""Parameters that know their name in the whole model, how they are cut into shards, and their first values.

A parameter of torch has no name of its own. One made by `parameter` has: modules that give two parameters one
name share it, in whichever blocks and processes they are. It is built without values; its first values depend
on its name and the seed alone, so that every process draws the same.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

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
        spread: Standard deviation of the initial values; by default GPT-2's.
        trains: Whether it has a gradient; every parameter but those that a user froze.
    """

    name: str
    shape: tuple[int, ...]
    split: int | None = None
    mean: float = 0.0
    spread: float = 0.02
    trains: bool = True

    @property
    def numel(self) -> int:
        """Number of its elements."""
        return math.prod(self.shape)


def parameter(name: str, shape: tuple[int, ...], split: int | None = None, mean: float = 0.0) -> nn.Parameter:
    """Return a parameter of a module, of the full shape and without values, that knows its `Parameter`."""
    made = nn.Parameter(torch.empty(shape))
    made.described = Parameter(name, shape, split, mean)  # type: ignore[attr-defined]
    return made


def description_of(tensor: Tensor) -> Parameter | None:
    """Return the description of a parameter that `parameter` made; None of any other."""
    description: Parameter | None = getattr(tensor, "described", None)
    return description


def initial_values(parameter: Parameter, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return normally distributed values, drawn in float64 so that all types round the same."""
    digest = hashlib.sha256(f"{seed}:{parameter.name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))
    values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return values.mul_(parameter.spread).add_(parameter.mean).to(dtype)
