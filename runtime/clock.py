"""The clock of a GPU: requested by scripts, set by a process of its own, given back whatever happens.

A locked clock outlives the process that locked it. So a controller process, in a session of its own,
reads the wanted clocks from a pipe, and unlocks the GPU when the pipe ends: at a clean exit, at an
exception, and when the script is killed. Only if the controller itself is killed does a clock stay
locked; then run ``python -m runtime.clock reset``.

Locking a clock needs root or CAP_SYS_ADMIN. The module does not know which clocks a GPU supports; the
driver takes the nearest. Of the three backends `NvmlClock` and `RecordingClock` are here; the third is
`runtime.simulated.SimulatedGpu`.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

from runtime.nvml import NvmlError, NvmlGpu, num_gpus

_CLOCK = struct.Struct("<I")
"""A request on the pipe: MHz."""

READY = "ready"
"""The controller's first line if it can lock clocks; any other is the reason why not."""

START_TIMEOUT_S = 20.0
"""How long a controller may take to say whether it can lock clocks."""

REPAIR = "python -m runtime.clock reset"
"""What a user runs if a controller was killed before it could unlock its GPU."""


class ClockError(RuntimeError):
    """The GPU's clock cannot be controlled; the message says why."""


class Clock(Protocol):
    """What a script asks for clocks."""

    @property
    def description(self) -> str:
        """Return one line: what becomes of the requests, and why."""

    @property
    def requests(self) -> list[int]:
        """Return every clock asked for so far, in order; MHz."""

    def set(self, clock_mhz: int) -> None:
        """Ask for a clock, without waiting until the GPU runs at it."""

    def reset(self) -> None:
        """Give the clock back to the driver; nothing can be set afterwards."""


class RecordingClock:
    """Write requests down and set nothing.

    Args:
        reason: Why nothing is set.
    """

    def __init__(self, reason: str = "no GPU is controlled") -> None:
        """Begin without requests."""
        self.description = f"clocks are recorded only: {reason}"
        self.requests: list[int] = []

    def set(self, clock_mhz: int) -> None:
        """Write a request down."""
        self.requests.append(clock_mhz)

    def reset(self) -> None:
        """Do nothing."""


class NvmlClock:
    """Lock a GPU's clock through a controller process.

    Args:
        gpu: NVML's index or UUID of the GPU.
        dwell_ms: Least time between a change and a lowering after it; see `Follower`.

    Raises:
        ClockError: There is no driver, no such GPU, or no right to lock its clock.
    """

    def __init__(self, gpu: str, dwell_ms: float = 0.0) -> None:
        """Start the controller and wait until it says that it can lock clocks."""
        self.requests: list[int] = []
        self.description = f"clocks of GPU {gpu} are locked through NVML; if one stays locked, run: {REPAIR}"
        environment = dict(os.environ)
        root = str(Path(__file__).resolve().parents[1])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH")]))
        self._controller = subprocess.Popen(
            [sys.executable, "-m", "runtime.clock", "control", gpu, str(dwell_ms)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=environment,
        )
        answer = self._first_line()
        if answer != READY:
            self._controller.kill()  # It has locked nothing: it has had no request.
            self.reset()
            raise ClockError(answer)

    @property
    def controller_pid(self) -> int:
        """Return the process id of the controller."""
        return self._controller.pid

    def set(self, clock_mhz: int) -> None:
        """Hand a request to the controller.

        Raises:
            ClockError: The controller has ended; the GPU's clock is given back.
        """
        assert self._controller.stdin is not None
        self.requests.append(clock_mhz)
        try:
            os.write(self._controller.stdin.fileno(), _CLOCK.pack(clock_mhz))
        except BrokenPipeError:
            self._controller.wait()
            raise ClockError(f"the clock controller has ended before {clock_mhz} MHz could be set") from None

    def reset(self) -> None:
        """End the pipe, and wait until the controller has unlocked the GPU; one that hangs is killed."""
        assert self._controller.stdin is not None and self._controller.stdout is not None
        self._controller.stdin.close()
        try:
            self._controller.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._controller.kill()
            self._controller.wait()
        self._controller.stdout.close()

    def _first_line(self) -> str:
        assert self._controller.stdout is not None
        readable, _, _ = select.select([self._controller.stdout], [], [], START_TIMEOUT_S)
        if not readable:
            return f"the clock controller did not answer within {START_TIMEOUT_S:g} s"
        return (
            self._controller.stdout.readline().decode().strip() or "the clock controller ended without a word"
        )


def open_clock(gpu: str | None, dwell_ms: float = 0.0) -> Clock:
    """Return a clock that locks the GPU's where there is a GPU and the right to, else one that records.

    Args:
        gpu: NVML's index or UUID, or None if the script runs on the CPU.
        dwell_ms: See `Follower`.
    """
    if gpu is None:
        return RecordingClock("the script runs on the CPU")
    try:
        return NvmlClock(gpu, dwell_ms)
    except ClockError as error:
        return RecordingClock(str(error))


@dataclass
class Follower:
    """Decides when which of the clocks asked for is set: the latest one, never one twice in a row.

    A lowering waits until the clock before has lasted for the dwell, for it would pay less than the change
    costs. A raise never waits, because that would make the iteration longer.

    Attributes:
        dwell_s: Least time between a change and a lowering after it.
        current_mhz: What was set last, or None.
        since_s: When.
        wanted_mhz: What was asked for last, or None.
    """

    dwell_s: float = 0.0
    current_mhz: int | None = None
    since_s: float = 0.0
    wanted_mhz: int | None = None

    def wait_s(self, now_s: float) -> float | None:
        """Return how long the wanted clock has to wait still; None if there is nothing to set."""
        if self.wanted_mhz is None or self.wanted_mhz == self.current_mhz:
            return None
        if self.current_mhz is None or self.wanted_mhz > self.current_mhz:
            return 0.0
        return max(self.since_s + self.dwell_s - now_s, 0.0)

    def has_set(self, clock_mhz: int, now_s: float) -> None:
        """Take note of a change."""
        self.current_mhz, self.since_s = clock_mhz, now_s


def control(gpu: str, dwell_ms: float = 0.0) -> None:
    """Set the clocks that arrive on standard input until it ends, then unlock the GPU; see `Follower`."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _exit)
    try:
        device = NvmlGpu(gpu)
        # Unlocking needs the same right as locking, and makes what was locked by a killed controller good.
        device.unlock()
    except NvmlError as error:
        _say(str(error))
        return
    _say(READY)
    try:
        _follow_requests(device, Follower(dwell_ms / 1000))
    except NvmlError as error:
        sys.stderr.write(f"{error}\n")
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        try:
            device.unlock()
        except NvmlError as error:
            sys.stderr.write(f"{error}; run: {REPAIR}\n")


def reset_all() -> list[str]:
    """Unlock the clocks of all GPUs and return a line for each.

    Raises:
        NvmlError: There is no driver, or no right to.
    """
    lines = []
    for index in range(num_gpus()):
        NvmlGpu(str(index)).unlock()
        lines.append(f"GPU {index}: clocks are unlocked")
    return lines


def _follow_requests(device: NvmlGpu, follower: Follower) -> None:
    unread = b""
    while True:
        wait_s = follower.wait_s(time.monotonic())
        if wait_s == 0.0 and follower.wanted_mhz is not None:
            device.lock(follower.wanted_mhz)
            follower.has_set(follower.wanted_mhz, time.monotonic())
            continue
        if not select.select([0], [], [], wait_s)[0]:
            continue
        data = os.read(0, 1 << 16)
        if not data:
            return
        unread += data
        if whole := len(unread) // _CLOCK.size * _CLOCK.size:
            (follower.wanted_mhz,) = _CLOCK.unpack_from(unread, whole - _CLOCK.size)
            unread = unread[whole:]


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Run the command line: ``reset``, or the controller that `NvmlClock` starts."""
    parser = argparse.ArgumentParser(
        prog="python -m runtime.clock", description="Unlock the clocks of all GPUs."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("reset", help="give the clocks of all GPUs back to the driver")
    controller = commands.add_parser("control", help="used by scripts: set the clocks that arrive on a pipe")
    controller.add_argument("gpu")
    controller.add_argument("dwell_ms", type=float, nargs="?", default=0.0)
    parsed = parser.parse_args(arguments)
    if parsed.command == "control":
        control(parsed.gpu, parsed.dwell_ms)
        return 0
    try:
        _say("\n".join(reset_all()))
    except NvmlError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
