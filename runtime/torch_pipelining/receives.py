"""Receives that hold up computations which do not take them, and tables that receive late.

Torch lets a rank receive as soon as the sender has its turn. Under NCCL a receive that waits can hold up the
collectives of the computations behind it, such as the all-to-all of experts, and leaves a bubble each time
(torchtitan issue 2209, torch issue 172668). If all receives come late, ranks may wait for each other in a
cycle; so a receive is moved only where the table stays proved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain

from runtime.torch_pipelining.lowering import fault, input_of, sent_after, with_transfers
from runtime.torch_pipelining.table import Action, Op, TorchCell, TorchOrder, actions_of
from runtime.torch_pipelining.waits import TransferWaiting, finishes

TICKS = {Op.FORWARD: 1, Op.BACKWARD: 2, Op.INPUT: 1, Op.WEIGHT: 1}
"""What computations take where nobody says more."""

_Rows = list[list[TorchCell]]


def iteration_time(order: TorchOrder, holds_up: bool) -> float:
    """Return how long a safe table with sends and receives takes, at `TICKS`; infinite where it hangs.

    Messages take no time.

    Args:
        order: The table.
        holds_up: Whether each receive waits for its message before what stands behind it begins.
    """
    rank_of = order.rank_of
    taken = {action: transfer for _, action in order.actions() if (transfer := input_of(action, rank_of))}
    send_of = {transfer.receive: transfer.send for transfer in taken.values()}
    arrived: dict[Action, int] = {}
    time, place = [0] * len(order.cells), [0] * len(order.cells)
    while (before := sum(place)) < sum(map(len, order.cells)):
        for rank, row in enumerate(order.cells):
            while place[rank] < len(row):
                actions = actions_of(row[place[rank]])
                needed = {taken[action].send for action in actions if action in taken}
                needed |= {send_of[action] for action in actions if holds_up and action.op.is_receive}
                within = {sent_after(action) for action in actions}
                if not needed <= arrived.keys() | within:
                    break
                place[rank] += 1
                time[rank] = max([time[rank], *(arrived.get(send, 0) for send in needed)])
                for action in actions:
                    time[rank] += TICKS.get(action.op, 0)
                    if action.op in TICKS and action.op is not Op.WEIGHT:
                        arrived[sent_after(action)] = time[rank]
        if sum(place) == before:
            return math.inf
    return max(time)


def check_collectives(order: TorchOrder) -> None:
    """Refuse a safe table that takes longer where receives hold up what stands behind them.

    Raises:
        UnsafeOrderError: It does.
    """
    order = order if order.has_transfers else with_transfers(order)
    held_up, free = (iteration_time(order, holds_up) for holds_up in (True, False))
    if held_up == free:
        return
    (rank, index), receive, before = next(
        (position, action, computed)
        for position, action in order.actions()
        if action.op.is_receive
        and (computed := _next_computation(order, *position)) is not None
        and receive_of(computed, order.rank_of) != action
    )
    raise fault(
        order,
        f"an iteration takes {held_up} ticks and not {free} (a forward and each half of a backward 1) if "
        f"receives hold up collectives, such as {receive} on rank {rank} a collective of {before}, which "
        "does not take it; write the table with --receives late",
        [(rank, index), next(position for position, action in order.on(rank) if action == before)],
    )


def with_late_receives(order: TorchOrder) -> TorchOrder:
    """Return a table with sends and receives, each receive as late as the proof allows.

    Weights are fetched before all else, and each stage's gradient is ended after its last backward, as in
    tables of torch's own. It finishes where each pair of ranks has a communicator.

    Args:
        order: Safe order; its own sends and receives are not kept.
    """
    computed = ((c for c in row if c and actions_of(c)[0].op.is_compute) for row in order.cells)
    lowered = with_transfers(TorchOrder(tuple(map(tuple, computed))))
    rows = _moved(lowered, False)
    if not finishes(_table(rows), TransferWaiting.PAIR_QUEUE):
        rows = _moved(lowered, True)
    for rank, row in enumerate(rows):
        stages = [stage for stage, own in order.rank_of.items() if own == rank]
        for stage in stages:
            of_stage = [i for i, cell in enumerate(row) if any(a.stage == stage for a in actions_of(cell))]
            row[of_stage[-1] + 1 : of_stage[-1] + 1] = [
                Action(stage, Op.REDUCE_GRAD),
                Action(stage, Op.RESHARD),
            ]
        row[:0] = [Action(stage, Op.UNSHARD) for stage in stages]
    return _table(rows)


def receive_of(action: Action, rank_of: Mapping[int, int]) -> Action | None:
    """Return the receive of what a computation takes; None if it takes nothing."""
    taken = input_of(action, rank_of)
    return taken.receive if taken else None


def _moved(order: TorchOrder, is_proved: bool) -> _Rows:
    """Return the rows with each receive behind the computation before the one that takes it.

    Args:
        order: Table with transfers as torch places them.
        is_proved: Whether each move must keep the table safe; one that does not is made shorter.
    """
    rows = [list(row) for row in order.cells]
    for rank, row in enumerate(rows):
        for receive in [a for cell in reversed(row) for a in actions_of(cell) if a.op.is_receive]:
            start = rows[rank].index(receive)
            for place in _places(rows[rank], start, order.rank_of):
                before, row = rows[rank], rows[rank]
                rows[rank] = [*row[:start], *row[start + 1 : place + 1], receive, *row[place + 1 :]]
                if not is_proved or finishes(_table(rows), TransferWaiting.PAIR_QUEUE):
                    break
                rows[rank] = before
    return rows


def _places(row: list[TorchCell], start: int, rank_of: Mapping[int, int]) -> list[int]:
    """Return the computations behind which a receive may move, the last first; messages keep their order."""
    receive = actions_of(row[start])[0]
    source = {t.receive: t.source for a in chain(*map(actions_of, row)) if (t := input_of(a, rank_of))}
    found = []
    for place in range(start + 1, len(row)):
        actions = actions_of(row[place])
        if any(receive_of(action, rank_of) == receive for action in actions):
            break
        if actions[0].op.is_receive and source[actions[0]] == source[receive]:
            break
        if actions[0].op.is_compute:
            found.append(place)
    return found[::-1]


def _next_computation(order: TorchOrder, rank: int, index: int) -> Action | None:
    behind = (action for (_, i), action in order.on(rank) if i > index and action.op.is_compute)
    return next(behind, None)


def _table(rows: _Rows) -> TorchOrder:
    return TorchOrder(tuple(map(tuple, rows)))
