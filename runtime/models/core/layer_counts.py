"""How many transformer layers each block has: as the options say block by block, or shared evenly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placements import Block, Placement
from runtime.models.core.options import ModelError, ModelOptions

_FIELD = "model.layers_per_block"


def check_counts(placement: Placement, holders: Sequence[Block], options: ModelOptions) -> None:
    """Ensure that `layers_per_block`, if it is given, is of the blocks that hold layers, and of all of them.

    Args:
        placement: What runs where.
        holders: The blocks that hold layers.
        options: What is asked for.

    Raises:
        ModelError: A block is unknown, holds no layers, or is left out.
    """
    given = options.layers_per_block
    if given is None:
        return
    names = [block.name for block in holders]
    for name in given:
        if name not in names:
            known = "holds no layers" if name in placement.by_name else "is not there"
            raise ModelError(
                f"{_FIELD}: {name!r} {known} in {placement.name}; give those of {_listed(names)}"
            )
    if missing := [name for name in names if name not in given]:
        raise ModelError(
            f"{_FIELD}: lacks {_listed(missing)}; give each of {_listed(names)} its number of layers"
        )


def share(
    blocks: Sequence[Block], num_layers: int | None, given: Mapping[str, int] | None, where: str
) -> list[tuple[Block, range]]:
    """Return each block with the indices of its layers: as given, or evenly, earlier blocks get the extra.

    Args:
        blocks: At least one, in order.
        num_layers: Of all of them; None for as many as are given.
        given: By block name, of all of the blocks; None to share evenly.
        where: What the blocks are, for the error.

    Raises:
        ModelError: There are fewer layers than blocks, or others than are given.
    """
    if given is None:
        assert num_layers is not None, "options without counts have a number"
        counts = _even_counts(len(blocks), num_layers, where)
    else:
        counts = [given[block.name] for block in blocks]
        _check_sum(counts, num_layers, where)
    ends = [sum(counts[: i + 1]) for i in range(len(counts))]
    return [(block, range(end - count, end)) for block, count, end in zip(blocks, counts, ends, strict=True)]


def _even_counts(num_blocks: int, num_layers: int, where: str) -> list[int]:
    if num_layers < num_blocks:
        raise ModelError(
            f"model.num_layers: {num_layers} is fewer than the {num_blocks} stages of {where}; "
            f"use at least {num_blocks}"
        )
    small, larger = divmod(num_layers, num_blocks)
    return [small + (i < larger) for i in range(num_blocks)]


def _check_sum(counts: Sequence[int], num_layers: int | None, where: str) -> None:
    if num_layers not in (None, sum(counts)):
        raise ModelError(
            f"{_FIELD}: gives {where} {sum(counts)} layers, where num_layers makes it {num_layers}; "
            "change one, or leave num_layers out (null)"
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
