"""Seeds of random numbers, each of its own purpose, and the states of the generators."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor


def digest(*parts: object) -> int:
    """Return a seed that depends on all parts."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big", signed=True)


@contextmanager
def seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    """Draw random numbers from a seed, and go on afterwards as if none had been drawn; None if none are."""
    if seed is None:
        yield
        return
    before = random_states(device)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed takes a hundred microseconds
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    try:
        yield
    finally:
        set_random_states(before, device)


def random_states(device: torch.device) -> dict[str, Tensor]:
    """Return the states of the random generators of a process."""
    states = {"cpu": torch.get_rng_state()}
    return states | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def set_random_states(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Take over the states that `random_states` returned."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)
