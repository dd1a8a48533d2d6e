"""Micro-batches that differ, as a problem with one decision: its choices are the micro-batches.

So all code for modes works on them: the rules, memory, pictures, files. Knows no search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated

from placements import Block, Kind, Placement, PlacementError
from placements.forms.meaning import Meaning
from placements.forms.reading import in_file
from placements.forms.tables import csv_records
from placements.modes import OF_MICRO_BATCH, Choice, Decision
from placements.profiles.length_rules import LengthRule, read_length_rules, value
from schedsearch.core.objective import Objective
from schedsearch.core.problem import Problem
from schedsearch.schedule import require_plain

_FINEST = 10_000
"""If times are not whole numbers of ticks, a tick is fine enough once the shortest block has this many."""


class MicroBatchError(ValueError):
    """A table of micro-batches is wrong; the message names the remedy."""


@dataclass(frozen=True)
class MicroBatchRow:
    """A row of the table: a block of a micro-batch that is not as the placement says."""

    micro_batch: Annotated[int, Meaning("number of the micro-batch, from 0 on", min=0, max=1e6)]
    block: Annotated[str, Meaning("name of a block of the placement")]
    time_ms: Annotated[float, Meaning("time of the block; 0 where it does not run", "ms", min=0)]
    memory_mib: Annotated[
        float | None,
        Meaning("what the block allocates, less than 0 for what it releases; empty: as the placement says"),
    ] = None


@dataclass(frozen=True)
class MicroBatchTokensRow:
    """A row of the other form: a micro-batch's tokens, from which rules compute each block's costs."""

    micro_batch: Annotated[int, Meaning("number of the micro-batch, from 0 on", min=0, max=1e6)]
    tokens: Annotated[int, Meaning("tokens of its sequence", min=1, max=1e9)]


def read_micro_batches(
    path: str | Path,
    placement: Placement,
    num_micro_batches: int | None = None,
    unit_mib: float | None = 1.0,
    length_rules: str | Path | None = None,
) -> Problem:
    """Return the micro-batches of a CSV file.

    The columns are the fields of `MicroBatchRow`; blocks that are not in the file are as in the placement. Or
    they are the fields of `MicroBatchTokensRow`, and rules compute each block's costs.

    Args:
        path: The file.
        placement: The blocks of a micro-batch.
        num_micro_batches: Required number of micro-batches; None for the file's own number.
        unit_mib: MiB of a unit of the placement's memory; None if not known.
        length_rules: File of the rules, for lengths; see `placements.profiles.length_rules`.

    Raises:
        MicroBatchError: The file is wrong; the line names it, the row, the field and the remedy.
        ProfileError: The file of rules is wrong.
        PlacementError: The placement has modes or streams.
    """
    rules = None if length_rules is None else read_length_rules(length_rules)
    with in_file(path, MicroBatchError):
        rows, lengths = _rows(path)
        if not lengths and rules is not None:
            raise MicroBatchError(
                "has times, and search.length_rules is for lengths; leave one of the two out"
            )
        if rules is None:
            if lengths:
                raise MicroBatchError(
                    "has lengths, but block times per length are missing; give search.length_rules"
                )
            return _batch(placement, rows, num_micro_batches, unit_mib)
        if num_micro_batches not in (None, len(lengths)):
            raise MicroBatchError(
                f"has {len(lengths)} lengths, and search.num_micro_batches is {num_micro_batches}; leave "
                "that out"
            )
    with in_file(str(length_rules), MicroBatchError):
        require_plain(placement, "rules of lengths", "leave search.micro_batches out")
        made = list(enumerate(_ruled_rows(placement, lengths, rules, unit_mib), 1))
        return _batch(placement, made, None, unit_mib)


def count_micro_batches(path: str | Path) -> int:
    """Return how many micro-batches a CSV file has."""
    with in_file(path, MicroBatchError):
        rows, lengths = _rows(path)
        return len(lengths) or 1 + max(row.micro_batch for _, row in rows)


def _rows(path: str | Path) -> tuple[list[tuple[int, MicroBatchRow]], tuple[int, ...]]:
    """Return the rows of a file with their lines, or else the length of each micro-batch."""
    kinds, once = (MicroBatchRow, MicroBatchTokensRow), ("micro_batch", "block")
    records = csv_records(Path(path), "micro-batch", MicroBatchError, *kinds, once=once)
    tokens = {row.micro_batch: row.tokens for _, row in records if isinstance(row, MicroBatchTokensRow)}
    missing = next((n for n in range(len(tokens)) if n not in tokens), None)
    if missing is not None:
        raise MicroBatchError(f"has no row for micro-batch {missing}; number {len(tokens)} from 0 on")
    rows = [(line, row) for line, row in records if isinstance(row, MicroBatchRow)]
    return rows, tuple(tokens[n] for n in range(len(tokens)))


def _ruled_rows(
    placement: Placement, lengths: Sequence[int], rules: Mapping[str, LengthRule], unit_mib: float | None
) -> Iterator[MicroBatchRow]:
    """Yield a row with time and memory of each block for each sequence length, by rules.

    Memory is in whole units, and the last block of a device that releases memory takes the rounding
    difference. Rules of other blocks are not used.
    """
    blocks = placement.per_micro_batch.topological_order
    for block in blocks:
        if block.name not in rules:
            raise MicroBatchError(f"has no rule for block {block.name} of {placement.name}; add one")
        if unit_mib is None and rules[block.name].memory_mib is not None:
            raise MicroBatchError(f"block {block.name}, {_NO_UNIT}")
    for n, tokens in enumerate(lengths):
        units: dict[str, int] = {}
        for block in blocks:
            if (memory := rules[block.name].memory_mib) is not None:
                units[block.name] = round(value(memory, tokens / 1000) / (unit_mib or 1.0))
        for device in range(placement.num_devices):
            here = [block.name for block in blocks if device in block.devices and block.name in units]
            left, releasing = sum(units[name] for name in here), [name for name in here if units[name] < 0]
            if releasing and abs(left) < len(here):
                units[releasing[-1]] -= left
        for block in blocks:
            time_ms = value(rules[block.name].time_ms, tokens / 1000)
            held = None if block.name not in units else units[block.name] * (unit_mib or 1.0)
            yield MicroBatchRow(n, block.name, time_ms, held)


def unequal_batch(
    placement: Placement,
    rows: Iterable[MicroBatchRow],
    num_micro_batches: int | None = None,
    unit_mib: float | None = 1.0,
) -> Problem:
    """Return micro-batches from rows instead of a file; see `read_micro_batches`.

    >>> from placements.shapes import v_shape
    >>> batch = unequal_batch(v_shape(2, 1, 2), [MicroBatchRow(1, "F0", 3.0)])
    >>> batch.num_micro_batches, [batch.placement.as_run(modes).by_name["F0"].time for modes in batch.chosen]
    (2, [1, 3])
    """
    return _batch(placement, list(enumerate(rows, 1)), num_micro_batches, unit_mib)


def _batch(
    placement: Placement,
    rows: Sequence[tuple[int, MicroBatchRow]],
    num_micro_batches: int | None,
    unit_mib: float | None,
) -> Problem:
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
    kinds: dict[tuple[Block, ...], int] = {}
    numbers, first = [], list[int]()
    every = placement.per_micro_batch.blocks
    for n, blocks in enumerate(changed):
        _check_memory(placement, n, blocks)
        kind = tuple(blocks.get(block.name, block) for block in every)
        first += [n] if kind not in kinds else []
        numbers.append(kinds.setdefault(kind, len(kinds)))
    if len(kinds) == 1 and all(block.time or block in every for block in next(iter(kinds))):
        alike = {block.name: block for block in next(iter(kinds))}
        timed = tuple(alike.get(block.name, block) for block in placement.blocks)
        return Problem(replace(placement, blocks=timed), number, objectives=(Objective.MAKESPAN,))
    choices = (Choice(f"{OF_MICRO_BATCH} {n}", kind) for n, kind in zip(first, kinds, strict=True))
    try:
        whole = replace(placement, decisions=(Decision(tuple(choices)),))
    except PlacementError as error:
        raise MicroBatchError(str(error)) from None
    return Problem(whole, number, tuple((kind,) for kind in numbers), objectives=(Objective.MAKESPAN,))


_NO_UNIT = "column memory_mib: the placement's memory is not in MiB; leave the column out"


def _block(
    placement: Placement,
    line: int,
    row: MicroBatchRow,
    unit_mib: float | None,
    changed: Sequence[Mapping[str, Block]],
) -> Block:
    """Return a block with the time and memory of a row; with a time of 0 it does not run."""
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
    if not ticks:
        return replace(block, time=0, memory=0, transient=0, host_memory=0)
    if row.memory_mib is None:
        return replace(block, time=ticks)
    if unit_mib is None:
        raise MicroBatchError(f"line {line}, {_NO_UNIT}")
    return replace(block, time=ticks, memory=round(row.memory_mib / unit_mib))


def _check_memory(placement: Placement, micro_batch: int, blocks: Mapping[str, Block]) -> None:
    """Check that a micro-batch releases all memory that it allocates, on every device."""
    for device in range(placement.num_devices) if blocks else ():
        here = [blocks.get(block.name, block) for block in placement.on(device)]
        if left := sum(block.memory_on(device) for block in here):
            raise MicroBatchError(
                f"micro-batch {micro_batch}: the memory of its blocks sums to {left} on device {device}; let "
                f"{', '.join(block.name for block in here)} release what they allocate"
            )


def _finer(placement: Placement, times_ms: Sequence[float]) -> Placement:
    """Return the placement with a tick, shorter by a power of ten, of which times are whole numbers.

    Where none is, the shortest time has at least `_FINEST`.
    """
    times = [Fraction(str(time)) / Fraction(str(placement.tick_ms)) for time in times_ms if time]
    least, factor = min(times, default=Fraction(0)), 1
    while least * factor < _FINEST and any((time * factor).denominator > 1 for time in times):
        factor *= 10
    return replace(
        placement,
        tick_ms=float(Fraction(str(placement.tick_ms)) / factor),
        blocks=tuple(replace(block, time=block.time * factor) for block in placement.blocks),
        transfer=tuple((a, b, ticks * factor) for a, b, ticks in placement.transfer),
    )
