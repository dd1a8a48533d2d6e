"""Proof, before anything is launched, that a table of torch's finishes and hands each action its inputs.

torch itself checks less: of a table with sends and receives nothing but the computations, and messages
carry no tags there, so that a wrong order of two receives trains on the wrong data without an error. The
table is proved as programs of ours (`runtime.program.deadlock`); the rules of torch alone are here, as torch
2.13 has them. This module does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from runtime.program.deadlock import check
from runtime.program.error_grid import ProgramPosition, UnsafeProgramsError, excerpt
from runtime.program.instructions import Programs
from runtime.torch_pipelining.csv import programs_of_table
from runtime.torch_pipelining.receives import LATE, with_receives
from runtime.torch_pipelining.table import Op, TorchOrder
from runtime.torch_pipelining.waits import waits_in_words


def check_order(order: TorchOrder) -> Programs:
    """Return the programs of a table, if they are safe; see `runtime.program.deadlock.check`.

    - Each stage is on one rank, and no rank is without one.
    - A table without sends and receives gets those that torch puts in.
    - The last stage runs its forwards in the order of the micro-batches: torch keeps losses by the order of
      their computation, but looks them up by micro-batch, and would train on the wrong ones.
    - Beside sends and receives there is no bubble; sharded weights are fetched before a stage computes, and
      its gradient is ended once, at its end.

    Raises:
        UnsafeProgramsError: One of these does not hold; the first line says which, the grid below it shows
            the place in brackets.
    """
    _refuse_first(order, _faults_of_stages(order))
    programs = check(programs_of_table(order if order.has_transfers else with_receives(order)))
    _refuse_first(order, _faults_of_actions(order))
    return programs


def proof_of(order: TorchOrder) -> str:
    """Return the proof of a table, and the time that its receives may cost, in one line.

    Data-parallel replicas and the ranks of a tensor-parallel group run the same rows, so that a collective
    waits for the same action of other ranks. A cycle of waits through collectives would then be a cycle of
    one replica's actions. There is none, as the table finishes even if every transfer blocks its rank.

    Raises:
        UnsafeProgramsError: See `check_order`.
    """
    programs = check_order(order)
    lowered = order if order.has_transfers else with_receives(order)
    actions = [action for _, action in lowered.actions()]
    num_messages = sum(action.op.is_send for action in actions)
    num_collectives = sum(action.op in (Op.UNSHARD, Op.REDUCE_GRAD) for action in actions)
    form = "compute_comms" if order.has_transfers else "compute_only, lowered as torch does"
    text = (
        f"{form}: {len(order.cells)} ranks, {len(order.rank_of)} stages, "
        f"{programs.num_micro_batches} micro-batches, {num_messages} messages on {len(programs.channels)} "
        f"channels, {num_collectives} collectives of FSDP; finishes even if every message and collective "
        f"blocks its rank; {waits_in_words(lowered)}"
    )
    if " behind " in text and (late := with_receives(order, LATE)) != lowered:
        text += f"; with late receives {waits_in_words(late)}"
    if all(action.op is not Op.REDUCE_GRAD for action in actions):
        text += "; no REDUCE_GRAD: gradients are not divided by the number of micro-batches"
    return text


def _refuse_first(order: TorchOrder, faults: Iterable[tuple[str, list[ProgramPosition]]]) -> None:
    for message, positions in faults:
        rows = [["." if cell is None else str(cell) for cell in row] for row in order.cells]
        raise UnsafeProgramsError("\n".join([message, *([excerpt(rows, positions)] if positions else [])]))


def _faults_of_stages(order: TorchOrder) -> Iterator[tuple[str, list[ProgramPosition]]]:
    """Yield stages that never run, and ranks without a stage."""
    for expected, stage in enumerate(order.rank_of):
        if stage != expected:
            yield f"stage {expected} never runs, but stage {stage} does", []
    for rank in range(len(order.cells)):
        if rank not in order.rank_of.values():
            yield f"rank {rank} (row {rank + 1}) runs no stage; delete the row or give it one", []


def _faults_of_actions(order: TorchOrder) -> Iterator[tuple[str, list[ProgramPosition]]]:
    """Yield losses out of order; of a table with transfers also bubbles, weights and gradients."""
    last = max(order.rank_of)
    forwards = [(p, a) for p, a in order.actions() if (a.stage, a.op) == (last, Op.FORWARD)]
    for expected, (position, action) in enumerate(forwards):
        if action.micro_batch != expected:
            yield (
                f"rank {position[0]} runs {action} of the last stage before {last}F{expected}: torch would "
                "silently take one micro-batch's loss for another's; rename the micro-batches in all rows, "
                f"so that {last}F0, {last}F1, ... come in this order",
                [position],
            )
    if not order.has_transfers:
        return
    for rank, row in enumerate(order.cells):
        if None in row:
            text = f"rank {rank} has an empty cell, which torch refuses beside sends and receives; delete it"
            yield text, [(rank, row.index(None))]
    sharded = {action.stage for _, action in order.actions() if action.op is Op.UNSHARD}
    fetched, ended = set[int](), set[int]()
    for position, action in order.actions():
        (rank, _), (stage, op, _) = position, action
        problem = ""
        if order.rank_of.get(stage) != rank:
            problem = "but not the stage"
        elif op in (Op.RESHARD, Op.UNSHARD):
            if (stage in fetched) is (op is Op.UNSHARD):
                problem = f"but its weights are {'already' if op is Op.UNSHARD else 'not'} fetched"
            fetched ^= {stage}
        elif op.is_compute and stage in sharded - fetched:
            problem = "while its weights are not fetched"
        elif stage in ended and op in (Op.BACKWARD, Op.INPUT, Op.WEIGHT, Op.REDUCE_GRAD):
            problem = f"after {stage}REDUCE_GRAD"
        if problem:
            yield f"rank {rank} has {action}, {problem}", [position]
        ended |= {stage} if op is Op.REDUCE_GRAD else set()
    for stage, rank in order.rank_of.items():
        if ended and stage not in ended:
            yield f"rank {rank} lacks {stage}REDUCE_GRAD, which other stages have", []
