"""A model of NCCL under torch.distributed, on which any programs can be run in virtual time.

It shows what a CPU cannot: overlap that is lost, and orders that wait for each other only on GPUs. The rules
of streams are in `streams`; those of NCCL and torch are these, each with its source:

- Every communicator has a stream of its own on each of its GPUs. What is posted to it first waits for all
  that the current stream holds at that moment, and then comes in the order of posting (torch's
  ``ProcessGroupNCCL.hpp``, comment on the class). So a receive that is posted after a block's kernel waits
  for that kernel, even if the host is far ahead.
- ``wait()`` lets the current stream wait for the end of an operation, and not the host (the same comment).
- These streams come from a pool of 32, one after the other and then the first again (torch's
  ``CUDAStream.h``, "Stream pool note"): with more communicators on a GPU, several share one.
- A send and its receive are kernels that need each other: both must have begun for the message to move, and
  both end then (NCCL user guide, "Point-to-point communication": blocking for the GPU). A small message may
  leave its sender before the receive has begun, if it fits in the communicator's buffers (NCCL issue 544).
- Messages match by their order between two ranks of a communicator; there are no tags (torch's documentation
  of ``torch.distributed.isend``).
- Calls of one group are one kernel, which ends when all of them have. They move independently, except sends
  to one peer, which go one after the other, and so receives (NCCL user guide, "Group calls" and
  "Point-to-point communication", where a send and a receive of one peer make a sendrecv).
- A collective begins when all ranks of its communicator have begun it (NCCL user guide, "Collective
  operations").

Programs are carried out as `runtime.execution.device` does on a GPU: blocks on the compute stream, which
waits for the messages that a block takes; sends are posted behind the block that made them; the host stays so
many blocks ahead of the compute stream. A block on several devices begins with a collective of them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from stream_model import Event, Gpus, Host, Meeting, Operation, StuckError

from runtime.program.deadlock import UnsafeProgramsError
from runtime.program.instructions import Instruction, Programs, Receive, Run, Send
from runtime.program.lower import Message
from runtime.simulate.network import Communication, Copy, Playback
from schedsearch.schedule import Instance

Channel = tuple[int, int]
"""(source device, target device)."""

COMPUTE, RECEIVES, FIRST_OF_POOL = 0, 1, 2
"""Streams of a GPU: its blocks, a stream to post receives from, and the first of torch's pool."""


@dataclass(frozen=True)
class Rules:
    """How programs are carried out, and what of the GPU is bounded.

    Attributes:
        communicators: One for each direction of each pair of devices, for each pair, or one for all
            (``device``).
        own_receive_stream: Whether receives are posted from a stream that holds nothing, else from the
            compute stream.
        waits_at_once: Whether the compute stream waits for every transfer where it is posted, as with
            ``runtime.blocking``.
        in_groups: Whether neighbouring transfers of a program are one group; only with one communicator for
            all, as torch's ``batch_isend_irecv``.
        eager: Whether every send leaves its sender without its receive.
        num_queues: Work queues of a GPU, ``CUDA_DEVICE_MAX_CONNECTIONS``, which our launcher sets to 32; None
            for as many as streams.
        stream_pool: Streams that communicators share; None for one each.
        ahead: How many blocks the host may be ahead of the compute stream; None for any number.
    """

    communicators: Communication = Communication.DIRECTED
    own_receive_stream: bool = True
    waits_at_once: bool = False
    in_groups: bool = False
    eager: bool = False
    num_queues: int | None = 32
    stream_pool: int | None = 32
    ahead: int | None = 4

    def __post_init__(self) -> None:
        """Check what fits together."""
        if self.communicators is Communication.BLOCKING:
            raise ValueError("communicators: blocking is no set of communicators; use waits_at_once=True")
        if self.in_groups and self.communicators is not Communication.DEVICE:
            raise ValueError("in_groups: a group is of one communicator; use communicators=device")


def play_on_nccl(
    programs: Programs,
    rules: Rules | None = None,
    block_time: Mapping[str, float] | None = None,
    transfer_time: Callable[[str, str], float] | None = None,
) -> Playback:
    """Run one iteration of programs on the model.

    Args:
        programs: Of all devices; they need not be safe.
        rules: By default those of this project's runtime on GPUs as they are delivered.
        block_time: Of each block, above 0; by default the placement's ticks.
        transfer_time: Of what a block (first name) hands to another, at least 0; likewise.

    Raises:
        UnsafeProgramsError: Operations wait for each other, or a device is given another message than it
            expects; the message says where each GPU stands.

    >>> from placements.shapes import v_shape
    >>> from runtime.program.lower import lower
    >>> from schedsearch.baselines import one_f_one_b
    >>> programs = lower(one_f_one_b(v_shape(3), 4))
    >>> for rules in (Rules(), Rules(own_receive_stream=False), Rules(waits_at_once=True)):
    ...     print(play_on_nccl(programs, rules, transfer_time=lambda *_: 1.0).time)
    32.0
    32.0
    37.0
    """
    placement = programs.placement
    times = block_time or {block.name: block.time for block in placement.blocks}
    return _Iteration(programs, rules or Rules(), times, transfer_time or placement.transfer_time).played()


class _Iteration:
    """An iteration under way."""

    def __init__(
        self,
        programs: Programs,
        rules: Rules,
        block_time: Mapping[str, float],
        transfer_time: Callable[[str, str], float],
    ) -> None:
        self.programs, self.rules = programs, rules
        self.block_time, self.transfer_time = block_time, transfer_time
        self.gpus = Gpus(rules.num_queues)
        self.stream_of: dict[tuple[int, Hashable], int] = {}
        self.meetings: dict[Hashable, Meeting] = {}
        self.copies: dict[Hashable, Copy] = {}
        self.posted: Counter[Hashable] = Counter()
        self.start_of: dict[Instance, float] = {}
        self.moved: dict[Copy, tuple[Meeting, Event]] = {}
        self._connect()

    def played(self) -> Playback:
        """Run all hosts to their ends."""
        hosts = [self._host(device) for device in range(self.programs.placement.num_devices)]
        try:
            time = self.gpus.run(hosts)
        except StuckError as error:
            raise UnsafeProgramsError(f"the GPUs wait for each other under {self.rules}\n{error}") from None
        moved = {}
        for copy, (meeting, end) in self.moved.items():
            assert meeting.start is not None and end.time is not None
            moved[copy] = meeting.start, end.time
        return Playback(time, self.start_of, moved)

    def _connect(self) -> None:
        """Give each communicator of each GPU a stream; in one order, as all processes create them."""
        teams = sorted({block.devices for block in self.programs.placement.blocks if len(block.devices) > 1})
        channels = [(self._communicator(*channel), channel) for channel in self.programs.channels]
        num_of: Counter[int] = Counter()
        for communicator, members in [*channels, *((team, team) for team in teams)]:
            for device in members:
                if (device, communicator) not in self.stream_of:
                    number = num_of[device]
                    pool = self.rules.stream_pool
                    self.stream_of[device, communicator] = FIRST_OF_POOL + (number % pool if pool else number)
                    num_of[device] += 1

    def _communicator(self, source: int, target: int) -> Hashable:
        if self.rules.communicators is Communication.DIRECTED:
            return source, target, "directed"
        if self.rules.communicators is Communication.PAIR:
            return min(source, target), max(source, target), "pair"
        return "all"

    def _host(self, device: int) -> Host:
        """Issue what a device's program says."""
        arriving: dict[Instance, list[Event]] = {}
        blocks: deque[Event] = deque()
        for is_run, instructions in groupby(
            self.programs.instructions[device], key=lambda each: isinstance(each, Run)
        ):
            if is_run:
                for run in instructions:
                    assert isinstance(run, Run)
                    yield from self._issue_block(device, run, arriving, blocks)
                continue
            transfers = list(instructions)
            for group in [transfers] if self.rules.in_groups else ([each] for each in transfers):
                self._post(device, group, arriving)

    def _issue_block(
        self, device: int, run: Run, arriving: dict[Instance, list[Event]], blocks: deque[Event]
    ) -> Iterator[Event]:
        while self.rules.ahead is not None and len(blocks) > self.rules.ahead:
            yield blocks.popleft()
        instance = run.block, run.micro_batch
        for event in arriving.pop(instance, []):
            self.gpus.wait(device, COMPUTE, event)
        what = f"{run.block} of micro-batch {run.micro_batch}"
        team = self.programs.placement.by_name[run.block].devices
        if len(team) > 1:
            meeting = self._meeting((team, instance), f"the collective of {what}", len(team), 0.0)
            end = self._on_communicator(device, team, COMPUTE, meeting.what, [[meeting]])
            self.gpus.wait(device, COMPUTE, end)

        def begun(time: float) -> None:
            self.start_of[instance] = time

        self.gpus.issue(Operation(device, COMPUTE, what, self.block_time[run.block], begun=begun))
        blocks.append(self.gpus.record(device, COMPUTE))

    def _post(self, device: int, group: Sequence[Instruction], arriving: dict[Instance, list[Event]]) -> None:
        """Post transfers as one kernel."""
        chains: dict[Channel, list[Meeting]] = {}
        copies = [_copy(device, each) for each in group]
        for copy in copies:
            channel = copy.message.source, copy.message.target
            chains.setdefault(channel, []).append(self._message(device, copy))
        message = copies[0].message
        only_receives = all(copy.message.target == device for copy in copies)
        current = RECEIVES if only_receives and self.rules.own_receive_stream else COMPUTE
        communicator = self._communicator(message.source, message.target)
        what = " and ".join(_words(device, copy) for copy in copies)
        end = self._on_communicator(device, communicator, current, what, list(chains.values()))
        for copy in copies:
            if copy.message.target == device:
                arriving.setdefault((copy.message.consumer, copy.micro_batch), []).append(end)
                (meeting,) = (each for chain in chains.values() for each in chain if each.what == _name(copy))
                self.moved[copy] = meeting, end
        if self.rules.waits_at_once:
            self.gpus.wait(device, COMPUTE, end)

    def _message(self, device: int, copy: Copy) -> Meeting:
        """Return the meeting that a device's next send or receive between two devices is part of."""
        channel = copy.message.source, copy.message.target
        number = self.posted[device, channel]
        self.posted[device, channel] += 1
        key = channel, number
        other = self.copies.setdefault(key, copy)
        if other != copy:
            sent, expected = (copy, other) if copy.message.source == device else (other, copy)
            raise UnsafeProgramsError(
                f"device {channel[1]} expects {_name(expected)} where device {channel[0]} sends "
                f"{_name(sent)}; on NCCL nothing would notice: let both ends have the same order"
            )
        duration = self.transfer_time(copy.message.producer, copy.message.consumer)
        return self._meeting(key, _name(copy), 2, duration, channel[0] if self.rules.eager else None)

    def _meeting(
        self, key: Hashable, what: str, size: int, duration: float, leaves_early: int | None = None
    ) -> Meeting:
        if key not in self.meetings:
            self.meetings[key] = Meeting(what, size, duration, leaves_early)
        return self.meetings[key]

    def _on_communicator(
        self,
        device: int,
        communicator: Hashable,
        current: int,
        what: str,
        chains: Sequence[Sequence[Meeting]],
    ) -> Event:
        """Issue a kernel of a communicator behind what the current stream holds."""
        stream = self.stream_of[device, communicator]
        self.gpus.wait(device, stream, self.gpus.record(device, current))
        self.gpus.issue(Operation(device, stream, what, chains=chains))
        return self.gpus.record(device, stream)


def _copy(device: int, each: Instruction) -> Copy:
    """Return the message of which a transfer of a device is one end."""
    assert isinstance(each, Send | Receive)
    source, target = (device, each.target) if isinstance(each, Send) else (each.source, device)
    return Copy(Message(each.producer, each.consumer, source, target), each.micro_batch)


def _name(copy: Copy) -> str:
    message = copy.message
    return f"{message.producer} -> {message.consumer} of micro-batch {copy.micro_batch}"


def _words(device: int, copy: Copy) -> str:
    verb = "the send of" if copy.message.source == device else "the receive of"
    return f"{verb} {_name(copy)}"
