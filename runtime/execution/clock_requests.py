"""The clock of each block, asked for before it begins: the script's, or the followed plan's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from runtime.clocks.clock import ClockBackend
from runtime.clocks.gpu_clock import record_event
from runtime.clocks.stream_clock import StreamClock
from runtime.profiling.observer import DeviceObserver
from runtime.program.instructions import Run


class ClockRequests(DeviceObserver):
    """Asks for clocks where the script stands, or by events where a GPU's compute stream does.

    Attributes:
        clock: Takes the requests; one that only records them until something else gives the clock up, see
            `take`.
        requested: Called with each clock in MHz as it is asked for, in whichever thread that happens.

    Args:
        clock: Takes the requests; of a `StreamClock` events before and after each block do.
        runs: The blocks of an iteration in their order, with the script's clocks.
    """

    def __init__(self, clock: ClockBackend, runs: Sequence[Run]) -> None:
        self.requested: Callable[[int], None] = lambda clock_mhz: None
        self._plan: Mapping[str, Sequence[int]] | None = None
        self._runs = runs
        self.take(clock)

    def take(self, clock: ClockBackend) -> None:
        """Ask this clock from now on."""
        self.clock = clock
        self._stream = clock if isinstance(clock, StreamClock) else None
        if self._stream is not None:
            self._stream.on_passed = lambda clock_mhz: self.requested(clock_mhz)

    def follow(self, clock_mhz: Mapping[str, Sequence[int]]) -> None:
        """Take these clocks from now on, one for each block and micro-batch; the script has none."""
        self._plan = clock_mhz
        if self._stream is not None:
            self._stream.follow([replace(run, clock_mhz=self._clock_of(run)) for run in self._runs])

    def begin(self, iteration: int) -> None:
        """Expect the first block again."""
        if self._stream is not None:
            self._stream.begin_iteration()

    def start(self, run: Run, arrived: Sequence[Tensor]) -> None:
        """Ask for the clock of a block, or record the event before it."""
        if (clock_mhz := self._clock_of(run)) is None:
            return
        if self._stream is not None:
            self._stream.before(record_event(sleeps=True))
        else:
            self.requested(clock_mhz)
            self.clock.set(clock_mhz)

    def stop(self, run: Run, made: Iterable[Tensor]) -> None:
        """Record the event after a block that has a clock."""
        if self._stream is not None and self._clock_of(run) is not None:
            self._stream.after(record_event(sleeps=True))

    def _clock_of(self, run: Run) -> int | None:
        return run.clock_mhz if self._plan is None else self._plan[run.block][run.micro_batch]
