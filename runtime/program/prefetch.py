"""Receives posted earlier than their place in the global order, within bounds.

A receive that is posted only when its message is due waits for the block that its device runs just then,
and the transfer with it. Posted before that block, the transfer overlaps with it, for the memory of one
more buffer. A receive is moved only where programs stay safe even if every operation blocks, so that
`runtime.program.deadlock.check` proves them as before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from runtime.program.deadlock import Operation, operations_in_order, operations_of
from runtime.program.instructions import Instruction, Programs, Receive, Run

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
        self._operations = operations_of(programs)
        self._place: dict[Operation, dict[int, int]] = {}
        for device, own in enumerate(self._operations):
            for place, each in enumerate(own):
                self._place.setdefault(each, {})[device] = place
        self._line = list(operations_in_order(programs))
        self._rank = {operation: rank for rank, operation in enumerate(self._line)}

    def swap(self, device: int, place: int) -> bool:
        """Exchange an instruction with the one before it, unless that must come before it anyway."""
        program, own = self.programs[device], self._operations[device]
        earlier, later = own[place - 1], own[place]
        ahead = self._between(earlier, later, device)
        if earlier in ahead:
            return False
        program[place - 1], program[place] = program[place], program[place - 1]
        own[place - 1], own[place] = later, earlier
        self._place[later][device], self._place[earlier][device] = place - 1, place
        first, last = self._rank[earlier], self._rank[later]
        between = self._line[first : last + 1]
        self._line[first : last + 1] = sorted(between, key=lambda operation: operation not in ahead)
        for rank in range(first, last + 1):
            self._rank[self._line[rank]] = rank
        return True

    def _between(self, earlier: Operation, later: Operation, device: int) -> set[Operation]:
        """Return `later` and all that must precede it but does not precede `earlier` already.

        That `earlier` is just before it on the device does not count.
        """
        found = {later}
        left = self._before(later, but=device)
        while left:
            operation = left.pop()
            if operation not in found and self._rank[operation] >= self._rank[earlier]:
                found.add(operation)
                left += self._before(operation)
        return found

    def _before(self, operation: Operation, but: int | None = None) -> list[Operation]:
        """Return the operation right before one on each of its devices, but for one of these."""
        places = self._place[operation].items()
        return [self._operations[device][place - 1] for device, place in places if place and device != but]
