"""Independent calls in several processes; each answer comes as soon as its call ends."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from itertools import islice
from multiprocessing import resource_tracker
from typing import TypeVar

import joblib
from joblib.externals.loky import ProcessPoolExecutor

from schedsearch.solver.interrupts import INTERRUPTS

Answer = TypeVar("Answer")


def in_any_order(
    calls: Sequence[Callable[[], Answer]], num_processes: int | None
) -> Generator[Answer, None, None]:
    """Yield the calls' answers, as they end; the processes end with the iterator.

    Args:
        calls: Started in this order; what they hold is sent to other processes.
        num_processes: At least 1; with 1 the calls run in this process. None for one per processor.
    """
    number = min(num_processes or joblib.cpu_count(), len(calls)) or 1
    if number == 1:
        yield from (call() for call in calls)
        return
    threads = os.environ.get("OMP_NUM_THREADS", str(max(1, joblib.cpu_count() // number)))
    waiting = iter(calls)
    with contextlib.ExitStack() as stack:
        with INTERRUPTS.watched(), _children_without_ctrl_c():
            pool = ProcessPoolExecutor(number, env={"OMP_NUM_THREADS": threads})
            stack.callback(_end, pool)
            running = _begun(pool, islice(waiting, number))
        while running:
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            with INTERRUPTS.watched():
                running |= _begun(pool, islice(waiting, len(ended)))
            yield from (answer.result() for answer in ended)


def _begun(pool: Executor, calls: Iterable[Callable[[], Answer]]) -> set[Future[Answer]]:
    """Submit calls to a pool with room for them; it fails if it is shut down before it has taken them."""
    answers = {pool.submit(call) for call in calls}
    while not all(answer.running() or answer.done() for answer in answers):
        time.sleep(0.001)
    return answers


@INTERRUPTS.watched()
def _end(pool: ProcessPoolExecutor) -> None:
    """End a pool and its processes, and wait for the threads that share its semaphores.

    One that outlives the main thread stops where it is: if it has removed a semaphore and not yet told
    loky's resource tracker, that warns of one it cannot find, after the command's last line.
    """
    pool.shutdown(kill_workers=True)
    for thread in threading.enumerate():
        if thread.name == "QueueFeederThread":
            thread.join(timeout=1)  # it may have more to send than a killed process will read


@contextlib.contextmanager
def _children_without_ctrl_c() -> Iterator[None]:
    """Leave Ctrl-C, which a terminal sends to all of them, to the process that starts the others inside."""
    resource_tracker.ensure_running()  # else it starts inside, and Python 3.11 lets signals through after it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
