"""Data-parallel groups of blocks, as the command line gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from experiments.config.options import OptionError, did_you_mean
from placements import Kind, Placement, PlacementError
from runtime.program.tensor_flow import UnrunnablePlacementError, pair_backward

_WHERE = "placement.data_parallel"


def with_data_parallel(placement: Placement, value: object) -> Placement:
    """Return the placement with other data-parallel groups.

    Args:
        placement: What runs where, with the GPUs that each device stands for.
        value: One number of groups for all blocks but those of the optimizer; or a mapping of blocks to
            numbers, where a backward block that is left out has that of its forward block; None: as it is.

    Raises:
        OptionError: It is none of these, names no block, or does not divide the GPUs of one.
    """
    if value is None:
        return placement
    if isinstance(value, Mapping):
        numbers = _with_backward(placement, {str(name): _number(each) for name, each in value.items()})
    else:
        number = _number(value)
        numbers = {block.name: number for block in placement.blocks if block.kind is not Kind.O}
    blocks = (
        replace(block, data_parallel=numbers.get(block.name, block.data_parallel))
        for block in placement.blocks
    )
    try:
        return replace(placement, blocks=tuple(blocks))
    except PlacementError as error:
        raise OptionError(f"placement.{error}") from None


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(
            f"{_WHERE}: {value!r} is not a number of groups; give a whole number of 1 or more, or such "
            "numbers by block as in {F0: 2}"
        )
    return value


def _with_backward(placement: Placement, numbers: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers, also of backward blocks that are not named."""
    names = [block.name for block in placement.blocks]
    for name in numbers:
        if name not in names:
            raise OptionError(f"{_WHERE}: there is no block {name!r}; {did_you_mean(name, names)}")
    try:
        pairs = pair_backward(placement)
    except UnrunnablePlacementError:
        pairs = {}
    inherited = {name: numbers[forward] for name, forward in pairs.items() if forward in numbers}
    return inherited | dict(numbers)
