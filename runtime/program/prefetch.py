"""Receives posted earlier than their place in the global order, within bounds.

A receive that is posted only when its message is due waits for the block that its device runs just then,
and the transfer with it. Posted before that block, the transfer overlaps with it, for the memory of one
more buffer. A receive is moved only where programs stay safe even if every operation blocks, so that
`runtime.program.deadlock.check` proves them as before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from runtime.program.deadlock import operations_in_order, operations_of
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
        peaks.append(max((most for step, most in posts if isinstance(step, Receive)), default=0))
    return tuple(peaks)


def _posted_before(program: Sequence[Instruction], size_bytes: Size) -> list[int]:
    """Return the bytes that are posted and not yet taken before each instruction, and after the last."""
    posted, waiting, bytes_now = [0], dict[tuple[str, int], int](), 0
    for step in program:
        if isinstance(step, Receive):
            whole = size_bytes(step.producer, step.consumer)
            size = whole if step.part is None else -(-whole // step.part[1])
            consumer = step.consumer, step.micro_batch
            waiting[consumer] = waiting.get(consumer, 0) + size
            bytes_now += size
        elif isinstance(step, Run):
            bytes_now -= waiting.pop((step.block, step.micro_batch), 0)
        posted.append(bytes_now)
    return posted


class _Order:
    """Programs, with a rank of each numbered operation: a global order that all programs follow.

    After an exchange only the linked operations in between get other ranks (Pearce and Kelly, 2006).
    """

    def __init__(self, programs: Programs) -> None:
        """Find a global order; safe programs have one."""
        self.programs = [list(program) for program in programs.instructions]
        number_of = {operation: number for number, operation in enumerate(operations_in_order(programs))}
        self._operations = [[number_of[op] for op in program] for program in operations_of(programs)]
        self._rank = list(range(len(number_of)))
        self._place: list[dict[int, int]] = [{} for _ in number_of]
        for device, of_device in enumerate(self._operations):
            for place, operation in enumerate(of_device):
                self._place[operation][device] = place

    def swap(self, device: int, place: int) -> bool:
        """Exchange an instruction with the one before it, unless that must come before it anyway."""
        program, operations = self.programs[device], self._operations[device]
        earlier, later = operations[place - 1], operations[place]
        first, last = self._rank[earlier], self._rank[later]
        before = self._linked(later, -1, device, range(first, last + 1))
        if earlier in before:
            return False
        after = self._linked(earlier, 1, device, range(first, last + 1))
        program[place - 1], program[place] = program[place], program[place - 1]
        operations[place - 1], operations[place] = later, earlier
        self._place[later][device], self._place[earlier][device] = place - 1, place
        in_order = [op for some in (before, after) for op in sorted(some, key=self._rank.__getitem__)]
        for op, rank in zip(in_order, sorted(map(self._rank.__getitem__, in_order)), strict=True):
            self._rank[op] = rank
        return True

    def _linked(self, operation: int, step: int, but: int, ranks: range) -> set[int]:
        """Return an operation and all of some ranks that must precede it (step -1) or follow it (1).

        Its own neighbour on the device `but` does not count.
        """
        linked, left = {operation}, [(operation, but)]
        while left:
            op, without = left.pop()
            for device, place in self._place[op].items():
                operations = self._operations[device]
                if device != without and 0 <= place + step < len(operations):
                    near = operations[place + step]
                    if near not in linked and self._rank[near] in ranks:
                        linked.add(near)
                        left.append((near, -1))
        return linked
