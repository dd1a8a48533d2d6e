"""The virtual machine: streams, events and work queues of several GPUs, and a loop over virtual time.

It is a model of CUDA; its rules, each with its source:

- A stream carries out its operations in the order in which the host issued them, each after the end of the
  one before it (CUDA C++ Programming Guide, "Streams").
- Waiting for an event holds up what is issued to that stream later, and neither the host nor other streams
  (CUDA Runtime API, ``cudaStreamWaitEvent``).
- Streams share a bounded number of work queues to the GPU: 8, or ``CUDA_DEVICE_MAX_CONNECTIONS``, from 1 to
  32 (Programming Guide, "Environment Variables"), a stream after the other. A queue gives its operations to
  the GPU in the order in which they were issued; one that cannot begin yet holds up those behind it, although
  they are of other streams (the guide's false dependencies). The record of an event is such an operation, and
  begins when its stream comes to it (measured: ``tests/gpu/test_streams.py`` on an H100, driver 580).
- A kernel that has begun holds up its stream, and the operations behind it in its queue no longer (measured
  likewise); so one that needs a partner waits for it on the GPU.
- The host issues without waiting, unless it waits for an event itself (``cudaEventSynchronize``).

Not known here: how many multiprocessors a kernel takes, what a launch costs, priorities, and copies.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count


class StuckError(RuntimeError):
    """No operation can go on; the message has a line for each stream that stands."""


@dataclass(eq=False)
class VirtualEvent:
    """A point in a stream, reached when all that was issued to the stream before has ended.

    Attributes:
        what: What it is the end of, for messages.
        time: When it was reached; None before.
    """

    what: str = ""
    time: float | None = None
    _watchers: list[Callable[[], None]] = field(default_factory=list)

    @property
    def is_reached(self) -> bool:
        """Whether it was reached."""
        return self.time is not None

    def then(self, watcher: Callable[[], None]) -> None:
        """Call once it is reached."""
        self._watchers.append(watcher)

    def reach(self, time: float) -> None:
        """Be reached."""
        self.time = time
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher()


class Meeting:
    """Partners on different GPUs that can only go on together: a message, or a collective.

    Args:
        what: For messages.
        size: How many partners there are.
        duration: Time from when the last one has begun to the common end.
        leaves_early: The partner that does not wait for the others, if there is one: the sender of a message
            that fits in the buffer of its communicator.

    Attributes:
        start: When the last partner had begun; None before.
    """

    def __init__(self, what: str, size: int, duration: float, leaves_early: int | None = None) -> None:
        """Begin with nobody there."""
        self.what = what
        self.start: float | None = None
        self._size, self._duration, self._early = size, duration, leaves_early
        self._waiting: list[Callable[[float], None]] = []
        self._num_here = 0
        self._first_early: float | None = None

    def join(self, device: int, now: float, at_end: Callable[[float], None]) -> None:
        """Let a partner begin; `at_end` is called with the time of its end, which may be later than now."""
        self._num_here += 1
        if device == self._early:
            self._first_early = now
            at_end(now + self._duration)
        else:
            self._waiting.append(at_end)
        if self._num_here < self._size:
            return
        self.start = now if self._first_early is None else self._first_early
        end = max(self.start + self._duration, now)
        for each in self._waiting:
            each(end)


@dataclass(eq=False)
class Operation:
    """What a stream carries out.

    Attributes:
        device: The GPU.
        stream: Stream of the GPU.
        what: For messages.
        work: Called when it begins, with the time; returns when it ends. By default it takes no time.
        awaits: The event it waits for, if it is a wait.
        chains: Meetings that it takes part in; those of a chain one after the other, chains side by side.
            With these it ends after the last of them.
        end: Reached at its end.
        began: When it began; None before.
    """

    device: int
    stream: int
    what: str
    work: Callable[[float], float] = lambda now: now
    awaits: VirtualEvent | None = None
    chains: Sequence[Sequence[Meeting]] = ()
    end: VirtualEvent = field(default_factory=VirtualEvent)
    began: float | None = None


Host = Iterator[VirtualEvent]
"""A host thread: it issues operations as it goes on, and yields the events that it waits for."""


class VirtualMachine:
    """Several GPUs, each with a host thread that gives it work.

    Args:
        num_queues: Work queues of each GPU; None for one for each stream.

    Attributes:
        now: The time.
    """

    def __init__(self, num_queues: int | None = 8) -> None:
        """Begin at time 0 with nothing issued."""
        self.now = 0.0
        self._num_queues = num_queues
        self._queues: dict[tuple[int, int], deque[Operation]] = defaultdict(deque)
        self._last: dict[tuple[int, int], Operation] = {}
        self._before: dict[Operation, VirtualEvent | None] = {}
        self._begun: dict[tuple[int, int], Operation] = {}
        self._ready: deque[Callable[[], None]] = deque()
        self._ends: list[tuple[float, int, VirtualEvent]] = []
        self._numbers = count()

    def issue(self, operation: Operation) -> VirtualEvent:
        """Give an operation to its stream; return its end."""
        stream = operation.device, operation.stream
        before = self._last.get(stream)
        operation.end.what = operation.what
        self._before[operation] = before.end if before and not before.end.is_reached else None
        self._last[stream] = operation
        queue = self._queue_of(operation)
        self._queues[queue].append(operation)
        if len(self._queues[queue]) == 1:
            self._ready.append(partial(self._feed, queue))
        return operation.end

    def record(self, device: int, stream: int) -> VirtualEvent:
        """Return the event that is reached when all that the stream holds now has ended."""
        last = self._last.get((device, stream))
        if last is None:
            return VirtualEvent(time=0.0)
        if self._num_queues is None:  # The record would hold up its own stream only, and take no time.
            return last.end
        return self.issue(Operation(device, stream, last.what))

    def wait(self, device: int, stream: int, event: VirtualEvent) -> None:
        """Let a stream wait for an event."""
        if not event.is_reached:
            self.issue(Operation(device, stream, f"the wait for {event.what}", awaits=event))

    def run(self, hosts: Sequence[Host]) -> float:
        """Go on until all that the hosts issue has ended; return when that is.

        Raises:
            StuckError: Something never ends.
        """
        standing: dict[int, VirtualEvent | None] = dict.fromkeys(range(len(hosts)))
        for index, host in enumerate(hosts):
            self._ready.append(partial(self._go_on, index, host, standing))
        while True:
            while self._ready:
                self._ready.popleft()()
            if not self._ends:
                break
            self.now = self._ends[0][0]
            while self._ends and self._ends[0][0] == self.now:
                heapq.heappop(self._ends)[2].reach(self.now)
        lines = self._standing()
        if lines or standing:
            raise StuckError("\n".join(lines))
        return self.now

    def _go_on(self, index: int, host: Host, standing: dict[int, VirtualEvent | None]) -> None:
        """Let a host go on to the next event that it has to wait for."""
        for event in host:
            if not event.is_reached:
                standing[index] = event
                event.then(partial(self._ready.append, partial(self._go_on, index, host, standing)))
                return
        del standing[index]

    def _queue_of(self, operation: Operation) -> tuple[int, int]:
        stream = operation.stream
        return operation.device, stream if self._num_queues is None else stream % self._num_queues

    def _feed(self, queue: tuple[int, int]) -> None:
        """Give the GPU what is first in a queue, as long as that can begin."""
        waiting = self._queues[queue]
        while waiting:
            operation = waiting[0]
            holds = [self._before[operation], operation.awaits]
            hold = next((event for event in holds if event is not None and not event.is_reached), None)
            if hold is not None:
                hold.then(partial(self._ready.append, partial(self._feed, queue)))
                return
            waiting.popleft()
            del self._before[operation]
            self._begin(operation)

    def _begin(self, operation: Operation) -> None:
        operation.began = self.now
        self._begun[operation.device, operation.stream] = operation
        if not operation.chains:
            self._end_at(operation.end, operation.work(self.now))
            return
        left = len(operation.chains)

        def go_on(chain: Sequence[Meeting]) -> None:
            nonlocal left
            if chain:
                ended = VirtualEvent(chain[0].what)
                ended.then(lambda: go_on(chain[1:]))
                chain[0].join(operation.device, self.now, lambda end: self._end_at(ended, end))
                return
            left -= 1
            if not left:
                operation.end.reach(self.now)

        for chain in operation.chains:
            go_on(chain)

    def _end_at(self, event: VirtualEvent, time: float) -> None:
        if time <= self.now:
            event.reach(self.now)
        else:
            heapq.heappush(self._ends, (time, next(self._numbers), event))

    def _standing(self) -> list[str]:
        """Return a line for each operation that does not end, and for each queue that stands."""
        lines = [
            f"GPU {device}: {operation.what} has begun and does not end"
            for (device, _), operation in sorted(self._begun.items())
            if not operation.end.is_reached
        ]
        for (device, _), waiting in sorted(self._queues.items()):
            if waiting:
                held = waiting[0].awaits or self._before[waiting[0]]
                behind = f", {len(waiting) - 1} behind it" if len(waiting) > 1 else ""
                reason = f" for {held.what}" if held else ""
                lines.append(f"GPU {device}: {waiting[0].what} waits{reason}{behind}")
        return lines
