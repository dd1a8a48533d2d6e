"""How much of a run is compared with the unpipelined model, if nobody says: a check, not the way to run."""

from __future__ import annotations

from typing import NamedTuple

import torch

from placements import Kind, Placement
from runtime.models import ModelOptions, body_of
from runtime.options.run import VERIFY
from runtime.program.calls import ScriptError

VERIFIED_MIB = 64
"""Size of the parameters of a model up to which the first iteration of a run is compared, in MiB."""


class Extent(NamedTuple):
    """Which iterations are compared, and why.

    Attributes:
        verify: One of `VERIFY`.
        reason: Reason in words.
    """

    verify: str
    reason: str


def extent_of(asked: str | None, model: ModelOptions, placement: Placement, resumes: bool) -> Extent:
    """Return which iterations of a run are compared.

    The unpipelined model trains in one process from the beginning. So a run that goes on from a checkpoint
    has no first iteration to compare.

    Args:
        asked: One of `VERIFY`; None for the first iteration of a model of at most `VERIFIED_MIB`, else none.
        model: What is run.
        placement: Placement of the run.
        resumes: Whether the run goes on from a checkpoint.

    Raises:
        ScriptError: It is none of these.
        ModelError: The model does not fit the placement.
    """
    if asked not in (None, *VERIFY):
        raise ScriptError(f"verify: {asked!r} is not known; use {', '.join(VERIFY)}")
    if asked in ("none", "all"):
        return Extent(str(asked), "as asked for")
    if resumes:
        return Extent("none", "the run continues from a checkpoint, after its first iteration")
    if asked is not None:
        return Extent(asked, "as asked for")
    size = parameter_mib(model, placement)
    if size > VERIFIED_MIB:
        return Extent("none", f"its parameters take {size:.0f} MiB, more than {VERIFIED_MIB} MiB")
    return Extent("first", f"its parameters take {size:.3g} MiB, at most {VERIFIED_MIB} MiB")


def parameter_mib(model: ModelOptions, placement: Placement) -> float:
    """Return the size of a model's parameters in MiB, each counted once.

    Raises:
        ModelError: The model does not fit the placement.
    """
    body = body_of(model, placement)
    forward = (block.name for block in placement.blocks if block.kind is Kind.F)
    sizes = {each.name: each.numel for name in forward for each in body.parameters(name)}
    dtype: torch.dtype = getattr(torch, model.dtype)
    return sum(sizes.values()) * dtype.itemsize / 2**20
