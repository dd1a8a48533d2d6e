"""The processes of a run: under torchrun, or forked from this one. They end with whoever started them.

Or the devices are threads of this process that take turns: deterministic, and a deadlock ends the run.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import torch

from runtime.codegen.script import Script, read_script
from runtime.execution.process import Process
from runtime.execution.results import write_failure
from runtime.execution.run_options import RunOptions
from runtime.loops.train import run_device
from runtime.models.blocks import warm_up
from runtime.program.calls import ScriptError
from runtime.transport.agreement import PipelineError
from runtime.transport.contact import is_alive
from runtime.transport.in_memory import NETWORK_OF, MemoryTransport, StoppedError
from runtime.transport.protocol import Transport
from schedsearch import import_paths

_LAUNCH_PID = "SCHEDSEARCH_LAUNCH_PID"
POLL_S = 0.02
"""Seconds between two looks at the processes."""

_STOP_S = 5.0

_CLOSE = timedelta(seconds=30)
"""Time that torchrun gives the other devices to end by SIGTERM when one fails, before it kills them."""

_FAILURE = re.compile(r"time +: (\S+)\n.*\n +rank +: (\d+).*\n +exitcode +: -(\d+)")
"""A row of torchrun's table of devices that failed, of a device that a signal ended."""

_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(4 * 2**20), "THP_MEM_ALLOC_ENABLE": "1"}
"""How a started device allocates on the host, unless the user says otherwise.

Tensors from 4 MiB on go back to the kernel when they are freed, so that gradients and what blocks need for a
moment leave no holes between each other: by default glibc does that up to a size that grows with what is
freed. They are made of huge pages where the kernel allows it, or the pages' zeros would take long.
"""


def run_script(directory: Path, process: Process) -> None:
    """Run the script of this process, which finds the options of its run through the environment."""
    try:
        script = directory / f"device_{process.device}.py"
        if not script.is_file():
            raise ScriptError(
                f"{script}: there is no such file; start as many processes as there are scripts"
            )
        runpy.run_path(str(script), run_name="__main__")
    except BaseException as error:
        report_failure(process, error)
        raise


def report_failure(process: Process, error: BaseException) -> None:
    """Write down why a device fails, where somebody follows the run; called while the error is handled."""
    results = process.options.results
    if not results:
        return
    reason, cause = f"{type(error).__name__}: {error}", None
    if isinstance(error, PipelineError) and error.device is not None:
        reason, cause = error.reason, error.device  # all devices raise it
    write_failure(results, process.device, reason, traceback.format_exc().splitlines(), cause)


class Processes(ABC):
    """The processes of a run."""

    _output: Path | None = None

    @abstractmethod
    def poll(self) -> int | None:
        """Return None while all is well and running, else an exit status, not 0 as soon as one failed."""

    def killed(self) -> Mapping[str, str]:
        """Return the processes that a signal ended, and its name, as far as that is known."""
        return {}

    def last_lines(self) -> list[str]:
        """Return the lines that the processes printed, where they are kept apart."""
        if self._output is None or not self._output.exists():
            return []
        return self._output.read_text(errors="replace").splitlines()

    @abstractmethod
    def stop(self) -> None:
        """End whatever still runs, and wait until it is gone."""


class Torchrun(Processes):
    """The scripts under torchrun."""

    def __init__(self, directory: Path, num_devices: int, options: RunOptions) -> None:
        assert options.results is not None
        self._output = options.results / "output.txt"
        line = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        line += ["--nproc-per-node", str(num_devices)]
        line += ["--log-dir", str(options.results)]  # else it leaves a folder behind
        self._alive, stdin = socket.socketpair()  # ends when no process has its other end any more
        self._alive.shutdown(socket.SHUT_WR)
        with self._output.open("wb") as output, stdin:
            self._agent = subprocess.Popen(
                [*line, "-m", "runtime.launch", str(directory)],
                env=_environment(options),
                stdin=stdin.fileno(),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def poll(self) -> int | None:
        """Return torchrun's exit status once it has ended."""
        return self._agent.poll()

    def killed(self) -> Mapping[str, str]:
        """Return torchrun if a signal ended it, else devices of which it says so itself."""
        devices = killed_devices("\n".join(self.last_lines()))
        return _signals([("torchrun", self._agent.poll())]) or {
            f"device {device}": name for device, name in devices.items()
        }

    def stop(self) -> None:
        """End torchrun and with it the devices; one that it just started ends itself, as it is an orphan."""
        self._agent.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._agent.wait(_STOP_S)
        self._agent.kill()
        self._agent.wait()
        with self._alive, suppress(TimeoutError):
            self._alive.settimeout(_CLOSE.total_seconds())
            self._alive.recv(1)


class Forked(Processes):
    """The scripts in copies of this process."""

    def __init__(self, directory: Path, num_devices: int, options: RunOptions) -> None:
        assert options.results is not None
        warm_up(torch.device("cpu"))
        self._output = options.results / "output.txt"
        options = replace(options, meeting=f"file://{options.results / 'meeting'}")
        size = str(num_devices)
        environment = {**_environment(options), "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
        fork = multiprocessing.get_context("fork")
        self._processes = [
            fork.Process(target=_forked, args=(directory, environment, device, self._output), daemon=True)
            for device in range(num_devices)
        ]
        for process in self._processes:
            process.start()

    def poll(self) -> int | None:
        """Return the exit status of a process that failed, or 0 when all have ended."""
        codes = [process.exitcode for process in self._processes]
        failed = [code for code in codes if code]
        if failed:
            return failed[0]
        return None if None in codes else 0

    def killed(self) -> Mapping[str, str]:
        """Return the devices that a signal ended, and its name."""
        codes = enumerate(process.exitcode for process in self._processes)
        return _signals((f"device {device}", code) for device, code in codes)

    def stop(self) -> None:
        """Kill all that still run."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()


class InProcess(Processes):
    """The scripts in threads."""

    def __init__(self, directory: Path, num_devices: int, options: RunOptions) -> None:
        self._num_threads = torch.get_num_threads()
        assert options.device is not None
        assert options.backend is not None
        self._network = NETWORK_OF[options.backend](num_devices, device=options.device)
        self._status = 1
        scripts = [read_script(directory / f"device_{device}.py") for device in range(num_devices)]
        parts = [
            partial(self._be, script, Process(device, num_devices, options))
            for device, script in enumerate(scripts)
        ]
        self._thread = threading.Thread(target=self._run, args=(parts,), daemon=True)
        self._thread.start()

    def poll(self) -> int | None:
        """Return 0 when all devices have ended, 1 when one failed and so all have stopped."""
        self._thread.join(POLL_S)
        return None if self._thread.is_alive() else self._status

    def stop(self) -> None:
        """Let every device fail where it waits next; a thread cannot be ended while it computes."""
        self._network.turns.stop()
        self._thread.join(POLL_S)
        torch.set_num_threads(self._num_threads)

    def _run(self, parts: list[partial[None]]) -> None:
        """Run all devices; the first that fails has reported why."""
        with suppress(BaseException):
            self._network.run(parts)
            self._status = 0

    def _be(self, script: Script, process: Process) -> None:
        """Be one device."""
        try:
            run_device(script, process, self._connected)
        except BaseException as error:
            if not isinstance(error, StoppedError) and not isinstance(error.__cause__, StoppedError):
                report_failure(process, error)
            raise

    @contextmanager
    def _connected(self, script: Script, process: Process) -> Iterator[Transport]:
        """Reach the other devices through the network."""
        yield MemoryTransport.of(self._network, script.placement, script.channels, process.device)


def _forked(directory: Path, environment: Mapping[str, str], device: int, output: Path) -> None:
    """Be one device, in a copy of the process that launched."""
    os.environ |= {**environment, "RANK": str(device), "LOCAL_RANK": str(device)}
    die_with_parent()
    end_if_orphaned()
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    # A caller's own streams (a notebook's, a test's) may not write to descriptors 1 and 2.
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    run_script(directory, Process.of_torchrun(RunOptions.of_environment()))


def killed_devices(output: str) -> dict[int, str]:
    """Return the devices that a signal ended, not torchrun's own, by the table that ends its output."""
    times = [datetime.fromisoformat(at) for at in re.findall(r"^ +time +: (\S+)$", output, re.MULTILINE)]
    signals = {}
    for at, device, number in _FAILURE.findall(output):
        if int(number) != signal.SIGTERM and datetime.fromisoformat(at) < min(times) + _CLOSE:
            signals[int(device)] = signal.Signals(int(number)).name
    return dict(sorted(signals.items()))


def _signals(codes: Iterable[tuple[str, int | None]]) -> dict[str, str]:
    """Return the names of processes that a signal ended, and the signal's, by exit code."""
    return {name: signal.Signals(-code).name for name, code in codes if code is not None and code < 0}


def _environment(options: RunOptions) -> dict[str, str]:
    """Write the options of a run, and return the environment of its processes."""
    assert options.results is not None
    of_launch = {"OMP_NUM_THREADS": "1", _LAUNCH_PID: str(os.getpid())}
    return _ALLOCATOR | os.environ | options.write(options.results) | import_paths() | of_launch


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies (Linux; elsewhere nothing happens)."""
    set_death_signal = 1
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def end_if_orphaned() -> None:
    """End a device whose launch or torchrun died before the device came to `die_with_parent`."""
    launch_pid = int(os.environ.get(_LAUNCH_PID, "0"))
    is_orphan = os.getppid() == 1 != launch_pid or not is_alive(launch_pid)
    if sys.platform == "linux" and launch_pid and is_orphan:
        os._exit(1)
