"""A schedule as text: one row per device and stream, one column per tick or per several ticks.

``F0.3`` is block F0 of micro-batch 3; ``F.3`` likewise in a row that has no other block F. A letter behind
it, as in ``F.3r``, is the mode that the block runs in where that is not the first; below stands which.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import pairwise
from string import ascii_letters
from typing import NamedTuple

from placements import Placement
from placements.streams import in_rows, lane_name
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule, mode_in


class _Cell(NamedTuple):
    """The drawing of one block of a micro-batch, in ticks; the mode is empty if it is the first one."""

    start: int
    ticks: int
    micro_batch: int
    name: str
    mode: str


_MAX_ROWS = 16
"""Up to this number of devices, all are drawn; of more, only some."""

_IDLE = "."


def picture(schedule: Schedule, max_columns: int = 200, mark: tuple[str, int] | None = None) -> str:
    """Draw a schedule as a grid; a dot is an idle tick.

    A cell shows the block's name, and with several micro-batches the micro-batch behind a dot.
    Times that share a divisor are divided by it; a schedule that is still too wide is sampled. A last line
    says which modes the letters behind micro-batches stand for, if there are any. The schedule need not be
    valid; a (block, micro-batch) to mark is in square brackets.

    >>> from placements.shapes import v_shape
    >>> from schedsearch.baselines import one_f_one_b
    >>> print(picture(one_f_one_b(v_shape(2, backward_time=2), 3)))
    0 | F.0 F.1 .   .   B.0 B.0 F.2 B.1 B.1 .   B.2 B.2
    1 | .   F.0 B.0 B.0 F.1 B.1 B.1 F.2 B.2 B.2 .   .
    """
    tick = _common_tick(schedule)
    if math.ceil(schedule.makespan / tick) > max_columns:
        tick = math.ceil(schedule.makespan / max_columns)
    cells = _cells_of_schedule(schedule)
    lines = _grid(schedule, cells, tick, math.ceil(schedule.makespan / tick), mark=mark)
    return "\n".join([*lines, *filter(None, ["; ".join(_modes_in_words(schedule.placement, cells))])])


def fitted(
    schedule: Schedule, width: int, repetend: Repetend | None = None, *, with_end: bool = False
) -> str:
    """Draw a schedule in lines of `width` characters, at least 40; if it is cut, draw its repetend below.

    A column has as many ticks as needed for a repetend, or else a device's work for one micro-batch, to fit
    in a line. Of many devices only some are drawn. With `with_end`, all are, and the middle is cut out.

    >>> from placements.shapes import v_shape
    >>> from schedsearch.baselines import one_f_one_b
    >>> print(fitted(one_f_one_b(v_shape(2, backward_time=2), 9), 48, with_end=True))
    0 | F.0 F.1 .   .   B.0 ... B.7 B.7 .   B.8 B.8
    1 | .   F.0 B.0 B.0 F.1 ... F.8 B.8 B.8 .   .
    a column: 1 ms; .3: micro-batch 3
    """
    cells, around = _cells_of_schedule(schedule), _cells_of_repetend(repetend) if repetend else []
    tick, most = _scale(schedule, width, [*cells, *around], repetend)
    columns = math.ceil(schedule.makespan / tick)
    is_cut = columns > most
    begin = min(columns, most - most // 2 if with_end else most)
    parts = [_grid(schedule, cells, tick, columns if not is_cut else begin, cut=is_cut)]
    if is_cut and with_end:
        end = max(most // 2, 1)
        late = [cell._replace(start=cell.start - (columns - end) * tick) for cell in cells]
        rows = zip(parts[0], _grid(schedule, late, tick, end), strict=True)
        parts = [[f"{first} {last.partition(' | ')[2]}" for first, last in rows]]
    title: list[str] = []
    if is_cut and repetend is not None:
        title = [f"the repetend, once every {repetend.period * schedule.placement.tick_ms:.6g} ms:"]
        cells = [*cells, *around]
        parts.append(_grid(schedule, around, tick, math.ceil(repetend.period / tick), wraps=True))
    drawn, *below = parts if with_end else map(shortened, parts)
    number = [".3: micro-batch 3"] if schedule.num_micro_batches > 1 else []
    column = f"a column: {tick * schedule.placement.tick_ms:.4g} ms"
    caption = "; ".join([column, *number, *_modes_in_words(schedule.placement, cells)])
    return "\n".join([*drawn, *title, *(row for rows in below for row in rows), caption])


def _scale(
    schedule: Schedule, width: int, cells: Sequence[_Cell], repetend: Repetend | None
) -> tuple[int, int]:
    """Return the ticks of a column, and how many columns a line has room for, dots for a gap included."""
    placement = schedule.placement
    pad = len(_row_titles(placement)[0]) + len(" | ")
    label = max(map(len, _short_names(placement).values()), default=1)
    last = max([schedule.num_micro_batches - 1, *(cell.micro_batch for cell in cells)])
    label += (len(f".{last}") if schedule.num_micro_batches > 1 else 0) + any(cell.mode for cell in cells)
    most = max((width - pad - len(" ...")) // (label + 1), 1)
    tick = _common_tick(schedule)
    if math.ceil(schedule.makespan / tick) > most:
        whole = repetend.period if repetend else max(map(placement.load, range(placement.num_devices)))
        tick = max(tick, math.ceil(whole / most))
    return tick, most


def _modes_in_words(placement: Placement, cells: Iterable[_Cell]) -> list[str]:
    """Return the meaning of each letter drawn behind a micro-batch."""
    drawn = {cell.mode for cell in cells}
    return [f"{letter}: {mode}" for mode, letter in _mode_letters(placement).items() if mode in drawn]


def _mode_letters(placement: Placement) -> dict[str, str]:
    """Return a letter for each mode except the first of a decision, a different one while letters last."""
    modes = dict.fromkeys(name for decision in placement.decisions for name in decision.names[1:])
    letters: dict[str, str] = {}
    for mode in modes:
        free = [letter for letter in mode + ascii_letters if letter.isalpha()]
        letters[mode] = next((letter for letter in free if letter not in letters.values()), free[0])
    return letters


def shortened(rows: Sequence[str], near: int = 0) -> list[str]:
    """Return the rows of all devices, or of many devices only the first, the last, and some around `near`.

    A device has a row for each of its streams. A line after them that is no row stays.

    >>> shortened([f"{device} | F0" for device in range(99)])[4:]
    ['4 | F0', '... 93 more devices ...', '98 | F0']
    """
    of_devices: dict[str, list[str]] = {}
    others = []
    for row in rows:
        if device := re.match(r" *(\d+)(?= .*\|)", row):
            of_devices.setdefault(device[1], []).append(row)
        else:
            others.append(row)
    by_device = list(of_devices.values())
    if len(by_device) <= _MAX_ROWS:
        return list(rows)
    kept = {*range(5), *range(near - 2, near + 3), len(by_device) - 1}
    lines: list[str] = []
    for previous, device_number in pairwise([-1, *sorted(kept & {*range(len(by_device))})]):
        skipped = device_number - previous - 1
        lines += [f"... {skipped} more devices ..."] * (skipped > 0) + by_device[device_number]
    return lines + others


def _common_tick(schedule: Schedule) -> int:
    times = [block.time for block in schedule.placement.blocks] + [start for start, _, _ in schedule.blocks]
    return reduce(math.gcd, times + list(schedule.end_of.values())) or 1


def _cells_of_schedule(schedule: Schedule) -> list[_Cell]:
    start_of, end_of = schedule.start_of, schedule.end_of
    return [
        _Cell(start, end_of[name, n] - start_of[name, n], n, name, schedule.mode(name, n))
        for start, n, name in schedule.blocks
    ]


def _cells_of_repetend(repetend: Repetend) -> list[_Cell]:
    """Return the blocks of one period; the micro-batches are counted from the earliest that is in flight."""
    return [
        _Cell(
            repetend.start[name][n],
            block.time,
            repetend.modulo_stage[name][n] * repetend.micro_batches + n,
            name,
            mode_in(repetend.placement, repetend.chosen[n], name) if repetend.chosen else "",
        )
        for (name, n), block in repetend.blocks.items()
    ]


def _short_names(placement: Placement) -> dict[tuple[int, str], str]:
    """Return the name of each (lane, block), without its number if the letters are unique on the lane."""
    keys = [(lane, block.name) for block in placement.blocks for lane in placement.lanes_of(block)]
    letters = {name: re.sub(r"(?<=[^\W\d_])\d+$", "", name) for _, name in keys}
    counts = Counter((lane, letters[name]) for lane, name in keys)
    return {(lane, name): letters[name] if counts[lane, letters[name]] == 1 else name for lane, name in keys}


def _row_titles(placement: Placement) -> list[str]:
    """Return the titles of the rows, padded to one width, in drawing order."""
    pad = len(str(placement.num_devices - 1))
    lanes = [placement.lanes[number] for number in in_rows(placement.lanes)]
    titles = [
        f"{device:>{pad}}" + lane_name((device, stream)).removeprefix(str(device)) for device, stream in lanes
    ]
    width = max(map(len, titles))
    return [title.ljust(width) for title in titles]


def _grid(
    schedule: Schedule,
    cells: Iterable[_Cell],
    tick: int,
    columns: int,
    *,
    wraps: bool = False,
    cut: bool = False,
    mark: tuple[str, int] | None = None,
) -> list[str]:
    """Return the text rows of devices and streams, with dots at the end of a cut row.

    A block shorter than a column has one nevertheless, unless a longer one would have none left. What is
    later than the last column is left out, or goes on at the begin.
    """
    placement, names = schedule.placement, _short_names(schedule.placement)
    letters = _mode_letters(placement)
    rows = [[_IDLE] * columns for _ in placement.lanes]
    for start, ticks, n, name, mode in sorted(cells, key=lambda cell: -cell.ticks):
        first, end = round(start / tick), round((start + ticks) / tick)
        if first >= columns and not wraps:
            continue
        for lane in placement.lanes_of(placement.by_name[name]):
            row = rows[lane]
            label = name if schedule.num_micro_batches == 1 else f"{names[lane, name]}.{n}"
            label += letters.get(mode, "")
            for column in range(max(first, 0), max(first + 1, end)):
                if wraps or column < columns:
                    under = row[column % columns]
                    if under == _IDLE or row.count(under) > 1:
                        row[column % columns] = f"[{label}]" if mark == (name, n) else label
    width = max((len(cell) for row in rows for cell in row), default=1)
    dots = ["..."] if cut else []
    drawn = zip(_row_titles(placement), in_rows(placement.lanes), strict=True)
    return [
        f"{title} | " + " ".join([*(cell.ljust(width) for cell in rows[lane]), *dots]).rstrip()
        for title, lane in drawn
    ]
