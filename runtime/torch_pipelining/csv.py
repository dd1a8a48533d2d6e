"""Schedules as tables of torch.distributed.pipelining, and such tables as schedules.

torch runs one chain of stages, each on one rank. What a table cannot say is lost: times, memory, clocks,
modes, streams (see `runtime.torch_pipelining.streams`) and optimizer blocks; torch's user steps the
optimizer. As a program it turns one file into the other::

    python -m runtime.torch_csv [--receives late] schedule.json schedule.csv
    python -m runtime.torch_csv schedule.csv schedule.json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from placements import Block, Kind, Placement
from placements.forms.texts import write_json, write_text
from placements.pieces import Piece, blocks_of
from runtime.program.tensor_flow import UnrunnablePlacementError, pair_backward, tensor_inputs
from runtime.torch_pipelining.computations import check_computations
from runtime.torch_pipelining.lowering import UnsafeOrderError
from runtime.torch_pipelining.receives import with_late_receives
from runtime.torch_pipelining.streams import left_out
from runtime.torch_pipelining.table import (
    Action,
    Op,
    Overlap,
    TorchCell,
    TorchCsvError,
    TorchOrder,
    read_torch_csv,
)
from schedsearch.schedule import CyclicOrderError, Instance, Schedule, ScheduledBlock, as_soon_as_possible
from schedsearch.schedule_file import ScheduleFileError, read_schedule, schedule_to_dict
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
        if not all(each.time for each in placement.alternatives(block.name)):
            raise NoTorchFormError(
                f"{placement.name} has no form in torch, because a mode leaves {block.name} out and torch "
                "runs every stage; use search.export=streams"
            )
    try:
        pairs, inputs = pair_backward(placement), tensor_inputs(placement)
    except UnrunnablePlacementError as error:
        raise NoTorchFormError(f"{placement.name} has no form in torch: {error}") from None
    forward = [block for block in placement.topological_order if block.kind is Kind.F]
    if lacking := [block.name for block in forward if block.name not in pairs.values()]:
        raise _no_form(placement, f"torch differentiates all stages, and {lacking[0]} has no backward block")
    expected: tuple[str, ...] = ()
    for block in forward:
        if inputs[block.name] != expected:
            taken = " and ".join(inputs[block.name]) or "no other block"
            raise _no_form(placement, f"its stages are no chain: {block.name} takes the output of {taken}")
        expected = (block.name,)
    for device in range(placement.num_devices):
        if not placement.on(device):
            raise _no_form(placement, f"device {device} runs no block, and each rank of torch runs a stage")
    stages = {block.name: stage for stage, block in enumerate(forward)}
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
        previous: Instance | None = None
        for each in schedule.order(device):
            name, n = each
            action, before = Action(stages[name], kinds[name], n), row[-1] if row else None
            if (
                previous is not None
                and schedule.start_of[each] < schedule.end_of[previous]
                and isinstance(before, Action)
                and {before.op, action.op} == {Op.FORWARD, Op.BACKWARD}
            ):
                row[-1] = Overlap(tuple(sorted((before, action), key=lambda one: one.op is Op.BACKWARD)))
            else:
                row.append(action)
            previous = each
        rows.append(tuple(row))
    return TorchOrder(tuple(rows))


def schedule_of(order: TorchOrder, name: str = "torch_csv") -> Schedule:
    """Return the schedule of a table, each block as soon as its rank's order allows; transfers take no time.

    A forward, an input half and a weight half take a tick each and a whole backward two; a forward holds one
    unit of memory until the end of its backward. Where a stage runs some backwards in halves, its whole ones
    become two halves, one right after the other. Bubbles and overlaps are left out.

    Args:
        order: Order in either form; sends and receives are not looked at.
        name: Name of the placement, whose blocks are ``F<stage>`` and ``B<stage>``, or ``I<stage>``,
            ``W<stage>``.

    Raises:
        UnsafeOrderError: A stage does not compute each micro-batch once, or ranks wait for each other.

    >>> from runtime.torch_pipelining.table import parse_order
    >>> from schedsearch.picture import picture
    >>> print(picture(schedule_of(parse_order("0F0,0F1,0I0,0W0,0B1"))))
    0 | F.0 F.1 I.0 W.0 I.1 W.1
    """
    num_micro_batches = check_computations(order)
    split = {action.stage for _, action in order.actions() if action.op is Op.INPUT}
    orders: list[list[Instance]] = []
    for rank in range(len(order.cells)):
        computed = [action for _, action in order.on(rank) if action.op.is_compute]
        orders.append([instance for action in computed for instance in _instances(action, split)])
    placement = Placement(name, len(order.cells), _blocks(order, split))
    try:
        return validate(as_soon_as_possible(placement, num_micro_batches, orders))
    except CyclicOrderError as error:
        raise UnsafeOrderError(str(error)) from None


def _instances(action: Action, split: set[int]) -> list[Instance]:
    stage, op, n = action
    assert n is not None, "a computation is of a micro-batch"
    halved = op is Op.BACKWARD and stage in split
    return [(f"{letter}{stage}", n) for letter in ((Op.INPUT, Op.WEIGHT) if halved else (op,))]


def _blocks(order: TorchOrder, split: set[int]) -> tuple[Block, ...]:
    pieces = []
    for stage, rank in order.rank_of.items():
        times, memory = ((1, 1, 1), (1, 0, -1)) if stage in split else ((1, 2), (1, -1))
        pieces.append(Piece(f"F{stage}", (rank,), times, memory))
    return tuple(blocks_of(pieces))


def _no_form(placement: Placement, reason: str) -> NoTorchFormError:
    return NoTorchFormError(
        f"{placement.name} has no form in torch, because {reason}; "
        "run it with schedsearch run, or use a chain such as placement=v_shape"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Turn a ``schedule.json`` into a table or the other way round; return the exit code, 2 for an error."""
    parser = argparse.ArgumentParser("python -m runtime.torch_csv", description=main.__doc__)
    parser.add_argument("source", type=Path, help="a schedule.json, or a CSV of torch")
    parser.add_argument("target", type=Path, help="where to write the other one")
    parser.add_argument(
        "--receives",
        choices=("torch", "late"),
        default="torch",
        help="where a table receives: torch places sends and receives when it loads the table (the default), "
        "or they are in the table, received as late as is safe",
    )
    paths = parser.parse_args(arguments)
    if paths.target.resolve() == paths.source.resolve():
        sys.stderr.write(f"{paths.target}: is the file that is read; choose another path to write to\n")
        return 2
    try:
        if paths.source.suffix == ".json":
            schedule = read_schedule(paths.source)
            order = torch_order(schedule)
            table = with_late_receives(order) if paths.receives == "late" else order
            write_text(paths.target, str(table))
            if lost := left_out(schedule, order):
                sys.stderr.write(f"{paths.target}: {lost}\n")
        else:
            write_json(paths.target, schedule_to_dict(_read(paths.source)))
    except (ScheduleFileError, TorchCsvError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except NoTorchFormError as error:
        sys.stderr.write(f"{paths.source}: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"{paths.target}: cannot be written ({error.strerror}); choose another path\n")
        return 2
    return 0


def _read(path: Path) -> Schedule:
    try:
        return schedule_of(read_torch_csv(path), path.stem)
    except UnsafeOrderError as error:
        raise TorchCsvError(f"{path}: {error.reason}") from None
