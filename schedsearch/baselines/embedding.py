"""1F1B+: 1F1B over a V-shape that has stages on all devices in between, such as embeddings."""

from __future__ import annotations

from placements import Placement
from schedsearch.baselines.structure import EMBEDDED, stages_in
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible

_BEFORE, _IN, _AFTER = -1, 0, 1
"""Where a block stands to a step of 1F1B."""


def one_f_one_b_plus(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return 1F1B with the blocks of all devices next to their neighbours (Tessel, Sec. VI-A, "1F1B+").

    The stages on one device take the steps of 1F1B: of p, stage s is forward in step s + 2n and backward
    in step 2p - 1 - s + 2n for micro-batch n. A forward block on all devices comes right before the step of
    the stage after it, its backward right after the step of that stage's backward. After the last stage
    both come in between that one's forward and backward.

    Raises:
        UnsuitablePlacementError: The placement is not a V-shape with stages on all devices in between.
    """
    stages = stages_in(placement, "1F1B+", EMBEDDED)
    last_step = 2 * sum(len(stage.devices) == 1 for stage in stages) - 1
    entries: list[tuple[int, int, int, int, str]] = []
    position = 0
    for i, stage in enumerate(stages):
        is_single = len(stage.devices) == 1
        is_behind_all = 2 * position > last_step
        step = position - is_behind_all
        place = _IN if is_single else _AFTER if is_behind_all else _BEFORE
        for n in range(num_micro_batches):
            entries.append((step + 2 * n, place, n, i, stage.forward))
            entries.append((last_step - step + 2 * n, -place, n, -i, stage.backward))
        position += is_single
    orders: list[list[Instance]] = [[] for _ in range(placement.num_devices)]
    for _, _, n, _, name in sorted(entries):
        for device in placement.by_name[name].devices:
            orders[device].append((name, n))
    return as_soon_as_possible(placement, num_micro_batches, orders)
