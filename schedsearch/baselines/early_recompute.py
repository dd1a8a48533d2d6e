"""1F1B with early recomputation (Merak): a forward is computed again before its gradient arrives.

The recomputation is a block of its own, which waits for no other device. So it fills the time in which 1F1B
waits for a gradient, and the backward that follows is that much shorter.
"""

from __future__ import annotations

from dataclasses import replace

from placements import Block, Kind, Placement
from placements.pieces import recomputations
from schedsearch.baselines.pipelines import one_f_one_b
from schedsearch.baselines.structure import UnsuitablePlacementError, V, stages_in
from schedsearch.schedule import Schedule, as_soon_as_possible

_TITLE = "early-recomputation 1F1B"


def with_early_recomputation(placement: Placement, kept: int = 1) -> Placement:
    """Return a V-shape whose stages compute their forward again in blocks R0, R1, ...

    The last stage has none: its gradient is there at once. A backward keeps its time, so it must be one that
    computes nothing again.

    Args:
        placement: A V-shape with whole backward.
        kept: Units that a forward holds until its R, which takes the rest; at most the forward's.

    Raises:
        UnsuitablePlacementError: The placement is not a V-shape, or a forward holds less.

    >>> from placements.shapes import v_shape
    >>> [block.name for block in with_early_recomputation(v_shape(3, stage_memory=4)).blocks]
    ['F0', 'F1', 'F2', 'B2', 'B1', 'B0', 'R0', 'R1']
    """
    by_name, again = placement.by_name, list[Block]()
    changed = {}
    for stage in stages_in(placement, _TITLE, V)[:-1]:
        forward, backward = by_name[stage.forward], by_name[stage.backward]
        held = forward.memory_on(stage.device)
        if not 0 <= kept <= held:
            raise UnsuitablePlacementError(
                f"kept: {kept} is not between 0 and the {held} units that {forward.name} holds",
                "give such a number",
            )
        own = replace(
            forward, name=f"R{forward.name[1:]}", kind=Kind.R, after=(forward.name,), memory=held - kept
        )
        again.append(own)
        changed[forward.name] = replace(forward, memory=kept)
        changed[backward.name] = replace(backward, after=(*backward.after, own.name))
    blocks = (*(changed.get(block.name, block) for block in placement.blocks), *again)
    return replace(placement, name=f"{placement.name}_early_recompute", blocks=blocks)


def early_recompute_one_f_one_b(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return 1F1B in which each backward follows the recomputation of its forward.

    Raises:
        UnsuitablePlacementError: The placement is not one of `with_early_recomputation`.
    """
    again = recomputations(placement.blocks)
    if not again:
        raise UnsuitablePlacementError(
            f"{_TITLE} needs a V-shape whose forwards are computed again in blocks of their own, which "
            f"{placement.name} is not",
            "make one with with_early_recomputation",
        )
    left = set(again.values())  # what is left has the orders of 1F1B, whatever it holds
    blocks = tuple(
        replace(block, after=tuple(name for name in block.after if name not in left), memory=0)
        for block in placement.blocks
        if block.name not in left
    )
    chain = one_f_one_b(replace(placement, blocks=blocks, memory=None), num_micro_batches)
    orders = [
        [
            (name, n)
            for block, n in chain.order(device)
            for name in ((again[block], block) if block in again else (block,))
        ]
        for device in range(placement.num_devices)
    ]
    return as_soon_as_possible(placement, num_micro_batches, orders)
