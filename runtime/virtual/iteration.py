"""Programs carried out on the virtual machine, as `runtime.execution.device` does on a GPU.

Blocks run on the compute stream, which waits for the messages that a block takes. Sends are posted behind the
block that made them. The host runs some blocks ahead of that stream. A block on several devices
begins with a collective of them. Not known here: what a block costs; whoever plays the programs says that.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from runtime.program.calls import Message, message_of
from runtime.program.error_grid import ProgramPosition, UnsafeProgramsError, grid
from runtime.program.instructions import Instruction, Programs, Run
from runtime.virtual.rules import Communication, Rules
from runtime.virtual.streams import Host, Meeting, Operation, StuckError, VirtualEvent, VirtualMachine
from schedsearch.schedule import Instance

COMPUTE, RECEIVES, FIRST_OF_POOL = 0, 1, 2
"""Streams of a GPU: its blocks, a stream to post receives from, and the first of torch's pool."""


class Span(NamedTuple):
    """From when to when something went on.

    Attributes:
        start: When it began.
        end: When it ended.
    """

    start: float
    end: float


@dataclass(frozen=True)
class BlockCosts:
    """What a block costs a device, told by whoever plays the programs.

    Attributes:
        run: Called when a block begins on a device, with device, block and time; returns when it ends there.
        reach: Called when a block is next on a device, likewise; returns when it may begin there. None if
            it may at once.
    """

    run: Callable[[int, Instance, float], float]
    reach: Callable[[int, Instance, float], float] | None = None


@dataclass(frozen=True)
class Playback:
    """What programs did, in the unit of the times given.

    Attributes:
        time: End of the last block or transfer.
        start_of: When each (block, micro-batch) began.
        moved: For each message when it began to move and when it had arrived.
        transfers: For each send and receive, as (device, message): from when the device had come to it until
            it had ended there.
    """

    time: float
    start_of: Mapping[Instance, float]
    moved: Mapping[Message, Span]
    transfers: Mapping[tuple[int, Message], Span]


class Iteration:
    """An iteration under way.

    Args:
        programs: Programs of all devices; they need not be safe.
        rules: What transfers wait for.
        costs: Costs of the blocks.
        transfer_time: Time of what a block (first name) hands to another, at least 0.
    """

    def __init__(
        self,
        programs: Programs,
        rules: Rules,
        costs: BlockCosts,
        transfer_time: Callable[[str, str], float],
    ) -> None:
        """Begin with nothing issued."""
        self._programs, self._rules, self._costs = programs, rules, costs
        self._transfer_time = transfer_time
        self._machine = VirtualMachine(rules.num_queues)
        self._stream_of: dict[tuple[int, Hashable], int] = {}
        self._num_streams: Counter[int] = Counter()
        self._meetings: dict[Hashable, Meeting] = {}
        self._messages: dict[Hashable, Message] = {}
        self._num_posted: Counter[Hashable] = Counter()
        self._arriving: dict[tuple[int, Instance], list[VirtualEvent]] = defaultdict(list)
        self._start_of: dict[Instance, float] = {}
        self._moved: dict[Message, tuple[Meeting, VirtualEvent]] = {}
        self._transfers: dict[tuple[int, Message], Operation] = {}
        self._ends: list[list[VirtualEvent]] = [[] for _ in programs.instructions]
        self._connect()

    def play(self) -> Playback:
        """Run all hosts to their ends.

        Raises:
            UnsafeProgramsError: Operations wait for each other, or a device is given another message than it
                expects; the message says where each GPU stands.
        """
        hosts = [self._host(device) for device in range(self._programs.placement.num_devices)]
        try:
            time = self._machine.run(hosts)
        except StuckError as error:
            raise UnsafeProgramsError(
                f"the devices wait for each other under {self._rules}; check the programs\n"
                f"{grid(self._programs, self._stuck())}\n{error}"
            ) from None
        moved = {}
        for message, (meeting, end) in self._moved.items():
            assert meeting.start is not None and end.time is not None
            moved[message] = Span(meeting.start, end.time)
        return Playback(time, self._start_of, moved, dict(self._spans()))

    def _spans(self) -> Iterator[tuple[tuple[int, Message], Span]]:
        """Yield when each end of a message was posted and when it was over."""
        for end, operation in self._transfers.items():
            assert operation.began is not None and operation.end.time is not None
            yield end, Span(operation.began, operation.end.time)

    def _stuck(self) -> list[ProgramPosition]:
        """Return the first instruction of each device that has not ended."""
        found = []
        for device, ends in enumerate(self._ends):
            at = next((i for i, end in enumerate(ends) if not end.is_reached), len(ends))
            if at < len(self._programs.instructions[device]):
                found.append((device, at))
        return found

    def _connect(self) -> None:
        """Give each communicator of each GPU a stream; in one order, as all processes create them."""
        blocks = self._programs.placement.blocks
        teams = sorted({block.devices for block in blocks if len(block.devices) > 1})
        shared = self._programs.channels if self._rules.communicators else ()
        channels = [(self._communicator(*channel), channel) for channel in shared]
        for communicator, members in [*channels, *((team, team) for team in teams)]:
            for device in members:
                self._stream(device, communicator)

    def _stream(self, device: int, communicator: Hashable) -> int:
        """Return the stream of a communicator on a GPU."""
        if (device, communicator) not in self._stream_of:
            number, pool = self._num_streams[device], self._rules.stream_pool
            self._stream_of[device, communicator] = FIRST_OF_POOL + (number % pool if pool else number)
            self._num_streams[device] += 1
        return self._stream_of[device, communicator]

    def _communicator(self, source: int, target: int, message: Message | None = None) -> Hashable:
        match self._rules.communicators:
            case Communication.DIRECTED:
                return source, target, "directed"
            case Communication.PAIR:
                return min(source, target), max(source, target), "pair"
            case Communication.DEVICE:
                return "all"
        return message

    def _host(self, device: int) -> Host:
        """Issue what a device's program says."""
        blocks: deque[VirtualEvent] = deque()
        program = self._programs.instructions[device]
        for is_run, instructions in groupby(program, key=lambda each: isinstance(each, Run)):
            if is_run:
                for run in instructions:
                    assert isinstance(run, Run)
                    while self._rules.ahead is not None and len(blocks) > self._rules.ahead:
                        yield blocks.popleft()
                    blocks.append(self._issue_block(device, run))
                continue
            transfers = list(instructions)
            for group in [transfers] if self._rules.in_groups else ([each] for each in transfers):
                self._post(device, group)

    def _issue_block(self, device: int, run: Run) -> VirtualEvent:
        """Issue a block behind what it takes; return the event behind it."""
        instance = run.block, run.micro_batch
        what = f"{run.block} of micro-batch {run.micro_batch}"
        if (reach := self._costs.reach) is not None:
            ask = Operation(device, COMPUTE, f"what {what} needs", lambda now: reach(device, instance, now))
            self._machine.issue(ask)
        for event in self._arriving.pop((device, instance), []):
            self._machine.wait(device, COMPUTE, event)
        team = self._programs.placement.by_name[run.block].devices
        if len(team) > 1:
            meeting = self._meetings.setdefault(
                (team, instance), Meeting(f"the collective of {what}", len(team), 0.0)
            )
            _, ended = self._on_communicator(device, team, COMPUTE, meeting.what, [[meeting]])
            self._machine.wait(device, COMPUTE, ended)

        def work(now: float) -> float:
            self._start_of[instance] = now
            return self._costs.run(device, instance, now)

        self._ends[device].append(self._machine.issue(Operation(device, COMPUTE, what, work)))
        return self._machine.record(device, COMPUTE)

    def _post(self, device: int, group: Sequence[Instruction]) -> None:
        """Post transfers as one kernel."""
        chains: dict[tuple[int, int], list[Meeting]] = defaultdict(list)
        messages = [message_of(device, each) for each in group]
        meetings = [self._meeting_of(device, message) for message in messages]
        for message, meeting in zip(messages, meetings, strict=True):
            chains[message.source, message.target].append(meeting)
        first = messages[0]
        only_receives = all(message.target == device for message in messages)
        current = RECEIVES if only_receives and self._rules.own_receive_stream else COMPUTE
        communicator = self._communicator(first.source, first.target, first)
        what = " and ".join(_words(device, message) for message in messages)
        kernel, ended = self._on_communicator(device, communicator, current, what, list(chains.values()))
        for message, meeting in zip(messages, meetings, strict=True):
            self._ends[device].append(kernel.end)
            self._transfers[device, message] = kernel
            if message.target == device:
                _, consumer, micro_batch = message.transfer
                self._arriving[device, (consumer, micro_batch)].append(ended)
                self._moved[message] = meeting, ended
        if self._rules.waits_at_once:
            self._machine.wait(device, COMPUTE, ended)

    def _meeting_of(self, device: int, message: Message) -> Meeting:
        """Return the meeting that a device's next send or receive between two devices is part of."""
        channel = message.source, message.target
        key: Hashable = message
        if self._rules.communicators:
            number = self._num_posted[device, channel]
            self._num_posted[device, channel] += 1
            key = channel, number
        other = self._messages.setdefault(key, message)
        if other != message:
            sent, expected = (message, other) if message.source == device else (other, message)
            raise UnsafeProgramsError(
                f"device {channel[1]} expects {expected} where device {channel[0]} sends {sent}; on NCCL "
                "nothing would notice: let both ends have the same order"
            )
        if key not in self._meetings:
            duration = self._transfer_time(message.transfer.producer, message.transfer.consumer)
            early = channel[0] if self._rules.eager else None
            self._meetings[key] = Meeting(str(message), 2, duration, early)
        return self._meetings[key]

    def _on_communicator(
        self,
        device: int,
        communicator: Hashable,
        current: int,
        what: str,
        chains: Sequence[Sequence[Meeting]],
    ) -> tuple[Operation, VirtualEvent]:
        """Issue a kernel of a communicator behind what the current stream holds; return it and its event."""
        stream = self._stream(device, communicator)
        self._machine.wait(device, stream, self._machine.record(device, current))
        kernel = Operation(device, stream, what, chains=chains)
        self._machine.issue(kernel)
        return kernel, self._machine.record(device, stream)


def _words(device: int, message: Message) -> str:
    verb = "the send of" if message.source == device else "the receive of"
    return f"{verb} {message}"
