"""A table's sends and receives: where torch puts them, or later, right before the computations they are for.

Ranks take turns in one global order, in which a message is a send and a receive at once. So the first
unfinished action can always proceed: nothing waits in a cycle, even if every transfer blocks its rank.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from runtime.program.error_grid import UnsafeProgramsError
from runtime.torch_pipelining.csv import from_torch
from runtime.torch_pipelining.table import Action, Op, TorchCell, TorchOrder, actions_of

EAGER, LATE = math.inf, 0.0

_FETCHED_AHEAD = 3
"""Stages whose sharded weights a rank of torch has at a time."""


def with_receives(order: TorchOrder, actions_ahead: float = EAGER) -> TorchOrder:
    r"""Return a table in the form ``compute_comms``: with sends, receives and FSDP's actions.

    A message is sent right after its computation. With `EAGER` its receive is posted at the same turn: that
    is the table which torch 2.13 itself makes of computations. With a bound, the sender has its next turn
    only when the receive is due. Where that holds up all ranks, the receive nearest to it is posted early.

    Args:
        order: Table in either form; its sends and receives are made anew. Its UNSHARD, RESHARD and
            REDUCE_GRAD stay; where it has none, they are put in as torch does.
        actions_ahead: Most actions of a rank between a receive and the computation that takes it.

    Raises:
        UnsafeProgramsError: See `runtime.torch_pipelining.csv.from_torch`; or a cell of overlapping
            computations needs at once what its own results lead to.

    >>> from runtime.torch_pipelining.table import parse_order
    >>> print(with_receives(parse_order("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1"), LATE), end="")
    0UNSHARD,0F0,0SEND_F0,0F1,0RECV_B0,0SEND_F1,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD
    1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE_GRAD,1RESHARD
    """
    schedule, rank_of = from_torch(order), order.rank_of
    kept = [
        [cell for cell in row if any(op.is_compute or op.is_of_stage for _, op, _ in actions_of(cell))]
        for row in order.cells
    ]
    if not any(action.op.is_of_stage for _, action in order.actions()):
        kept = [list(_with_stage_actions(row, schedule.num_micro_batches)) for row in kept]
    due = {action.taken: i for row in kept for i, cell in enumerate(row) for action in actions_of(cell)}
    needed_at = {Action(int(name[1:]), Op(name[0]), n).taken: start for start, n, name in schedule.blocks}
    made: list[list[TorchCell]] = [[] for _ in kept]
    left = [deque(row) for row in kept]
    sent: list[deque[Action]] = [deque() for _ in kept]
    arrived = {action for action in due if action is None or action.other_end.stage not in rank_of}

    def urgency(rank: int) -> tuple[int, int]:
        """Return the actions before the receive of a rank's first send is due, and when that is."""
        receive = sent[rank][0].other_end
        target = rank_of[receive.stage]
        return due[receive] - (len(kept[target]) - len(left[target])), needed_at[receive]

    def deliver(rank: int) -> None:
        send = sent[rank].popleft()
        made[rank].append(send)
        made[rank_of[send.other_end.stage]].append(send.other_end)
        arrived.add(send.other_end)

    while any(left) or any(sent):
        moved = False
        for rank, row in enumerate(left):
            if row and not sent[rank] and all(action.taken in arrived for action in actions_of(row[0])):
                made[rank].append(row[0])
                sends = [action.sent for action in actions_of(row.popleft()) if action.sent]
                to = {send: rank_of.get(send.other_end.stage) for send in sends}
                arrived |= {send.other_end for send in sends if to[send] == rank}
                sent[rank] += (send for send in sends if to[send] not in (None, rank))
                moved = True
            while sent[rank] and urgency(rank)[0] <= actions_ahead:
                deliver(rank)
                moved = True
        if not moved and not any(sent):
            cells = ", ".join(f"rank {rank} at {row[0]}" for rank, row in enumerate(left) if row)
            raise UnsafeProgramsError(f"overlapping computations wait for each other in a cycle: {cells}")
        if not moved:
            deliver(min((rank for rank, sends in enumerate(sent) if sends), key=urgency))
    return TorchOrder(tuple(map(tuple, made)))


def _with_stage_actions(row: Sequence[TorchCell], num_micro_batches: int) -> Iterator[TorchCell]:
    """Yield a row with the weights of its next stages fetched ahead, and each gradient ended at its end."""
    stages = [[action.stage for action in actions_of(cell)] for cell in row]
    fetched: list[int] = []
    ended = Counter[int]()
    for i, cell in enumerate(row):
        coming = list(islice(dict.fromkeys(chain.from_iterable(stages[i:])), _FETCHED_AHEAD))
        yield from (Action(stage, Op.RESHARD) for stage in fetched if stage not in coming)
        yield from (Action(stage, Op.UNSHARD) for stage in coming if stage not in fetched)
        fetched = sorted(coming)
        yield cell
        last = [action.stage for action in actions_of(cell) if action.op in (Op.BACKWARD, Op.WEIGHT)]
        ended.update(last)
        yield from (Action(stage, Op.REDUCE_GRAD) for stage in last if ended[stage] == num_micro_batches)
    yield from (Action(stage, Op.RESHARD) for stage in fetched)
