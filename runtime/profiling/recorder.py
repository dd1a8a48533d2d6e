"""A device's own record of its iterations: when blocks ran, messages moved and clocks were asked for.

The last iterations are kept. On the CPU times are those of the script. On a GPU the script runs ahead of its
compute stream, so blocks are timed by CUDA events on the stream, which nothing waits for before the iteration
has ended; posts of messages and requests of clocks are timed where the script stands. `torch.profiler` times
operators, a hundred times as many, and knows no messages, clocks or activation memory.

Activation memory is counted from the tensors themselves: what autograd saved between forward and backward,
the inputs, outputs and gradients of blocks under way, and the tensors of messages: posted, made and not used
yet, sent and not gone. Memory that several of them share counts once. Parameters, their gradients and the
optimizer's state do not count, nor does what a block needs only while it runs, or keeps outside of autograd.
Constants that autograd saves do, such as masks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from placements import Kind, Placement
from runtime.clocks.gpu_clock import record_event
from runtime.models import Blocks, Model
from runtime.profiling.observer import DeviceObserver
from runtime.profiling.records import BlockRecord, CounterSample, MessageRecord, Record
from runtime.program.calls import Message
from runtime.program.instructions import Run
from runtime.program.tensor_flow import KEEP
from runtime.transport.contact import machine_name
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


class ActivationMemory:
    """Counts the activation memory of a device.

    What autograd saves of a forward block, beside its inputs and its output, is counted when the block keeps
    it for the first time; other micro-batches of it save as much, for all shapes are the same.
    """

    def __init__(self, placement: Placement, blocks: Blocks, model: Model) -> None:
        self._unknown = {block.name for block in placement.blocks if block.kind is Kind.F}
        self._blocks = blocks
        self._model = model
        self._saved_bytes: dict[str, int] = {}

    @contextmanager
    def counting(self, block: str, arrived: Iterable[Tensor], mode: str = KEEP) -> Iterator[None]:
        """Count the bytes that autograd saves of a forward block, beside its inputs, at its first run.

        In a mode other than ``keep`` it saves nothing of its own.
        """
        if block not in self._unknown or mode != KEEP:
            yield
            return
        saved: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            saved.update(_storages([tensor]))
            return tensor.detach()  # itself, an output would keep alive the graph that keeps it alive

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield
        self._unknown.remove(block)
        known = [*arrived, *self._model.parameters.values()]
        known += [tensor for kept in self._blocks.saved() if kept.block == block for tensor in kept.tensors]
        self._saved_bytes[block] = sum(saved[at] for at in saved.keys() - _storages(known).keys())

    def bytes(self, tensors: Iterable[Tensor]) -> int:
        """Return the bytes kept for the blocks, and in these tensors of messages."""
        kept = list(self._blocks.saved())
        distinct = _storages(chain(tensors, *(entry.tensors for entry in kept)))
        saved = sum(self._saved_bytes.get(entry.block, 0) for entry in kept if entry.has_graph)
        weights = _storages(self._model.parameters.values())  # a half of a backward keeps them too
        return saved + sum(size for at, size in distinct.items() if at not in weights)


def _storages(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Return the size in bytes of every storage, by its address."""
    storages = (tensor.untyped_storage() for tensor in tensors)
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


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
        """Forget notes from before the iteration, and begin its times."""
        self._clear(iteration)
        self._begin_s = time.monotonic()
        self._times.begin()

    def reach(self, run: Run) -> None:
        """Note that a block is next, and waits for its inputs."""
        self._marks[run] = _Marks(self._times.mark())

    def start(self, run: Run, arrived: Sequence[Tensor]) -> None:
        """Note that all is there, the memory then, and that the block begins."""
        marks = self._marks[run]
        marks.times.append(self._times.mark())
        self._sample(marks, arrived)
        marks.counting.enter_context(self._memory.counting(run.block, arrived, run.mode))
        marks.times.append(self._times.mark())

    def stop(self, run: Run, made: Iterable[Tensor]) -> None:
        """Note that it has ended, and the memory then; look at the sends."""
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
        """Note its handle."""
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
        blocks, held, allocated = list[BlockRecord](), list[CounterSample](), list[CounterSample]()
        for run, marks in self._marks.items():
            blocks.append(BlockRecord(run.block, run.micro_batch, *map(self._times.ms, marks.times)))
            held += map(CounterSample, blocks[-1][-2:], marks.held)
            allocated += map(CounterSample, blocks[-1][-2:], marks.allocated)
        begun = (self._device, self._iteration, self._machine, self._begin_s)
        receives = tuple(row for row in self._messages.values() if row.target == self._device)
        sends = tuple(row for row in self._messages.values() if row.source == self._device)
        counters = (self._clock_mhz, *(sorted(series, key=lambda at: at.ms) for series in (held, allocated)))
        self._records.append(Record(*begun, end_ms, tuple(blocks), receives, sends, *map(tuple, counters)))

    def _clear(self, iteration: int) -> None:
        self._iteration, self._begin_s = iteration, 0.0
        self._marks: dict[Run, _Marks] = {}
        self._messages: dict[Message, MessageRecord] = {}
        self._moving: dict[Message, Pending] = {}
        self._clock_mhz: list[CounterSample] = []

    def _now_ms(self) -> float:
        return (time.monotonic() - self._begin_s) * 1000

    def _sample(self, marks: _Marks, tensors: Iterable[Tensor]) -> None:
        marks.held.append(self._memory.bytes([*self.message_tensors(), *tensors]))
        if self._on_gpu:
            marks.allocated.append(torch.cuda.memory_allocated())
