"""Whether programs run every block once, in a mode of its own, and hand it its inputs, alike at both ends.

Whether they finish is `runtime.program.deadlock`'s affair.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Set

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

_Item = tuple[int, int, tuple[str, ...]]
"""(micro-batch, device, names): the run of a block, or the receive of a producer's tensor for a consumer."""


def check_runs(programs: Programs) -> None:
    """Ensure that every block of every micro-batch runs once on each of its devices; of copies, one does."""
    expected = {
        (n, device, (block.name,))
        for block in programs.placement.blocks
        for device in block.devices
        for n in range(programs.num_micro_batches)
        if (block.name, n) not in programs.left_out
    }
    runs = (((run.micro_batch, here[0], (run.block,)), here) for here, run in all_of(programs, Run))
    _check_once(programs, "runs", expected, runs, "which is none of its blocks and micro-batches")


def check_needed(programs: Programs) -> None:
    """Ensure that each device receives the tensors that its blocks need from others, each once."""
    by_name = programs.placement.by_name
    needed = {
        (n, device, (producer, consumer))
        for consumer, producers in tensor_inputs(programs.placement).items()
        for producer in producers
        for device in set(by_name[consumer].devices).difference(by_name[producer].devices)
        for n in range(programs.num_micro_batches)
        if programs.left_out.isdisjoint(((producer, n), (consumer, n)))
    }
    receives = (
        ((receive.micro_batch, here[0], (receive.producer, receive.consumer)), here)
        for here, receive in all_of(programs, Receive)
    )
    _check_once(programs, "receives", needed, receives, "which nothing there needs")


def _check_once(
    programs: Programs,
    verb: str,
    expected: Set[_Item],
    done: Iterable[tuple[_Item, ProgramPosition]],
    stray: str,
) -> None:
    """Ensure that programs do each expected item once, and no other."""
    seen: dict[_Item, ProgramPosition] = {}
    for item, position in done:
        if item not in expected or item in seen:
            text = f"device {position[0]} {verb} {_item_text(item)}"
            text += " twice" if item in seen else f", {stray}"
            raise fault(programs, text, [seen[item], position] if item in seen else [position])
        seen[item] = position
    if missing := expected - seen.keys():
        n, device, names = min(missing)
        text = f"device {device} never {verb} {_item_text((n, device, names))}"
        raise fault(programs, text, _mentions(programs, device, names[-1], n))


def check_modes(programs: Programs) -> None:
    """Ensure that blocks run on their streams and in modes of the placement, alike where one decision is."""
    placement = programs.decided
    decision_of, again = stage_decisions(placement), computed_again(placement)
    first: dict[tuple[str | int, int], tuple[ProgramPosition, Run]] = {}
    for position, run in all_of(programs, Run):
        block, text = placement.by_name[run.block], _runs(position, run)
        if run.stream != block.stream:
            text += f" on the stream {run.stream!r}, but it is a block of {block.stream!r}"
            raise fault(programs, text, [position])
        text += f" in mode {run.mode!r}"
        if block.kind is not Kind.F:
            if run.mode != KEEP:
                raise fault(programs, f"{text}, but a backward block has its forward's mode", [position])
            continue
        decision = decision_of.get(run.block)
        names = MODES if decision is None else placement.decisions[decision].names
        names = (RECOMPUTE,) if run.block in again else names
        if run.mode not in names:
            raise fault(programs, f"{text}, but its modes are {', '.join(names)}", [position])
        key = run.block if decision is None else decision
        other, same = first.setdefault((key, run.micro_batch), (position, run))
        if run.mode != same.mode:
            text += f", but {_runs(other, same)} in mode {same.mode!r}, and one choice is for both"
            raise fault(programs, text, [other, position])


_Messages = dict[Message, ProgramPosition]


def check_matched(programs: Programs) -> tuple[_Messages, _Messages]:
    """Return the sends and the receives if each has the other at its other end."""
    received = {message_of(here[0], receive): here for here, receive in all_of(programs, Receive)}
    sent: _Messages = {}
    for here, send in all_of(programs, Send):
        message = message_of(here[0], send)
        text = f"device {here[0]} sends {_message_text(send)} to device {send.target}{_in_part(send)}"
        if message in sent:
            raise fault(programs, f"{text} twice", [sent[message], here])
        if message not in received:
            there = _mentions(programs, send.target, send.consumer, send.micro_batch)
            raise fault(programs, f"{text}, which does not receive it from there", [here, *there])
        sent[message] = here
    for message, here in received.items():
        if message not in sent:
            receive = at(programs, here)
            assert isinstance(receive, Receive)
            text = f"device {here[0]} receives {_message_text(receive)} from device {receive.source}"
            there = _mentions(programs, receive.source, receive.producer, receive.micro_batch)
            text += f"{_in_part(receive)}, which does not send it there"
            raise fault(programs, text, [here, *there])
    return sent, received


def check_channels(programs: Programs, sent: _Messages, received: _Messages) -> None:
    """Ensure that messages of a channel keep their order, and that both ends know the same shape and type."""
    channels: dict[tuple[int, int], tuple[list[Message], list[Message]]] = defaultdict(lambda: ([], []))
    for end, messages in enumerate((sent, received)):
        for message in messages:
            channels[message.source, message.target][end].append(message)
    for (source, target), ends in sorted(channels.items()):
        for message, other in zip(*ends, strict=True):
            here, there = sent[message], received[other]
            problem = ""
            if message != other:
                problem = f", which there receives {_message_text(at(programs, there))}"
            elif programs.specs and (spec := _spec(programs, here)) != (theirs := _spec(programs, there)):
                problem = f" as {spec}, which receives it as {theirs}"
            if problem:
                text = (
                    f"device {source} sends {_message_text(at(programs, here))} to device {target}{problem}"
                )
                raise fault(programs, text, [here, there])


def check_shares(programs: Programs) -> None:
    """Ensure that each device receives its own share of the samples, or its own part of a tensor.

    A tensor that comes in parts comes so to all devices of a group; the run of the block gathers them, where
    its devices meet anyway.
    """
    by_name = programs.placement.by_name
    first: dict[tuple[str, str, int, tuple[int, ...]], tuple[ProgramPosition, Receive]] = {}
    for position, receive in all_of(programs, Receive):
        ends = by_name[receive.producer], by_name[receive.consumer]
        text = f"device {position[0]} receives {_message_text(receive)}"
        if receive.source not in holders(*ends, position[0]):
            text += f" from device {receive.source}, which has another share of the samples"
            raise fault(programs, text, [position])
        text += _in_part(receive)
        expected = part_for(*ends, position[0])
        if receive.part not in (None, expected):
            takes = "all of it" if expected is None else f"all of it, or part {expected[0]} of {expected[1]}"
            raise fault(programs, f"{text}, but it takes {takes}", [position])
        team = coordinate(ends[1], position[0]).team
        key = receive.producer, receive.consumer, receive.micro_batch, team
        other, same = first.setdefault(key, (position, receive))
        if (receive.part is None) != (same.part is None):
            theirs = f"device {other[0]} receives it{_in_part(same) or ' whole'}"
            raise fault(programs, f"{text}, but {theirs}, and they gather it together", [other, position])


def check_local_order(programs: Programs) -> None:
    """Ensure that runs and sends come after their inputs on their own device.

    A run needs its tensors, its `after` and its partner.
    """
    by_name, pairs = programs.placement.by_name, pair_backward(programs.placement)
    tensors = tensor_inputs(programs.placement)
    for device, program in enumerate(programs.instructions):
        there: set[tuple[tuple[str, ...], int]] = set()
        for index, step in enumerate(program):
            n = step.micro_batch
            needs: list[tuple[str, ...]] = []
            if isinstance(step, Send):
                needs = [(step.producer,)]
            elif isinstance(step, Run):
                partner = [pairs[step.block]] if step.block in pairs else []
                before = [*partner, *by_name[step.block].after]
                needs = [(name,) for name in before if device in by_name[name].devices]
                needs += [
                    (name, step.block) for name in tensors[step.block] if device not in by_name[name].devices
                ]
            for item in needs:
                if (item, n) not in there and (item[0], n) not in programs.left_out:
                    verb = "runs" if len(item) == 1 else "receives"
                    late = f"before it {verb} {quoted(item[0])} of that micro-batch"
                    raise fault(programs, f"device {device} has '{step}' {late}", [(device, index)])
            if not isinstance(step, Send):
                there.add(((step.block,) if isinstance(step, Run) else (step.producer, step.consumer), n))


def _runs(position: ProgramPosition, run: Run) -> str:
    return f"device {position[0]} runs {run.instance_text}"


def _item_text(item: _Item) -> str:
    return f"{' for '.join(map(quoted, item[2]))} of micro-batch {item[0]}"


def _message_text(message: object) -> str:
    assert isinstance(message, Send | Receive)
    return _item_text((message.micro_batch, 0, (message.producer, message.consumer)))


def _in_part(message: Send | Receive) -> str:
    return "" if message.part is None else f" as part {message.part[0]} of {message.part[1]}"


def _spec(programs: Programs, position: ProgramPosition) -> object:
    message = at(programs, position)
    assert isinstance(message, Send | Receive)
    spec = programs.specs[position[0]].get((message.producer, message.consumer))
    if spec is None:
        text = f"device {position[0]} has no shape and type for {_message_text(message)}"
        raise fault(programs, text, [position])
    return spec


def _mentions(programs: Programs, device: int, block: str, micro_batch: int) -> list[ProgramPosition]:
    """Return where a program first has to do with a block; its begin if nowhere, nothing if no device."""
    if device not in range(programs.placement.num_devices):
        return []
    for index, step in enumerate(programs.instructions[device]):
        names = (step.block,) if isinstance(step, Run) else (step.producer, step.consumer)
        if step.micro_batch == micro_batch and block in names:
            return [(device, index)]
    return [(device, 0)]
