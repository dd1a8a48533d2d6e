"""Proof, before anything is launched, that programs finish and hand every block its inputs.

Does not know how the programs were made: what each block needs, it reads from the placement
(`runtime.program.tensor_flow`). It knows nothing of times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType

from runtime.program.calls import Message, message_of
from runtime.program.error_grid import ProgramPosition, UnsafeProgramsError, all_of, at, fault
from runtime.program.handover import (
    check_channels,
    check_local_order,
    check_matched,
    check_modes,
    check_needed,
    check_runs,
    check_shares,
)
from runtime.program.instructions import Programs, Run
from runtime.program.lower import CopiesUpdate, copy_updates, device_orders

__all__ = [
    "Operation",
    "UnsafeProgramsError",
    "check",
    "check_updates",
    "operations_in_order",
    "operations_of",
]


def check(programs: Programs) -> Programs:
    """Return the programs if they are safe to launch.

    - Every block of every micro-batch runs once on each of its devices, on its stream.
    - A forward block runs in a mode of the placement; what one decision is about all runs in the same.
    - Every message has one send and one receive, which know it as a tensor of the same shape and type, where
      the programs say that. Somebody needs it; of a block in data-parallel groups, it is of the right group.
    - Every block runs after its inputs and after what it follows on its devices; nothing is sent before
      it is there.
    - Each channel's (source, target) messages are sent and received in the same order, so they need no
      tags.
    - A tensor that comes in parts comes so to all devices of a group, to each its own part. The run of the
      block gathers them, so this is one of its collectives.
    - The devices that share blocks run these in the same order, so collectives match.
    - All programs finish even if every operation blocks until its peer arrives. Then they also finish
      where sends and receives do not block, with any amount of buffering: an operation that waits for
      less is never done later. So it is where the two directions between a pair of devices share a
      communicator, as in Megatron-LM, and operations there wait for the earlier ones.
      And so it is where streams of a device run side by side: a block then waits for the earlier blocks of
      its own stream and for its inputs, all of which are before it in the program. The collectives of a
      stream have a communicator of their own, on which they keep the order of the programs.

    Raises:
        UnsafeProgramsError: One of these does not hold; the first line says which, the grid below it
            shows the place in brackets.
        UnrunnablePlacementError: See `pair_backward` and `stage_decisions` of `runtime.program.tensor_flow`.
    """
    check_runs(programs)
    check_modes(programs)
    check_needed(programs)
    ends = check_matched(programs)
    check_local_order(programs)
    check_channels(programs, *ends)
    check_shares(programs)
    _check_collectives(programs)
    _check_rendezvous(programs)
    return programs


def check_updates(programs: Programs, micro_batches_per_update: int) -> None:
    """Ensure that safe programs finish although the copies of a stage wait for each other at each update.

    An update within an iteration begins on each copy when the gradients of so many of its micro-batches are
    complete, beside the copy's other work. The next block of the stage waits until it has begun on all.

    Raises:
        UnsafeProgramsError: Copies make their updates in other orders, or wait for each other in a cycle.
    """
    placement, orders = programs.placement, device_orders(programs)
    updates = [list(copy_updates(placement, order, micro_batches_per_update)) for order in orders]
    of_each: dict[tuple[str, int], dict[int, CopiesUpdate]] = {}
    for device, of_device in enumerate(updates):
        for update in of_device:
            of_each.setdefault((update.stage, update.number), {})[device] = update
    for devices in of_each.values():
        series = {tuple((update.stage, update.number) for update in updates[device]) for device in devices}
        if len(series) > 1:
            raise UnsafeProgramsError(
                f"devices {', '.join(map(str, sorted(devices)))} make the updates of their stages in "
                "different orders; use a flush, or one order for all copies"
            )
    place = {
        (device, (run.block, run.micro_batch)): (device, index)
        for (device, index), run in all_of(programs, Run)
    }
    after = {
        place[device, update.next]: [place[other, theirs.last] for other, theirs in together.items()]
        for together in of_each.values()
        for device, update in together.items()
    }
    _check_rendezvous(programs, after)


def _check_collectives(programs: Programs) -> None:
    """Ensure one order of the blocks that share several devices; the rendezvous finds longer cycles."""
    wide = [block for block in programs.placement.blocks if len(block.devices) > 1]
    for group in sorted({block.devices for block in wide}):
        shared = {block.name for block in wide if set(block.devices).issuperset(group)}
        orders: dict[int, list[tuple[ProgramPosition, Run]]] = {device: [] for device in group}
        for position, run in all_of(programs, Run):
            if run.block in shared and position[0] in orders:
                orders[position[0]].append((position, run))
        for together in zip(*orders.values(), strict=True):
            (here, first), *others = together
            for there, second in others:
                if first != second:
                    text = f"device {here[0]} runs {first.instance_text} where device {there[0]} runs "
                    text += f"{second.instance_text}, but they run both together"
                    raise fault(programs, text, [here, there])


_Waits = Mapping[ProgramPosition, Sequence[ProgramPosition]]
"""For instructions those of other devices, done earlier, that they wait for without a meeting."""


Operation = Run | Message
"""An operation that waits for all its devices: a run, or a message, which has two ends."""


def operations_of(programs: Programs) -> list[list[Operation]]:
    """Return the operations of each device, in order; messages must have both their ends."""
    return [
        [step if isinstance(step, Run) else message_of(device, step) for step in program]
        for device, program in enumerate(programs.instructions)
    ]


def operations_in_order(programs: Programs) -> Iterable[Operation]:
    """Return the operations of safe programs, each once, after the earlier ones of its devices."""
    return TopologicalSorter(_predecessors(operations_of(programs))).static_order()


def _predecessors(
    operations: Sequence[Sequence[Operation]], after: _Waits = MappingProxyType({})
) -> dict[Operation, dict[Operation, int]]:
    """Return the predecessors of each operation, with the device that runs both."""
    waits: dict[Operation, dict[Operation, int]] = {}
    for device, of_device in enumerate(operations):
        for i, operation in enumerate(of_device):
            earlier = waits.setdefault(operation, {})
            earlier |= dict.fromkeys(of_device[max(i - 1, 0) : i], device)
            earlier |= {operations[other][place]: other for other, place in after.get((device, i), ())}
    return waits


def _check_rendezvous(programs: Programs, after: _Waits = MappingProxyType({})) -> None:
    """Ensure that no operations wait for each other; an error shows the devices that do."""
    operations = operations_of(programs)
    waits = _predecessors(operations, after)
    sorter = TopologicalSorter(waits)
    try:
        sorter.prepare()
        return
    except CycleError:
        done: set[Operation] = set()
    while ready := sorter.get_ready():
        done.update(ready)
        sorter.done(*ready)
    left = [[i for i, operation in enumerate(of_device) if operation not in done] for of_device in operations]
    stands = {device: places[0] for device, places in enumerate(left) if places}
    path = [min(stands)]
    while path[-1] not in path[:-1]:
        needed = waits[operations[path[-1]][stands[path[-1]]]]
        path.append(next(other for operation, other in needed.items() if operation not in done))
    places = [(device, stands[device]) for device in path[path.index(path[-1]) : -1]]
    cycle = "; ".join(f"device {device} at '{at(programs, (device, i))}'" for device, i in places)
    raise fault(programs, f"devices wait for each other in a cycle: {cycle}", places)
