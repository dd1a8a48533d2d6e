"""Processes that compute frontiers, so that requests are answered meanwhile.

Each frontier has a thread of a pool, and a process that is forked for it from one that has loaded all that it
needs. A process whose server is gone finds its pipe closed when it next tells its progress, and ends.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any

from placements import Profile
from placements.profiles.mode_costs import with_modes
from runtime.server.bodies import TaskProgress
from schedsearch.energy import compute_frontier
from schedsearch.energy.frontier import Frontier
from schedsearch.schedule_file import schedule_from_dict

Task = tuple[Mapping[str, Any], Profile, int]
"""The content of a ``schedule.json``, the profile of all its blocks, and how many plans to compute."""


class Workers:
    """A fixed number of threads that have the frontiers of jobs computed, in the order of submission.

    Args:
        number: At least 1.
        load: Returns the task of a job, or None if it is no longer wanted.
        keep: Takes the frontier, or one line that says why there is none.
    """

    def __init__(
        self, number: int, load: Callable[[str], Task | None], keep: Callable[[str, Frontier | str], None]
    ) -> None:
        self._load, self._keep = load, keep
        self._threads = ThreadPoolExecutor(number, "frontier")
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__])
        self._lock, self._is_over = threading.Lock(), False
        self._processes: dict[str, ForkServerProcess] = {}
        self.progress: dict[str, TaskProgress] = {}

    def submit(self, job: str) -> None:
        """Have a job's frontier computed."""
        self._threads.submit(self._work, job)

    def cancel(self, job: str) -> None:
        """End the process that computes a deleted job, if there is one."""
        with self._lock:
            if job in self._processes:
                self._processes[job].kill()

    def close(self) -> None:
        """End all processes and wait for the threads; unfinished jobs are left as they are."""
        with self._lock:
            self._is_over = True
            for process in self._processes.values():
                process.kill()
        self._threads.shutdown(cancel_futures=True)

    def _work(self, job: str) -> None:
        try:
            task = self._load(job)
            outcome = None if task is None else self._compute(job, task)
            if outcome is not None:
                self._keep(job, outcome)
        except Exception as error:  # such as a full disk
            logging.getLogger(__name__).exception("the frontier of job %s is not kept", job)
            reason = f"{type(error).__name__}: {_first_line(error)}"
            with suppress(Exception):  # else it is computed again after the next start
                self._keep(job, f"frontier: it cannot be kept ({reason}); upload the profile again")

    def _compute(self, job: str, task: Task) -> Frontier | str | None:
        """Return the frontier of a job, or why there is none; None if the server closes."""
        pipe, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_serve, args=(task, theirs), daemon=True)
        with self._lock:
            if self._is_over:
                return None
            process.start()
            self._processes[job] = process
        theirs.close()
        message: Any = None
        with pipe, suppress(EOFError, OSError):
            while isinstance(message := pipe.recv(), TaskProgress):
                self.progress[job] = message
        process.join()
        with self._lock:
            del self._processes[job]
        self.progress.pop(job, None)
        if isinstance(message, (Frontier, str)):
            return message
        ended = f"the process that computed it ended with {process.exitcode}"
        return None if self._is_over else f"frontier: {ended}; upload the profile again"


def _serve(task: Task, pipe: Connection[Any, Any]) -> None:
    """Be the process: compute a task and tell of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends its workers.

    def tell(what: str, done: int, total: int) -> None:
        pipe.send(TaskProgress(what=what, done=done, total=total))

    content, profile, num_plans = task
    with suppress(OSError):  # the server is gone
        try:
            schedule = schedule_from_dict(content)
            profile = with_modes(profile, schedule.placement)
            pipe.send(compute_frontier(schedule, profile, num_plans, on_progress=tell))
        except OSError:
            raise
        except ValueError as error:
            pipe.send(_first_line(error))
        except Exception as error:
            line = f"frontier: {type(error).__name__}: {_first_line(error)}; register another schedule"
            pipe.send(line)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
