"""Streams, modes and times of a schedule, which torch's table leaves out."""

from __future__ import annotations

from bisect import bisect_left

from placements.forms.texts import csv_text
from placements.streams import in_rows
from runtime.torch_pipelining.table import Overlap, TorchOrder
from schedsearch.schedule import Schedule

COLUMNS = ("device", "stream", "block", "micro_batch", "mode", "start_ms", "end_ms")
"""Columns of the table of streams."""


def stream_table(schedule: Schedule) -> str:
    """Return the blocks of each stream of each device, in order, as CSV with a header.

    Streams come device by device, ``compute`` first. A mode is empty where nothing is decided of a block.

    Args:
        schedule: A valid one.

    >>> from placements.shapes import v_shape
    >>> from schedsearch.baselines import gpipe
    >>> print(stream_table(gpipe(v_shape(1), 1)), end="")
    device,stream,block,micro_batch,mode,start_ms,end_ms
    0,compute,F0,0,,0.0,1.0
    0,compute,B0,0,,1.0,4.0
    """
    placement = schedule.placement
    rows = []
    for lane in in_rows(placement.lanes):
        for name, n in schedule.lane_orders[lane]:
            block = placement.by_name[name]
            owner, _ = placement.lanes[lane]
            device = owner if owner in block.devices else block.devices[0]
            decided = placement.decision_of.get(name)
            mode = "" if decided is None else placement.decisions[decided].names[schedule.chosen[n][decided]]
            times = placement.ms(schedule.start_of[name, n]), placement.ms(schedule.end_of[name, n])
            rows.append((device, block.stream, name, n, mode, *times))
    return csv_text(COLUMNS, rows)


def left_out(schedule: Schedule, order: TorchOrder) -> str:
    """Return a line on the streams and modes that a table for torch leaves out; empty for none.

    Args:
        schedule: A valid one.
        order: Its table.
    """
    lacks = []
    if pairs := pairs_side_by_side(schedule):
        overlaps = sum(isinstance(cell, Overlap) for row in order.cells for cell in row)
        lacks.append(f"{pairs - overlaps} of {pairs} pairs of blocks that run side by side do not")
    if schedule.chosen:
        lacks.append("no block has its mode")
    return f"in torch's table, without streams and modes, {' and '.join(lacks)}" if lacks else ""


def pairs_side_by_side(schedule: Schedule) -> int:
    """Return how many pairs of blocks of one device run at a time, of all devices."""
    count = 0
    for device in range(schedule.placement.num_devices):
        order = schedule.order(device)
        starts = [schedule.start_of[instance] for instance in order]
        for i, instance in enumerate(order, 1):
            count += max(0, bisect_left(starts, schedule.end_of[instance]) - i)
    return count
