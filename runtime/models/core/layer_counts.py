"""Number of transformer layers of each block: as the options say block by block, or shared evenly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from placements import Block, Placement
from runtime.models.core.options import ModelError, ModelOptions

_FIELD = "layers_per_block"


def check_holders(placement: Placement, holders: Sequence[Block], options: ModelOptions) -> None:
    """Ensure that the blocks that hold layers can be cut, and that `layers_per_block` names all of them.

    Raises:
        ModelError: The heads do not share the hidden size evenly, or are fewer than the devices of a group; a
            block of `layers_per_block` is unknown, holds no layers, or is left out.
    """
    if options.hidden_size % options.num_heads:
        raise ModelError(
            f"{options.num_heads} does not divide hidden_size {options.hidden_size}; use a divisor",
            "num_heads",
        )
    if options.num_heads < (num_shards := max_shards(holders)):
        raise ModelError(
            f"{options.num_heads} cannot be cut over {num_shards} devices; "
            f"use at least {num_shards}, or the model 'synthetic'",
            "num_heads",
        )
    if (given := options.layers_per_block) is None:
        return
    names = [block.name for block in holders]
    for name in given:
        if name not in names:
            known = "holds no layers" if name in placement.by_name else "is not there"
            raise ModelError(
                f"{name!r} {known} in {placement.name}; give those of {', '.join(names)}", _FIELD
            )
    if missing := [name for name in names if name not in given]:
        raise ModelError(
            f"lacks {', '.join(missing)}; give each of {', '.join(names)} its number of layers", _FIELD
        )


def max_shards(blocks: Iterable[Block]) -> int:
    """Return the largest number of devices over which a block is cut."""
    return max(len(block.groups[0]) for block in blocks)


def share(
    blocks: Sequence[Block], num_layers: int | None, options: ModelOptions, where: str
) -> list[tuple[str, int]]:
    """Return the layers in order: as given block by block, or evenly, earlier blocks get the extra.

    Args:
        blocks: At least one, in order.
        num_layers: Number of layers of all of them; None for the sum of those given.
        options: May give each block its number.
        where: The blocks in words, for the error.

    Returns:
        Each layer's block, by name, and its index.

    Raises:
        ModelError: There are fewer layers than blocks, or others than are given.
    """
    if (given := options.layers_per_block) is not None:
        counts = [given[block.name] for block in blocks]
        if num_layers not in (None, sum(counts)):
            raise ModelError(
                f"gives {where} {sum(counts)} layers, where num_layers makes it {num_layers}; "
                "change one, or leave num_layers out (null)",
                _FIELD,
            )
    else:
        assert num_layers is not None, "options without counts have a number"
        if num_layers < len(blocks):
            raise ModelError(
                f"{num_layers} is fewer than the {len(blocks)} stages of {where}; use at least {len(blocks)}",
                "num_layers",
            )
        small, larger = divmod(num_layers, len(blocks))
        counts = [small + (i < larger) for i in range(len(blocks))]
    names = (block.name for block, count in zip(blocks, counts, strict=True) for _ in range(count))
    return [(name, index) for index, name in enumerate(names)]
