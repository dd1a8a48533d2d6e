"""A device's own record of its iterations: when blocks ran, messages moved and clocks were asked for.

The last iterations are kept. On the CPU times are those of the script. On a GPU the script runs ahead of its
compute stream, so blocks are timed by CUDA events on the stream, which nothing waits for before the iteration
has ended; posts of messages and requests of clocks are timed where the script stands. `torch.profiler` times
operators, a hundred times as many, and knows no messages, clocks or activation memory.
"""

from __future__ import annotations

import platform
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from placements import Placement
from runtime.clocks.torch_gpu import record_event
from runtime.models import Blocks, Model
from runtime.profiling.activation_memory import ActivationMemory
from runtime.profiling.observer import DeviceObserver
from runtime.profiling.records import BlockRecord, CounterSample, MessageRecord, Record
from runtime.program.calls import BlockCall, Message
from runtime.transport.protocol import Pending

KEPT_ITERATIONS = 8
"""Iterations that are kept, the last ones, so that a long run's record stays small."""


class Times:
    """Marks of where a device's computing stands, here where its script does; times at the end."""

    def begin(self) -> None:
        """Let marks count from now."""
        self._begin = self.mark()

    def mark(self) -> Any:
        """Mark where the device's computing stands."""
        return time.monotonic()

    def ms(self, mark: Any) -> float:
        """Return the milliseconds from the begin to a mark."""
        return float(mark - self._begin) * 1000


class StreamTimes(Times):
    """Times of a GPU's compute stream.

    A mark is an event on it. The begin's event is recorded on an empty stream, so it is reached at the time
    of the script at which it is recorded, and one pair of the two is enough. Marks may be read once the
    stream has been waited for, which the device does at the end of each iteration anyway.
    """

    def mark(self) -> torch.cuda.Event:
        """Record an event."""
        return record_event()

    def ms(self, mark: torch.cuda.Event) -> float:
        """Return the milliseconds from the begin to a mark."""
        elapsed_ms: float = self._begin.elapsed_time(mark)
        return elapsed_ms


class _Marks:
    """Marks of a block: reached, ready, begun, ended; and bytes held and allocated at the last two."""

    def __init__(self, reached: Any) -> None:
        self.times: list[Any] = [reached]
        self.held: list[int] = []
        self.allocated: list[int] = []
        self.counting = ExitStack()


class Recorder(DeviceObserver):
    """Keeps the record of one device's last iterations; streams of a device may tell it at the same time.

    Attributes:
        message_tensors: Returns the tensors of the device's messages.
    """

    is_told_beside = True

    def __init__(self, device: int, placement: Placement, blocks: Blocks, model: Model, times: Times) -> None:
        self.message_tensors: Callable[[], Iterable[Tensor]] = tuple
        self._device = device
        self._memory = ActivationMemory(placement, blocks, model)
        self._on_gpu = model.device.type == "cuda"
        self._times = times
        self._records: deque[Record] = deque(maxlen=KEPT_ITERATIONS)
        self._machine = machine_name()
        self._clear(0)

    @property
    def records(self) -> tuple[Record, ...]:
        """Return the iterations that are kept, in order."""
        return tuple(self._records)

    def request(self, clock_mhz: int) -> None:
        """Note that a clock was asked for; perhaps by another thread."""
        self._clock_mhz.append(CounterSample(self._now_ms(), clock_mhz))

    def begin(self, iteration: int) -> None:
        """Forget what was noted before the iteration, and begin its times."""
        self._clear(iteration)
        self._begin_s = time.monotonic()
        self._times.begin()

    def reach(self, run: BlockCall) -> None:
        """Note that a block is next, and waits for what it takes."""
        self._marks[run] = _Marks(self._times.mark())

    def start(self, run: BlockCall, arrived: Sequence[Tensor]) -> None:
        """Note that all is there, what is in memory then, and that the block begins."""
        marks = self._marks[run]
        marks.times.append(self._times.mark())
        self._sample(marks, arrived)
        marks.counting.enter_context(self._memory.counting(run.block, arrived, run.mode))
        marks.times.append(self._times.mark())

    def stop(self, run: BlockCall, made: Iterable[Tensor]) -> None:
        """Note that it has ended, and what is in memory then; look at the sends."""
        marks = self._marks[run]
        marks.times.append(self._times.mark())
        marks.counting.close()
        self._sample(marks, made)
        for message, work in list(self._moving.items()):
            if message.source == self._device and work.is_completed():
                self.waited(message)

    def post(self, message: Message) -> None:
        """Note that a receive or send is about to be posted."""
        row = MessageRecord(*message.transfer, message.source, message.target, self._now_ms())
        self._messages[message] = row

    def posted(self, message: Message, work: Pending) -> None:
        """Note what tells when it has ended."""
        self._moving[message] = work

    def wait(self, message: Message) -> None:
        """Note that the device begins to wait for a message that is not known to have ended."""
        if message in self._moving:
            self._messages[message] = self._messages[message]._replace(waited_ms=self._now_ms())

    def waited(self, message: Message) -> None:
        """Note that it has ended."""
        if self._moving.pop(message, None) is not None:
            self._messages[message] = self._messages[message]._replace(ended_ms=self._now_ms())

    def end(self) -> None:
        """Turn the marks into times, and keep the iteration."""
        end_ms = self._now_ms()
        blocks, held, allocated = [], list[CounterSample](), list[CounterSample]()
        for run, marks in self._marks.items():
            blocks.append(BlockRecord(*run[:2], *map(self._times.ms, marks.times)))
            held += map(CounterSample, blocks[-1][-2:], marks.held)
            allocated += map(CounterSample, blocks[-1][-2:], marks.allocated)
        messages = self._messages.values()
        self._records.append(
            Record(
                self._device,
                self._iteration,
                self._machine,
                self._begin_s,
                end_ms,
                tuple(blocks),
                tuple(row for row in messages if row.target == self._device),
                tuple(row for row in messages if row.source == self._device),
                tuple(self._clock_mhz),
                tuple(sorted(held, key=lambda sample: sample.ms)),
                tuple(sorted(allocated, key=lambda sample: sample.ms)),
            )
        )

    def _clear(self, iteration: int) -> None:
        self._iteration, self._begin_s = iteration, 0.0
        self._marks: dict[BlockCall, _Marks] = {}
        self._messages: dict[Message, MessageRecord] = {}
        self._moving: dict[Message, Pending] = {}
        self._clock_mhz: list[CounterSample] = []

    def _now_ms(self) -> float:
        return (time.monotonic() - self._begin_s) * 1000

    def _sample(self, marks: _Marks, tensors: Iterable[Tensor]) -> None:
        marks.held.append(self._memory.bytes([*self.message_tensors(), *tensors]))
        if self._on_gpu:
            marks.allocated.append(torch.cuda.memory_allocated())


def machine_name() -> str:
    """Return a name that processes have in common exactly if they share a monotonic clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()
