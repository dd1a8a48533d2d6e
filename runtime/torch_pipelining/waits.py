"""Time that a safe table loses because a pending transfer holds up later ones of its rank.

A transfer over NCCL is a kernel in a queue: a receive that was posted early stays there until its tensor has
been sent. What comes behind it in the queue waits, though it needs nothing of it: other messages, and the
collectives of FSDP, tensor and expert parallelism (pytorch issues 172668 and 188833). A computation counts
as beginning with its collective. Not known here: times of collectives, and sends too large for NCCL's
buffers, which wait for their receives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from enum import StrEnum

from runtime.torch_pipelining.table import Action, Op, TorchOrder

_TICKS = {Op.FORWARD: 1, Op.BACKWARD: 2, Op.INPUT: 1, Op.WEIGHT: 1}


class Queue(StrEnum):
    """Communication of a rank that runs one after the other, in the order of the table; each is wider.

    - ``pair``: messages between two ranks, either way: NCCL's communicator for single sends and receives.
    - ``rank``: all messages, and UNSHARD and REDUCE_GRAD: a group bound to its device, or batches.
    - ``computations``: also the collectives within each computation.
    """

    PAIR = "pair"
    RANK = "rank"
    COMPUTATIONS = "computations"


HoldUp = tuple[float, int, Action, Action | None]
"""Time that, on a rank, an action waits for an earlier one that it does not need."""


def play_table(
    order: TorchOrder, queue: Queue, times: Mapping[Action | None, float] | None = None
) -> tuple[float, list[HoldUp]]:
    r"""Return the end of an iteration in which every rank runs as early as possible, and the delayed actions.

    Args:
        order: A safe table in the form ``compute_comms``; see `runtime.torch_pipelining.check.check_order`.
        queue: Communication that runs one after the other.
        times: Times of computations and of sends, in one unit, 0 where missing; by default in ticks: 2 for a
            whole backward, 1 for another computation.

    >>> from runtime.torch_pipelining.table import parse_order
    >>> early = "0F0,0SEND_F0,0RECV_B0,0F1,0SEND_F1,0B0,0RECV_B1,0B1"
    >>> order = parse_order(f"{early}\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1")
    >>> [play_table(order, queue)[0] for queue in Queue]
    [9.0, 9.0, 10.0]
    """
    if times is None:
        times = {action: _TICKS.get(action.op, 0) for _, action in order.actions()}
    left = [deque(action for _, action in order.on(rank)) for rank in range(len(order.cells))]
    now = [0.0] * len(left)  # from when a rank computes; torch lets it wait for REDUCE_GRAD
    ends: dict[Action | None, float] = {None: 0.0}
    last: dict[Hashable, Action] = {}  # posted on each queue
    hold_ups = []
    while any(left):
        for rank, actions in enumerate(left):
            while actions and (actions[0].op.is_compute or actions[0].taken in ends):
                action = actions.popleft()
                needed = action.taken, Action(action.stage, Op.UNSHARD)
                free = max(now[rank], *(ends.get(need, 0.0) for need in needed))
                shared = _queue_of(action, rank, order, queue)
                begin = max(free, ends[behind := last.get(shared)])
                if begin > free:
                    hold_ups.append((begin - free, rank, action, behind))
                ends[action] = begin + times.get(action, 0.0)
                if action.op.is_compute or action.op is Op.REDUCE_GRAD:
                    now[rank] = ends[action]
                if shared is not None and not action.op.is_compute:
                    last[shared] = action
    return max(ends.values()), hold_ups


def waits_in_words(
    order: TorchOrder, times: Mapping[Action | None, float] | None = None, unit: str = "ticks"
) -> str:
    """Return an iteration's time, and its time where transfers hold up more; see `play_table`."""
    (pair, _), (rank, _), (all_, hold_ups) = (play_table(order, queue, times) for queue in Queue)
    if all_ <= pair:
        return f"{pair:.6g} {unit}, and no pending transfer holds up other work"
    time, where, action, behind = max(hold_ups)
    return (
        f"{pair:.6g} {unit}, {rank:.6g} with all messages of a rank in one queue, {all_:.6g} with "
        f"collectives in computations too (rank {where}: {action} waits {time:.6g} behind {behind})"
    )


def _queue_of(action: Action, rank: int, order: TorchOrder, queue: Queue) -> Hashable:
    """Return the queue that an action has its turn in; None for one that is no communication."""
    if action.op is Op.RESHARD or (action.op.is_compute and queue is not Queue.COMPUTATIONS):
        return None
    if queue is not Queue.PAIR:
        return rank
    return rank, None if action.op.is_of_stage else order.rank_of[action.other_end.stage]
