"""A GPU's stream as tests see it, and a thread that stands for it on the CPU."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import torch

from runtime.clocks.stream_clock import GpuEvent


class Stream(Protocol):
    """Does one thing after another, while the script runs ahead."""

    def sleep(self, seconds: float) -> None:
        """Give it something to do."""

    def event(self) -> GpuEvent:
        """Mark its present end."""

    def synchronize(self) -> None:
        """Wait until it has nothing to do."""


class CudaStream:
    """The compute stream."""

    def __init__(self) -> None:
        self._cycles_per_s = self._measured()

    def sleep(self, seconds: float) -> None:
        torch.cuda._sleep(int(seconds * self._cycles_per_s))

    def event(self) -> GpuEvent:
        event = torch.cuda.Event(enable_timing=True, blocking=True)
        event.record()
        return event

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def _measured(self) -> float:
        for cycles in (1_000_000, 100_000_000):
            begin = self.event()
            torch.cuda._sleep(cycles)
            end = self.event()
            torch.cuda.synchronize()
        return cycles / begin.elapsed_time(end) * 1000


class _HostEvent:
    def __init__(self, reached: Future[float]) -> None:
        self._reached = reached

    def query(self) -> bool:
        return self._reached.done()

    def synchronize(self) -> None:
        self._reached.result()

    def elapsed_time(self, end: _HostEvent) -> float:
        return (end._reached.result() - self._reached.result()) * 1000


class HostStream:
    """A thread."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)

    def sleep(self, seconds: float) -> None:
        self._thread.submit(time.sleep, seconds)

    def event(self) -> GpuEvent:
        return _HostEvent(self._thread.submit(time.monotonic))

    def synchronize(self) -> None:
        self._thread.submit(int).result()


def stream_of(device: str) -> Stream:
    """Return the stream of a device."""
    return CudaStream() if device == "cuda" else HostStream()
