"""A pipeline whose stages are replicated, as in PipeDream: each input goes to one replica of every stage.

A placement says the same for every micro-batch, so a micro-batch of it is as many inputs of the pipeline as
it takes until all stages are at their first replicas again: their least common multiple.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from placements.block import Block, PlacementError
from placements.pieces import Piece, blocks_of
from placements.spec import Placement


def replicated_stages(
    replicas: Sequence[int],
    forward_time: Sequence[int],
    backward_time: Sequence[int],
    stage_memory: int = 1,
) -> Placement:
    """Return a chain of stages with replicas, which take inputs in turn (dissertation, Sec. 2.4).

    Input i of a micro-batch is computed by replica ``i % replicas[s]`` of stage s: blocks ``F<s>_<i>`` and
    ``B<s>_<i>``. Replicas exchange gradients beside the blocks.

    Args:
        replicas: Replicas of each stage, at least 1; as (15, 1) for "15-1".
        forward_time: Ticks of each stage's forward block.
        backward_time: Ticks of each stage's backward block.
        stage_memory: Units that a forward block holds until its backward block.

    Raises:
        PlacementError: A stage has no replica, or there are not as many times as stages.

    >>> placement = replicated_stages((2, 1), (2, 1), (4, 2))
    >>> [(block.name, block.devices) for block in placement.blocks if block.name[0] == "F"]
    [('F0_0', (0,)), ('F1_0', (2,)), ('F0_1', (1,)), ('F1_1', (2,))]
    """
    if not replicas or min(replicas) < 1:
        raise PlacementError(f"replicas: {list(replicas)} gives a stage no replica; give each at least 1")
    if not len(replicas) == len(forward_time) == len(backward_time):
        raise PlacementError(
            f"replicas: has {len(replicas)} stages, forward_time {len(forward_time)} and backward_time "
            f"{len(backward_time)}; give one entry for each stage"
        )
    first = [0, *itertools.accumulate(replicas)]
    blocks: list[Block] = []
    for i in range(math.lcm(*replicas)):
        pieces = [
            Piece(
                f"F{s}_{i}",
                (first[s] + i % count,),
                (forward_time[s], backward_time[s]),
                (stage_memory, -stage_memory),
            )
            for s, count in enumerate(replicas)
        ]
        blocks += blocks_of(pieces)
    return Placement("-".join(map(str, replicas)), first[-1], tuple(blocks))
