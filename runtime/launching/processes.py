"""The processes of a run: under torchrun, or forked from this one. They end with whoever started them."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing.context import ForkProcess
from pathlib import Path

import torch

from runtime.execution.process import Process
from runtime.execution.results import write_failure
from runtime.execution.run_options import RUN_FILE, RunOptions
from runtime.launching.lines import torchrun_arguments
from runtime.models.blocks import warm_up
from runtime.program.calls import ScriptError
from runtime.transport.agreement import PipelineError
from runtime.transport.contact import is_alive
from schedsearch import import_paths

_LAUNCH_PID = "SCHEDSEARCH_LAUNCH_PID"
POLL_S = 0.02
"""Seconds between two looks at the processes."""

_STOP_S = 5.0

_KEPT_LINES = 40
"""Lines kept of the output of each torchrun."""

_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(4 * 2**20), "THP_MEM_ALLOC_ENABLE": "1"}
"""How a started device allocates on the host, unless the user says otherwise.

Tensors from 4 MiB on go back to the kernel when they are freed, so that gradients and what blocks need for a
moment leave no holes between each other: by default glibc does that up to a size that grows with what is
freed. They are made of huge pages where the kernel allows it, or the pages' zeros would take long.
"""


def run_script(directory: Path, process: Process) -> None:
    """Run the script of this process, which finds the options of its run through the environment.

    Raises:
        ScriptError: There is no such script.
    """
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

    @abstractmethod
    def poll(self) -> int | None:
        """Return None while all is well and running, else an exit status, not 0 as soon as one failed."""

    def killed(self) -> Mapping[str, str]:
        """Return what a signal ended, a device or a node, and its name, as far as that is known."""
        return {}

    def name_of(self, device: int) -> str:
        """Return a device in words, with its node if there are several."""
        return f"device {device}"

    def last_lines(self) -> list[str]:
        """Return the end of what the processes printed, where it is kept apart."""
        return []

    @abstractmethod
    def stop(self) -> None:
        """End whatever still runs, and wait until it is gone."""


class _Agent:
    """A torchrun, which starts and ends the devices of one node.

    Args:
        arguments: Arguments of torchrun.
        environment: Of its process.
        ended: File that it writes if one of its devices fails: which ones a signal ended.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], ended: Path) -> None:
        """Start it."""
        self._ended = ended
        command = [sys.executable, "-m", "runtime.launching.agent", str(ended), *arguments]
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.append(line.rstrip())

    def lines(self) -> list[str]:
        """Return the end of what it and its devices printed, and wait for it if it has ended."""
        if self.process.poll() is not None:
            self._reader.join(1.0)
        return list(self._lines)

    def killed(self) -> dict[int, str]:
        """Return which of its devices were ended by a signal that was not its own."""
        if not self._ended.exists():
            return {}
        return {int(device): name for device, name in json.loads(self._ended.read_text()).items()}

    def end(self) -> None:
        """End it, and with it its devices."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Torchrun(Processes):
    """The scripts under torchrun: one for all of them, or one for each node, all on this machine.

    Args:
        directory: Directory of the scripts.
        num_devices: Number of devices of the run.
        options: Options of the run.
        devices_of_nodes: How many devices each node has, in their order; by default there is one node.
    """

    def __init__(
        self, directory: Path, num_devices: int, options: RunOptions, devices_of_nodes: Sequence[int] = ()
    ) -> None:
        """Start torchrun."""
        assert options.results is not None
        self._environment = _environment(options)
        devices = devices_of_nodes or (num_devices,)
        self._ends = list(itertools.accumulate(devices))
        port = _free_port() if len(devices) > 1 else 0
        self._agents: list[_Agent] = []
        for node in range(len(devices)):
            log = ["--log-dir", str(options.results)]  # else it leaves a folder behind
            program = ["-m", "runtime.launch", str(directory)]
            arguments = [*torchrun_arguments(devices, node, port=port), *log, *program]
            ended = options.results / f"ended_{node}.json"
            self._agents.append(_Agent(arguments, self._environment, ended))
        self._failed_s: float | None = None

    def poll(self) -> int | None:
        """Return the exit status of a torchrun that failed, once the others had time to say why."""
        codes = [agent.process.poll() for agent in self._agents]
        failed = [code for code in codes if code]
        if not failed:
            return None if None in codes else 0
        self._failed_s = self._failed_s or time.monotonic()
        if None in codes and time.monotonic() < self._failed_s + _STOP_S:
            return None
        return failed[0]

    def killed(self) -> Mapping[str, str]:
        """Return nodes whose torchrun was ended, else devices of which torchrun says so itself."""
        codes = [agent.process.poll() or 0 for agent in self._agents]
        lost = {
            self._node_in_words(node): signal.Signals(-code).name
            for node, code in enumerate(codes)
            if code < 0
        }
        ended = {device: name for agent in self._agents for device, name in agent.killed().items()}
        return lost or {self.name_of(device): name for device, name in sorted(ended.items())}

    def name_of(self, device: int) -> str:
        """Return a device in words."""
        node = next(node for node, end in enumerate(self._ends) if device < end)
        return f"device {device}" if len(self._agents) == 1 else f"device {device} (node {node})"

    def last_lines(self) -> list[str]:
        """Return the end of what each torchrun printed."""
        return [line for agent in self._agents for line in agent.lines()]

    def stop(self) -> None:
        """End every torchrun and with it the devices."""
        for agent in self._agents:
            agent.end()
        # Devices die with torchrun, except one that it was just starting when it was told to end.
        deadline = time.monotonic() + _STOP_S
        while (pids := _with_environment(self._environment)) and time.monotonic() < deadline:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(POLL_S)
        for agent in self._agents:
            agent.lines()

    def _node_in_words(self, node: int) -> str:
        if len(self._agents) == 1:
            return "torchrun"
        first, last = ([0, *self._ends][node], self._ends[node] - 1)
        return f"node {node} ({f'device {first}' if first == last else f'devices {first} to {last}'})"


class Forked(Processes):
    """The scripts in copies of this process."""

    def __init__(self, directory: Path, num_devices: int, options: RunOptions) -> None:
        """Fork the processes."""
        assert options.results is not None
        warm_up(torch.device("cpu"))
        self._output = options.results / "output.txt"
        options = replace(options, meeting=f"file://{options.results / 'meeting'}")
        size = str(num_devices)
        environment = {**_environment(options), "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
        self._processes: list[ForkProcess] = []
        for device in range(num_devices):
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

    def killed(self) -> Mapping[str, str]:
        """Return the devices that a signal ended, and its name."""
        codes = [process.exitcode or 0 for process in self._processes]
        return {
            self.name_of(device): signal.Signals(-code).name for device, code in enumerate(codes) if code < 0
        }

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
    os.environ |= {**environment, "RANK": str(device), "LOCAL_RANK": str(device)}
    die_with_parent()
    end_if_orphaned()
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    # A caller's own streams (a notebook's, a test's) may not write to descriptors 1 and 2.
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    run_script(directory, Process.of_torchrun(RunOptions.of_environment()))


def _free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _environment(options: RunOptions) -> dict[str, str]:
    """Write the options of a run, and return the environment of its processes."""
    assert options.results is not None
    own = {"OMP_NUM_THREADS": "1", _LAUNCH_PID: str(os.getpid())}
    return _ALLOCATOR | os.environ | options.write(options.results) | import_paths() | own


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


def _with_environment(environment: Mapping[str, str]) -> list[int]:
    """Return the processes that were started with what marks a run: its launch and its options."""
    wanted = {f"{name}={environment[name]}".encode() for name in (_LAUNCH_PID, RUN_FILE)}
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted <= set(path.read_bytes().split(b"\0")):
                found.append(int(path.parent.name))
    return found
