"""A schedule as text: one row per device, one column per tick (or per so many ticks)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import reduce

from placements import Placement
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule

Cell = tuple[int, str, str]
"""Start in ticks, block and label of what is drawn."""


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
    tick = _common_tick(schedule)
    if math.ceil(schedule.makespan / tick) > max_columns:
        tick = math.ceil(schedule.makespan / max_columns)
    return _grid(schedule.placement, _cells(schedule, mark), tick, math.ceil(schedule.makespan / tick))


def fitted(schedule: Schedule, width: int, repetend: Repetend | None = None) -> str:
    """Draw a schedule in lines of so many characters; one that is longer is cut, its repetend drawn below.

    A column is then so many ticks that a repetend, or else the work of a device with one micro-batch, is not
    longer than a line.

    Args:
        schedule: Need not be valid.
        width: At least 40.
        repetend: Its steady state; None for none.

    >>> from placements.shapes import v_shape
    >>> from schedsearch.baselines import gpipe
    >>> print(fitted(gpipe(v_shape(2, backward_time=2), 9), 40))
    0 | F0 F1 F2 F3 F4 F5 F6 F7 F8 .  ...
    1 | .  F0 F1 F2 F3 F4 F5 F6 F7 F8 ...
    """
    placement, cells = schedule.placement, _cells(schedule)
    pad = len(str(placement.num_devices - 1)) + len(" | ")
    label = max((len(each) for _, _, each in cells), default=1)
    most = max((width - pad - len(" ...")) // (label + 1), 1)
    tick = _common_tick(schedule)
    if math.ceil(schedule.makespan / tick) <= most:
        return _grid(placement, cells, tick, math.ceil(schedule.makespan / tick))
    whole = max(map(placement.load, range(placement.num_devices))) if repetend is None else repetend.period
    tick = max(tick, math.ceil(whole / most))
    columns = min(math.ceil(schedule.makespan / tick), most)
    grid = _grid(placement, cells, tick, columns, cut=columns * tick < schedule.makespan)
    if repetend is None:
        return grid
    every = f"{repetend.period * placement.tick_ms:.6g} ms"
    columns = math.ceil(repetend.period / tick)
    steady = _grid(placement, _cells_of_repetend(repetend), tick, columns, wraps=True)
    return f"{grid}\nthe repetend, once every {every}:\n{steady}"


def _common_tick(schedule: Schedule) -> int:
    times = [block.time for block in schedule.placement.blocks] + [start for start, _, _ in schedule.blocks]
    return reduce(math.gcd, times) or 1


def _cells(schedule: Schedule, mark: tuple[str, int] | None = None) -> list[Cell]:
    return [
        (start, name, f"[{label}]" if mark == (name, n) else label)
        for start, n, name in schedule.blocks
        for label in [name if schedule.num_micro_batches == 1 else _label(name, n)]
    ]


def _cells_of_repetend(repetend: Repetend) -> list[Cell]:
    """Return the blocks of one period; the micro-batches are counted from the earliest that is in flight."""
    return [
        (start, name, _label(name, rounds * repetend.micro_batches + n))
        for name, starts in repetend.start.items()
        for n, (start, rounds) in enumerate(zip(starts, repetend.modulo_stage[name], strict=True))
    ]


def _label(name: str, micro_batch: int) -> str:
    return f"{name.rstrip('0123456789')}{micro_batch}"


def _grid(
    placement: Placement,
    cells: Iterable[Cell],
    tick: int,
    columns: int,
    *,
    wraps: bool = False,
    cut: bool = False,
) -> str:
    """Return the rows of the devices.

    Args:
        placement: The devices of the blocks.
        cells: What is drawn.
        tick: Ticks for each column.
        columns: Drawn; what is later is left out.
        wraps: What is later goes on at the begin.
        cut: Each row ends with dots that say that it goes on.
    """
    rows = [["."] * columns for _ in range(placement.num_devices)]
    for start, name, label in cells:
        block = placement.by_name[name]
        first, end = round(start / tick), round((start + block.time) / tick)
        for device in block.devices:
            for column in range(max(first, 0), max(first + 1, end)):
                if wraps or column < columns:
                    rows[device][column % columns] = label
    width = max((len(cell) for row in rows for cell in row), default=1)
    pad = len(str(placement.num_devices - 1))
    dots = ["..."] if cut else []
    lines = (
        f"{device:>{pad}} | " + " ".join([*(cell.ljust(width) for cell in row), *dots]).rstrip()
        for device, row in enumerate(rows)
    )
    return "\n".join(lines)
