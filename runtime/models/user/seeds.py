"""Seeds of random numbers, each of its own purpose."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def digest(*parts: object) -> int:
    """Return a seed that depends on all parts."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big", signed=True)


@contextmanager
def seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    """Draw random numbers from a seed, and go on afterwards as if none had been drawn; None if none are."""
    if seed is None:
        yield
        return
    state = torch.default_generator.get_state()
    on_gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    torch.default_generator.manual_seed(seed)  # torch.manual_seed takes a hundred microseconds
    if on_gpu is not None:
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    try:
        yield
    finally:
        torch.default_generator.set_state(state)
        if on_gpu is not None:
            torch.cuda.set_rng_state(on_gpu, device)
