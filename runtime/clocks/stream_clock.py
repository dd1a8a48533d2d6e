"""Clocks asked for where a GPU's work stands, not where the script does, which runs ahead of it.

The script records an event on the compute stream before each block. A thread sleeps until the next event is
reached and passes a block's clock on when its turn has come; the script waits for nothing. Where a block's
length is known from its last run, the clock of the block after it is asked for ahead of time, by as much as a
change of clock takes. The module does not know CUDA: an event is anything that can be waited for.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from runtime.clocks.clock import ClockBackend
from runtime.program.instructions import Run

JOIN_S = 1.0
"""How long the thread may take to end; one that waits for a GPU that hangs is left behind."""


class GpuEvent(Protocol):
    """A point in a stream of work, for example a `torch.cuda.Event`."""

    def query(self) -> bool:
        """Return whether the work up to it is done; does not wait."""

    def synchronize(self) -> None:
        """Wait until it is done, without Python's lock and without using the processor."""

    def elapsed_time(self, end: Any) -> float:
        """Return the milliseconds from when it was reached to when another event was."""


@dataclass
class _Block:
    """A block that was handed to the stream, the clock of the next one, and when its begin was reached."""

    run: Run
    next_mhz: int | None
    begin: GpuEvent
    end: GpuEvent | None = None
    begun_s: float | None = None


class StreamClock(ClockBackend):
    """A backend that passes clocks on as the stream reaches their blocks, of several due only the latest.

    Attributes:
        on_passed: Called with every clock that is passed on, in whichever thread that happens.

    Args:
        clock: Takes them.
        runs: The blocks of an iteration in their order, with their clocks; see `follow`.
        lead_s: How long before a block a clock in MHz is asked for.
        now_s: Returns the time.
    """

    def __init__(
        self,
        clock: ClockBackend,
        runs: Sequence[Run],
        lead_s: Callable[[int], float] = lambda clock_mhz: 0.0,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(clock.description)
        self._clock, self._lead_s, self._now_s = clock, lead_s, now_s
        self._blocks: deque[_Block] = deque()
        self._length_s: dict[tuple[str, int | None], float] = {}
        self._passed_mhz: int | None = None
        self._changed, self._ends = threading.Condition(), False
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None
        self.on_passed: Callable[[int], None] = lambda clock_mhz: None
        self.follow(runs)

    def set(self, clock_mhz: int) -> None:
        """Ask for a clock at once."""
        super().set(clock_mhz)
        self.on_passed(clock_mhz)
        self._clock.set(clock_mhz)

    def reset(self) -> None:
        """Pass nothing on any more, and give the clock back."""
        with self._changed:
            self._ends = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(JOIN_S)
        self._clock.reset()

    def follow(self, runs: Sequence[Run]) -> None:
        """Expect these blocks from the next iteration on; those without a clock are left alone."""
        self._runs = [run for run in runs if run.clock_mhz is not None]
        self._position = 0

    def begin_iteration(self) -> None:
        """Expect the first block again."""
        self._position = 0

    def before(self, event: GpuEvent) -> None:
        """Take the event that was recorded before the next block.

        Raises:
            ClockError: An earlier clock could not be passed on.
        """
        if self._error is not None:
            raise self._error
        run = self._runs[self._position]
        self._position += 1
        next_mhz = self._runs[self._position].clock_mhz if self._position < len(self._runs) else None
        assert run.clock_mhz is not None
        self.requests.append(run.clock_mhz)
        with self._changed:
            self._blocks.append(_Block(run, next_mhz, event))
            self._changed.notify()

    def after(self, event: GpuEvent) -> None:
        """Take the event that was recorded after that block."""
        with self._changed:
            if self._blocks:
                self._blocks[-1].end = event
                self._changed.notify()

    def step(self) -> None:
        """Look at the events once; pass on the latest clock that is due, unless it was passed on last."""
        with self._changed:
            wanted = None if self._ends else self._due()
        if wanted is not None and wanted != self._passed_mhz:
            self._passed_mhz = wanted
            self.on_passed(wanted)
            self._clock.set(wanted)

    def start(self, prepare: Callable[[], None] = lambda: None) -> None:
        """Look at the events from now on whenever one is reached, in a thread that calls `prepare` first."""
        self._thread = threading.Thread(target=self._follow, args=(prepare,), name="clock", daemon=True)
        self._thread.start()

    def _due(self) -> int | None:
        """Return the clock that is due where the stream stands, or None as before; forget ended blocks."""
        wanted = None
        now_s = self._now_s()
        while self._blocks:
            block = self._blocks[0]
            if block.begun_s is None:
                if not block.begin.query():
                    break
                block.begun_s = now_s
            due_s = self._next_due_s(block)
            wanted = block.run.clock_mhz if due_s is None or now_s < due_s else block.next_mhz
            if block.end is None or not block.end.query():
                break
            length_s = block.begin.elapsed_time(block.end) / 1000
            self._length_s[block.run.block, block.run.clock_mhz] = length_s
            # If the next block has not begun, the device waits, which is the time to change.
            wanted = wanted if block.next_mhz is None else block.next_mhz
            self._blocks.popleft()
        return wanted

    def _next_due_s(self, block: _Block) -> float | None:
        """Return when to ask for the clock after a running block, ahead of its end; None if unknown."""
        length_s = self._length_s.get((block.run.block, block.run.clock_mhz))
        if block.next_mhz is None or length_s is None or block.begun_s is None:
            return None
        return block.begun_s + length_s - self._lead_s(block.next_mhz)

    def _follow(self, prepare: Callable[[], None]) -> None:
        try:
            prepare()
            while not self._ends:
                event = self._next_event()
                if event is not None:
                    event.synchronize()
                self.step()
        except Exception as error:  # raised in the script's thread, by its next request
            self._error = error

    def _next_event(self) -> GpuEvent | None:
        """Return the event to wait for next, or None where something is due without one.

        It waits as long as nothing was handed over, and until the clock after a running block is due.
        """
        with self._changed:
            while not self._ends:
                left_s = None
                if self._blocks:
                    block = self._blocks[0]
                    if block.begun_s is None:
                        return block.begin
                    due_s = self._next_due_s(block)
                    left_s = None if due_s is None else due_s - self._now_s()
                    if left_s is None or left_s <= 0:
                        if left_s is not None and block.next_mhz != self._passed_mhz:
                            return None
                        if block.end is not None:
                            return block.end
                        left_s = None
                self._changed.wait(left_s)
        return None
