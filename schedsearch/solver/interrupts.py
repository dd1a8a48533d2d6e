"""Ctrl-C during a solver's call: the call is stopped, and the best answer so far is kept."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")


@dataclass
class Ending:
    """How something ended.

    Attributes:
        interrupted: By a Ctrl-C.
    """

    interrupted: bool = False


class Interrupts:
    """Remembers Ctrl-C instead of raising KeyboardInterrupt wherever Python happens to be.

    In the middle of making a query's many thousand terms the exception would be lost in a destructor, or
    become a ctypes error. So whoever is about to wait for a solver looks here, and so does `search` between
    queries. A second Ctrl-C is passed on at once.
    """

    def __init__(self) -> None:
        self._seen = False
        self._handler: Any = None
        self._watchers = 0

    def _watch(self) -> None:
        """Begin, if nobody else has; does nothing outside the main thread, which alone gets signals."""
        self._watchers += 1
        if self._watchers > 1:
            return
        self._seen = False
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.getsignal(signal.SIGINT)
            if callable(self._handler):
                signal.signal(signal.SIGINT, self._note)

    def _unwatch(self) -> None:
        """End; the last to do so gives the signal back to whoever had it, and what was seen is past."""
        self._watchers -= 1
        if self._watchers > 0:
            return
        if callable(self._handler):
            signal.signal(signal.SIGINT, self._handler)
        self._handler = None
        self._seen = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Put off a Ctrl-C that comes inside to when somebody looks, at the latest to the end.

        Raises:
            KeyboardInterrupt: There was one.
        """
        self._watch()
        try:
            yield
            self.raise_if_seen()
        finally:
            self._unwatch()

    @contextmanager
    def answered(self) -> Iterator[Ending]:
        """End what is inside at a Ctrl-C, and go on after it; what is yielded tells whether there was one."""
        ending = Ending()
        try:
            with self.watched():
                yield ending
        except KeyboardInterrupt:
            ending.interrupted = True

    @property
    def seen(self) -> bool:
        """Whether there was one while this is watched."""
        return self._seen

    def raise_if_seen(self) -> None:
        """Raise KeyboardInterrupt if there was one while this is watched."""
        if self._seen:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._seen:
            self._handler(number, frame)
        self._seen = True


INTERRUPTS = Interrupts()
"""Of this process; signals are the process's too."""


_LOOK_S = 0.02
"""Seconds between two looks for Ctrl-C."""


def interruptible(
    solve: Callable[[], Result], stop: Callable[[], None], unwanted: threading.Event | None = None
) -> Result:
    """Return what a solver's call returns, unless Ctrl-C comes first.

    The call runs in a thread, so that this one can look for Ctrl-C. Solvers that take the signal themselves
    lose it when they answer at that moment, so they must be told not to.

    Args:
        solve: What takes long.
        stop: What makes it return soon; may be called several times.
        unwanted: Set by another thread that wants no result any more; what the call, stopped, returns is
            returned then.

    Raises:
        KeyboardInterrupt: There was a Ctrl-C.
    """
    with ThreadPoolExecutor(1) as executor:
        solving = executor.submit(solve)
        try:
            while not wait([solving], timeout=_LOOK_S).done:
                INTERRUPTS.raise_if_seen()
                if unwanted is not None and unwanted.is_set():
                    stop()
            INTERRUPTS.raise_if_seen()
        except BaseException:
            while not wait([solving], timeout=_LOOK_S).done:
                stop()
            raise
        return solving.result()
