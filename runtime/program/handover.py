"""Whether programs run every block once, in a mode of its own, and hand it its inputs, alike at both ends.

Whether they finish is `runtime.program.deadlock`'s affair.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Sequence

from placements import Kind
from runtime.program.calls import Message, message_of
from runtime.program.data_parallel import coordinate, holders, part_for
from runtime.program.error_grid import ProgramPosition, all_of, at, fault
from runtime.program.instructions import Programs, Receive, Run, Send, quoted
from runtime.program.tensor_flow import (
    KEEP,
    MODES,
    RECOMPUTE,
    computed_again,
    pair_backward,
    stage_decisions,
    tensor_inputs,
)
from runtime.program.tensor_spec import TensorSpec
from schedsearch.schedule import Instance


def check_runs(programs: Programs) -> None:
    """Ensure that every block of every micro-batch runs once on each of its devices; of copies, one does."""
    expected = {
        (device, (block.name, n))
        for block in programs.placement.blocks
        for device in block.devices
        for n in range(programs.num_micro_batches)
        if (block.name, n) not in programs.left_out
    }
    seen: dict[tuple[int, Instance], ProgramPosition] = {}
    for position, run in all_of(programs, Run):
        key = (position[0], (run.block, run.micro_batch))
        if key not in expected:
            raise fault(
                programs,
                f"device {position[0]} runs {run_text(run)}, which is none of its blocks and micro-batches",
                [position],
            )
        if key in seen:
            raise fault(programs, f"device {position[0]} runs {run_text(run)} twice", [seen[key], position])
        seen[key] = position
    if missing := sorted(expected - seen.keys(), key=lambda key: (key[1][1], key[0], key[1][0])):
        device, instance = missing[0]
        run = Run(*instance)
        raise fault(programs, f"device {device} never runs {run_text(run)}", _mentions(programs, device, run))


def check_modes(programs: Programs) -> None:
    """Ensure that forward blocks run in modes of the placement, those of a decision all in the same."""
    placement = programs.decided
    decision_of, again = stage_decisions(placement), computed_again(placement)
    first: dict[tuple[str | int, int], tuple[ProgramPosition, Run]] = {}
    for position, run in all_of(programs, Run):
        text = f"device {position[0]} runs {run_text(run)} in mode {run.mode!r}"
        if placement.by_name[run.block].kind is not Kind.F:
            if run.mode != KEEP:
                raise fault(programs, f"{text}, but a backward block has that of its forward", [position])
            continue
        decision = decision_of.get(run.block)
        names = MODES if decision is None else placement.decisions[decision].names
        if run.block in again:
            names = (RECOMPUTE,)
        if run.mode not in names:
            raise fault(programs, f"{text}, but its modes are {', '.join(names)}", [position])
        key = run.block if decision is None else decision
        other, same = first.setdefault((key, run.micro_batch), (position, run))
        if run.mode != same.mode:
            decided = f"device {other[0]} runs {run_text(same)} in mode {same.mode!r}"
            raise fault(programs, f"{text}, but {decided}, and one choice is for both", [other, position])


def check_streams(programs: Programs) -> None:
    """Ensure that every block runs on the stream that the placement says."""
    for position, run in all_of(programs, Run):
        stream = programs.placement.by_name[run.block].stream
        if run.stream != stream:
            text = f"device {position[0]} runs {run_text(run)} on the stream {run.stream!r}"
            raise fault(programs, f"{text}, but it is a block of {stream!r}", [position])


def check_weights(programs: Programs) -> None:
    """Ensure that weights stay gathered for a next run alone, and only those of data-parallel groups."""
    stages = pair_backward(programs.placement)
    last: dict[tuple[int, str], tuple[ProgramPosition, Run]] = {}
    for position, run in all_of(programs, Run):
        if run.keep_weights and programs.placement.by_name[run.block].data_parallel == 1:
            text = f"device {position[0]} keeps the weights of {run_text(run)}, which no groups gather"
            raise fault(programs, text, [position])
        last[position[0], stages.get(run.block, run.block)] = position, run
    for position, run in last.values():
        if run.keep_weights:
            text = f"device {position[0]} keeps the weights of {run_text(run)}, after which none needs them"
            raise fault(programs, text, [position])


def check_needed(programs: Programs) -> None:
    """Ensure that what is received is what the device's blocks need from others, each once."""
    placement = programs.placement
    needed = {
        (device, producer, consumer, n)
        for consumer, producers in tensor_inputs(placement).items()
        for producer in producers
        for device in placement.by_name[consumer].devices
        if device not in placement.by_name[producer].devices
        for n in range(programs.num_micro_batches)
        if programs.left_out.isdisjoint(((producer, n), (consumer, n)))
    }
    seen: dict[tuple[int, str, str, int], ProgramPosition] = {}
    for position, receive in all_of(programs, Receive):
        key = (position[0], receive.producer, receive.consumer, receive.micro_batch)
        if key not in needed:
            text = f"device {position[0]} receives {_message_text(receive)}, which nothing there needs"
            raise fault(programs, text, [position])
        if key in seen:
            text = f"device {position[0]} receives {_message_text(receive)} twice"
            raise fault(programs, text, [seen[key], position])
        seen[key] = position
    if missing := sorted(needed - seen.keys(), key=lambda key: (key[3], key)):
        device, producer, consumer, n = missing[0]
        text = f"device {device} never receives {quoted(producer)} for {quoted(consumer)} of micro-batch {n}"
        raise fault(programs, text, _mentions(programs, device, Run(consumer, n)))


def check_matched(programs: Programs) -> None:
    """Ensure that every send has its receive at the other end, and the other way round."""
    received = {
        message_of(position[0], receive): (position, receive)
        for position, receive in all_of(programs, Receive)
    }
    sent: dict[Message, ProgramPosition] = {}
    for position, send in all_of(programs, Send):
        key = message_of(position[0], send)
        text = f"device {position[0]} sends {_message_text(send)} to device {send.target}{_in_part(send)}"
        if key in sent:
            raise fault(programs, f"{text} twice", [sent[key], position])
        if key not in received:
            there = _mentions(programs, send.target, Run(send.consumer, send.micro_batch))
            raise fault(programs, f"{text}, which does not receive it from there", [position, *there])
        sent[key] = position
    for key, (position, receive) in received.items():
        if key not in sent:
            text = f"device {position[0]} receives {_message_text(receive)} from device {receive.source}"
            text += _in_part(receive)
            there = _mentions(programs, receive.source, Run(receive.producer, receive.micro_batch))
            raise fault(programs, f"{text}, which does not send it there", [position, *there])


def check_local_order(programs: Programs) -> None:
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


def check_sources(programs: Programs) -> None:
    """Ensure that what is received comes from a device that has it, and not another share of the samples."""
    by_name = programs.placement.by_name
    for position, receive in all_of(programs, Receive):
        if receive.source not in holders(by_name[receive.producer], by_name[receive.consumer], position[0]):
            text = f"device {position[0]} receives {_message_text(receive)} from device {receive.source}"
            raise fault(programs, f"{text}, which has another share of the samples", [position])


_Item = tuple[str] | tuple[str, str]
"""Something to wait for: (block that ran on the device) or (producer, consumer) of a received tensor."""


def _check_there(
    programs: Programs, position: ProgramPosition, needs: Sequence[_Item], there: Container[tuple[_Item, int]]
) -> None:
    instruction = at(programs, position)
    for item in needs:
        n = instruction.micro_batch
        if (item, n) not in there and (item[0], n) not in programs.left_out:
            verb = "runs" if len(item) == 1 else "receives"
            late = f"before it {verb} {quoted(item[0])} of that micro-batch"
            raise fault(programs, f"device {position[0]} has '{instruction}' {late}", [position])


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


def check_channels(programs: Programs) -> None:
    """Ensure that the messages of a channel are received in the order in which they are sent."""
    sent: dict[tuple[int, int], list[tuple[ProgramPosition, Send]]] = defaultdict(list)
    received: dict[tuple[int, int], list[tuple[ProgramPosition, Receive]]] = defaultdict(list)
    for position, send in all_of(programs, Send):
        sent[position[0], send.target].append((position, send))
    for position, receive in all_of(programs, Receive):
        received[receive.source, position[0]].append((position, receive))
    for channel in sorted(sent):
        for (here, send), (there, receive) in zip(sent[channel], received[channel], strict=True):
            if message_of(here[0], send) != message_of(there[0], receive):
                text = f"device {channel[0]} sends {_message_text(send)} to device {channel[1]}"
                raise fault(programs, f"{text}, which there receives {_message_text(receive)}", [here, there])


def check_parts(programs: Programs) -> None:
    """Ensure that a tensor which comes in parts comes to all devices of a group, to each its own part.

    The run of the block gathers them, where its devices meet anyway.
    """
    by_name = programs.placement.by_name
    first: dict[tuple[str, str, int, tuple[int, ...]], tuple[ProgramPosition, Receive]] = {}
    for position, receive in all_of(programs, Receive):
        producer, consumer = by_name[receive.producer], by_name[receive.consumer]
        text = f"device {position[0]} receives {_message_text(receive)}{_in_part(receive)}"
        expected = part_for(producer, consumer, position[0])
        if receive.part not in (None, expected):
            own = "all of it" if expected is None else f"all of it, or part {expected[0]} of {expected[1]}"
            raise fault(programs, f"{text}, but it takes {own}", [position])
        team = coordinate(consumer, position[0]).team
        key = receive.producer, receive.consumer, receive.micro_batch, team
        other, same = first.setdefault(key, (position, receive))
        if (receive.part is None) != (same.part is None):
            theirs = f"device {other[0]} receives it{_in_part(same) or ' whole'}"
            raise fault(programs, f"{text}, but {theirs}, and they gather it together", [other, position])


def check_specs(programs: Programs) -> None:
    """Ensure that sender and receiver expect the same; a wire would take the one for the other."""
    if not programs.specs:
        return
    ends: dict[Message, tuple[ProgramPosition, TensorSpec]] = {}
    for position, receive in all_of(programs, Receive):
        ends[message_of(position[0], receive)] = position, _spec(programs, position, receive)
    for here, send in all_of(programs, Send):
        spec = _spec(programs, here, send)
        there, expected = ends[message_of(here[0], send)]
        if spec != expected:
            text = f"device {here[0]} sends {_message_text(send)} to device {there[0]} as {spec}"
            raise fault(programs, f"{text}, which receives it as {expected}", [here, there])


def _spec(programs: Programs, position: ProgramPosition, message: Send | Receive) -> TensorSpec:
    spec = programs.specs[position[0]].get((message.producer, message.consumer))
    if spec is None:
        text = f"device {position[0]} has no shape and type for {_message_text(message)}"
        raise fault(programs, text, [position])
    return spec


def run_text(run: Run) -> str:
    """Return a run as errors name it."""
    return f"{quoted(run.block)} of micro-batch {run.micro_batch}"


def _message_text(message: Send | Receive) -> str:
    return f"{quoted(message.producer)} for {quoted(message.consumer)} of micro-batch {message.micro_batch}"


def _in_part(message: Send | Receive) -> str:
    return "" if message.part is None else f" as part {message.part[0]} of {message.part[1]}"


def _mentions(programs: Programs, device: int, run: Run) -> list[ProgramPosition]:
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
