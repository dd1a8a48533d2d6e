"""A schedule as text: one row per device, one column per tick (or per so many ticks)."""

from __future__ import annotations

import math
from functools import reduce

from schedsearch.schedule import Schedule


def picture(schedule: Schedule, max_columns: int = 200, mark: tuple[str, int] | None = None) -> str:
    """Draw a schedule as a grid; a dot is an idle tick.

    A cell shows the block's name, and with several micro-batches its letters followed by the micro-batch.
    Times that share a divisor are divided by it; a schedule that is still too wide is sampled.

    Args:
        schedule: Need not be valid.
        max_columns: Widest grid before sampling.
        mark: A (block, micro-batch) to put in square brackets.

    >>> from placements.shapes import v_shape
    >>> from schedsearch.baselines import one_f_one_b
    >>> print(picture(one_f_one_b(v_shape(2, backward_time=2), 3)))
    0 | F0 F1 .  .  B0 B0 F2 B1 B1 .  B2 B2
    1 | .  F0 B0 B0 F1 B1 B1 F2 B2 B2 .  .
    """
    placement = schedule.placement
    times = [block.time for block in placement.blocks] + [start for start, _, _ in schedule.blocks]
    tick = reduce(math.gcd, times) or 1
    columns = math.ceil(schedule.makespan / tick)
    if columns > max_columns:
        tick = math.ceil(schedule.makespan / max_columns)
        columns = math.ceil(schedule.makespan / tick)
    rows = [["."] * columns for _ in range(placement.num_devices)]
    for start, micro_batch, name in schedule.blocks:
        label = name if schedule.num_micro_batches == 1 else f"{name.rstrip('0123456789')}{micro_batch}"
        if mark == (name, micro_batch):
            label = f"[{label}]"
        block = placement.by_name[name]
        first, end = round(start / tick), round((start + block.time) / tick)
        for device in block.devices:
            for column in range(max(first, 0), max(first + 1, end)):
                if column < columns:
                    rows[device][column] = label
    width = max((len(cell) for row in rows for cell in row), default=1)
    pad = len(str(placement.num_devices - 1))
    lines = (
        f"{device:>{pad}} | " + " ".join(cell.ljust(width) for cell in row).rstrip()
        for device, row in enumerate(rows)
    )
    return "\n".join(lines)
