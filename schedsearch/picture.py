"""A schedule as text: one row per device, one column per tick (or per so many ticks).

``F0.3`` is block F0 of micro-batch 3; ``F.3`` likewise in a row that has no other block F.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import pairwise

from placements import Placement
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule

PictureCell = tuple[int, int, str]
"""Start in ticks, micro-batch and block of what is drawn."""

_MAX_ROWS = 16
"""Devices that are all drawn; of more only some are."""

_IDLE = "."


def picture(schedule: Schedule, max_columns: int = 200, mark: tuple[str, int] | None = None) -> str:
    """Draw a schedule as a grid; a dot is an idle tick.

    A cell shows the block's name, and with several micro-batches the micro-batch behind a dot.
    Times that share a divisor are divided by it; a schedule that is still too wide is sampled.

    Args:
        schedule: Need not be valid.
        max_columns: Widest grid before sampling.
        mark: A (block, micro-batch) to put in square brackets.

    >>> from placements.shapes import v_shape
    >>> from schedsearch.baselines import one_f_one_b
    >>> print(picture(one_f_one_b(v_shape(2, backward_time=2), 3)))
    0 | F.0 F.1 .   .   B.0 B.0 F.2 B.1 B.1 .   B.2 B.2
    1 | .   F.0 B.0 B.0 F.1 B.1 B.1 F.2 B.2 B.2 .   .
    """
    tick = _common_tick(schedule)
    if math.ceil(schedule.makespan / tick) > max_columns:
        tick = math.ceil(schedule.makespan / max_columns)
    return "\n".join(_grid(schedule, schedule.blocks, tick, math.ceil(schedule.makespan / tick), mark=mark))


def fitted(schedule: Schedule, width: int, repetend: Repetend | None = None) -> str:
    """Draw a schedule in lines of so many characters; one that is longer is cut, its repetend drawn below.

    A column is then so many ticks that a repetend, or else the work of a device with one micro-batch, is not
    longer than a line. Of many devices some are drawn.

    Args:
        schedule: Need not be valid.
        width: Width, at least 40.
        repetend: Its steady state; None for none.

    >>> from placements.shapes import v_shape
    >>> from schedsearch.baselines import gpipe
    >>> print(fitted(gpipe(v_shape(2, backward_time=2), 9), 40))
    0 | F.0 F.1 F.2 F.3 F.4 F.5 F.6 F.7 ...
    1 | .   F.0 F.1 F.2 F.3 F.4 F.5 F.6 ...
    a column: 1 ms; .3: micro-batch 3
    """
    tick, most = _scale(schedule, width, repetend)
    columns = math.ceil(schedule.makespan / tick)
    is_cut = columns > most
    lines = shortened(_grid(schedule, schedule.blocks, tick, min(columns, most), cut=is_cut))
    if repetend is not None and is_cut:
        title, *rows = _repetend(schedule, tick, repetend)
        lines += [title, *shortened(rows)]
    return "\n".join([*lines, _caption(schedule, tick)])


def both_ends(schedule: Schedule, width: int, repetend: Repetend | None = None) -> str:
    """Draw all devices of a schedule; one that is longer than a line is drawn without its middle.

    Its repetend is then drawn below. A column is as in `fitted`.

    Args:
        schedule: Need not be valid.
        width: Width, at least 40.
        repetend: Its steady state; None for none.

    >>> from placements.shapes import v_shape
    >>> from schedsearch.baselines import one_f_one_b
    >>> print(both_ends(one_f_one_b(v_shape(2, backward_time=2), 9), 48))
    0 | F.0 F.1 .   .   B.0 ... B.7 B.7 .   B.8 B.8
    1 | .   F.0 B.0 B.0 F.1 ... F.8 B.8 B.8 .   .
    a column: 1 ms; .3: micro-batch 3
    """
    tick, most = _scale(schedule, width, repetend)
    columns = math.ceil(schedule.makespan / tick)
    if columns <= most:
        return "\n".join([*_grid(schedule, schedule.blocks, tick, columns), _caption(schedule, tick)])
    begin, end = most - most // 2, max(most // 2, 1)
    late = [(start - (columns - end) * tick, n, name) for start, n, name in schedule.blocks]
    first = _grid(schedule, schedule.blocks, tick, begin, cut=True)
    last = [row.partition(" | ")[2] for row in _grid(schedule, late, tick, end)]
    lines = [f"{one} {other}" for one, other in zip(first, last, strict=True)]
    if repetend is not None:
        lines += _repetend(schedule, tick, repetend)
    return "\n".join([*lines, _caption(schedule, tick)])


def _scale(schedule: Schedule, width: int, repetend: Repetend | None) -> tuple[int, int]:
    """Return the ticks of a column, and how many columns a line has room for, dots for a gap included."""
    placement = schedule.placement
    pad = len(str(placement.num_devices - 1)) + len(" | ")
    names = max(map(len, _short_names(placement).values()), default=1)
    cells = _cells_of_repetend(repetend) if repetend else []
    last = max([schedule.num_micro_batches - 1, *(n for _, n, _ in cells)])
    label = names + (len(f".{last}") if schedule.num_micro_batches > 1 else 0)
    most = max((width - pad - len(" ...")) // (label + 1), 1)
    tick = _common_tick(schedule)
    if math.ceil(schedule.makespan / tick) > most:
        whole = repetend.period if repetend else max(map(placement.load, range(placement.num_devices)))
        tick = max(tick, math.ceil(whole / most))
    return tick, most


def _repetend(schedule: Schedule, tick: int, repetend: Repetend) -> list[str]:
    """Return the title and the rows of a schedule's repetend."""
    cells, columns = _cells_of_repetend(repetend), math.ceil(repetend.period / tick)
    title = f"the repetend, once every {repetend.period * schedule.placement.tick_ms:.6g} ms:"
    return [title, *_grid(schedule, cells, tick, columns, wraps=True)]


def _caption(schedule: Schedule, tick: int) -> str:
    number = "; .3: micro-batch 3" if schedule.num_micro_batches > 1 else ""
    return f"a column: {tick * schedule.placement.tick_ms:.4g} ms{number}"


def shortened(rows: Sequence[str], near: int = 0) -> list[str]:
    """Return the rows of all devices, or of many the first, the last and those near one of them.

    >>> shortened([f"{device} | F0" for device in range(99)])[4:]
    ['4 | F0', '... 93 more devices ...', '98 | F0']
    """
    if len(rows) <= _MAX_ROWS:
        return list(rows)
    kept = {*range(5), *range(near - 2, near + 3), len(rows) - 1}
    lines: list[str] = []
    for previous, row in pairwise([-1, *sorted(kept & {*range(len(rows))})]):
        skipped = row - previous - 1
        lines += [f"... {skipped} more devices ..."] * (skipped > 0) + [rows[row]]
    return lines


def _common_tick(schedule: Schedule) -> int:
    times = [block.time for block in schedule.placement.blocks] + [start for start, _, _ in schedule.blocks]
    return reduce(math.gcd, times) or 1


def _cells_of_repetend(repetend: Repetend) -> list[PictureCell]:
    """Return the blocks of one period; the micro-batches are counted from the earliest that is in flight."""
    return [
        (start, rounds * repetend.micro_batches + n, name)
        for name, starts in repetend.start.items()
        for n, (start, rounds) in enumerate(zip(starts, repetend.modulo_stage[name], strict=True))
    ]


def _short_names(placement: Placement) -> dict[tuple[int, str], str]:
    """Return for each (device, block) its name, without its number where no other there has its letters."""
    keys = [(device, block.name) for block in placement.blocks for device in block.devices]
    letters = {name: re.sub(r"(?<=[^\W\d_])\d+$", "", name) for _, name in keys}
    counts = Counter((device, letters[name]) for device, name in keys)
    return {
        (device, name): letters[name] if counts[device, letters[name]] == 1 else name for device, name in keys
    }


def _grid(
    schedule: Schedule,
    cells: Iterable[PictureCell],
    tick: int,
    columns: int,
    *,
    wraps: bool = False,
    cut: bool = False,
    mark: tuple[str, int] | None = None,
) -> list[str]:
    """Return the rows of the devices.

    A block shorter than a column has one nevertheless, unless a longer one would have none left.

    Args:
        schedule: What the cells are of.
        cells: What is drawn.
        tick: Ticks for each column.
        columns: Drawn; what is later is left out.
        wraps: What is later goes on at the begin.
        cut: Each row ends with dots that say that it goes on.
        mark: A (block, micro-batch) to put in square brackets.
    """
    placement, names = schedule.placement, _short_names(schedule.placement)
    rows = [[_IDLE] * columns for _ in range(placement.num_devices)]
    for start, n, name in sorted(cells, key=lambda cell: -placement.by_name[cell[2]].time):
        block = placement.by_name[name]
        first, end = round(start / tick), round((start + block.time) / tick)
        if first >= columns and not wraps:
            continue
        for device in block.devices:
            row = rows[device]
            label = name if schedule.num_micro_batches == 1 else f"{names[device, name]}.{n}"
            for column in range(max(first, 0), max(first + 1, end)):
                if wraps or column < columns:
                    under = row[column % columns]
                    if under == _IDLE or row.count(under) > 1:
                        row[column % columns] = f"[{label}]" if mark == (name, n) else label
    width = max((len(cell) for row in rows for cell in row), default=1)
    pad = len(str(placement.num_devices - 1))
    dots = ["..."] if cut else []
    return [
        f"{device:>{pad}} | " + " ".join([*(cell.ljust(width) for cell in row), *dots]).rstrip()
        for device, row in enumerate(rows)
    ]
