"""Whether the ranks of a table with sends and receives ever wait for each other in a cycle, and when.

What waits for what depends on how transfers are queued; `TransferWaiting` has the possibilities from the
harshest to the mildest. A table that is safe under one is safe under all that come after it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from enum import Enum
from graphlib import CycleError, TopologicalSorter

from runtime.torch_pipelining.lowering import input_of
from runtime.torch_pipelining.table import Action, TorchOrder


class TransferWaiting(Enum):
    """How transfers wait for each other.

    The computation that takes a tensor always waits for it, and a transfer for the computations before it on
    both its ranks; it ends when both ranks have come to it and all before it in its queues have ended. A
    value completes the sentence "the ranks finish ...".
    """

    BLOCKING = "even if every send and receive blocks its rank"
    PAIR_QUEUE = (
        "only if sends and receives do not block and each pair of ranks has a communicator of its own, as "
        "torch has under NCCL unless init_process_group is given a device_id"
    )
    CHANNEL_QUEUE = (
        "only if sends and receives do not block and each direction between two ranks has a queue of its "
        "own, as under gloo; torch under NCCL has one for both, and hangs once messages are too long to be "
        "buffered"
    )


_COMPUTATIONS = "computations"

SendAndReceive = tuple[Action, Action]
"""A send and its receive."""

RankOperation = Action | SendAndReceive
"""A computation, or a message."""


def mildest_needed(order: TorchOrder) -> tuple[TransferWaiting | None, list[SendAndReceive]]:
    """Return the first of `TransferWaiting` under which all ranks finish, or None; and what hangs before.

    Args:
        order: Order with a receive for each send and the other way round, in the same order on each channel.

    Returns:
        The messages are those of a cycle under the one of `TransferWaiting` before; empty if there was none.
    """
    cycle: list[RankOperation] = []
    for waiting in TransferWaiting:
        found = _cycle(_waits(order, waiting))
        if not found:
            return waiting, _messages(cycle)
        cycle = found
    return None, _messages(cycle)


def finishes(order: TorchOrder, waiting: TransferWaiting) -> bool:
    """Return whether all ranks of a table finish under one of the possibilities; see `mildest_needed`."""
    return not _cycle(_waits(order, waiting))


def _waits(order: TorchOrder, waiting: TransferWaiting) -> Mapping[RankOperation, list[RankOperation]]:
    """Return for each node those that it waits for."""
    rank_of = order.rank_of
    received = {
        transfer.receive: transfer
        for _, action in order.actions()
        if (transfer := input_of(action, rank_of)) and transfer.source != transfer.target
    }
    sent = {transfer.send: transfer for transfer in received.values()}
    waits: dict[RankOperation, list[RankOperation]] = {}
    for rank in range(len(order.cells)):
        last: dict[Hashable, RankOperation] = {}
        for _, action in order.on(rank):
            if action.op.is_of_stage:
                continue
            node: RankOperation = action
            queue: Hashable = _COMPUTATIONS
            if transfer := received.get(action) or sent.get(action):
                node = (transfer.send, transfer.receive)
                queue = _queue(waiting, transfer.source, transfer.target)
            earlier = waits.setdefault(node, [])
            earlier += [last[name] for name in (_COMPUTATIONS, queue) if name in last]
            taken = input_of(action, rank_of)
            if taken and taken.source != taken.target:
                earlier.append((taken.send, taken.receive))
            last[queue] = node
    return waits


def _queue(waiting: TransferWaiting, source: int, target: int) -> Hashable:
    """Return the name of a transfer's queue on a rank.

    One queue for all of a rank's transfers beside its computations would hang just where one for both does:
    what a later computation makes leaves through that queue.
    """
    if waiting is TransferWaiting.BLOCKING:
        return _COMPUTATIONS
    return (
        (source, target)
        if waiting is TransferWaiting.CHANNEL_QUEUE
        else (min(source, target), max(source, target))
    )


def _cycle(waits: Mapping[RankOperation, list[RankOperation]]) -> list[RankOperation]:
    """Return nodes each of which waits for the next, and the last for the first; empty if there are none."""
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        cycle: list[RankOperation] = error.args[1][:0:-1]
        start = cycle.index(next(node for node in waits if node in cycle))
        return cycle[start:] + cycle[:start]
    return []


def _messages(cycle: list[RankOperation]) -> list[SendAndReceive]:
    return [node for node in cycle if not isinstance(node, Action)]
