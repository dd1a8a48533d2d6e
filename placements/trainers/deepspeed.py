"""DeepSpeed's division of a ``PipelineModule``: the number of the first layer of each stage, and of all.

Its layers are counted with the embedding and the output. It has one stage on each rank. Its config has no
key for such bounds; a subclass sets them, as the page of the docs shows.
"""

from __future__ import annotations

from itertools import accumulate

from placements.trainers.layout import LayoutError, PipelineLayout


def write_bounds(layout: PipelineLayout) -> list[int]:
    """Return the bounds of the stages, which DeepSpeed's code calls ``parts``.

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
