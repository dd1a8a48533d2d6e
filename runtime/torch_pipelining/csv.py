"""Schedules as tables of torch.distributed.pipelining; tables as schedules, and as programs of ours.

torch runs one chain of stages, each on one rank. What a table cannot say is lost: times, memory, clocks,
modes, streams (see `runtime.torch_pipelining.streams`) and optimizer blocks; torch's user steps the
optimizer. `runtime.torch_csv` turns one file into the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from statistics import mode

from placements import Kind, Placement
from placements.pieces import Piece, blocks_of
from runtime.program.error_grid import UnsafeProgramsError
from runtime.program.handover import check_runs
from runtime.program.instructions import Instruction, Programs, Receive, Run, Send
from runtime.program.lower import device_orders
from runtime.program.tensor_flow import UnrunnablePlacementError, pair_backward, tensor_inputs
from runtime.torch_pipelining.table import Action, Op, Overlap, TorchCell, TorchOrder
from schedsearch.schedule import CyclicOrderError, Schedule, ScheduledBlock, as_soon_as_possible
from schedsearch.validate import validate


class NoTorchFormError(ValueError):
    """torch has no form for a placement; the message names the block and the reason in one line."""


def stage_of(placement: Placement) -> dict[str, int]:
    """Return the stage of each block of a chain of stages, optimizer blocks aside.

    Raises:
        NoTorchFormError: The placement is not one chain of forward blocks, each on one device, with their
            backward blocks, or a device runs none of them; or a mode leaves a block out.
    """
    placement = placement.per_micro_batch
    for block in placement.blocks:
        if len(block.devices) > 1:
            raise _no_form(
                placement, f"{block.name} runs on several devices and a stage of torch on one rank"
            )
        if not all(run.time for run in placement.alternatives(block.name)):
            reason = f"a mode leaves {block.name} out and torch runs every stage"
            raise _no_form(placement, reason, "use search.export=streams")
    try:
        pairs, inputs = pair_backward(placement), tensor_inputs(placement)
    except UnrunnablePlacementError as error:
        raise NoTorchFormError(f"{placement.name} has no form in torch: {error}") from None
    forward = [block.name for block in placement.topological_order if block.kind is Kind.F]
    expected: tuple[str, ...] = ()
    for name in forward:
        if name not in pairs.values():
            raise _no_form(placement, f"torch differentiates all stages, and {name} has no backward block")
        if inputs[name] != expected:
            taken = " and ".join(inputs[name]) or "no other block"
            raise _no_form(placement, f"its stages are no chain: {name} takes the output of {taken}")
        expected = (name,)
    for device in range(placement.num_devices):
        if not placement.on(device):
            raise _no_form(placement, f"device {device} runs no block, and each rank of torch runs a stage")
    stages = {name: stage for stage, name in enumerate(forward)}
    return stages | {name: stages[partner] for name, partner in pairs.items()}


def in_loss_order(schedule: Schedule) -> Schedule:
    """Return the schedule with micro-batches renamed, so that the last stage's forwards run in their order.

    torch needs that; see `runtime.torch_pipelining.check.check_order`. Micro-batches are alike, so the
    schedule is as good; which one is the n-th slice of the batch changes.

    Raises:
        NoTorchFormError: See `stage_of`.
    """
    stages = stage_of(schedule.placement)
    last = max(stages, key=lambda name: (stages[name], schedule.placement.by_name[name].kind is Kind.F))
    new = {n: i for i, n in enumerate(block.micro_batch for block in schedule.blocks if block.block == last)}
    blocks = schedule.per_micro_batch.blocks
    renamed = tuple(ScheduledBlock(start, new[n], name) for start, n, name in blocks)
    chosen = tuple(modes for _, modes in sorted((new[n], modes) for n, modes in enumerate(schedule.chosen)))
    return replace(schedule.per_micro_batch, blocks=renamed, chosen=chosen)


def torch_order(schedule: Schedule) -> TorchOrder:
    """Return the table (``compute_only``) of a schedule: a row for each device, micro-batches in loss order.

    Its ranks keep the order of the devices, and wait for tensors only, not for an `after` that carries none.
    Where a forward and a whole backward of a rank run side by side, on two streams, and one comes right after
    the other, they are one cell, which torch may overlap.

    Args:
        schedule: A valid one.

    Raises:
        NoTorchFormError: See `stage_of`.

    >>> from placements.shapes import v_shape
    >>> from schedsearch.baselines import one_f_one_b
    >>> print(torch_order(one_f_one_b(v_shape(2), 3)), end="")
    0F0,0F1,0B0,0F2,0B1,0B2
    1F0,1B0,1F1,1B1,1F2,1B2
    """
    stages = stage_of(schedule.placement)
    schedule = in_loss_order(schedule)
    kinds = {block.name: Op(block.kind.value) for block in schedule.placement.blocks}
    rows = []
    for device in range(schedule.placement.num_devices):
        row: list[TorchCell] = []
        end = 0
        for instance in schedule.order(device):
            name, n = instance
            action, before = Action(stages[name], kinds[name], n), row[-1] if row else None
            is_beside = schedule.start_of[instance] < end
            if is_beside and isinstance(before, Action) and {before.op, action.op} == set("FB"):
                row[-1] = Overlap(tuple(sorted((before, action), key=lambda one: one.op is Op.BACKWARD)))
            else:
                row.append(action)
            end = schedule.end_of[instance]
        rows.append(tuple(row))
    return TorchOrder(tuple(rows))


def times_of(schedule: Schedule) -> dict[Action | None, float]:
    """Return the times in ms of the computations and the sends of a schedule's table; see `torch_order`."""
    stages, schedule = stage_of(schedule.placement), in_loss_order(schedule)
    placement, times = schedule.placement, dict[Action | None, float]()
    for _, n, name in schedule.blocks:
        if name in stages:
            action = Action(stages[name], Op(placement.by_name[name].kind.value), n)
            takers = (block.name for block in placement.blocks if name in block.after)
            times[action] = placement.ms(schedule.block(name, n).time)
            times[action.sent] = placement.ms(
                max((placement.transfer_time(name, to) for to in takers), default=0)
            )
    return times


def from_torch(order: TorchOrder, name: str = "torch_csv") -> Schedule:
    """Return the schedule of a table, each block as soon as its rank's order allows; transfers take no time.

    Args:
        order: Order in either form; sends and receives are not looked at.
        name: Name of the placement; see `programs_of_table`.

    Raises:
        UnsafeProgramsError: A stage does not compute each micro-batch once, or ranks wait for each other.

    >>> from runtime.torch_pipelining.table import parse_order
    >>> from schedsearch.picture import picture
    >>> print(picture(from_torch(parse_order("0F0,0F1,0I0,0W0,0B1"))))
    0 | F.0 F.1 I.0 W.0 I.1 W.1
    """
    programs = programs_of_table(order, name)
    check_runs(programs)
    try:
        return validate(
            as_soon_as_possible(programs.placement, programs.num_micro_batches, device_orders(programs))
        )
    except CyclicOrderError as error:
        raise UnsafeProgramsError(str(error)) from None


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
    pieces = []
    for stage, rank in order.rank_of.items():
        times, memory = ((1, 1, 1), (1, 0, -1)) if stage in split else ((1, 2), (1, -1))
        pieces.append(Piece(f"F{stage}", (rank,), times, memory))
    pairs = [
        [
            (instruction, str(row[index]))
            for (_, index), action in order.on(rank)
            for instruction in _instructions(action, order, split)
        ]
        for rank, row in enumerate(order.cells)
    ]
    return Programs(
        Placement(name, len(order.cells), tuple(blocks_of(pieces))),
        mode(forwards[stage] for stage in order.rank_of),
        tuple(tuple(instruction for instruction, _ in row) for row in pairs),
        cells=tuple(tuple(cell for _, cell in row) for row in pairs),
    )


def _instructions(action: Action, order: TorchOrder, split: set[int]) -> Iterator[Instruction]:
    stage, op, n = action
    if n is None:
        return
    if op.is_compute:
        for letter in "IW" if op is Op.BACKWARD and stage in split else op:
            yield Run(f"{letter}{stage}", n)
        return
    other, is_forward = action.other_end.stage, op in (Op.SEND_F, Op.RECV_F)
    ours, its = (f"{'F' if is_forward else 'BI'[number in split]}{number}" for number in (stage, other))
    rank = order.rank_of.get(other, -1)
    yield Send(ours, its, n, rank) if op.is_send else Receive(its, ours, n, rank)


def _no_form(
    placement: Placement,
    reason: str,
    remedy: str = "run it with schedsearch run, or use a chain such as placement=v_shape",
) -> NoTorchFormError:
    return NoTorchFormError(f"{placement.name} has no form in torch, because {reason}; {remedy}")
