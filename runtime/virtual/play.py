"""Programs in virtual time: how long an iteration takes when transfers block, wait for each other, or do not.

Blocks wait for the messages that they take; a block on several devices begins when all have come to it. So
Tessel's comparison of blocking and non-blocking communication (Tessel, Fig. 7 and 17) is made for any
programs and any times of blocks and transfers. Not known here: jitter, memory, what a call costs by itself,
and links that messages share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from runtime.program.calls import Message
from runtime.program.deadlock import operations_in_order
from runtime.program.instructions import Programs
from schedsearch.schedule import Instance


class Communication(StrEnum):
    """The work that a transfer holds up.

    - ``blocking``: both of its devices, from when they come to it until it has ended.
    - ``device``: no block, but every later transfer of both devices: one communicator for all, as in torch's
      batches and in its groups that are bound to a device.
    - ``pair``: every later transfer between the two devices, in either direction: one communicator for each
      pair, as torch makes them for single transfers over NCCL.
    - ``directed``: every later transfer from the one to the other: one communicator for each channel.

    `runtime.transport.process_groups` makes the communicators of the last two.
    """

    BLOCKING = "blocking"
    DEVICE = "device"
    PAIR = "pair"
    DIRECTED = "directed"


@dataclass(frozen=True)
class Playback:
    """End of the last block or transfer, and when each block began, in the unit of the times given."""

    time: float
    start_of: Mapping[Instance, float]


def play(
    programs: Programs,
    communication: Communication,
    transfer_time: Callable[[str, str], float] | None = None,
) -> Playback:
    """Play one iteration, every device as early as its program allows.

    A transfer begins when both ends have come to it and, where it shares a communicator with others, when
    the earlier ones of both ends are over. A block begins when all its devices have come to it and its
    tensors are there, and takes its ticks in the mode that it runs in. A device comes to an instruction at
    the end of the block before it.

    With the same programs no time is later under ``directed`` than under ``pair``, ``device`` and
    ``blocking``, in that order: each adds waits to those of the one before.

    Args:
        programs: Safe ones; see `runtime.program.deadlock.check`.
        communication: The work that a transfer holds up.
        transfer_time: Time of what a block (first name) hands to another, at least 0; by default the
            placement's ticks.

    >>> from placements.shapes import v_shape
    >>> from runtime.program.lower import lower
    >>> from schedsearch.baselines import one_f_one_b
    >>> programs = lower(one_f_one_b(v_shape(3), 4))
    >>> [play(programs, how, transfer_time=lambda *_: 1.0).time for how in Communication]
    [39.0, 35.0, 33.0, 32.0]
    """
    transfer_time = transfer_time or programs.placement.transfer_time
    now = [0.0] * programs.placement.num_devices
    free_at: dict[tuple[int, Hashable], float] = defaultdict(float)  # of a device's end of a communicator
    arrival: dict[tuple[Instance, int], float] = defaultdict(float)  # of the last input, by device
    start_of: dict[Instance, float] = {}
    last = 0.0
    for operation in operations_in_order(programs):
        if isinstance(operation, Message):
            producer, consumer, micro_batch = operation.transfer
            ends = operation.source, operation.target
            shared = _communicator(*ends, communication)
            begin = max(*(now[device] for device in ends), *(free_at[device, shared] for device in ends))
            end = begin + transfer_time(producer, consumer)
            for device in ends:
                free_at[device, shared] = end
                if communication is Communication.BLOCKING:
                    now[device] = end
            taken = (consumer, micro_batch), operation.target
            arrival[taken] = max(arrival[taken], end)
        else:
            block = programs.block(operation.block, operation.micro_batch)
            instance = block.name, operation.micro_batch
            begin = max(max(now[device], arrival[instance, device]) for device in block.devices)
            start_of[instance], end = begin, begin + block.time
            for device in block.devices:
                now[device] = end
        last = max(last, end)
    return Playback(last, start_of)


def cheapest_sharing(programs: Programs) -> Communication:
    """Return ``pair`` where safe programs take no longer by it than by ``directed``, else that."""
    pair, directed = (play(programs, how).time for how in (Communication.PAIR, Communication.DIRECTED))
    return Communication.PAIR if pair <= directed else Communication.DIRECTED


def _communicator(source: int, target: int, communication: Communication) -> Hashable:
    """Return the communicator of a message."""
    match communication:
        case Communication.DEVICE:
            return "all"
        case Communication.PAIR:
            return min(source, target), max(source, target)
    return source, target
