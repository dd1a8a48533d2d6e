"""Independent searches in several processes, each answer given as soon as it is there."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

import joblib

Answer = TypeVar("Answer")


def in_any_order(
    calls: Sequence[Callable[[], Answer]], num_processes: int | None
) -> Generator[Answer, None, None]:
    """Yield what the calls return, as they end; closing the iterator ends the processes.

    Args:
        calls: Started in this order; what they hold is sent to other processes.
        num_processes: At least 1; with 1 the calls run in this process. None for one per processor.
    """
    number = min(num_processes or joblib.cpu_count(), len(calls)) or 1
    if number == 1:
        yield from (call() for call in calls)
        return
    pool = joblib.Parallel(
        n_jobs=number, backend="loky", return_as="generator_unordered", batch_size=1, pre_dispatch=number
    )
    yield from pool(joblib.delayed(_undisturbed)(call) for call in calls)


def _undisturbed(call: Callable[[], Answer]) -> Answer:
    """Call in a process that leaves Ctrl-C to the one that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return call()
