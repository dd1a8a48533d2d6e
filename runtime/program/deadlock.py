"""Proof, before anything is launched, that programs finish and hand every block its inputs.

Does not know how the programs were made: what each block needs, it reads from the placement
(`runtime.program.tensor_flow`). It knows nothing of times.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Container, Iterator, Sequence
from typing import TypeVar

from placements import Kind
from runtime.program.data_parallel import holders
from runtime.program.error_grid import Position, cycle_from, grid
from runtime.program.instructions import Instruction, Programs, Receive, Run, Send, quoted
from runtime.program.tensor_flow import pair_backward, tensor_inputs
from runtime.program.tensor_spec import TensorSpec

_Instructions = TypeVar("_Instructions", Receive, Run, Send)


class UnsafeProgramsError(ValueError):
    """Programs would hang, or compute something else; the message shows the programs around the fault."""


def check(programs: Programs) -> Programs:
    """Return the programs if they are safe to launch.

    - Every block of every micro-batch runs once on each of its devices.
    - Every message has one send and one receive, and somebody needs it; of a block in data-parallel groups,
      it is of the right group.
    - Every block runs after its inputs and after what it follows on its devices; nothing is sent before
      it is there.
    - Each channel's (source, target) messages are sent and received in the same order, so they need no
      tags.
    - Both ends of a message know it as a tensor of the same shape and type, where the programs say that.
    - The devices that share blocks run these in the same order, so collectives match.
    - All programs finish even if every operation blocks until its peer arrives. Then they also finish
      where sends and receives do not block, with any amount of buffering: an operation that waits for
      less is never done later.

    Raises:
        UnsafeProgramsError: One of these does not hold; the first line says which, the grid below it
            shows the place in brackets.
        UnrunnablePlacementError: See `runtime.program.tensor_flow.pair_backward`.
    """
    _check_runs(programs)
    _check_needed(programs)
    _check_matched(programs)
    _check_local_order(programs)
    _check_sources(programs)
    _check_channels(programs)
    _check_specs(programs)
    _check_collectives(programs)
    _check_rendezvous(programs)
    return programs


def _check_runs(programs: Programs) -> None:
    expected = {
        (device, Run(block.name, n))
        for block in programs.placement.blocks
        for device in block.devices
        for n in range(programs.num_micro_batches)
    }
    seen: dict[tuple[int, Run], Position] = {}
    for position, run in _all(programs, Run):
        key = (position[0], run)
        if key not in expected:
            raise _fault(
                programs,
                f"device {position[0]} runs {_run_text(run)}, which is none of its blocks and micro-batches",
                [position],
            )
        if key in seen:
            raise _fault(programs, f"device {position[0]} runs {_run_text(run)} twice", [seen[key], position])
        seen[key] = position
    if missing := sorted(expected - seen.keys(), key=lambda key: (key[1].micro_batch, key[0], key[1].block)):
        device, run = missing[0]
        raise _fault(
            programs, f"device {device} never runs {_run_text(run)}", _mentions(programs, device, run)
        )


def _check_needed(programs: Programs) -> None:
    """Ensure that what is received is what the device's blocks need from others, each once."""
    placement = programs.placement
    needed = {
        (device, producer, consumer, n)
        for consumer, producers in tensor_inputs(placement).items()
        for producer in producers
        for device in placement.by_name[consumer].devices
        if device not in placement.by_name[producer].devices
        for n in range(programs.num_micro_batches)
    }
    seen: dict[tuple[int, str, str, int], Position] = {}
    for position, receive in _all(programs, Receive):
        key = (position[0], receive.producer, receive.consumer, receive.micro_batch)
        if key not in needed:
            text = f"device {position[0]} receives {_message_text(receive)}, which nothing there needs"
            raise _fault(programs, text, [position])
        if key in seen:
            text = f"device {position[0]} receives {_message_text(receive)} twice"
            raise _fault(programs, text, [seen[key], position])
        seen[key] = position
    if missing := sorted(needed - seen.keys(), key=lambda key: (key[3], key)):
        device, producer, consumer, n = missing[0]
        text = f"device {device} never receives {quoted(producer)} for {quoted(consumer)} of micro-batch {n}"
        raise _fault(programs, text, _mentions(programs, device, Run(consumer, n)))


def _check_matched(programs: Programs) -> None:
    """Ensure that every send has its receive at the other end, and the other way round."""
    received = {
        _message(position, receive): (position, receive) for position, receive in _all(programs, Receive)
    }
    sent: dict[tuple[int, int, str, str, int], Position] = {}
    for position, send in _all(programs, Send):
        key = _message(position, send)
        text = f"device {position[0]} sends {_message_text(send)} to device {send.target}"
        if key in sent:
            raise _fault(programs, f"{text} twice", [sent[key], position])
        if key not in received:
            there = _mentions(programs, send.target, Run(send.consumer, send.micro_batch))
            raise _fault(programs, f"{text}, which does not receive it from there", [position, *there])
        sent[key] = position
    for key, (position, receive) in received.items():
        if key not in sent:
            text = f"device {position[0]} receives {_message_text(receive)} from device {receive.source}"
            there = _mentions(programs, receive.source, Run(receive.producer, receive.micro_batch))
            raise _fault(programs, f"{text}, which does not send it there", [position, *there])


def _check_local_order(programs: Programs) -> None:
    """Ensure that runs and sends come after what they need on their own device."""
    needs = _needs(programs)
    for device, program in enumerate(programs.instructions):
        there: set[tuple[_Item, int]] = set()
        for index, instruction in enumerate(program):
            n = instruction.micro_batch
            if isinstance(instruction, Receive):
                there.add(((instruction.producer, instruction.consumer), n))
            elif isinstance(instruction, Send):
                _check_there(programs, (device, index), [(instruction.producer,)], there)
            else:
                _check_there(programs, (device, index), needs[device, instruction.block], there)
                there.add(((instruction.block,), n))


def _check_sources(programs: Programs) -> None:
    """Ensure that what is received comes from a device that has it, and not another share of the samples."""
    by_name = programs.placement.by_name
    for position, receive in _all(programs, Receive):
        if receive.source not in holders(by_name[receive.producer], by_name[receive.consumer], position[0]):
            text = f"device {position[0]} receives {_message_text(receive)} from device {receive.source}"
            raise _fault(programs, f"{text}, which has another share of the samples", [position])


_Item = tuple[str] | tuple[str, str]
"""Something to wait for: (block that ran on the device) or (producer, consumer) of a received tensor."""


def _check_there(
    programs: Programs, position: Position, needs: Sequence[_Item], there: Container[tuple[_Item, int]]
) -> None:
    instruction = _at(programs, position)
    for item in needs:
        if (item, instruction.micro_batch) not in there:
            verb = "runs" if len(item) == 1 else "receives"
            late = f"before it {verb} {quoted(item[0])} of that micro-batch"
            raise _fault(programs, f"device {position[0]} has '{instruction}' {late}", [position])


def _needs(programs: Programs) -> dict[tuple[int, str], list[_Item]]:
    """Return for each (device, block) what it waits for: its tensors, its `after` and its partner."""
    placement = programs.placement
    pairs = pair_backward(placement)
    tensors = tensor_inputs(placement)
    needs: dict[tuple[int, str], list[_Item]] = {}
    for block in placement.blocks:
        partner = [pairs[block.name]] if block.kind is not Kind.F else []
        for device in block.devices:
            local = [
                (name,) for name in [*partner, *block.after] if device in placement.by_name[name].devices
            ]
            remote = [
                (name, block.name)
                for name in tensors[block.name]
                if device not in placement.by_name[name].devices
            ]
            needs[device, block.name] = [*local, *remote]
    return needs


def _check_channels(programs: Programs) -> None:
    sent: dict[tuple[int, int], list[tuple[Position, Send]]] = defaultdict(list)
    received: dict[tuple[int, int], list[tuple[Position, Receive]]] = defaultdict(list)
    for position, send in _all(programs, Send):
        sent[position[0], send.target].append((position, send))
    for position, receive in _all(programs, Receive):
        received[receive.source, position[0]].append((position, receive))
    for channel in sorted(sent):
        for (here, send), (there, receive) in zip(sent[channel], received[channel], strict=True):
            if _message(here, send) != _message(there, receive):
                text = f"device {channel[0]} sends {_message_text(send)} to device {channel[1]}"
                raise _fault(
                    programs, f"{text}, which there receives {_message_text(receive)}", [here, there]
                )


def _check_specs(programs: Programs) -> None:
    """Ensure that sender and receiver expect the same; a wire would take the one for the other."""
    if not programs.specs:
        return
    ends: dict[tuple[int, int, str, str, int], tuple[Position, TensorSpec]] = {}
    for position, receive in _all(programs, Receive):
        ends[_message(position, receive)] = position, _spec(programs, position, receive)
    for here, send in _all(programs, Send):
        spec = _spec(programs, here, send)
        there, expected = ends[_message(here, send)]
        if spec != expected:
            text = f"device {here[0]} sends {_message_text(send)} to device {there[0]} as {spec}"
            raise _fault(programs, f"{text}, which receives it as {expected}", [here, there])


def _spec(programs: Programs, position: Position, message: Send | Receive) -> TensorSpec:
    spec = programs.specs[position[0]].get((message.producer, message.consumer))
    if spec is None:
        text = f"device {position[0]} has no shape and type for {_message_text(message)}"
        raise _fault(programs, text, [position])
    return spec


def _check_collectives(programs: Programs) -> None:
    """Ensure one order of the blocks that share several devices; the rendezvous finds longer cycles."""
    wide = [block for block in programs.placement.blocks if len(block.devices) > 1]
    for group in sorted({block.devices for block in wide}):
        shared = {block.name for block in wide if set(block.devices).issuperset(group)}
        orders: list[list[tuple[Position, Run]]] = [[] for _ in group]
        for position, run in _all(programs, Run):
            if run.block in shared and position[0] in group:
                orders[group.index(position[0])].append((position, run))
        for other in orders[1:]:
            _check_same_order(programs, orders[0], other)


def _check_same_order(
    programs: Programs, order: Sequence[tuple[Position, Run]], other: Sequence[tuple[Position, Run]]
) -> None:
    for (here, first), (there, second) in zip(order, other, strict=True):
        if first != second:
            raise _fault(
                programs,
                f"device {here[0]} runs {_run_text(first)} where device {there[0]} runs {_run_text(second)}, "
                "but they run both together",
                [here, there],
            )


def _check_rendezvous(programs: Programs) -> None:
    """Run all programs, each operation when all its devices have come to it.

    What can proceed stays able to, so the order of trying does not matter: a device is tried once when it
    comes to an instruction, and the last of an operation's devices to come moves them all.
    """
    index = [0] * programs.placement.num_devices
    arriving = deque(range(programs.placement.num_devices))
    while arriving:
        device = arriving.popleft()
        if index[device] == len(programs.instructions[device]):
            continue
        peers = _peers(programs, device, _at(programs, (device, index[device])))
        if all(_waits(programs, peer, index[peer], wanted) for peer, wanted in peers.items()):
            for peer in peers:
                index[peer] += 1
                arriving.append(peer)
    if any(done < len(program) for done, program in zip(index, programs.instructions, strict=True)):
        raise _deadlock(programs, index)


def _peers(programs: Programs, device: int, instruction: Instruction) -> dict[int, Instruction]:
    """Return each device of an operation of `device`, with the instruction it does so by."""
    if isinstance(instruction, Run):
        return dict.fromkeys(programs.placement.by_name[instruction.block].devices, instruction)
    producer, consumer, n = instruction.producer, instruction.consumer, instruction.micro_batch
    if isinstance(instruction, Send):
        return {device: instruction, instruction.target: Receive(producer, consumer, n, device)}
    return {instruction.source: Send(producer, consumer, n, device), device: instruction}


def _waits(programs: Programs, device: int, index: int, instruction: Instruction) -> bool:
    program = programs.instructions[device]
    return index < len(program) and program[index] == instruction


def _deadlock(programs: Programs, index: Sequence[int]) -> UnsafeProgramsError:
    """Return the error that shows the devices that wait for each other."""

    def waits_for(device: int) -> int:
        peers = _peers(programs, device, _at(programs, (device, index[device])))
        return next(peer for peer, wanted in peers.items() if not _waits(programs, peer, index[peer], wanted))

    first = next(d for d, program in enumerate(programs.instructions) if index[d] < len(program))
    cycle = cycle_from(first, waits_for)
    waits = "; ".join(f"device {d} at '{_at(programs, (d, index[d]))}'" for d in cycle)
    return _fault(
        programs, f"devices wait for each other in a cycle: {waits}", [(d, index[d]) for d in cycle]
    )


def _all(programs: Programs, kind: type[_Instructions]) -> Iterator[tuple[Position, _Instructions]]:
    """Yield every instruction of a kind with its position, device by device."""
    for device, program in enumerate(programs.instructions):
        for index, instruction in enumerate(program):
            if isinstance(instruction, kind):
                yield (device, index), instruction


def _at(programs: Programs, position: Position) -> Instruction:
    return programs.instructions[position[0]][position[1]]


def _message(position: Position, instruction: Send | Receive) -> tuple[int, int, str, str, int]:
    """Return a message's identity, the same from both ends: source, target, and what it carries."""
    content = (instruction.producer, instruction.consumer, instruction.micro_batch)
    if isinstance(instruction, Send):
        return (position[0], instruction.target, *content)
    return (instruction.source, position[0], *content)


def _run_text(run: Run) -> str:
    return f"{quoted(run.block)} of micro-batch {run.micro_batch}"


def _message_text(message: Send | Receive) -> str:
    return f"{quoted(message.producer)} for {quoted(message.consumer)} of micro-batch {message.micro_batch}"


def _mentions(programs: Programs, device: int, run: Run) -> list[Position]:
    """Return where a program first has to do with a block; its begin if nowhere, nothing if no device."""
    if device not in range(programs.placement.num_devices):
        return []
    places = [
        (device, index)
        for index, instruction in enumerate(programs.instructions[device])
        if instruction.micro_batch == run.micro_batch
        and run.block in ([instruction.block] if isinstance(instruction, Run) else _ends(instruction))
    ]
    return places[:1] or [(device, 0)]


def _ends(message: Send | Receive) -> list[str]:
    return [message.producer, message.consumer]


def _fault(programs: Programs, message: str, positions: Sequence[Position]) -> UnsafeProgramsError:
    return UnsafeProgramsError(f"{message}\n{grid(programs, positions)}")
