"""How long an iteration takes when transfers block their devices, or wait for each other, or do not.

Programs are played in virtual time, with given times of blocks and transfers: Tessel's comparison of
blocking and non-blocking communication (Tessel, Fig. 7 and 17) for any programs and any ratio of the two.
Not known here: jitter, memory, what a call costs by itself, and links that messages share.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from runtime.program.deadlock import UnsafeProgramsError
from runtime.program.error_grid import grid
from runtime.program.instructions import Programs, Receive, Run, Send
from runtime.program.lower import Message
from schedsearch.schedule import Instance


class Communication(StrEnum):
    """What a transfer holds up.

    - ``blocking``: both of its devices, from when they come to it until it has ended.
    - ``device``: no block, but every later transfer of both devices: one communicator for all, as in torch's
      batches and in its groups that are bound to a device.
    - ``pair``: every later transfer between the two devices, in either direction: one communicator for each
      pair, as torch makes them for single transfers over NCCL.
    - ``directed``: every later transfer from the one to the other: one communicator for each channel.

    `runtime.transport.process_groups` makes those of the last two.
    """

    BLOCKING = "blocking"
    DEVICE = "device"
    PAIR = "pair"
    DIRECTED = "directed"


class Copy(NamedTuple):
    """One message of one micro-batch."""

    message: Message
    micro_batch: int


@dataclass(frozen=True)
class Playback:
    """What programs did, in the unit of the times given.

    Attributes:
        time: End of the last block or transfer.
        start_of: When each (block, micro-batch) began.
        moved: For each message when it began to move and when it had arrived.
    """

    time: float
    start_of: Mapping[Instance, float]
    moved: Mapping[Copy, tuple[float, float]]


def play(
    programs: Programs,
    communication: Communication,
    block_time: Mapping[str, float] | None = None,
    transfer_time: Callable[[str, str], float] | None = None,
    time_of: Mapping[Instance, float] | None = None,
) -> Playback:
    """Play one iteration, every device as early as its program allows.

    A transfer begins when both ends have come to it and, where it shares a communicator with others, when
    the earlier ones of both ends are over. A block begins when all its devices have come to it and its
    tensors are there. A device comes to an instruction at the end of the block before it.

    With the same programs no time is later under ``directed`` than under ``pair``, ``device`` and
    ``blocking``, in that order: each adds waits to those of the one before.

    Args:
        programs: Safe ones; see `runtime.program.deadlock.check`.
        communication: What a transfer holds up.
        block_time: Of each block, above 0; by default the placement's ticks.
        transfer_time: Of what a block (first name) hands to another, at least 0; likewise.
        time_of: Of each block of each micro-batch, where they differ; by default as of its block.

    Raises:
        UnsafeProgramsError: The programs do not end.

    >>> from placements.shapes import v_shape
    >>> from runtime.program.lower import lower
    >>> from schedsearch.baselines import one_f_one_b
    >>> programs = lower(one_f_one_b(v_shape(3), 4))
    >>> [play(programs, how, transfer_time=lambda *_: 1.0).time for how in Communication]
    [39.0, 35.0, 33.0, 32.0]
    """
    placement = programs.placement
    times = block_time or {block.name: block.time for block in placement.blocks}
    under_way = _Iteration(
        programs, communication, times, transfer_time or placement.transfer_time, time_of or {}
    )
    return under_way.played()


def cheapest_sharing(
    programs: Programs, transfer_time: Callable[[str, str], float] | None = None
) -> Communication:
    """Return ``pair`` if an iteration takes no longer with a communicator for each pair, else ``directed``.

    Args:
        programs: Safe ones.
        transfer_time: See `play`.
    """
    pair, directed = (
        play(programs, how, transfer_time=transfer_time).time
        for how in (Communication.PAIR, Communication.DIRECTED)
    )
    return Communication.PAIR if pair <= directed else Communication.DIRECTED


class _Iteration:
    """An iteration under way."""

    def __init__(
        self,
        programs: Programs,
        communication: Communication,
        block_time: Mapping[str, float],
        transfer_time: Callable[[str, str], float],
        time_of: Mapping[Instance, float],
    ) -> None:
        self.programs, self.communication = programs, communication
        self.block_time, self.transfer_time, self.time_of = block_time, transfer_time, time_of
        num_devices = programs.placement.num_devices
        self.position = [0] * num_devices
        self.now = [0.0] * num_devices
        self.waiting: dict[Hashable, deque[tuple[Copy, float]]] = defaultdict(deque)
        self.free: dict[Hashable, float] = defaultdict(float)
        self.taken_by: dict[tuple[int, Instance], list[Copy]] = defaultdict(list)
        self.start_of: dict[Instance, float] = {}
        self.moved: dict[Copy, tuple[float, float]] = {}

    def played(self) -> Playback:
        """Go on while any device can."""
        devices = range(len(self.position))
        while any(self._advance(device) for device in devices):
            pass
        stuck = [(d, at) for d, at in enumerate(self.position) if at < len(self.programs.instructions[d])]
        if stuck:
            raise UnsafeProgramsError(
                f"the devices wait for each other under {self.communication} communication; "
                f"check the programs\n{grid(self.programs, stuck)}"
            )
        return Playback(max([*self.now, *(end for _, end in self.moved.values())]), self.start_of, self.moved)

    def _advance(self, device: int) -> bool:
        """Carry out what a device can do by now; tell whether that was anything."""
        began = self.position[device]
        while (each := self._next(device)) is not None:
            if isinstance(each, Run):
                if not self._run(each):
                    break
            elif self.communication is Communication.BLOCKING:
                if not self._meet(device, each):
                    break
            else:
                self._post(device, each)
        return self.position[device] > began

    def _next(self, device: int) -> Run | Send | Receive | None:
        program, at = self.programs.instructions[device], self.position[device]
        return program[at] if at < len(program) else None

    def _run(self, run: Run) -> bool:
        """Run a block on all its devices if they are there and its tensors too; tell whether it ran."""
        instance = run.block, run.micro_batch
        team = self.programs.placement.by_name[run.block].devices
        needed = [copy for device in team for copy in self.taken_by[device, instance]]
        are_there = all(self._next(device) == run for device in team)
        if not are_there or any(copy not in self.moved for copy in needed):
            return False
        start = max([self.now[device] for device in team] + [self.moved[copy][1] for copy in needed])
        self.start_of[instance] = start
        for device in team:
            self.now[device] = start + self.time_of.get(instance, self.block_time[run.block])
            self.position[device] += 1
        return True

    def _meet(self, device: int, each: Send | Receive) -> bool:
        """Move a message if both devices have come to it, and let both wait for its end."""
        copy = _copy(device, each)
        source, target = copy.message.source, copy.message.target
        for end in (source, target):
            other = self._next(end)
            if other is None or isinstance(other, Run) or _copy(end, other) != copy:
                return False
        self._move(copy, max(self.now[source], self.now[target]))
        for end in (source, target):
            self.now[end] = self.moved[copy][1]
            self.position[end] += 1
        return True

    def _post(self, device: int, each: Send | Receive) -> None:
        """Put one end of a message in its communicator's queue, and move what can be moved by that."""
        copy = _copy(device, each)
        self.waiting[self._queue(device, copy)].append((copy, self.now[device]))
        self.position[device] += 1
        if isinstance(each, Receive):
            self.taken_by[device, (each.consumer, each.micro_batch)].append(copy)
        heads = [copy]
        while heads:
            heads += self._deliver(heads.pop())

    def _deliver(self, copy: Copy) -> list[Copy]:
        """Move a message that is the first in the queues of both its devices; return who is first then."""
        source, target = copy.message.source, copy.message.target
        queues = [self._queue(source, copy), self._queue(target, copy)]
        ends = [self.waiting[queue] for queue in queues]
        if any(not end or end[0][0] != copy for end in ends):
            return []
        posted = [end.popleft()[1] for end in ends]
        self._move(copy, max(*posted, *(self.free[queue] for queue in queues)))
        for queue in queues:
            self.free[queue] = self.moved[copy][1]
        return [end[0][0] for end in ends if end]

    def _move(self, copy: Copy, start: float) -> None:
        self.moved[copy] = start, start + self.transfer_time(copy.message.producer, copy.message.consumer)

    def _queue(self, device: int, copy: Copy) -> Hashable:
        """Return which queue of a device a message is in."""
        source, target = copy.message.source, copy.message.target
        if self.communication is Communication.DIRECTED:
            return device, source, target
        return (device, frozenset((source, target))) if self.communication is Communication.PAIR else device


def _copy(device: int, each: Send | Receive) -> Copy:
    """Return the message of which an instruction of a device is one end."""
    source, target = (device, each.target) if isinstance(each, Send) else (each.source, device)
    return Copy(Message(each.producer, each.consumer, source, target), each.micro_batch)
