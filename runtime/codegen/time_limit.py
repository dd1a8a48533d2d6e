"""A bound on how long code of others may take that is carried out while a script is read."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_AGAIN_S = 1.0
"""Code that catches the first interruption gets another one after this."""


class TooLongError(BaseException):
    """Code did not end in time; no `Exception`, so that code which catches those ends too."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupt what runs inside, by SIGALRM; only Python's main thread can be.

    Args:
        seconds: Limit, above 0; infinity for none.

    Raises:
        TooLongError: It took longer.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or seconds == float("inf") or not hasattr(signal, "setitimer"):
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise TooLongError

    began_s = time.monotonic()
    handler = signal.signal(signal.SIGALRM, interrupt)
    left_s, interval_s = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left_s:  # a timer of the caller's
            rest_s = max(left_s - (time.monotonic() - began_s), 1e-6)
            signal.setitimer(signal.ITIMER_REAL, rest_s, interval_s)
