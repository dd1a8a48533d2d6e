"""Start the scripts of all devices, watch them, and return what they measured.

As a program it is one device's process, under torchrun::

    python -m torch.distributed.run --nproc-per-node NUM_DEVICES -m runtime.launch DIRECTORY

As a library, `launch` starts that line, follows it, and compares the outcome with the reference.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Protocol

import torch

from placements.placement_file import placement_from_dict
from runtime.calls import ScriptError
from runtime.measure import Measurement
from runtime.models import ModelError, ModelOptions
from runtime.models.blocks import warm_up
from runtime.profiler import DeviceProfile, Sweep
from runtime.reference import Case, compare, losses_of_run
from runtime.results import (
    read_failures,
    read_position,
    read_progress,
    read_summary,
    write_failure,
)
from runtime.run_options import RunOptions, default_backend

LAUNCHERS = ("torchrun", "fork")
"""How processes are started: by torchrun, or forked from this process (CPU only, fractions of a second)."""

_LAUNCH_PID = "SCHEDSEARCH_LAUNCH_PID"
_POLL_S = 0.02
_STOP_S = 5.0
_EXTRA_TIMEOUT_S = 60.0
"""What a device waits longer than its watcher, which knows the positions of all."""


class LaunchError(RuntimeError):
    """A run failed; the message says which device failed and why, and where every device stood."""


def launch(
    directory: str | Path,
    num_devices: int,
    iterations: int = 1,
    timeout_s: float = 300.0,
    *,
    backend: str | None = None,
    launcher: str = "torchrun",
    compares: bool = True,
    blocking: bool = False,
    progress: Callable[[str], None] | None = None,
    sweep: Sweep | None = None,
) -> Measurement:
    """Run the scripts of a folder, one process for each device, and compare with the reference.

    Args:
        directory: Holds ``device_0.py`` and so on.
        num_devices: How many scripts there are.
        iterations: How often each runs its iteration.
        timeout_s: How long the start, or one iteration, may take before the run is given up.
        backend: ``nccl``, ``gloo``, or None for NCCL where there is a GPU for each device.
        launcher: One of `LAUNCHERS`.
        compares: Whether to compare with the reference; it trains the model twice in this process.
        blocking: Whether every transfer waits for its other end, to test that the order alone is safe.
        progress: Called with a line for each iteration as it ends.
        sweep: Profile the blocks, and end with that; nothing is compared then, and at most `iterations` run.

    Raises:
        ScriptError: A script is missing, or an argument is out of its range.
        LaunchError: A device failed, or the run made no progress for `timeout_s`.
    """
    directory = Path(directory).resolve()
    backend = backend or (default_backend(num_devices) if launcher == "torchrun" else "gloo")
    _check_arguments(directory, num_devices, iterations, launcher, backend)
    with tempfile.TemporaryDirectory(prefix="schedsearch_") as folder:
        results = Path(folder)
        options = RunOptions(
            0, num_devices, iterations, backend, timeout_s + _EXTRA_TIMEOUT_S, results, compares, blocking
        )
        options = replace(options, sweep=sweep, keeps_tensors=compares and sweep is None)
        start = _Torchrun if launcher == "torchrun" else _Forked
        _follow(start(directory, options), options, timeout_s, progress)
        return _measurement(options, options.keeps_tensors)


def run_script(directory: str | Path) -> None:
    """Run this process's script; the environment says which, as torchrun sets it.

    Raises:
        ScriptError: There is no such script, or the process was not started by torchrun.
    """
    options = RunOptions.from_environment()
    try:
        script = Path(directory) / f"device_{options.device}.py"
        if not script.is_file():
            raise ScriptError(
                f"{script}: there is no such file; start as many processes as there are scripts"
            )
        runpy.run_path(str(script), run_name="__main__")
    except BaseException as error:
        if options.results:
            lines = traceback.format_exc().splitlines()
            write_failure(options.results, options.device, [f"{type(error).__name__}: {error}", *lines])
        raise


class _Processes(Protocol):
    """The processes of a run."""

    def poll(self) -> int | None:
        """Return None while all is well and running, else an exit status, not 0 as soon as one failed."""

    def last_lines(self) -> list[str]:
        """Return the end of what the processes printed."""

    def stop(self) -> None:
        """End whatever still runs, and wait until it is gone."""


class _Torchrun:
    """The scripts under torchrun."""

    def __init__(self, directory: Path, options: RunOptions) -> None:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--log-dir", str(options.results)]  # else it leaves a folder behind
        command += ["--nproc-per-node", str(options.num_devices), "-m", "runtime.launch", str(directory)]
        self._folder = options.results
        self._num_devices = options.num_devices
        self._process = subprocess.Popen(
            command,
            env=_environment(options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        self._lines: deque[str] = deque(maxlen=40)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line.rstrip())

    def poll(self) -> int | None:
        return self._process.poll()

    def last_lines(self) -> list[str]:
        self._reader.join(1.0)
        return list(self._lines)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()  # The devices die with torchrun.
                self._process.wait()
        assert self._folder is not None
        pids = [read_position(self._folder, device)[0] for device in range(self._num_devices)]
        deadline = time.monotonic() + _STOP_S
        while any(pid is not None and _is_alive(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        self._reader.join(1.0)


class _Forked:
    """The scripts in copies of this process."""

    def __init__(self, directory: Path, options: RunOptions) -> None:
        assert options.results is not None
        warm_up(torch.device("cpu"))
        self._output = options.results / "output.txt"
        self._processes: list[ForkProcess] = []
        for device in range(options.num_devices):
            process = multiprocessing.get_context("fork").Process(
                target=_forked, args=(directory, options, device, self._output), daemon=True
            )
            process.start()
            self._processes.append(process)

    def poll(self) -> int | None:
        codes = [process.exitcode for process in self._processes]
        failed = [code for code in codes if code]
        if failed:
            return failed[0]
        return None if None in codes else 0

    def last_lines(self) -> list[str]:
        try:
            return self._output.read_text(errors="replace").splitlines()[-40:]
        except OSError:
            return []

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()


def _forked(directory: Path, options: RunOptions, device: int, output: Path) -> None:
    """Be one device, in a copy of the process that launched."""
    die_with_parent()
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    # A caller's own streams (a notebook's, a test's) may not write to descriptors 1 and 2.
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    os.environ.update(_environment(options))
    size = str(options.num_devices)
    os.environ |= {
        "RANK": str(device),
        "LOCAL_RANK": str(device),
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
    }
    os.environ["SCHEDSEARCH_MEETING"] = f"file://{output.with_name('meeting')}"
    run_script(directory)


def _environment(options: RunOptions) -> dict[str, str]:
    """Return the environment of a device's process, in which this project can be imported."""
    root = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": path, _LAUNCH_PID: str(os.getpid())}
    return os.environ | options.to_environment() | own


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies (Linux; elsewhere nothing happens)."""
    set_death_signal = 1
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def _end_if_orphaned() -> None:
    """End a device whose launch or torchrun died while it was still importing, before `die_with_parent`."""
    launch_pid = os.environ.get(_LAUNCH_PID)
    if sys.platform == "linux" and launch_pid and (os.getppid() == 1 or not _is_alive(int(launch_pid))):
        os._exit(1)


def _is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended but was not yet waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z"


def _check_arguments(directory: Path, num_devices: int, iterations: int, launcher: str, backend: str) -> None:
    if launcher not in LAUNCHERS:
        raise ScriptError(f"launcher: {launcher!r} is not known; use {' or '.join(LAUNCHERS)}")
    if backend not in ("gloo", "nccl") or (launcher == "fork" and backend == "nccl"):
        raise ScriptError(f"backend: {backend!r} cannot be used with launcher {launcher!r}; use gloo")
    for name, value in (("num_devices", num_devices), ("iterations", iterations)):
        if value < 1:
            raise ScriptError(f"{name}: {value} is not at least 1")
    for device in range(num_devices):
        if not (directory / f"device_{device}.py").is_file():
            raise ScriptError(
                f"{directory}: has no device_{device}.py; generate the scripts of all devices first"
            )


def _follow(
    processes: _Processes, options: RunOptions, timeout_s: float, progress: Callable[[str], None] | None
) -> None:
    """Report progress until all processes have ended.

    Raises:
        LaunchError: One failed, or there was no progress for too long.
    """
    assert options.results is not None
    num_reported = 0
    deadline = time.monotonic() + timeout_s
    try:
        while True:
            status = processes.poll()
            for line in read_progress(options.results)[num_reported:]:
                num_reported += 1
                deadline = time.monotonic() + timeout_s
                if progress is not None:
                    progress(str(line))
            if status == 0:
                return
            if status is not None:
                raise LaunchError(_why_failed(options, status, processes))
            if time.monotonic() > deadline:
                raise LaunchError(f"no progress for {timeout_s:g} s\n{_positions(options)}")
            time.sleep(_POLL_S)
    finally:
        processes.stop()


def _why_failed(options: RunOptions, status: int, processes: _Processes) -> str:
    """Return the first failure with the end of its traceback, and where every device stood."""
    assert options.results is not None
    failures = read_failures(options.results)
    if not failures:
        end = "\n".join(f"    {line}" for line in processes.last_lines()[-12:])
        return f"the run ended with status {status}\n{_positions(options)}\n{end}"
    first = failures[0]
    end = "\n".join(f"    {line}" for line in first.lines[1:][-8:])
    return f"device {first.device} failed: {first.lines[0]}\n{_positions(options)}\n{end}"


def _positions(options: RunOptions) -> str:
    assert options.results is not None
    return "\n".join(
        f"device {device}: {read_position(options.results, device)[1]}"
        for device in range(options.num_devices)
    )


def _measurement(options: RunOptions, compares: bool) -> Measurement:
    assert options.results is not None
    summaries = [read_summary(options.results, device) for device in range(options.num_devices)]
    first = summaries[0]
    case = Case(
        ModelOptions(**first["model"]),
        placement_from_dict(first["placement"]),
        first["num_micro_batches"],
        len(first["time_ms"]),
        "cuda" if options.backend == "nccl" else "cpu",
    )
    comparison = compare(options.results, case) if compares else None
    return Measurement(
        backend=options.backend,
        time_ms=tuple(
            max(times) for times in zip(*(summary["time_ms"] for summary in summaries), strict=True)
        ),
        losses=tuple(losses_of_run(case, summaries, iteration) for iteration in range(case.iterations)),
        comparison=comparison,
        clock_requests={device: tuple(summary["clock_requests"]) for device, summary in enumerate(summaries)},
        clock_backend=first["clock_backend"],
        device_names=tuple(summary["device_name"] for summary in summaries),
        profiles=tuple(
            DeviceProfile.from_plain(summary["profile"]) for summary in summaries if "profile" in summary
        ),
    )


def main(arguments: list[str] | None = None) -> int:
    """Run one device's script under torchrun; options override what the environment says."""
    parser = argparse.ArgumentParser(prog="torchrun --nproc-per-node NUM_DEVICES -m runtime.launch")
    parser.add_argument("directory", type=Path, help="folder of device_0.py and so on")
    parser.add_argument("--iterations", type=int, help="how often each script runs its iteration (default 1)")
    parser.add_argument(
        "--backend", choices=("gloo", "nccl"), help="default: nccl with a GPU for each device"
    )
    parser.add_argument("--blocking", action="store_true", help="let every transfer wait for its other end")
    parsed = parser.parse_args(arguments)
    if parsed.iterations is not None:
        os.environ["SCHEDSEARCH_ITERATIONS"] = str(parsed.iterations)
    if parsed.backend is not None:
        os.environ["SCHEDSEARCH_BACKEND"] = parsed.backend
    if parsed.blocking:
        os.environ["SCHEDSEARCH_BLOCKING"] = "1"
    die_with_parent()
    _end_if_orphaned()
    try:
        run_script(parsed.directory)
    except (ScriptError, ModelError) as error:
        sys.stderr.write(f"runtime.launch: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
