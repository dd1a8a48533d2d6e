"""A lower bound of energy for every order and all modes of a placement's blocks, at any clocks.

The bound leaves out the waits between blocks, but for the ends: each stream of a device has the time between
its first block's inputs and what must follow its last block, and shares it among all its blocks as is best. A
block on several devices is shared equally among them, in parts that need not agree, and of a block with modes
each run takes the best one, whatever memory it needs.
"""

from __future__ import annotations

import numpy as np

from placements import Placement, Profile
from schedsearch.energy.cost import cost_curves, lower_hull, undominated
from schedsearch.energy.frontier import TIME_TOLERANCE
from schedsearch.energy.graph import Floats
from schedsearch.energy.simulation import waiting_w
from schedsearch.schedule import Schedule, micro_batches_of


def any_order_mj(schedule: Schedule, profile: Profile, deadline_ms: float) -> float:
    """Return an energy until a deadline that no clocks of any order and modes of a placement are below.

    On each lane all blocks are at their fastest; what time is left goes to those that save most for it. Of
    the schedule its placement and number of micro-batches count; some order keeps the deadline.
    """
    placement, number = schedule.placement, schedule.num_micro_batches
    hulls = _hulls(placement, profile)
    before, after = _fastest_paths(placement, {name: float(time[0]) for name, (time, _) in hulls.items()})
    effective_mj = 0.0
    for lane in range(len(placement.lanes)):
        blocks = [block for block in placement.blocks if lane in placement.lanes_of(block)]
        if not blocks:
            continue
        ends_ms = min(before[block.name] for block in blocks) + min(after[block.name] for block in blocks)
        left_ms = deadline_ms * (1 + TIME_TOLERANCE) - ends_ms
        lengths, savings = [], []
        for block in blocks:
            time, energy = hulls[block.name]
            runs = len(micro_batches_of(placement, block.name, number))
            share = runs / len(placement.lanes_of(block))
            left_ms -= runs * time[0]
            effective_mj += share * energy[0]
            lengths.append(runs * np.diff(time))
            savings.append(-share * np.diff(energy))
        length, saving = np.concatenate(lengths), np.concatenate(savings)
        order = np.argsort(-saving / length, kind="stable")
        begin = length[order].cumsum() - length[order]
        used = np.clip(max(left_ms, 0.0) - begin, 0.0, length[order]) / length[order]
        effective_mj -= float(saving[order] @ used)
    return effective_mj + waiting_w(placement, profile) * deadline_ms


def _hulls(placement: Placement, profile: Profile) -> dict[str, tuple[Floats, Floats]]:
    """Return time and effective energy of each block on the lower hull of all its modes and clocks."""
    curves = cost_curves(placement, profile)
    hulls = {}
    for block in placement.blocks:
        of = [curves[run] for run, other in placement.runs.items() if other.name == block.name]
        is_left_out = any(not alternative.time for alternative in placement.alternatives(block.name))
        time = np.concatenate([*(curve.time_ms for curve in of), [0.0] * is_left_out])
        energy = np.concatenate([*(curve.energy_mj for curve in of), [0.0] * is_left_out])
        best = undominated(time, energy)
        best = best[lower_hull(time[best], energy[best])]
        hulls[block.name] = time[best], energy[best]
    return hulls


def _fastest_paths(
    placement: Placement, fastest_ms: dict[str, float]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the least time of each block from the begin to its start, and from its end to the end."""
    before, after = dict.fromkeys(fastest_ms, 0.0), dict.fromkeys(fastest_ms, 0.0)
    delays = [
        (a, block.name, placement.ms(placement.transfer_time(a, block.name)))
        for block in placement.topological_order
        for a in block.after
    ]
    for a, b, delay_ms in delays:
        before[b] = max(before[b], before[a] + fastest_ms[a] + delay_ms)
    for a, b, delay_ms in reversed(delays):
        after[a] = max(after[a], delay_ms + fastest_ms[b] + after[b])
    return before, after
