"""Streams, events and work queues of several GPUs in virtual time: a model of CUDA.

Its rules, each with its source:

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

What is issued does not depend on time, so all of it is issued first; then events are reached in an order that
what they wait for allows. Not known here: how many multiprocessors a kernel takes, what a launch costs,
priorities, and copies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class Event:
    """A point in virtual time that others come before.

    Attributes:
        what: Words for messages.
        after: Events that it waits for.
        duration: Time from `since` to `time`.
        work: Called with `since`; returns `time`, in place of the duration.
        num_missing: Events that it waits for besides, and that nobody has added; it is never reached without.
        since: When the last of `after` was reached; None before.
        time: When it was reached; None before.
    """

    what: str = ""
    after: list[Event] = field(default_factory=list)
    duration: float = 0.0
    work: Callable[[float], float] | None = None
    num_missing: int = 0
    since: float | None = None
    time: float | None = None

    def add(self, *events: Event) -> None:
        """Wait for one that was missing, which may be several."""
        self.after += events
        self.num_missing -= 1


def reach(events: Iterable[Event]) -> float:
    """Reach all events that can be reached, each after those it waits for; return when the last one is."""
    left: dict[Event, int] = {}
    waiting: dict[Event, list[Event]] = defaultdict(list)
    for event in events:
        left[event] = len(event.after) + event.num_missing
        for other in event.after:
            waiting[other].append(event)
    ready = [event for event, count in left.items() if not count]
    last = 0.0
    while ready:
        event = ready.pop()
        event.since = since = max([other.time or 0.0 for other in event.after], default=0.0)
        event.time = since + event.duration if event.work is None else event.work(since)
        last = max(last, event.time)
        for other in waiting[event]:
            left[other] -= 1
            if not left[other]:
                ready.append(other)
    return last


@dataclass(eq=False, slots=True)
class Operation:
    """Work of a stream, from `begin` to `end`; the host may wait before it issues it."""

    begin: Event
    end: Event
    host: Event | None


class VirtualMachine:
    """Several GPUs, whose hosts give them work.

    Args:
        num_queues: Work queues of each GPU; None for one for each stream.
    """

    def __init__(self, num_queues: int | None = 8) -> None:
        """Begin with nothing issued."""
        self._num_queues = num_queues
        self._last: dict[tuple[int, int], Operation] = {}
        self._queues: dict[tuple[int, int], list[Operation]] = defaultdict(list)
        self._hosts: dict[int, Event] = {}

    def issue(self, device: int, stream: int, end: Event, awaits: Event | None = None) -> Operation:
        """Give an operation to a stream.

        Args:
            device: The GPU.
            stream: Stream of the GPU.
            end: End of the operation, with its work.
            awaits: Event that it waits for before it begins.
        """
        number = stream if self._num_queues is None else stream % self._num_queues
        queue, before = self._queues[device, number], self._last.get((device, stream))
        host = self._hosts.get(device)
        holds = awaits, before.end if before else None, queue[-1].begin if queue else None, host
        operation = Operation(Event(end.what, [each for each in holds if each is not None]), end, host)
        end.after.append(operation.begin)
        self._last[device, stream] = operation
        queue.append(operation)
        return operation

    def record(self, device: int, stream: int) -> Event:
        """Return the event that is reached when all that the stream holds now has ended."""
        last = self._last.get((device, stream))
        if last is None:
            return Event(time=0.0)
        if self._num_queues is None:  # The record would hold up its own stream only, and take no time.
            return last.end
        return self.issue(device, stream, Event(last.end.what)).end

    def wait(self, device: int, stream: int, event: Event) -> None:
        """Let a stream wait for an event."""
        if event.time is None:
            self.issue(device, stream, Event(f"the wait for {event.what}"), event)

    def hold_host(self, device: int, event: Event) -> None:
        """Let a host wait for an event before it issues more; of one stream, so the last one counts."""
        self._hosts[device] = event

    def run(self) -> float:
        """Let all operations begin and end that can; return the last end."""
        operations = [each for queue in self._queues.values() for each in queue]
        return reach(
            dict.fromkeys(event for each in operations for event in (each.begin, each.end, *each.end.after))
        )

    def standing(self) -> list[str]:
        """Return a line for each operation that does not end, and for each queue that stands."""
        begun, held = [], []
        for (device, _), operations in sorted(self._queues.items()):
            begun += [
                f"GPU {device}: {each.end.what} has begun and does not end"
                for each in operations
                if each.begin.time is not None and each.end.time is None
            ]
            issued = [each for each in operations if each.host is None or each.host.time is not None]
            if waiting := [each for each in issued if each.begin.time is None]:
                first = waiting[0].begin
                what = next(event.what for event in first.after if event.time is None)
                behind = f", {len(waiting) - 1} behind it" if len(waiting) > 1 else ""
                held.append(f"GPU {device}: {first.what} waits for {what}{behind}")
        return [*begun, *held]
