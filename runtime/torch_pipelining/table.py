"""The tables in which torch.distributed.pipelining writes schedules: a row per rank, a cell per action.

A cell is text such as ``0F3`` (stage 0, forward, micro-batch 3), ``7I2``, ``3RECV_B1`` or
``(0F1;3B0)OVERLAP_F_B``, or empty for a bubble.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from placements.forms.reading import in_file
from placements.forms.tables import csv_lines, read_csv
from placements.forms.texts import csv_text
from runtime.program.error_grid import ProgramPosition


class TorchCsvError(ValueError):
    """A file is no table of actions; the message names file, row, cell and the remedy in one line."""


class Op(StrEnum):
    """The verb of an action, as torch spells it.

    F forward, B whole backward, I and W its input and weight halves; `SEND_F` sends an output and names the
    stage that made it, `RECV_F` receives one and names the stage that takes it, likewise `SEND_B` and
    `RECV_B` for gradients. UNSHARD and RESHARD fetch and drop a stage's sharded weights, REDUCE_GRAD ends
    its gradient.
    """

    FORWARD = "F"
    BACKWARD = "B"
    INPUT = "I"
    WEIGHT = "W"
    SEND_F = "SEND_F"
    RECV_F = "RECV_F"
    SEND_B = "SEND_B"
    RECV_B = "RECV_B"
    UNSHARD = "UNSHARD"
    RESHARD = "RESHARD"
    REDUCE_GRAD = "REDUCE_GRAD"

    @property
    def is_compute(self) -> bool:
        """Whether it computes a block."""
        return self in (Op.FORWARD, Op.BACKWARD, Op.INPUT, Op.WEIGHT)

    @property
    def is_send(self) -> bool:
        """Whether it sends."""
        return self in (Op.SEND_F, Op.SEND_B)

    @property
    def is_of_stage(self) -> bool:
        """Whether it is of a stage as a whole, so that no micro-batch is named."""
        return self in (Op.UNSHARD, Op.RESHARD, Op.REDUCE_GRAD)


class Action(NamedTuple):
    """One action of one stage, on a micro-batch; None where it is of the stage as a whole."""

    stage: int
    op: Op
    micro_batch: int | None = None

    def __str__(self) -> str:
        """Return the cell's text."""
        return f"{self.stage}{self.op}{'' if self.micro_batch is None else self.micro_batch}"

    @property
    def sent(self) -> Action | None:
        """The send of the tensor that a computation makes; None of others."""
        return self._replace(op=_MESSAGES[self.op][0]) if self.op in _MESSAGES else None

    @property
    def taken(self) -> Action | None:
        """The receive of the tensor that a computation takes, or the send of a receive; None of others."""
        if self.op in (Op.RECV_F, Op.RECV_B):
            return self.other_end
        return self._replace(op=_MESSAGES[self.op][1]) if self.op in _MESSAGES else None

    @property
    def other_end(self) -> Action:
        """The receive of a send, or the send of a receive; its stage may be none of the table's."""
        step, op = _OTHER_ENDS[self.op]
        return Action(self.stage + step, op, self.micro_batch)


_BACKWARD = (Op.SEND_B, Op.RECV_B)
_MESSAGES = {Op.FORWARD: (Op.SEND_F, Op.RECV_F), Op.BACKWARD: _BACKWARD, Op.INPUT: _BACKWARD}
_OTHER_ENDS = {Op.SEND_F: (1, Op.RECV_F), Op.SEND_B: (-1, Op.RECV_B)}
_OTHER_ENDS |= {receive: (-step, send) for send, (step, receive) in _OTHER_ENDS.items()}


class Overlap(NamedTuple):
    """Computations that torch hands to one function; as torch is, it runs them one after the other."""

    actions: tuple[Action, ...]

    def __str__(self) -> str:
        """Return the cell's text."""
        return f"({';'.join(map(str, self.actions))}){_OVERLAP}"


TorchCell = Action | Overlap | None
"""A rank's work at a step; None for a bubble."""


def actions_of(cell: TorchCell) -> tuple[Action, ...]:
    """Return the actions of a cell, overlapping ones in their order."""
    return () if cell is None else cell.actions if isinstance(cell, Overlap) else (cell,)


_OVERLAP = "OVERLAP_F_B"
_ACTION = re.compile(rf"([0-9]+)({'|'.join(sorted(Op, key=len, reverse=True))})([0-9]*)")


@dataclass(frozen=True)
class TorchOrder:
    """A table: for each rank its cells, in order; shape ``(num_ranks, any)``."""

    cells: tuple[tuple[TorchCell, ...], ...]

    @cached_property
    def has_transfers(self) -> bool:
        """Whether it is in the form ``compute_comms``: any cell is no computation."""
        return any(not action.op.is_compute for _, action in self.actions())

    def on(self, rank: int) -> Iterator[tuple[ProgramPosition, Action]]:
        """Yield a rank's actions with the positions of their cells, overlapping ones one by one."""
        for index, cell in enumerate(self.cells[rank]):
            for action in actions_of(cell):
                yield (rank, index), action

    def actions(self) -> Iterator[tuple[ProgramPosition, Action]]:
        """Yield the actions of all ranks, rank by rank, with the positions of their cells."""
        for rank in range(len(self.cells)):
            yield from self.on(rank)

    @cached_property
    def rank_of(self) -> dict[int, int]:
        """Map each stage, ascending, to the first rank that computes it."""
        ranks: dict[int, int] = {}
        for (rank, _), action in self.actions():
            if action.op.is_compute:
                ranks.setdefault(action.stage, rank)
        return dict(sorted(ranks.items()))

    def __str__(self) -> str:
        """Return the CSV's text, as torch reads it."""
        rows = [["" if cell is None else str(cell) for cell in row] for row in self.cells]
        return csv_text(rows[0], rows[1:]) if rows else ""


def parse_cell(text: str) -> TorchCell:
    """Return the action of a cell.

    Raises:
        TorchCsvError: It is no action; or torch would take it for another one than it says, since it heeds
            only the begin of a cell.

    >>> parse_cell("3RECV_B1")
    Action(stage=3, op=<Op.RECV_B: 'RECV_B'>, micro_batch=1)
    >>> str(parse_cell("(0F1;3B0)OVERLAP_F_B"))
    '(0F1;3B0)OVERLAP_F_B'
    """
    text = text.strip()
    if not text:
        return None
    if text.startswith("("):
        return _parse_overlap(text)
    match = _ACTION.match(text)
    if match is None:
        raise TorchCsvError(
            f"{text!r} is no action; write such as 0F3, 0B3, 0I3, 0W3, 0SEND_F3, 1RECV_F3 or 0UNSHARD"
        )
    stage, op, micro_batch = int(match[1]), Op(match[2]), match[3]
    if rest := text[match.end() :]:
        raise TorchCsvError(
            f"{text!r} is read by torch as {match[0]!r}, without {rest!r}; take that out: "
            "a cell has no place for a clock or a remark"
        )
    if op.is_of_stage and micro_batch:
        raise TorchCsvError(f"{text!r} is of a stage as a whole; write {stage}{op}")
    if not op.is_of_stage and not micro_batch:
        raise TorchCsvError(f"{text!r} names no micro-batch; write such as {text}0")
    return Action(stage, op, int(micro_batch) if micro_batch else None)


def _parse_overlap(text: str) -> Overlap:
    inner, bracket, kind = text[1:].partition(")")
    if not bracket or kind != _OVERLAP:
        raise TorchCsvError(f"{text!r} is no overlap; write such as (0F1;3B0){_OVERLAP}")
    actions = [parse_cell(part) for part in inner.split(";")]
    if not all(isinstance(action, Action) and action.op.is_compute for action in actions):
        raise TorchCsvError(f"{text!r} overlaps more than computations; write such as (0F1;3B0){_OVERLAP}")
    return Overlap(tuple(action for action in actions if isinstance(action, Action)))


def parse_order(text: str) -> TorchOrder:
    """Return the table of a CSV's text.

    Raises:
        TorchCsvError: A cell is no action, or there is none.
    """
    rows: list[list[TorchCell]] = []
    for _, row in csv_lines(text, TorchCsvError):
        rows.append([])
        for cell in row:
            try:
                rows[-1].append(parse_cell(cell))
            except TorchCsvError as error:
                place = f"row {len(rows)} (rank {len(rows) - 1}), cell {len(rows[-1]) + 1}"
                raise TorchCsvError(f"{place}: {error}") from None
    order = TorchOrder(tuple(map(tuple, rows)))
    if not order.rank_of:
        raise TorchCsvError("has no computation in any cell; give a schedule that torch's _dump_csv wrote")
    return order


def read_torch_csv(path: str | Path) -> TorchOrder:
    """Return the table of a file; see `parse_order`."""
    with in_file(path, TorchCsvError):
        return parse_order(read_csv(path, TorchCsvError, "a CSV of torch"))
