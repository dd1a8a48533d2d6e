"""Processes that compute frontiers, so that requests are answered meanwhile.

Each worker is a process that is kept for the next job, and a thread that feeds it through a pipe. A process
whose server is gone finds its pipe closed, at the latest when it next tells its progress, and ends.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import queue
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from placements import Profile
from placements.profiles.mode_costs import with_modes
from schedsearch.energy import compute_frontier
from schedsearch.energy.frontier import Frontier
from schedsearch.schedule_file import schedule_from_dict


@dataclass(frozen=True)
class FrontierTask:
    """What a worker computes: see `schedsearch.energy.compute_frontier`.

    Attributes:
        schedule: The content of a ``schedule.json``; read in the worker, because that takes its time.
        profile: Profile of all its blocks.
        num_plans: At least 1.
    """

    schedule: str
    profile: Profile
    num_plans: int


@dataclass(frozen=True)
class TaskProgress:
    """How far a worker is.

    Attributes:
        what: Such as "rounding".
        done: How much of it is done.
        total: How much there is.
    """

    what: str
    done: int
    total: int


@dataclass(frozen=True)
class TaskFailure:
    """Why there is no frontier.

    Attributes:
        line: One line.
    """

    line: str


class Workers:
    """A fixed number of processes that compute the frontiers of jobs, in the order in which they are asked.

    Args:
        number: At least 1.
        load: Returns the task of a job, or None if it is no longer wanted.
        keep: Takes what became of it.
    """

    def __init__(
        self,
        number: int,
        load: Callable[[str], FrontierTask | None],
        keep: Callable[[str, Frontier | TaskFailure], None],
    ) -> None:
        """Start the threads; processes start with their first job."""
        self._load, self._keep = load, keep
        self._waiting: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closing = False
        self._running: dict[str, tuple[SpawnProcess, TaskProgress | None]] = {}
        self._cancelled: set[str] = set()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(number)]
        for thread in self._threads:
            thread.start()

    def submit(self, job: str) -> None:
        """Have a job's frontier computed."""
        self._waiting.put(job)

    def progress(self, job: str) -> TaskProgress | None:
        """Return how far a job is; None while it waits for its turn or has just begun."""
        with self._lock:
            return self._running[job][1] if job in self._running else None

    def cancel(self, job: str) -> None:
        """End the process that computes a job, if there is one; nothing is kept of it."""
        with self._lock:
            if job in self._running:
                self._cancelled.add(job)
                self._running[job][0].kill()

    def close(self) -> None:
        """End all processes and wait for the threads; unfinished jobs are left as they are."""
        with self._lock:
            self._closing = True
            for process, _ in self._running.values():
                process.kill()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        """Be the thread of one worker."""
        worker: _Process | None = None
        while (job := self._waiting.get()) is not None and not self._closing:
            try:
                task = self._load(job)
                if task is None:
                    continue
                worker = worker if worker is not None and worker.is_alive else _Process()
                outcome = self._compute(job, task, worker)
                if outcome is not None:
                    self._keep(job, outcome)
            except Exception as error:  # such as a full disk
                logging.getLogger(__name__).exception("the frontier of job %s is not kept", job)
                self._give_up(job, error)
        if worker is not None:
            worker.end()

    def _give_up(self, job: str, error: Exception) -> None:
        """Say so, if even that can be kept; else the job is computed again after the next start."""
        reason = f"{type(error).__name__}: {_first_line(error)}"
        with contextlib.suppress(Exception):
            self._keep(job, TaskFailure(f"frontier: it cannot be kept ({reason}); upload the profile again"))

    def _compute(self, job: str, task: FrontierTask, worker: _Process) -> Frontier | TaskFailure | None:
        """Return what became of a job; None if it was cancelled, or the server closes."""
        with self._lock:
            if self._closing:
                return None
            self._running[job] = worker.process, None
        try:
            return worker.compute(task, lambda progress: self._tell(job, progress))
        except (EOFError, OSError):
            code = worker.end()
            with self._lock:
                if self._closing or job in self._cancelled:
                    return None
            return TaskFailure(
                f"frontier: the process that computed it ended with {code}; upload the profile again"
            )
        finally:
            with self._lock:
                del self._running[job]
                self._cancelled.discard(job)

    def _tell(self, job: str, progress: TaskProgress) -> None:
        with self._lock:
            self._running[job] = self._running[job][0], progress


class _Process:
    """A process, and the pipe to it."""

    def __init__(self) -> None:
        """Start it anew rather than forked: this process has threads, and holds the database."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    @property
    def is_alive(self) -> bool:
        """Whether it can be given a task."""
        return not self._pipe.closed and self.process.is_alive()

    def compute(
        self, task: FrontierTask, on_progress: Callable[[TaskProgress], None]
    ) -> Frontier | TaskFailure:
        """Return the outcome of a task.

        Raises:
            EOFError, OSError: The process ended.
        """
        self._pipe.send(task)
        while isinstance(message := self._pipe.recv(), TaskProgress):
            on_progress(message)
        assert isinstance(message, (Frontier, TaskFailure))
        return message

    def end(self) -> int | None:
        """End it and return its exit code."""
        self._pipe.close()
        self.process.kill()
        self.process.join()
        return self.process.exitcode


def _serve(pipe: Connection[Any, Any]) -> None:
    """Be the process: compute one task after the other until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends its workers.
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.send(_outcome(pipe.recv(), pipe))


def _outcome(task: FrontierTask, pipe: Connection[Any, Any]) -> Frontier | TaskFailure:
    def tell(what: str, done: int, total: int) -> None:
        pipe.send(TaskProgress(what, done, total))

    try:
        schedule = schedule_from_dict(json.loads(task.schedule))
        profile = with_modes(task.profile, schedule.placement)
        return compute_frontier(schedule, profile, task.num_plans, on_progress=tell)
    except OSError:
        raise
    except ValueError as error:
        return TaskFailure(_first_line(error))
    except Exception as error:
        return TaskFailure(
            f"frontier: {type(error).__name__}: {_first_line(error)}; register another schedule"
        )


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
