"""DeepSpeed's division of a ``PipelineModule``: the number of the first layer of each stage, and of all.

Its layers are counted with the embedding and the output. It has one stage on each rank. Its config has no
key for such bounds; a subclass sets them, as the page of the docs shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from placements.trainers.layout import LayoutError, PipelineLayout, layout_of_sizes

FIELD = "parts"
"""Name of the bounds in DeepSpeed's code."""


def write_bounds(layout: PipelineLayout) -> list[int]:
    """Return the bounds of the stages.

    Raises:
        LayoutError: The layout has several stages on a rank.

    >>> write_bounds(PipelineLayout(2, ("Ett", "tL")))
    [0, 3, 5]
    """
    if layout.num_chunks > 1:
        raise LayoutError(
            f"layout: DeepSpeed: has one stage on each rank, and the layout {layout.num_chunks}; use "
            "num_chunks=1"
        )
    return list(accumulate(layout.sizes, initial=0))


def read_bounds(bounds: Sequence[int], parts: str) -> PipelineLayout:
    """Return the layout of a model's parts that bounds say.

    Raises:
        LayoutError: They do not go from 0 to the number of parts without a step back.
    """
    sizes = tuple(end - first for first, end in pairwise(bounds))
    if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != len(parts) or min(sizes) < 0:
        raise LayoutError(
            f"{FIELD}: {list(bounds)} do not rise from 0 to the {len(parts)} layers of the model; give the "
            "first layer of each stage, and their number"
        )
    return layout_of_sizes(len(sizes), parts, sizes)
