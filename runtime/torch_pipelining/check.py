"""Proof, before anything is launched, that a table of torch's finishes and hands each action its inputs.

torch itself checks less: of a table with sends and receives nothing but the computations, and messages
carry no tags there, so that a wrong order of two receives trains on the wrong data without an error. What
is checked is what torch 2.13 does. This module does not import torch, and does not know how tables are made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from runtime.program.error_grid import ProgramPosition
from runtime.torch_pipelining.computations import check_computations
from runtime.torch_pipelining.lowering import Handover, fault, input_of, with_transfers
from runtime.torch_pipelining.table import Action, Op, TorchOrder
from runtime.torch_pipelining.waits import TransferWaiting, mildest_needed

_MOST_MARKED = 3
"""Messages of a cycle that an error shows."""


@dataclass(frozen=True)
class TorchProof:
    """What was shown of a table.

    Attributes:
        rank_of: The rank of each stage, from stage 0 on.
        num_ranks: Number of rows.
        num_micro_batches: Micro-batches of one step.
        num_messages: Sends between ranks; of a table without them, those that torch inserts.
        num_channels: Pairs (source, target) of ranks between which anything is sent.
        has_transfers: Whether the sends are in the table (``compute_comms``).
        waiting: What the ranks need to finish.
        reduces_gradients: Whether it has the cells that end each stage's gradient; torch adds them to a table
            without transfers.
    """

    rank_of: tuple[int, ...]
    num_ranks: int
    num_micro_batches: int
    num_messages: int
    num_channels: int
    has_transfers: bool
    waiting: TransferWaiting
    reduces_gradients: bool

    def __str__(self) -> str:
        """Return it as one line."""
        form = "compute_comms" if self.has_transfers else "compute_only, lowered as torch does"
        text = (
            f"{form}: {self.num_ranks} ranks, {len(self.rank_of)} stages, "
            f"{self.num_micro_batches} micro-batches, {self.num_messages} messages on "
            f"{self.num_channels} channels, no collectives; finishes {self.waiting.value}"
        )
        if not self.reduces_gradients:
            text += "; no REDUCE_GRAD: gradients are not divided by the number of micro-batches"
        return text


def check_order(order: TorchOrder) -> TorchProof:
    """Return what a table needs to be run, if it is safe.

    - Each stage is on one rank, and no rank is without one. Forward and backward (whole or in halves) of each
      stage and micro-batch run once, in that order, after what they take.
    - The last stage runs its forwards in the order of the micro-batches: torch keeps losses by the order of
      their computation, but looks them up by micro-batch, and would train on the wrong ones.
    - With sends and receives: each message that is needed is sent once, after it is made, and received once,
      before it is taken; on each channel (source, target) in the same order at both ends. The ranks finish at
      least where each pair of them has a queue of transfers, as under NCCL (`TorchProof.waiting`).
    - Without: torch finds places for all of them.
    - Sharded weights are fetched before a stage computes, and its gradient is ended once, at its end.

    Raises:
        UnsafeOrderError: One of these does not hold; the first line says which, the grid below it shows the
            place in brackets.
    """
    num_micro_batches = check_computations(order)
    _check_losses(order)
    if order.has_transfers:
        _check_no_bubbles(order)
        _check_needed(order)
        _check_local_order(order)
        _check_channels(order)
        _check_stage_actions(order)
        complete = order
    else:
        _check_local_order(order)
        complete = with_transfers(order)
        _check_channels(complete)
    waiting = _check_waits(complete)
    return TorchProof(
        tuple(order.rank_of.values()),
        len(order.cells),
        num_micro_batches,
        sum(action.op.is_send for _, action in complete.actions()),
        len(_by_channel(complete)),
        order.has_transfers,
        waiting,
        not order.has_transfers or any(a.op is Op.REDUCE_GRAD for _, a in order.actions()),
    )


def _check_losses(order: TorchOrder) -> None:
    last = max(order.rank_of)
    forwards = [(p, a) for p, a in order.on(order.rank_of[last]) if (a.stage, a.op) == (last, Op.FORWARD)]
    for expected, (position, action) in enumerate(forwards):
        if action.micro_batch != expected:
            raise fault(
                order,
                f"rank {position[0]} runs {action} of the last stage before {last}F{expected}: torch would "
                "silently take one micro-batch's loss for another's; rename the micro-batches in all rows, "
                f"so that {last}F0, {last}F1, ... come in this order",
                [position],
            )


def _check_no_bubbles(order: TorchOrder) -> None:
    for rank, row in enumerate(order.cells):
        if None in row:
            text = f"rank {rank} has an empty cell, which torch refuses beside sends and receives; delete it"
            raise fault(order, text, [(rank, row.index(None))])


def _transfers(order: TorchOrder) -> Iterator[Handover]:
    for _, action in order.actions():
        transfer = input_of(action, order.rank_of)
        if transfer is not None:
            yield transfer


def _check_needed(order: TorchOrder) -> None:
    """Ensure that just the needed messages are sent and received, once, by the ranks of their stages."""
    needed = [transfer for transfer in _transfers(order) if transfer.source != transfer.target]
    rank_of = {transfer.send: transfer.source for transfer in needed}
    rank_of |= {transfer.receive: transfer.target for transfer in needed}
    seen: dict[Action, ProgramPosition] = {}
    for position, action in order.actions():
        if action.op.is_compute or action.op.is_of_stage:
            continue
        rank = position[0]
        if rank_of.get(action) != rank:
            raise fault(order, f"rank {rank} has {action}, which nothing needs there", [position])
        if action in seen:
            raise fault(order, f"rank {rank} has {action} twice", [seen[action], position])
        seen[action] = position
    for transfer in needed:
        for here, there in ((transfer.send, transfer.receive), (transfer.receive, transfer.send)):
            if here not in seen:
                rank = rank_of[here]
                places = [seen[there]] if there in seen else []
                near = [p for p, a in order.on(rank) if a[::2] == here[::2]]
                other = f", but rank {rank_of[there]} has {there}" if places else ""
                raise fault(order, f"rank {rank} lacks {here}{other}", [*near[:1], *places])


def _check_local_order(order: TorchOrder) -> None:
    """Ensure that a rank takes and sends only what it has: received before, or made by it before."""
    rank_of = order.rank_of
    for rank in range(len(order.cells)):
        done: set[Action] = set()
        for position, action in order.on(rank):
            for cause in _causes(order, action, done, rank_of):
                raise fault(order, f"rank {rank} has {action} before {cause}", [position])
            done.add(action)


def _causes(order: TorchOrder, action: Action, done: set[Action], rank_of: dict[int, int]) -> Iterator[str]:
    """Yield what an action needs on its own rank and that is not done."""
    transfer = input_of(action, rank_of)
    if action.op.is_send or (transfer is not None and transfer.source == transfer.target):
        send, what = (transfer.send, ", whose result it takes") if transfer is not None else (action, "")
        ops = [Op.FORWARD] if send.op is Op.SEND_F else [Op.BACKWARD, Op.INPUT]
        if not any(send._replace(op=op) in done for op in ops):
            yield f"{send._replace(op=ops[0])}{what}"
    elif transfer is not None and order.has_transfers and transfer.receive not in done:
        yield str(transfer.receive)


def _by_channel(order: TorchOrder) -> dict[tuple[int, int], tuple[list[Action], list[Action]]]:
    """Return the sends of each channel (source, target), and its receives, both by their sends."""
    by_end = {t.send: t for t in _transfers(order)} | {t.receive: t for t in _transfers(order)}
    channels: dict[tuple[int, int], tuple[list[Action], list[Action]]] = defaultdict(lambda: ([], []))
    for _, action in order.actions():
        if action.op.is_send or action.op.is_receive:
            transfer = by_end[action]
            channels[transfer.source, transfer.target][action.op.is_receive].append(transfer.send)
    return dict(sorted(channels.items()))


def _check_channels(order: TorchOrder) -> None:
    places = {action: position for position, action in order.actions()}
    receive_of = {transfer.send: transfer.receive for transfer in _transfers(order)}
    mismatches = [
        (source, target, i, sends[i], receives[i])
        for (source, target), (sends, receives) in _by_channel(order).items()
        for i in range(len(sends))
        if sends[i] != receives[i]
    ]
    if mismatches:
        source, target, i, sent, received = mismatches[0]
        receive = receive_of[received]
        number = f" ({len(mismatches)} such messages)"
        raise fault(
            order,
            f"message {i + 1} from rank {source} to rank {target} is {sent}, but there {receive} takes it: "
            f"messages have no tags, so data would be mixed up{number}; receive in the order of the sends",
            [places[sent], places[receive]],
        )


def _check_stage_actions(order: TorchOrder) -> None:
    """Ensure that sharded weights are there when used, and that each gradient is ended once, at its end."""
    fetched_at_all = {action.stage for _, action in order.actions() if action.op is Op.UNSHARD}
    reduced = {action.stage for _, action in order.actions() if action.op is Op.REDUCE_GRAD}
    for rank in range(len(order.cells)):
        fetched: set[int] = set()
        ended: set[int] = set()
        for position, (stage, op, n) in order.on(rank):
            action = Action(stage, op, n)
            if order.rank_of.get(stage) != rank:
                raise fault(order, f"rank {rank} has {action}, but not the stage", [position])
            if op in (Op.RESHARD, Op.UNSHARD) and (stage in fetched) is (op is Op.UNSHARD):
                state = "already fetched" if op is Op.UNSHARD else "not fetched"
                text = f"rank {rank} has {action}, but the stage's weights are {state}"
                raise fault(order, text, [position])
            if op.is_compute and stage in fetched_at_all and stage not in fetched:
                raise fault(order, f"rank {rank} runs {action} while its weights are not fetched", [position])
            if stage in ended and op in (Op.BACKWARD, Op.INPUT, Op.WEIGHT, Op.REDUCE_GRAD):
                raise fault(order, f"rank {rank} has {action} after {stage}REDUCE_GRAD", [position])
            fetched ^= {stage} if op in (Op.RESHARD, Op.UNSHARD) else set()
            ended |= {stage} if op is Op.REDUCE_GRAD else set()
    if reduced and (lacking := sorted(order.rank_of.keys() - reduced)):
        text = f"rank {order.rank_of[lacking[0]]} lacks {lacking[0]}REDUCE_GRAD, which other stages have"
        raise fault(order, text, [])


def _check_waits(order: TorchOrder) -> TransferWaiting:
    waiting, cycle = mildest_needed(order)
    if waiting not in (None, TransferWaiting.CHANNEL_QUEUE):
        return waiting
    places = {action: position for position, action in order.actions()}
    names = ", ".join(str(send) for send, _ in cycle[:_MOST_MARKED]) + ", ..." * (len(cycle) > _MOST_MARKED)
    outcome = f"it finishes {waiting.value}" if waiting else "it hangs under any backend"
    raise fault(
        order,
        f"messages wait for each other in a cycle: {names}; {outcome}",
        [places[end] for message in cycle[:_MOST_MARKED] for end in message],
    )
