"""Ctrl-C during a solver's call stops the call and keeps the best answer so far; and use of several cores."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")

_LOOK_S = 0.02
"""Seconds between two looks for Ctrl-C."""


@dataclass
class Ending:
    """How something ended: by a Ctrl-C, a limit of time, or a limit of counted work."""

    interrupted: bool = False
    out_of_time: bool = False
    out_of_work: bool = False


class Interrupts:
    """Remembers Ctrl-C instead of raising KeyboardInterrupt wherever Python happens to be.

    In the middle of making a query's many thousand terms the exception would be lost in a destructor, or
    become a ctypes error. So whoever is about to wait for a solver looks here, and so does `search` between
    queries. It is seen while the main thread watches, which alone gets signals, by all threads. A second one
    is passed on at once.

    Attributes:
        seen: Whether a Ctrl-C came while the main thread was watching.
    """

    seen = False
    _is_watched = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Put off a Ctrl-C that comes inside until it is looked for, at the latest until the end.

        Raises:
            KeyboardInterrupt: There was one.
        """
        is_main = threading.current_thread() is threading.main_thread()
        handler: Any = signal.getsignal(signal.SIGINT)
        if self._is_watched or not is_main or not callable(handler):
            yield
            self.raise_if_seen()
            return

        def note(number: int, frame: FrameType | None) -> None:
            if self.seen:
                handler(number, frame)
            self.seen = True

        self._is_watched = True
        signal.signal(signal.SIGINT, note)
        try:
            yield
            self.raise_if_seen()
        finally:
            signal.signal(signal.SIGINT, handler)
            self._is_watched = self.seen = False

    @contextmanager
    def answered(self) -> Iterator[Ending]:
        """Leave the block at a Ctrl-C, and continue after it; the yielded `Ending` tells whether one came."""
        ending = Ending()
        try:
            with self.watched():
                yield ending
        except KeyboardInterrupt:
            ending.interrupted = True

    def raise_if_seen(self) -> None:
        """Raise KeyboardInterrupt if a Ctrl-C came while the main thread watches."""
        if self.seen:
            raise KeyboardInterrupt


INTERRUPTS = Interrupts()
"""State of this process; signals belong to the process too."""


def interruptible(
    solve: Callable[[], Result],
    stop: Callable[[], None],
    unwanted: threading.Event | None = None,
    cpu_limit_s: float = math.inf,
) -> Result:
    """Return the result of a solver's call, unless Ctrl-C comes first.

    The call runs in a thread, so that this one can look for Ctrl-C. Solvers that take the signal themselves
    lose it when they answer at that moment, so they must be told not to.

    Args:
        solve: The call, which may take long.
        stop: Makes the call return soon; may be called several times.
        unwanted: Set by another thread that no longer wants the result; the stopped call's result is
            returned then.
        cpu_limit_s: Seconds of a core after which the call is stopped; the machine's load does not matter.

    Raises:
        KeyboardInterrupt: There was a Ctrl-C.
    """
    clocks: list[int] = []

    def timed() -> Result:
        clocks.append(time.pthread_getcpuclockid(threading.get_ident()))
        return solve()

    with ThreadPoolExecutor(1) as executor:
        solving = executor.submit(timed)
        try:
            while not wait([solving], timeout=_LOOK_S).done:
                is_unwanted = INTERRUPTS.seen or (unwanted is not None and unwanted.is_set())
                if is_unwanted or any(time.clock_gettime(clock) > cpu_limit_s for clock in clocks):
                    stop()
        finally:  # a second Ctrl-C comes at once
            while not wait([solving], timeout=_LOOK_S).done:
                stop()
        INTERRUPTS.raise_if_seen()
        return solving.result()


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def together(calls: Sequence[Callable[[], Result]]) -> list[Result]:
    """Make calls side by side, and return their results in order; on one core they run one after the other.

    They gain only where most of their time is spent outside Python, in compiled code.
    """
    with ThreadPoolExecutor(min(usable_cores(), len(calls))) as executor:
        return list(executor.map(lambda call: call(), calls))
