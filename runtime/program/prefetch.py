"""Receives posted earlier than their place in the global order, within bounds.

A receive that is posted only when its message is due waits for the block that its device runs just then,
and the transfer with it. Posted before that block, the transfer overlaps with it, for the memory of one
more buffer. A receive is moved only where programs stay safe even if every operation blocks, so that
`runtime.program.deadlock.check` proves them as before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter

from runtime.program.instructions import Instruction, Programs, Receive, Run, Send

OrderNode = tuple[str, int, str, tuple[int, ...]]
"""Producer, micro-batch, consumer (empty for a run) and devices of a run or a message with both its ends."""

Size = Callable[[str, str], int]
"""Returns the bytes of what a block (first name) hands to another."""


def _one(producer: str, consumer: str) -> int:
    return 1


def prefetch_receives(
    programs: Programs, blocks_ahead: int, max_bytes: int | None = None, size_bytes: Size = _one
) -> Programs:
    """Return programs that post each receive earlier, by up to `blocks_ahead` blocks of its device.

    A receive stays where the operation before it must come before the message is sent. So it passes no
    other receive of its channel, whose message is sent before.

    Args:
        programs: Safe ones; see `runtime.program.deadlock.check`.
        blocks_ahead: Runs that a receive may be moved ahead of; 0 changes nothing.
        max_bytes: Bound on the bytes of a device's buffers that are posted and not yet taken; None for no
            bound. Where the programs need more as they are, nothing is moved there.
        size_bytes: Size of a whole tensor; 1 by default, so that the bound is a number of messages.
    """
    order = _Order(programs)
    for device, program in enumerate(order.programs):
        posted = _posted_before(program, size_bytes)
        for place, instruction in enumerate(tuple(program)):
            runs_left, size = blocks_ahead, posted[place + 1] - posted[place]
            while isinstance(instruction, Receive) and place > 0:
                runs_left -= isinstance(order.programs[device][place - 1], Run)
                is_full = max_bytes is not None and posted[place - 1] + size > max_bytes
                if runs_left < 0 or is_full or not order.swap(device, place):
                    break
                posted[place] = posted[place - 1] + size
                place -= 1
    return replace(programs, instructions=tuple(map(tuple, order.programs)))


def peak_posted(programs: Programs, size_bytes: Size = _one) -> tuple[int, ...]:
    """Return the most memory of receives that are posted and not yet taken, by device.

    A size is 1 by default, so that messages are counted.
    """
    peaks = []
    for program in programs.instructions:
        after = _posted_before(program, size_bytes)[1:]
        posts = zip(program, after, strict=True)
        peaks.append(max((most for each, most in posts if isinstance(each, Receive)), default=0))
    return tuple(peaks)


def _posted_before(program: Sequence[Instruction], size_bytes: Size) -> list[int]:
    """Return the bytes that are posted and not yet taken before each instruction, and after the last."""
    posted, waiting, bytes_now = [0], dict[tuple[str, int], int](), 0
    for each in program:
        if isinstance(each, Receive):
            whole = size_bytes(each.producer, each.consumer)
            size = whole if each.part is None else -(-whole // each.part[1])
            consumer = each.consumer, each.micro_batch
            waiting[consumer] = waiting.get(consumer, 0) + size
            bytes_now += size
        elif isinstance(each, Run):
            bytes_now -= waiting.pop((each.block, each.micro_batch), 0)
        posted.append(bytes_now)
    return posted


class _Order:
    """Programs, with one global order of all runs and messages that all of them follow."""

    def __init__(self, programs: Programs) -> None:
        """Find a global order; safe programs have one."""
        self.programs = [list(program) for program in programs.instructions]
        self._devices = {block.name: block.devices for block in programs.placement.blocks}
        self._place: dict[tuple[OrderNode, int], int] = {}
        for device, program in enumerate(self.programs):
            for place, each in enumerate(program):
                self._place[self._node(device, each), device] = place
        after = {node: [self._before(node, device) for device in node[3]] for node, _ in self._place}
        order = TopologicalSorter({node: filter(None, before) for node, before in after.items()})
        self._line = list(order.static_order())
        self._rank = {node: rank for rank, node in enumerate(self._line)}

    def swap(self, device: int, place: int) -> bool:
        """Exchange an instruction with the one before it, unless that must come before it anyway."""
        program = self.programs[device]
        earlier, later = (self._node(device, program[i]) for i in (place - 1, place))
        ahead = self._between(earlier, later, device)
        if earlier in ahead:
            return False
        program[place - 1], program[place] = program[place], program[place - 1]
        self._place[later, device], self._place[earlier, device] = place - 1, place
        first, last = self._rank[earlier], self._rank[later]
        between = self._line[first : last + 1]
        self._line[first : last + 1] = sorted(between, key=lambda node: node not in ahead)
        for rank in range(first, last + 1):
            self._rank[self._line[rank]] = rank
        return True

    def _between(self, earlier: OrderNode, later: OrderNode, device: int) -> set[OrderNode]:
        """Return `later` and all that must precede it but does not precede `earlier` already.

        That `earlier` is just before it on the device does not count.
        """
        found = {later}
        left = [self._before(later, other) for other in later[3] if other != device]
        while left:
            node = left.pop()
            if node is None or node in found or self._rank[node] < self._rank[earlier]:
                continue
            found.add(node)
            left += [self._before(node, other) for other in node[3]]
        return found

    def _before(self, node: OrderNode, device: int) -> OrderNode | None:
        place = self._place[node, device]
        return self._node(device, self.programs[device][place - 1]) if place else None

    def _node(self, device: int, each: Instruction) -> OrderNode:
        if isinstance(each, Run):
            return each.block, each.micro_batch, "", self._devices[each.block]
        ends = (device, each.target) if isinstance(each, Send) else (each.source, device)
        return each.producer, each.micro_batch, each.consumer, ends
