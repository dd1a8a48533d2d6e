"""Micro-batches that differ, as a placement with one decision: its choices are the micro-batches.

So all that knows modes knows them: the rules, memory, pictures, files. Knows no search.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated

from placements import Block, Kind, Placement, PlacementError
from placements.meaning import Meaning
from placements.modes import OF_MICRO_BATCH, Choice, Chosen, Decision
from placements.plain_data import csv_records, in_file, read_csv
from schedsearch.schedule import require_plain

_FINEST = 10_000
"""Ticks of the shortest block from which on a tick is fine enough, if times are not whole numbers of it."""


class MicroBatchError(ValueError):
    """A table of micro-batches is wrong; the message says what and the remedy in one line."""


@dataclass(frozen=True)
class MicroBatchRow:
    """A row of the table: a block of a micro-batch that is not as the placement says."""

    micro_batch: Annotated[int, Meaning("number of the micro-batch, from 0 on", min=0, max=1e6)]
    block: Annotated[str, Meaning("name of a block of the placement")]
    time_ms: Annotated[float, Meaning("time of the block; 0 where it does not run", "ms", min=0)]


@dataclass(frozen=True)
class MicroBatchMemoryRow(MicroBatchRow):
    """Likewise, with memory."""

    memory_mib: Annotated[
        float | None,
        Meaning("what the block allocates, less than 0 for what it releases; empty: as the placement says"),
    ] = None


@dataclass(frozen=True)
class UnequalBatch:
    """The micro-batches of one batch.

    Attributes:
        placement: With one decision, whose choices are micro-batches; with none where all are alike.
        chosen: The choice of each micro-batch; empty where all are alike.
        num_micro_batches: How many there are.
    """

    placement: Placement
    chosen: tuple[Chosen, ...]
    num_micro_batches: int


def read_micro_batches(
    path: str | Path, placement: Placement, num_micro_batches: int | None = None, unit_mib: float | None = 1.0
) -> UnequalBatch:
    """Return the micro-batches of a CSV file; the columns are those of `MicroBatchMemoryRow`.

    Args:
        path: The file.
        placement: What is not in the file is as here.
        num_micro_batches: How many there must be; None for those of the file.
        unit_mib: MiB of a unit of the placement's memory; None where that is not known.

    Raises:
        MicroBatchError: The file is wrong; the line names it, the row, the field and the remedy.
        PlacementError: The placement has modes or streams.
    """
    with in_file(path, MicroBatchError):
        return _batch(placement, _rows(path), num_micro_batches, unit_mib)


def count_micro_batches(path: str | Path) -> int:
    """Return how many micro-batches a CSV file has.

    Raises:
        MicroBatchError: The file is wrong.
    """
    with in_file(path, MicroBatchError):
        return 1 + max(row.micro_batch for _, row in _rows(path))


def _rows(path: str | Path) -> list[tuple[int, MicroBatchRow]]:
    text = read_csv(path, MicroBatchError)
    return csv_records(text, "block of a micro-batch", MicroBatchError, MicroBatchMemoryRow, MicroBatchRow)


def unequal_batch(
    placement: Placement,
    rows: Iterable[MicroBatchRow],
    num_micro_batches: int | None = None,
    unit_mib: float | None = 1.0,
) -> UnequalBatch:
    """Return micro-batches from rows instead of a file; see `read_micro_batches`.

    >>> from placements.shapes import v_shape
    >>> batch = unequal_batch(v_shape(2, 1, 2), [MicroBatchRow(1, "F0", 3.0)])
    >>> batch.num_micro_batches, [batch.placement.as_run(each).by_name["F0"].time for each in batch.chosen]
    (2, [1, 3])
    """
    return _batch(placement, list(enumerate(rows, 1)), num_micro_batches, unit_mib)


def _batch(
    placement: Placement,
    rows: Sequence[tuple[int, MicroBatchRow]],
    num_micro_batches: int | None,
    unit_mib: float | None,
) -> UnequalBatch:
    require_plain(placement, "a table of micro-batches", "leave search.micro_batches out")
    number = 1 + max((row.micro_batch for _, row in rows), default=-1)
    if not number:
        raise MicroBatchError("has no rows; give one for each block of a micro-batch")
    if num_micro_batches is not None:
        beyond = next((line for line, row in rows if row.micro_batch >= num_micro_batches), None)
        if beyond is not None:
            raise MicroBatchError(
                f"line {beyond}, column micro_batch: {number - 1} is not below search.num_micro_batches, "
                f"{num_micro_batches}; give that as {number}, or leave it out"
            )
        number = num_micro_batches
    placement = _finer(placement, [row.time_ms for _, row in rows])
    changed: list[dict[str, Block]] = [{} for _ in range(number)]
    for line, row in rows:
        changed[row.micro_batch][row.block] = _block(placement, line, row, unit_mib, changed)
    for n, blocks in enumerate(changed):
        _check_memory(placement, n, blocks)
    kinds: dict[tuple[tuple[str, Block], ...], int] = {}
    numbers = []
    for blocks in changed:
        differ = tuple((name, b) for name, b in sorted(blocks.items()) if b != placement.by_name[name])
        numbers.append(kinds.setdefault(differ, len(kinds)))
    if len(kinds) == 1 and all(block.time for _, block in next(iter(kinds))):
        alike = dict(next(iter(kinds)))
        timed = tuple(alike.get(block.name, block) for block in placement.blocks)
        return UnequalBatch(replace(placement, blocks=timed), (), number)
    first = {kind: n for n, kind in reversed(list(enumerate(numbers)))}
    every = placement.per_micro_batch.blocks
    choices = [
        Choice(
            f"{OF_MICRO_BATCH} {first[kind]}", tuple(dict(differ).get(block.name, block) for block in every)
        )
        for differ, kind in kinds.items()
    ]
    try:
        whole = replace(placement, decisions=(Decision(tuple(choices)),))
    except PlacementError as error:
        raise MicroBatchError(str(error)) from None
    return UnequalBatch(whole, tuple((kind,) for kind in numbers), number)


def _block(
    placement: Placement,
    line: int,
    row: MicroBatchRow,
    unit_mib: float | None,
    changed: Sequence[dict[str, Block]],
) -> Block:
    """Return a block as a row says it runs."""
    block = placement.by_name.get(row.block)
    where = f"line {line}, column block: {row.block}"
    if block is None:
        names = list(placement.by_name)
        shown = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
        raise MicroBatchError(f"{where} is not a block of {placement.name}; use one of {shown}")
    if block.kind is Kind.O:
        raise MicroBatchError(f"{where} is an optimizer block, which runs once; remove the row")
    if row.block in changed[row.micro_batch]:
        raise MicroBatchError(f"{where} of micro-batch {row.micro_batch} is there twice; keep one row")
    ticks = round(row.time_ms / placement.tick_ms)
    memory = getattr(row, "memory_mib", None)
    if not ticks:
        return replace(block, time=0, memory=0, transient=0, host_memory=0)
    if memory is None:
        return replace(block, time=ticks)
    if unit_mib is None:
        raise MicroBatchError(
            f"line {line}, column memory_mib: the placement's memory is not in MiB; leave the column out"
        )
    units = memory / unit_mib
    return replace(block, time=ticks, memory=int(units) if units == int(units) else round(units))


def _check_memory(placement: Placement, micro_batch: int, blocks: dict[str, Block]) -> None:
    """Check that a micro-batch releases what it allocates."""
    for device in range(placement.num_devices) if blocks else ():
        here = [blocks.get(block.name, block) for block in placement.on(device)]
        left = sum(block.memory_on(device) for block in here)
        if left:
            raise MicroBatchError(
                f"micro-batch {micro_batch}: the memory of its blocks sums to {left} on device {device}; let "
                f"{', '.join(block.name for block in here)} release what they allocate"
            )


def _finer(placement: Placement, times_ms: Sequence[float]) -> Placement:
    """Return the placement with a tick, shorter by a power of ten, of which times are whole numbers.

    Where none is, the shortest time has at least `_FINEST`.
    """
    times = [Fraction(str(time)) / Fraction(str(placement.tick_ms)) for time in times_ms if time]
    for factor in (10**i for i in itertools.count()):
        ticks = [time * factor for time in times]
        if all(each.denominator == 1 for each in ticks) or min(ticks) >= _FINEST:
            break
    if factor == 1:
        return placement
    return replace(
        placement,
        tick_ms=float(Fraction(str(placement.tick_ms)) / factor),
        blocks=tuple(replace(block, time=block.time * factor) for block in placement.blocks),
        transfer=tuple((a, b, ticks * factor) for a, b, ticks in placement.transfer),
    )
