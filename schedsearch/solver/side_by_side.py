"""Independent calls side by side: in processes of this machine by joblib, or as tasks of a Ray cluster.

A Ctrl-C ends the running calls as it would end one of this process: searches still give their best answers.
The calls and their results must be picklable; lambdas and functions inside functions are.
"""

from __future__ import annotations

import _thread
import contextlib
import logging
import os
import socket
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from schedsearch.solver.interrupts import INTERRUPTS, interruptible

log = logging.getLogger(__name__)

Result = TypeVar("Result")

Keep = Callable[[int, Any], None]
"""Called with the number of a call and its result, as soon as it is there."""

_LOOK_S = 0.05
"""Seconds between two looks for Ctrl-C."""

_RETRIES = 2
"""Further times that Ray starts a call, perhaps on another node, whose worker or node died."""


class RayAddressError(ValueError):
    """There is no Ray cluster at the address that is given."""


def side_by_side(
    calls: Sequence[Callable[[], Result]], workers: int = 1, keep: Keep = lambda i, result: None
) -> list[Result | None]:
    """Make independent calls in several processes; return their results in the order of the calls.

    The processes are joblib's on this machine, or Ray's where ``RAY_ADDRESS`` is set. Calls whose process
    died are made again in this one. One call, or one worker, needs no other process, and each call then ends
    at a Ctrl-C as it does anywhere.

    Args:
        calls: Functions without arguments.
        workers: Processes on this machine; on Ray the cores of the cluster decide.
        keep: Called in the order in which results come.

    Returns:
        One result for each call; None for those that a Ctrl-C ended, or that come after it.
    """
    results: list[Result | None] = [None] * len(calls)
    missing = set(range(len(calls)))

    def take(i: int, result: Result) -> None:
        results[i] = result
        missing.remove(i)
        keep(i, result)

    is_alone = min(workers, len(calls)) < 2
    watched = contextlib.nullcontext() if is_alone else INTERRUPTS.watched()
    with contextlib.suppress(KeyboardInterrupt), watched:
        if not is_alone:
            on_ray(calls, take) if os.environ.get("RAY_ADDRESS") else _in_processes(calls, take, workers)
            INTERRUPTS.raise_if_seen()
            if missing:
                text = "%d of %d calls lost their process; they are made again in this one, in turn"
                log.warning(text, len(missing), len(calls))
        for i in sorted(missing):
            take(i, calls[i]())
            INTERRUPTS.raise_if_seen()
    return results


def reported(
    calls: Sequence[Callable[[Callable[[Any], None]], Result]], reports: Sequence[Callable[[Any], None]]
) -> list[Result | None]:
    """Make searches side by side, as `side_by_side`; one alone is made in this process.

    Args:
        calls: Functions of a listener.
        reports: Listener of each; those of several get the last event of a search, when it ends.
    """
    if len(calls) == 1:
        return [calls[0](reports[0])]
    log.info("%d searches side by side; each is shown when it ends", len(calls))

    def tell(i: int, result: tuple[Result, Sequence[Any]]) -> None:
        for event in result[1]:
            reports[i](event)

    results = side_by_side([partial(_with_last_event, call) for call in calls], len(calls), tell)
    return [result and result[0] for result in results]


def _with_last_event(call: Callable[[Callable[[Any], None]], Result]) -> tuple[Result, Sequence[Any]]:
    last = deque[Any](maxlen=1)
    return call(last.append), last


def _in_processes(calls: Sequence[Callable[[], Any]], keep: Keep, workers: int) -> None:
    """Make calls in processes of this machine; calls are left out from a Ctrl-C or the death of one on."""
    from joblib import Parallel, delayed  # which commands that search alone do not wait for

    with tempfile.TemporaryDirectory() as folder:
        stop = Path(folder) / "stop"
        numbered = (delayed(_stoppable)(i, call, stop) for i, call in enumerate(calls))
        parallel = Parallel(workers, return_as="generator_unordered", batch_size=1, max_nbytes=None)

        def take_all() -> None:
            for i, results in parallel(numbered):
                for result in results:
                    keep(i, result)

        with contextlib.suppress(BrokenProcessPool):
            interruptible(take_all, stop.touch)


def _stoppable(i: int, call: Callable[[], Result], stop: Path) -> tuple[int, list[Result]]:
    """Make a call in a worker, interrupted as by Ctrl-C once a file is there.

    Returns:
        The number of the call, and its result; no result where the interruption came before.
    """
    os.setpgid(0, 0)  # a terminal's Ctrl-C reaches the first process alone, which passes it on once
    is_done, parent = threading.Event(), os.getppid()

    def watch() -> None:
        while not is_done.wait(_LOOK_S):
            if os.getppid() != parent:  # which was killed
                os._exit(1)
            if stop.exists():
                _thread.interrupt_main()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    try:
        watcher.start()
        return i, [] if stop.exists() else [call()]
    except KeyboardInterrupt:
        return i, []
    finally:
        is_done.set()
        watcher.join()


@contextlib.contextmanager
def ray_cluster(resources: Mapping[str, float] | None = None) -> Iterator[ModuleType]:
    """Connect to the Ray cluster at ``RAY_ADDRESS``, or start Ray on this machine, and leave it at the end.

    Nothing is printed; the output of tasks stays in the log files of Ray.

    Args:
        resources: Custom resources of a Ray that is started here; the nodes of a cluster have their own.

    Yields:
        The module ``ray``.

    Raises:
        RayAddressError: There is no cluster at ``RAY_ADDRESS``.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_task_oom_retries", str(_RETRIES))  # it would try for ever
    try:
        import ray
    except ImportError:
        raise RayAddressError("RAY_ADDRESS: Ray is not installed; pip install 'schedsearch[ray]'") from None
    if ray.is_initialized():
        yield ray
        return
    vars(ray._private.worker)["_worker_logs_enabled"] = False  # else a worker's death takes six long lines
    address = os.environ.get("RAY_ADDRESS") or "local"
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdecimal():  # Ray itself tries for a minute
            socket.create_connection((host, int(port)), timeout=5.0).close()
        options = {"resources": resources} if address == "local" else {}
        ray.init(address, logging_level=logging.ERROR, log_to_driver=False, **options)
    except (OSError, ValueError) as error:
        line = str(error).partition("\n")[0]
        raise RayAddressError(f"RAY_ADDRESS: {address}: {line}; start the cluster, or unset it") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def on_ray(calls: Sequence[Callable[[], Any]], keep: Keep, num_cpus: float = 1.0) -> None:
    """Make calls as tasks of Ray, in the folder of this process; leave out calls that Ray cannot finish.

    Ray makes a call again, up to `_RETRIES` times, where its worker or node dies.

    Args:
        calls: Functions without arguments.
        keep: Called in the order in which results come, but for calls that are left out.
        num_cpus: Cores that each call takes; the cluster's cores decide how many run at a time.

    Raises:
        RayAddressError: There is no cluster at ``RAY_ADDRESS``, or no node has as many cores.
    """
    with ray_cluster() as ray:
        most = max(node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"])
        if num_cpus > most:
            wrong = f"{num_cpus:g} is more than the {most:g} cores of Ray's largest node"
            raise RayAddressError(f"hydra.launcher.num_cpus: {wrong}; give fewer")
        task = ray.remote(num_cpus=num_cpus, max_retries=_RETRIES)(_in_folder)
        running = {task.remote(Path.cwd(), call): i for i, call in enumerate(calls)}
        is_stopped = False
        while running:
            for ended in ray.wait(list(running), timeout=_LOOK_S)[0]:
                i = running.pop(ended)
                try:
                    result = ray.get(ended)
                except ray.exceptions.RayError as error:  # of Ray, or one of the call inside
                    if not isinstance(cause := getattr(error, "cause", error), ray.exceptions.RayError):
                        raise cause from None
                else:
                    keep(i, result)
            if INTERRUPTS.seen and not is_stopped:
                is_stopped = True
                for future in running:
                    ray.cancel(future)


def _in_folder(folder: Path, call: Callable[[], Result]) -> Result:
    """Make a call on a node, in the same folder as the process that wants it."""
    os.chdir(folder)
    return call()
