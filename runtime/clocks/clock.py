"""The clock of a GPU: requested by scripts, set by a process of its own, given back whatever happens.

A locked clock outlives the process that locked it. So a controller process, in a session of its own,
reads the wanted clocks from a pipe, and unlocks the GPU when the script ends: at a clean exit, at an
exception, and when it is killed. Only if the controller itself is killed does a clock stay
locked; then run ``python -m runtime.clock reset``, or any script that controls the same GPU.

Locking a clock needs root or CAP_SYS_ADMIN; `runtime.clocks.helper` is for users without. The module does not
know which clocks a GPU supports; the driver takes the nearest. One more backend is
`runtime.virtual.virtual_gpu.VirtualGpu`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from runtime.clocks.controller import CLOCK, READY, REPAIR
from schedsearch import import_paths

_LOG = logging.getLogger(__name__)

SOCKET_VARIABLE = "SCHEDSEARCH_CLOCK_SOCKET"
"""Environment of a run: the socket of the clock helper; empty for none."""

DEFAULT_SOCKET = Path("/run/schedsearch/clock.sock")
"""Where the helper is looked for."""

START_TIMEOUT_S = 20.0
"""How long a controller may take to say whether it can lock clocks."""

MAX_LINE = 4096
"""Bytes of a line between a client and who locks its clock."""


class ClockError(RuntimeError):
    """The GPU's clock cannot be controlled; the message says why."""


class ClockBackend:
    """Base of all ways to ask for clocks: it writes requests down, and a subclass carries them out.

    Attributes:
        description: One line: whether requests are carried out, by whom, or why not.
        requests: Every clock asked for so far, in order; MHz.
    """

    def __init__(self, description: str) -> None:
        self.description = description
        self.requests: list[int] = []

    def set(self, clock_mhz: int) -> None:
        """Ask for a clock, without waiting until the GPU runs at it."""
        self.requests.append(clock_mhz)

    def reset(self) -> None:
        """Give the clock back to the driver; nothing can be set afterwards."""


class RecordingClock(ClockBackend):
    """Write requests down and set nothing, for a reason that the description gives."""

    def __init__(self, reason: str = "no GPU is controlled") -> None:
        super().__init__(f"clocks are recorded only: {reason}")


class _ControlledClock(ClockBackend):
    """Clock that a controller process locks: requests go out through one file, lines come back by another."""

    def __init__(self, description: str, name: str, write: int, read: int) -> None:
        super().__init__(description)
        self._name, self._write, self._read = name, write, read

    def _refusal(self) -> str:
        """Return why the controller cannot lock clocks; nothing if it can."""
        answer = read_line(self._read, START_TIMEOUT_S)
        os.set_blocking(self._write, False)
        return "" if answer == READY else answer or f"no answer within {START_TIMEOUT_S:g} s"

    def set(self, clock_mhz: int) -> None:
        """Hand a request to the controller; this never waits.

        Raises:
            ClockError: The controller has ended, and the GPU's clock is given back; or it takes no requests.
        """
        super().set(clock_mhz)
        try:
            os.write(self._write, CLOCK.pack(clock_mhz))
        except BlockingIOError:
            raise ClockError(f"{self._name} takes no requests; does the driver hang?") from None
        except OSError:
            reason = read_line(self._read, START_TIMEOUT_S)
            line = f"{self._name} has ended before {clock_mhz} MHz could be set"
            raise ClockError(f"{line}: {reason}" if reason else line) from None


class NvmlClock(_ControlledClock):
    """Lock the clock of a GPU, by NVML's index or UUID, through a controller process of this user.

    Args:
        dwell_ms: Least time between a change and a lowering after it.

    Raises:
        ClockError: There is no driver, no such GPU, or no right to lock its clock.
    """

    def __init__(self, gpu: str, dwell_ms: float = 0.0) -> None:
        """Start the controller and wait until it says that it can lock clocks."""
        line = f"clocks of GPU {gpu} are locked through NVML; if one stays locked, run: {REPAIR}"
        process = start_controller(gpu, os.getpid(), dwell_ms, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None and process.stdout is not None
        self._process, self.controller_pid = process, process.pid
        super().__init__(line, "the clock controller", process.stdin.fileno(), process.stdout.fileno())
        if reason := self._refusal():
            process.kill()  # It has locked nothing: it has had no request.
            self.reset()
            raise ClockError(reason)

    def reset(self) -> None:
        """End the pipe, and wait until the controller has unlocked the GPU; one that hangs is killed.

        Then the clock may stay locked, and the log says what to do.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            _LOG.warning("the clock controller hung and was killed; if a clock stays locked, run: %s", REPAIR)
        self._process.stdout.close()


class HelperClock(_ControlledClock):
    """Lock a GPU's clock through a controller that the helper on a socket starts; else as `NvmlClock`.

    Raises:
        ClockError: There is no helper, or it refuses.
    """

    def __init__(self, gpu: str, path: str | Path, dwell_ms: float = 0.0) -> None:
        """Ask the helper for the GPU and wait until its controller can lock clocks."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(START_TIMEOUT_S)
        line, file = f"clocks of GPU {gpu} are locked by the helper at {path}", self._socket.fileno()
        super().__init__(line, f"the clock helper at {path}", file, file)
        try:
            self._socket.connect(str(path))
            with contextlib.suppress(OSError):  # one that refuses the user may have gone; its line says why
                self._socket.sendall(f"{gpu} {dwell_ms}\n".encode())
            reason = self._refusal()
        except OSError as error:
            reason = f"{error.strerror or error}; have it started: python -m runtime.clock serve"
        if reason:
            self._socket.close()
            raise ClockError(f"{self._name}: {reason}")

    def reset(self) -> None:
        """End the requests, and wait until the clock is given back."""
        with contextlib.suppress(OSError), self._socket:
            self._socket.shutdown(socket.SHUT_WR)
            self._socket.settimeout(START_TIMEOUT_S)
            try:
                while self._socket.recv(MAX_LINE):
                    pass
            except TimeoutError:
                _LOG.warning("%s does not say that it gave the clock back", self._name)


def lock_clock(gpu: str, dwell_ms: float = 0.0) -> ClockBackend:
    """Return a clock that locks the GPU's; see `NvmlClock`.

    Raises:
        ClockError: There is no GPU, no right, and nobody who has it and gives it; or the helper refuses.
    """
    given = os.environ.get(SOCKET_VARIABLE)
    if given or (given is None and DEFAULT_SOCKET.exists()):
        return HelperClock(gpu, given or DEFAULT_SOCKET, dwell_ms)
    return NvmlClock(gpu, dwell_ms)


def open_clock(gpu: str | None, dwell_ms: float = 0.0) -> ClockBackend:
    """Return a clock that locks the GPU's where there is a way, else, or without a GPU, one that records."""
    if gpu is None:
        return RecordingClock("the script runs on the CPU")
    try:
        return lock_clock(gpu, dwell_ms)
    except ClockError as error:
        return RecordingClock(str(error))


def start_controller(gpu: str, script: int, dwell_ms: float, **files: Any) -> Any:
    """Start a controller (`runtime.clocks.controller`), with its standard input and output in `files`.

    It gives the clock back at the end of the process `script`, or of this one.
    """
    line = [sys.executable, "-m", "runtime.clocks.controller", gpu, str(os.getpid()), str(script)]
    return subprocess.Popen(
        [*line, "--dwell-ms", str(dwell_ms)], start_new_session=True, env=os.environ | import_paths(), **files
    )


def read_line(file: int, timeout_s: float) -> str:
    """Return the next line of a pipe or socket, without its end; an unfinished one after a timeout."""
    line, end_s = b"", time.monotonic() + timeout_s
    with contextlib.suppress(OSError):
        while not line.endswith(b"\n") and len(line) < MAX_LINE:
            ready, _, _ = select.select([file], [], [], max(end_s - time.monotonic(), 0))
            if not ready or not (byte := os.read(file, 1)):
                break
            line += byte
    return line.decode(errors="replace").strip()
