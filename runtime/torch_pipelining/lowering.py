"""Which messages a table of computations needs, and their places in it as torch puts them there.

A stage hands its output to the next one and its gradient to the one before; between stages of one rank
nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from runtime.program.error_grid import ProgramPosition, cycle_from, excerpt
from runtime.torch_pipelining.table import Action, Op, TorchCell, TorchOrder, actions_of


class UnsafeOrderError(ValueError):
    """A table would hang, or compute something else; the message shows the table around the fault.

    Attributes:
        reason: What is wrong, in one line; the message without the table.
    """

    def __init__(self, reason: str, table: str = "") -> None:
        super().__init__(reason, table)
        self.reason = reason

    def __str__(self) -> str:
        return "\n".join(filter(None, self.args))


class Handover(NamedTuple):
    """What one computation hands to another of the same micro-batch.

    Attributes:
        send: As the sender's cell says it.
        receive: As the receiver's cell says it.
        source: The sender's rank.
        target: The receiver's rank; the same where nothing is sent.
    """

    send: Action
    receive: Action
    source: int
    target: int


def fault(order: TorchOrder, message: str, positions: Sequence[ProgramPosition]) -> UnsafeOrderError:
    """Return the error with the table's cells around the fault, these in brackets."""
    rows = [["." if cell is None else str(cell) for cell in row] for row in order.cells]
    return UnsafeOrderError(message, excerpt(rows, positions) if positions else "")


def input_of(action: Action, rank_of: Mapping[int, int]) -> Handover | None:
    """Return what a computation takes from another stage; None if nothing.

    Args:
        action: Any.
        rank_of: The rank of each stage.
    """
    stage, op, n = action
    if op is Op.FORWARD and stage - 1 in rank_of:
        sender, send, receive = stage - 1, Op.SEND_F, Op.RECV_F
    elif op in (Op.BACKWARD, Op.INPUT) and stage + 1 in rank_of:
        sender, send, receive = stage + 1, Op.SEND_B, Op.RECV_B
    else:
        return None
    return Handover(Action(sender, send, n), Action(stage, receive, n), rank_of[sender], rank_of[stage])


def with_transfers(order: TorchOrder) -> TorchOrder:
    """Return a table of computations with sends and receives, in the order in which torch inserts them.

    Ranks take turns, each with its next cell if all that it takes has arrived. As soon as a cell is placed,
    what it makes is sent by its rank and received by the other one. So all ranks keep one global order, and
    nothing waits in a cycle, even where every transfer blocks. Torch adds cells for sharded weights first,
    and these take turns too; so its order may be another one of the same kind, and exists when this does.

    Args:
        order: Order of computations only, each of them once, whose ranks each keep the order of their own.

    Raises:
        UnsafeOrderError: Ranks wait for each other, so that there is no such order.
    """
    order = TorchOrder(tuple(tuple(cell for cell in row if cell is not None) for row in order.cells))
    rank_of = order.rank_of
    taken_from = {
        transfer.send: transfer
        for _, action in order.actions()
        if (transfer := input_of(action, rank_of)) is not None
    }
    placed: list[list[TorchCell]] = [[] for _ in order.cells]
    done: list[set[Action]] = [set() for _ in order.cells]
    index = [0] * len(order.cells)
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(order.cells):
            if index[rank] == len(row) or _missing(row[index[rank]], rank_of, done[rank]):
                continue
            cell = row[index[rank]]
            index[rank] += 1
            moved = True
            placed[rank].append(cell)
            for action in actions_of(cell):
                transfer = taken_from.get(sent_after(action))
                if transfer is None:
                    continue
                done[transfer.target].add(transfer.receive)
                if transfer.source != transfer.target:
                    placed[transfer.source].append(transfer.send)
                    placed[transfer.target].append(transfer.receive)
    if any(i < len(row) for i, row in zip(index, order.cells, strict=True)):
        raise _stuck(order, index, done)
    return TorchOrder(tuple(map(tuple, placed)))


def sent_after(action: Action) -> Action:
    """Return what sends a computation's result; something that is nowhere if nothing does."""
    if action.op is Op.WEIGHT:
        return action
    return action._replace(op=Op.SEND_F if action.op is Op.FORWARD else Op.SEND_B)


def _missing(cell: TorchCell, rank_of: Mapping[int, int], done: set[Action]) -> Handover | None:
    """Return the first thing that a cell takes and that is not there yet."""
    for action in actions_of(cell):
        transfer = input_of(action, rank_of)
        if transfer is not None and transfer.receive not in done:
            return transfer
    return None


def _stuck(order: TorchOrder, index: Sequence[int], done: Sequence[set[Action]]) -> UnsafeOrderError:
    """Return the error that shows the ranks that wait for each other."""

    def waits_for(rank: int) -> Handover:
        transfer = _missing(order.cells[rank][index[rank]], order.rank_of, done[rank])
        assert transfer is not None, "a rank that does not move waits for something"
        return transfer

    def text(rank: int) -> str:
        (stage, op, n), cell = waits_for(rank).send, order.cells[rank][index[rank]]
        what = "F" if op is Op.SEND_F else "backward"
        return f"rank {rank} at {cell} waits for stage {stage}'s {what} of micro-batch {n}"

    first = next(r for r, row in enumerate(order.cells) if index[r] < len(row))
    cycle = cycle_from(first, lambda rank: waits_for(rank).source)
    waits = "; ".join(map(text, cycle))
    return fault(order, f"ranks wait for each other in a cycle: {waits}", [(r, index[r]) for r in cycle])
