"""Whether a table of torch's computes each stage and micro-batch once, on one rank, forward before backward.

It looks at no messages; see `runtime.torch_pipelining.check` for these.
"""

from __future__ import annotations

from collections import Counter

from runtime.program.error_grid import ProgramPosition
from runtime.torch_pipelining.lowering import fault
from runtime.torch_pipelining.table import Action, Op, TorchOrder, actions_of

_HALVES = (Op.INPUT, Op.WEIGHT)


def check_computations(order: TorchOrder) -> int:
    """Return the number of micro-batches if each stage is on one rank and computes each of them once.

    Raises:
        UnsafeOrderError: A stage is on several ranks, or computes a micro-batch twice or not at all.
    """
    seen: dict[Action, ProgramPosition] = {}
    rank_of = order.rank_of
    for position, action in order.actions():
        if not action.op.is_compute:
            continue
        rank = position[0]
        if rank != rank_of[action.stage]:
            first = next(p for p, a in order.on(rank_of[action.stage]) if a.stage == action.stage)
            text = f"rank {rank} runs {action}, but stage {action.stage} is on rank {rank_of[action.stage]}"
            raise fault(order, f"{text}; torch keeps each stage on one rank", [first, position])
        if action in seen:
            raise fault(order, f"rank {rank} runs {action} twice", [seen[action], position])
        seen[action] = position
    for rank, row in enumerate(order.cells):
        if rank not in rank_of.values():
            text = f"rank {rank} (row {rank + 1}) runs no stage; delete the row or give it one"
            raise fault(order, text, [(rank, 0)] if row else [])
    _check_stages(order)
    num_micro_batches = _num_micro_batches(order, seen)
    for stage in rank_of:
        for n in range(num_micro_batches):
            _check_block(order, seen, stage, n)
    return num_micro_batches


def _check_stages(order: TorchOrder) -> None:
    for expected, stage in enumerate(order.rank_of):
        if stage != expected:
            place = next(position for position, action in order.actions() if action.stage == stage)
            raise fault(order, f"stage {expected} never runs, but stage {stage} does", [place])


def _num_micro_batches(order: TorchOrder, seen: dict[Action, ProgramPosition]) -> int:
    """Return how many micro-batches most stages run forward, if no other one is run by any stage."""
    forwards = Counter(action.stage for action in seen if action.op is Op.FORWARD)
    ((number, _),) = Counter(forwards[stage] for stage in order.rank_of).most_common(1)
    for action, position in seen.items():
        if action.micro_batch is not None and action.micro_batch >= number:
            text = f"rank {position[0]} runs {action}, but the stages run {number} micro-batches forward"
            raise fault(order, f"{text}: number these from 0 on", [position])
    return number


def _check_block(order: TorchOrder, seen: dict[Action, ProgramPosition], stage: int, n: int) -> None:
    """Ensure that a stage computes a micro-batch forward and then, whole or in halves, backward."""
    rank = order.rank_of[stage]
    forward, whole = Action(stage, Op.FORWARD, n), Action(stage, Op.BACKWARD, n)
    halves = [Action(stage, op, n) for op in _HALVES]
    there = [half for half in halves if half in seen]
    if whole in seen and there:
        hint = "; tables of older torch wrote B for the input half: write I" if there == halves[1:] else ""
        places = [seen[whole], seen[there[0]]]
        raise fault(order, f"rank {rank} runs {whole} whole and {there[0]} as a half{hint}", places)
    wanted = [forward, *(halves if there else [whole])]
    for action in wanted:
        if action not in seen:
            near = [p for p, a in order.on(rank) if a.stage == stage and a.micro_batch == n]
            raise fault(order, f"rank {rank} never runs {action}", near[:1] or [(rank, 0)])
    places_in_order = [_step(order, seen[action], action) for action in wanted]
    for i in range(1, len(wanted)):
        if places_in_order[i] < places_in_order[i - 1]:
            text = f"rank {rank} runs {wanted[i]} before {wanted[i - 1]}"
            raise fault(order, text, [seen[wanted[i]], seen[wanted[i - 1]]])


def _step(order: TorchOrder, position: ProgramPosition, action: Action) -> tuple[int, int]:
    rank, index = position
    return index, actions_of(order.cells[rank][index]).index(action)
