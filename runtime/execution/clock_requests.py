"""The clock of each block, asked for before it begins: the script's, or that of the plan that is followed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from torch import Tensor

from runtime.clocks.clock import ClockBackend, RecordingClock
from runtime.clocks.stream_clock import StreamClock
from runtime.clocks.torch_gpu import record_event
from runtime.profiling.observer import DeviceObserver
from runtime.program.calls import BlockCall


class ClockRequests(DeviceObserver):
    """Asks for clocks where the script stands.

    Attributes:
        clock: Takes the requests.
        requested: Called with each clock in MHz as it is asked for, in whichever thread that happens.
    """

    def __init__(self, clock: ClockBackend) -> None:
        """Begin with the clocks of the script."""
        self.clock = clock
        self.requested: Callable[[int], None] = lambda clock_mhz: None
        self._plan: Mapping[str, Sequence[int]] | None = None

    def follow(self, clock_mhz: Mapping[str, Sequence[int]]) -> None:
        """Take these clocks from now on, one for each block and micro-batch; the script has none."""
        self._plan = clock_mhz

    def start(self, run: BlockCall, arrived: Sequence[Tensor]) -> None:
        """Ask for the clock of a block."""
        if (clock_mhz := self._clock_of(run)) is not None:
            self.requested(clock_mhz)
            self.clock.set(clock_mhz)

    def _clock_of(self, run: BlockCall) -> int | None:
        return run.clock_mhz if self._plan is None else self._plan[run.block][run.micro_batch]


class StreamClockRequests(ClockRequests):
    """Asks for clocks where a GPU's compute stream stands, by an event before and one after each block.

    Args:
        clock: Takes the events.
        runs: The blocks of an iteration in their order, with the script's clocks.
    """

    clock: StreamClock

    def __init__(self, clock: StreamClock, runs: Sequence[BlockCall]) -> None:
        """Begin with the clocks of the script."""
        super().__init__(clock)
        self._runs = runs
        clock.tell(lambda clock_mhz: self.requested(clock_mhz))

    def follow(self, clock_mhz: Mapping[str, Sequence[int]]) -> None:
        """Take these clocks from now on."""
        super().follow(clock_mhz)
        self.clock.follow([run._replace(clock_mhz=self._clock_of(run)) for run in self._runs])

    def begin(self, iteration: int) -> None:
        """Expect the first block again."""
        self.clock.begin_iteration()

    def start(self, run: BlockCall, arrived: Sequence[Tensor]) -> None:
        """Record the event before a block that has a clock."""
        if self._clock_of(run) is not None:
            self.clock.before(record_event(sleeps=True))

    def stop(self, run: BlockCall, made: Iterable[Tensor]) -> None:
        """Record the event after it."""
        if self._clock_of(run) is not None:
            self.clock.after(record_event(sleeps=True))


class LateClockRequests(ClockRequests):
    """Asks for none before `open`: until then something else has the clock.

    Args:
        make: Returns what then asks.
    """

    def __init__(self, make: Callable[[], ClockRequests]) -> None:
        """Ask for nothing yet."""
        super().__init__(RecordingClock("the profiler goes through the clocks"))
        self._make, self._inner = make, ClockRequests(self.clock)

    def open(self) -> None:
        """Take the clock."""
        self._inner = self._make()
        self._inner.requested = lambda clock_mhz: self.requested(clock_mhz)
        self.clock = self._inner.clock

    def follow(self, clock_mhz: Mapping[str, Sequence[int]]) -> None:
        """Take these clocks from now on."""
        self._inner.follow(clock_mhz)

    def begin(self, iteration: int) -> None:
        """Tell who asks."""
        self._inner.begin(iteration)

    def start(self, run: BlockCall, arrived: Sequence[Tensor]) -> None:
        """Tell who asks."""
        self._inner.start(run, arrived)

    def stop(self, run: BlockCall, made: Iterable[Tensor]) -> None:
        """Tell who asks."""
        self._inner.stop(run, made)


def clock_requests(clock: ClockBackend, runs: Sequence[BlockCall]) -> ClockRequests:
    """Return what asks a clock for those of an iteration's blocks, which are given in their order."""
    return StreamClockRequests(clock, runs) if isinstance(clock, StreamClock) else ClockRequests(clock)
