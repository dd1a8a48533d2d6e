"""The processes of a run: under torchrun, or forked from this one. They end with whoever started them."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Mapping
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Protocol

import torch

from runtime.execution.results import write_failure
from runtime.execution.run_options import RunOptions, as_environment
from runtime.models.blocks import warm_up
from runtime.program.calls import ScriptError

_LAUNCH_PID = "SCHEDSEARCH_LAUNCH_PID"
POLL_S = 0.02
"""Seconds between two looks at the processes."""

_STOP_S = 5.0


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
        report_failure(options, error)
        raise


def report_failure(options: RunOptions, error: BaseException) -> None:
    """Write down why a device fails, where somebody follows the run; called while the error is handled."""
    if options.results:
        lines = traceback.format_exc().splitlines()
        write_failure(options.results, options.device, [f"{type(error).__name__}: {error}", *lines])


class Processes(Protocol):
    """The processes of a run."""

    def poll(self) -> int | None:
        """Return None while all is well and running, else an exit status, not 0 as soon as one failed."""

    def killed(self) -> Mapping[int, str]:
        """Return the devices that a signal ended, and its name, as far as that is known."""

    def last_lines(self) -> list[str]:
        """Return the end of what the processes printed."""

    def stop(self) -> None:
        """End whatever still runs, and wait until it is gone."""


class Torchrun:
    """The scripts under torchrun."""

    def __init__(self, directory: Path, options: RunOptions) -> None:
        """Start torchrun."""
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--log-dir", str(options.results)]  # else it leaves a folder behind
        command += ["--nproc-per-node", str(options.num_devices), "-m", "runtime.launch", str(directory)]
        assert options.results is not None
        self._environment = _environment(options)
        self._process = subprocess.Popen(
            command,
            env=self._environment,
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
        """Return torchrun's exit status."""
        return self._process.poll()

    def killed(self) -> Mapping[int, str]:
        """Return nothing: torchrun ends the others by a signal too, and says itself which was first."""
        return {}

    def last_lines(self) -> list[str]:
        """Return the end of what torchrun printed."""
        self._reader.join(1.0)
        return list(self._lines)

    def stop(self) -> None:
        """End torchrun and with it the devices."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        # Devices die with torchrun, except one that it was just starting when it was told to end.
        deadline = time.monotonic() + _STOP_S
        while (pids := _with_environment(self._environment)) and time.monotonic() < deadline:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(POLL_S)
        self._reader.join(1.0)


class Forked:
    """The scripts in copies of this process."""

    def __init__(self, directory: Path, options: RunOptions) -> None:
        """Fork the processes."""
        assert options.results is not None
        warm_up(torch.device("cpu"))
        self._output = options.results / "output.txt"
        size = str(options.num_devices)
        environment = _environment(options) | {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
        self._processes: list[ForkProcess] = []
        for device in range(options.num_devices):
            process = multiprocessing.get_context("fork").Process(
                target=_forked, args=(directory, environment, device, self._output), daemon=True
            )
            process.start()
            self._processes.append(process)

    def poll(self) -> int | None:
        """Return the exit status of a process that failed, or 0 when all have ended."""
        codes = [process.exitcode for process in self._processes]
        failed = [code for code in codes if code]
        if failed:
            return failed[0]
        return None if None in codes else 0

    def killed(self) -> Mapping[int, str]:
        """Return the devices that a signal ended, and its name."""
        codes = [process.exitcode or 0 for process in self._processes]
        return {device: signal.Signals(-code).name for device, code in enumerate(codes) if code < 0}

    def last_lines(self) -> list[str]:
        """Return the end of what all processes printed."""
        try:
            return self._output.read_text(errors="replace").splitlines()[-40:]
        except OSError:
            return []

    def stop(self) -> None:
        """Kill what still runs."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()


def _forked(directory: Path, environment: Mapping[str, str], device: int, output: Path) -> None:
    """Be one device, in a copy of the process that launched."""
    os.environ |= environment
    os.environ |= {"RANK": str(device), "LOCAL_RANK": str(device)}
    os.environ["SCHEDSEARCH_MEETING"] = f"file://{output.with_name('meeting')}"
    die_with_parent()
    end_if_orphaned()
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    # A caller's own streams (a notebook's, a test's) may not write to descriptors 1 and 2.
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    run_script(directory)


def _environment(options: RunOptions) -> dict[str, str]:
    """Return the environment of a device's process, in which this project can be imported."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": path, _LAUNCH_PID: str(os.getpid())}
    return os.environ | options.to_environment() | own


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies (Linux; elsewhere nothing happens)."""
    set_death_signal = 1
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def end_if_orphaned() -> None:
    """End a device whose launch or torchrun died before the device came to `die_with_parent`."""
    launch_pid = int(os.environ.get(_LAUNCH_PID, "0"))
    is_orphan = os.getppid() == 1 != launch_pid or not _is_alive(launch_pid)
    if sys.platform == "linux" and launch_pid and is_orphan:
        os._exit(1)


def _with_environment(environment: Mapping[str, str]) -> list[int]:
    """Return the processes that were started with what marks a run: its launch and its folder of results."""
    marks = [_LAUNCH_PID, *as_environment({"results": None})]
    wanted = {f"{name}={environment[name]}".encode() for name in marks}
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted <= set(path.read_bytes().split(b"\0")):
                found.append(int(path.parent.name))
    return found


def _is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended but was not yet waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z"
