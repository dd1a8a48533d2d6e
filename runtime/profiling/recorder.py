"""A device's own record of its iterations: when blocks ran, messages moved and clocks were asked for.

A `Recorder` takes note of nothing and is what a device has unless its run is recorded. A `DeviceRecorder`
keeps the last iterations. On the CPU times are those of the script. On a GPU the script runs ahead of its
compute stream, so blocks are timed by CUDA events on the stream, which nothing waits for before the iteration
has ended; posts of messages and requests of clocks are timed where the script stands.
"""

from __future__ import annotations

import platform
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from placements import Placement
from runtime.clocks.torch_gpu import record_event
from runtime.models import Blocks, Model
from runtime.profiling.activation_memory import ActivationMemory
from runtime.profiling.records import BlockRecord, MessageRecord, Record, Sample
from runtime.program.calls import Transfer
from runtime.transport.protocol import Pending

KEPT_ITERATIONS = 8
"""The last so many iterations are kept, so that a long run's record stays small."""


class Recorder:
    """Takes note of nothing; also the list of what a device reports."""

    @property
    def records(self) -> tuple[Record, ...]:
        """Return the iterations that are kept, in order."""
        return ()

    def watch(self, tensors: Callable[[], Iterable[Tensor]]) -> None:
        """Take the function that returns the tensors of the device's messages."""

    def request(self, clock_mhz: int) -> None:
        """Note that a clock was asked for."""

    def begin(self, iteration: int) -> None:
        """Note the begin of an iteration, right after the barrier; the compute stream is empty."""

    def reach(self, block: str, micro_batch: int) -> None:
        """Note that a block is next, and waits for what it takes."""

    def start(self, arrived: Sequence[Tensor]) -> None:
        """Note that it begins, with these tensors."""

    def stop(self, made: Iterable[Tensor]) -> None:
        """Note that it has ended, and made these tensors."""

    def receive(self, transfer: Transfer, source: int, target: int) -> None:
        """Note that a receive is about to be posted."""

    def send(self, transfer: Transfer, source: int, target: int) -> None:
        """Note that a send is about to be posted."""

    def posted(self, work: Pending) -> None:
        """Note that this is what was posted last."""

    def wait(self, work: Pending) -> None:
        """Note that the device begins to wait for a receive or send to end."""

    def waited(self, work: Pending) -> None:
        """Note that it has ended."""

    def end(self) -> None:
        """Note the end of the iteration; all that was computed and sent is done."""


class Times(Protocol):
    """When a device computes: marks are cheap to set, and are turned into times when all is done."""

    def begin(self) -> None:
        """Let marks count from now."""

    def mark(self) -> Any:
        """Mark where the device's computing stands."""

    def ms(self, mark: Any) -> float:
        """Return the milliseconds from the begin to a mark."""


class HostTimes:
    """Times of a device that computes where its script runs."""

    def begin(self) -> None:
        """Let marks count from now."""
        self._begin_s = time.monotonic()

    def mark(self) -> float:
        """Return the present time."""
        return time.monotonic()

    def ms(self, mark: float) -> float:
        """Return the milliseconds from the begin to a mark."""
        return (mark - self._begin_s) * 1000


class StreamTimes:
    """Times of a GPU's compute stream.

    A mark is an event on it. The begin's event is recorded on an empty stream, so it is reached at the time
    of the script at which it is recorded, and one pair of the two is enough. Marks may be read once the
    stream has been waited for, which the device does at the end of each iteration anyway.
    """

    def begin(self) -> None:
        """Let marks count from now."""
        self._begin = self.mark()

    def mark(self) -> torch.cuda.Event:
        """Record an event."""
        return record_event()

    def ms(self, mark: torch.cuda.Event) -> float:
        """Return the milliseconds from the begin to a mark."""
        elapsed_ms: float = self._begin.elapsed_time(mark)
        return elapsed_ms


class DeviceRecorder(Recorder):
    """Keeps the record of one device's last iterations.

    Args:
        device: Which one.
        placement: What runs where.
        blocks: Of the device.
        model: Of the device.
        times: When it computes.
    """

    def __init__(self, device: int, placement: Placement, blocks: Blocks, model: Model, times: Times) -> None:
        """Begin without an iteration."""
        self._device = device
        self._held = ActivationMemory(placement, blocks, model)
        self._on_gpu = model.device.type == "cuda"
        self._times = times
        self._tensors: Callable[[], Iterable[Tensor]] = tuple
        self._records: deque[Record] = deque(maxlen=KEPT_ITERATIONS)
        self._counting = ExitStack()
        self._machine = machine_name()
        self._clear(0)

    @property
    def records(self) -> tuple[Record, ...]:
        """Return the iterations that are kept, in order."""
        return tuple(self._records)

    def watch(self, tensors: Callable[[], Iterable[Tensor]]) -> None:
        """Take the function that returns the tensors of the device's messages."""
        self._tensors = tensors

    def request(self, clock_mhz: int) -> None:
        """Note that a clock was asked for; perhaps by another thread."""
        self._clock_mhz.append(Sample(self._now_ms(), clock_mhz))

    def begin(self, iteration: int) -> None:
        """Forget what was noted before the iteration, and begin its times."""
        self._clear(iteration)
        self._begin_s = time.monotonic()
        self._times.begin()

    def reach(self, block: str, micro_batch: int) -> None:
        """Note that a block is next, and waits for what it takes."""
        self._blocks.append((block, micro_batch))
        self._marks.append(self._times.mark())

    def start(self, arrived: Sequence[Tensor]) -> None:
        """Note that all is there, what is held then, and that the block begins."""
        self._marks.append(self._times.mark())
        self._sample(arrived)
        self._counting.enter_context(self._held.counting(self._blocks[-1][0], arrived))
        self._marks.append(self._times.mark())

    def stop(self, made: Iterable[Tensor]) -> None:
        """Note that it has ended, and what is held then; look at the sends."""
        self._marks.append(self._times.mark())
        self._counting.close()
        self._sample(made)
        for moving in list(self._moving.values()):
            if moving.rows is self._sends and moving.work.is_completed():
                self.waited(moving.work)

    def receive(self, transfer: Transfer, source: int, target: int) -> None:
        """Note that a receive is about to be posted."""
        self._rows = self._receives
        self._rows.append(MessageRecord(*transfer, source, target, self._now_ms()))

    def send(self, transfer: Transfer, source: int, target: int) -> None:
        """Note that a send is about to be posted."""
        self._rows = self._sends
        self._rows.append(MessageRecord(*transfer, source, target, self._now_ms()))

    def posted(self, work: Pending) -> None:
        """Note that this is what was posted last."""
        self._moving[id(work)] = _Moving(work, self._rows, len(self._rows) - 1)

    def wait(self, work: Pending) -> None:
        """Note that the device begins to wait for a receive or send to end."""
        if moving := self._moving.get(id(work)):
            moving.put(moving.row._replace(waited_ms=self._now_ms()))

    def waited(self, work: Pending) -> None:
        """Note that it has ended."""
        if moving := self._moving.pop(id(work), None):
            moving.put(moving.row._replace(ended_ms=self._now_ms()))

    def end(self) -> None:
        """Turn the marks into times, and keep the iteration."""
        end_ms = self._now_ms()
        ms = [self._times.ms(mark) for mark in self._marks]
        blocks = [BlockRecord(*instance, *ms[4 * i : 4 * i + 4]) for i, instance in enumerate(self._blocks)]
        at_ms = [each for block in blocks for each in (block.begin_ms, block.end_ms)]
        self._records.append(
            Record(
                self._device,
                self._iteration,
                self._machine,
                self._begin_s,
                end_ms,
                tuple(blocks),
                tuple(self._receives),
                tuple(self._sends),
                tuple(self._clock_mhz),
                tuple(map(Sample, at_ms, self._held_bytes)),
                tuple(map(Sample, at_ms, self._allocated_bytes)),
            )
        )

    def _clear(self, iteration: int) -> None:
        self._iteration = iteration
        self._begin_s = 0.0
        self._blocks: list[tuple[str, int]] = []
        self._marks: list[Any] = []
        self._receives: list[MessageRecord] = []
        self._sends: list[MessageRecord] = []
        self._rows = self._sends
        self._moving: dict[int, _Moving] = {}
        self._clock_mhz: list[Sample] = []
        self._held_bytes: list[int] = []
        self._allocated_bytes: list[int] = []

    def _now_ms(self) -> float:
        return (time.monotonic() - self._begin_s) * 1000

    def _sample(self, tensors: Iterable[Tensor]) -> None:
        self._held_bytes.append(self._held.bytes([*self._tensors(), *tensors]))
        if self._on_gpu:
            self._allocated_bytes.append(torch.cuda.memory_allocated())


class _Moving(NamedTuple):
    """A message under way, kept so that no other has its id, and where its row is."""

    work: Pending
    rows: list[MessageRecord]
    position: int

    @property
    def row(self) -> MessageRecord:
        return self.rows[self.position]

    def put(self, row: MessageRecord) -> None:
        self.rows[self.position] = row


def machine_name() -> str:
    """Return what processes have in common exactly if they share a monotonic clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()
