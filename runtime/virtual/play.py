"""How long an iteration of programs takes in virtual time, by which messages share a communicator.

Blocks wait for the messages that they take; a block on several devices begins when all have come to it. Not
known here: jitter, memory, what a call costs by itself, and links that messages share.
"""

from __future__ import annotations

from collections import defaultdict

from runtime.program.calls import Message
from runtime.program.deadlock import operations_in_order
from runtime.program.instructions import Programs
from runtime.transport.communicators import DIRECTED, PAIR


def cheapest_sharing(programs: Programs) -> str:
    """Return `PAIR` where safe programs take no longer by it than by `DIRECTED`, else that."""
    return PAIR if play(programs, PAIR) <= play(programs, DIRECTED) else DIRECTED


def play(programs: Programs, sharing: str) -> int:
    """Return the ticks of one iteration, every device as early as its program allows.

    A transfer begins when both ends have come to it and when the earlier ones of both ends on its
    communicator are over; it holds up no block, and takes the placement's ticks. A block begins when all its
    devices have come to it and its tensors are there, and takes its ticks in the mode that it runs in. A
    device comes to an instruction at the end of the block before it.

    Args:
        programs: Safe ones; see `runtime.program.deadlock.check`.
        sharing: `PAIR` or `DIRECTED`, which is never later, as it has fewer waits.
    """
    placement = programs.placement
    now = [0] * placement.num_devices
    free_at: dict[tuple[int, ...], int] = defaultdict(int)  # of a device's end of a communicator
    arrival: dict[tuple[str, int, int], int] = defaultdict(int)  # of a block's last input, by device
    last = 0
    for operation in operations_in_order(programs):
        if isinstance(operation, Message):
            producer, consumer, micro_batch = operation.transfer
            source, target = operation.source, operation.target
            group = (source, target) if sharing == DIRECTED else tuple(sorted((source, target)))
            ends = (source, *group), (target, *group)
            begin = max(now[source], now[target], *(free_at[end] for end in ends))
            end = begin + placement.transfer_time(producer, consumer)
            free_at |= dict.fromkeys(ends, end)
            taken = consumer, micro_batch, target
            arrival[taken] = max(arrival[taken], end)
        else:
            name, number = operation.block, operation.micro_batch
            block = programs.block(name, number)
            begin = max(max(now[device], arrival[name, number, device]) for device in block.devices)
            end = begin + block.time
            for device in block.devices:
                now[device] = end
        last = max(last, end)
    return last
