"""A table of torch's as programs of ours: a receive, run or send for each action, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import mode

from placements import Placement
from placements.pieces import Piece, blocks_of
from runtime.program.instructions import Instruction, Programs, Receive, Run, Send
from runtime.torch_pipelining.table import Action, Op, TorchOrder

_BACKWARD = (Op.BACKWARD, Op.INPUT)


def programs_of_table(order: TorchOrder, name: str = "torch_csv") -> Programs:
    """Return the programs that a table says; they need not be safe, nor have any messages.

    Stage 2 has the blocks F2 and B2, or F2, I2 and W2 where it runs any backward in halves; its whole ones
    then become two halves, one right after the other. A forward, an input half and a weight half take a tick
    each and a whole backward two; a forward holds one unit of memory until the end of its backward. Bubbles,
    overlaps and cells of sharded weights are left out.

    Args:
        order: Order in either form.
        name: Name of the placement.
    """
    actions = [action for _, action in order.actions()]
    split = {action.stage for action in actions if action.op in (Op.INPUT, Op.WEIGHT)}
    forwards = Counter(action.stage for action in actions if action.op is Op.FORWARD)
    number = mode(forwards[stage] for stage in order.rank_of)
    pieces = []
    for stage, rank in order.rank_of.items():
        times, memory = ((1, 1, 1), (1, 0, -1)) if stage in split else ((1, 2), (1, -1))
        pieces.append(Piece(f"F{stage}", (rank,), times, memory))
    placement = Placement(name, len(order.cells), tuple(blocks_of(pieces)))
    instructions, cells = [], []
    for rank, row in enumerate(order.cells):
        found = [
            (each, str(row[index]))
            for (_, index), action in order.on(rank)
            for each in _instructions(action, order, split)
        ]
        instructions.append(tuple(each for each, _ in found))
        cells.append(tuple(cell for _, cell in found))
    return Programs(placement, number, tuple(instructions), cells=tuple(cells))


def _instructions(action: Action, order: TorchOrder, split: set[int]) -> Iterator[Instruction]:
    stage, op, n = action
    if n is None:
        return
    if op.is_compute:
        halved = op is Op.BACKWARD and stage in split
        for letter in (Op.INPUT, Op.WEIGHT) if halved else (op,):
            yield Run(f"{letter}{stage}", n)
        return
    other = action.other_end.stage
    letters = ["F" if op in (Op.SEND_F, Op.RECV_F) else _BACKWARD[each in split] for each in (stage, other)]
    own, its = (f"{letter}{each}" for letter, each in zip(letters, (stage, other), strict=True))
    rank = order.rank_of.get(other, -1)
    yield Send(own, its, n, rank) if op.is_send else Receive(its, own, n, rank)
