"""Programs in virtual time: how long an iteration takes when transfers block, wait for each other, or do not.

Blocks run on the compute stream, which waits for the messages that a block takes; sends are posted behind the
block that made them, and a block on several devices begins with a collective of them. So Tessel's comparison
of blocking and non-blocking communication (Tessel, Fig. 7 and 17) is made for any programs and any times of
blocks and transfers, and the same programs are played under NCCL. Not known here: jitter, memory, what a call
costs by itself, and links that messages share.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.interpreter.interpreter import interpret
from runtime.program.calls import Message, Transfer
from runtime.program.data_parallel import Part
from runtime.program.error_grid import UnsafeProgramsError, grid
from runtime.program.instructions import Programs
from runtime.virtual.rules import Communication, Rules, of_network
from runtime.virtual.streams import Event, VirtualMachine
from schedsearch.schedule import Instance

COMPUTE, RECEIVES, FIRST_OF_COMMUNICATORS = 0, 1, 2
"""Streams of a GPU: its blocks, a stream to post receives from, and its first communicator's."""


@dataclass(frozen=True)
class Playback:
    """End of the last block or transfer, and when each block began, in the unit of the times given."""

    time: float
    start_of: Mapping[Instance, float]


def play(
    programs: Programs,
    rules: Rules | Communication,
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
        programs: Programs of all devices; they need not be safe.
        rules: What a transfer holds up: of a network, or of NCCL.
        transfer_time: Time of what a block (first name) hands to another, at least 0; by default the
            placement's ticks.

    Raises:
        UnsafeProgramsError: The programs do not end, or a device is given another message than it expects;
            the message says where each device stands, and what it waits for.

    >>> from placements.shapes import v_shape
    >>> from runtime.program.lower import lower
    >>> from schedsearch.baselines import one_f_one_b
    >>> programs = lower(one_f_one_b(v_shape(3), 4))
    >>> [play(programs, how, transfer_time=lambda *_: 1.0).time for how in Communication]
    [39.0, 35.0, 33.0, 32.0]
    >>> for rules in (Rules(), Rules(own_receive_stream=False), Rules(waits_at_once=True)):
    ...     print(play(programs, rules, transfer_time=lambda *_: 1.0).time)
    32.0
    32.0
    37.0
    """
    chosen = of_network(rules) if isinstance(rules, Communication) else rules
    return _Iteration(programs, chosen, transfer_time or programs.placement.transfer_time).play()


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
    """Machine, messages and collectives that the hosts of an iteration share."""

    def __init__(self, programs: Programs, rules: Rules, transfer_time: Callable[[str, str], float]) -> None:
        self.programs, self.rules, self._transfer_time = programs, rules, transfer_time
        self.machine = VirtualMachine(rules.num_queues)
        self.collectives: dict[Hashable, Event] = {}
        self.begins: dict[Instance, list[Event]] = defaultdict(list)
        self._messages: dict[Hashable, tuple[Message, Event]] = {}
        self._num_posted: Counter[Hashable] = Counter()
        self._streams: list[dict[Hashable, int]] = [{} for _ in programs.instructions]
        blocks = programs.placement.blocks
        teams = sorted({block.devices for block in blocks if len(block.devices) > 1})
        channels = [(self.communicator(*channel), channel) for channel in programs.channels]
        for communicator, members in [*channels, *((team, team) for team in teams)]:
            for device in members:  # in one order, as all processes create them
                self.stream(device, communicator)

    def play(self) -> Playback:
        """Issue all programs, and let time pass."""
        hosts = [_Host(self, device) for device in range(self.programs.placement.num_devices)]
        for program, host in zip(self.programs.instructions, hosts, strict=True):
            interpret(program, host)
        time = self.machine.run()
        firsts = [next((i for i, end in enumerate(host.ends) if end.time is None), None) for host in hosts]
        if stuck := [(device, at) for device, at in enumerate(firsts) if at is not None]:
            raise UnsafeProgramsError(
                f"the devices wait for each other under {self.rules}; check the programs\n"
                f"{grid(self.programs, stuck)}\n" + "\n".join(self.machine.standing())
            )
        start_of = {name: max(each.time or 0.0 for each in begins) for name, begins in self.begins.items()}
        return Playback(time, start_of)

    def stream(self, device: int, communicator: Hashable) -> int:
        """Return the stream of a communicator on a GPU."""
        streams = self._streams[device]
        return streams.setdefault(communicator, FIRST_OF_COMMUNICATORS + len(streams))

    def communicator(self, source: int, target: int) -> Hashable:
        """Return the communicator of a channel."""
        match self.rules.communicators:
            case Communication.DIRECTED:
                return source, target, "directed"
            case Communication.PAIR:
                return min(source, target), max(source, target), "pair"
        return "all"

    def meeting(self, device: int, message: Message) -> Event:
        """Return when a device's next send or receive between two devices has moved: as messages match."""
        channel = message.source, message.target
        number = self._num_posted[device, channel]
        self._num_posted[device, channel] += 1
        duration = self._transfer_time(message.transfer.producer, message.transfer.consumer)
        new = message, Event(str(message), duration=duration, num_missing=2)
        other, event = self._messages.setdefault((channel, number), new)
        if other != message:
            sent, expected = (message, other) if message.source == device else (other, message)
            raise UnsafeProgramsError(
                f"device {channel[1]} expects {expected} where device {channel[0]} sends {sent}; on NCCL "
                "nothing would notice: let both ends have the same order"
            )
        return event


class _Host:
    """A backend of the interpreter: issues a device's program.

    Attributes:
        ends: When each instruction has ended.
    """

    def __init__(self, iteration: _Iteration, device: int) -> None:
        self._iteration, self._device = iteration, device
        self._rules, self._machine = iteration.rules, iteration.machine
        self._blocks: deque[Event] = deque()
        self._arriving: dict[Instance, list[Event]] = defaultdict(list)
        self.ends: list[Event] = []

    def run(self, block: str, micro_batch: int, clock_mhz: int | None = None, **how: Any) -> None:
        """Issue a block behind its inputs."""
        instance = block, micro_batch
        what = f"{block} of micro-batch {micro_batch}"
        if self._rules.ahead is not None and len(self._blocks) > self._rules.ahead:
            self._machine.hold_host(self._device, self._blocks.popleft())
        for event in self._arriving.pop(instance, []):
            self._machine.wait(self._device, COMPUTE, event)
        team = self._iteration.programs.placement.by_name[block].devices
        if len(team) > 1:
            new = Event(f"the collective of {what}", num_missing=len(team))
            together = self._iteration.collectives.setdefault((team, instance), new)
            _, ended = self._communicate(team, COMPUTE, together, together.what)
            self._machine.wait(self._device, COMPUTE, ended)
        end = Event(what, duration=self._iteration.programs.block(block, micro_batch).time)
        self._iteration.begins[instance].append(self._machine.issue(self._device, COMPUTE, end).begin)
        self.ends.append(end)
        self._blocks.append(self._machine.record(self._device, COMPUTE))

    def send(
        self, producer: str, consumer: str, micro_batch: int, *, target: int, part: Part | None = None
    ) -> None:
        """Post a send."""
        message = Message(Transfer(producer, consumer, micro_batch), self._device, target, part)
        self._post(message, "the send of", COMPUTE)

    def receive(
        self, producer: str, consumer: str, micro_batch: int, *, source: int, part: Part | None = None
    ) -> None:
        """Post a receive."""
        message = Message(Transfer(producer, consumer, micro_batch), source, self._device, part)
        current = RECEIVES if self._rules.own_receive_stream else COMPUTE
        self._arriving[consumer, micro_batch].append(self._post(message, "the receive of", current))

    def _post(self, message: Message, verb: str, current: int) -> Event:
        """Issue the kernel of a message's end; return the event behind it."""
        met = self._iteration.meeting(self._device, message)
        communicator = self._iteration.communicator(message.source, message.target)
        end, ended = self._communicate(communicator, current, met, f"{verb} {message}")
        self.ends.append(end)
        if self._rules.waits_at_once:
            self._machine.wait(self._device, COMPUTE, ended)
        return ended

    def _communicate(
        self, communicator: Hashable, current: int, met: Event, what: str
    ) -> tuple[Event, Event]:
        """Issue a kernel of a communicator behind the work of the current stream; return its end, twice.

        The second is the event that is recorded behind it.
        """
        stream = self._iteration.stream(self._device, communicator)
        self._machine.wait(self._device, stream, self._machine.record(self._device, current))
        kernel = self._machine.issue(self._device, stream, Event(what, [met]))
        met.add(kernel.begin)
        return kernel.end, self._machine.record(self._device, stream)
