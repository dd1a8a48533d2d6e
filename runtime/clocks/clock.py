"""The clock of a GPU: requested by scripts, set by a process of its own, given back whatever happens.

A locked clock outlives the process that locked it. So a controller process, in a session of its own,
reads the wanted clocks from a pipe, and unlocks the GPU when the script ends: at a clean exit, at an
exception, and when it is killed. Only if the controller itself is killed does a clock stay
locked; then run ``python -m runtime.clock reset``, or any script that controls the same GPU.

Locking a clock needs root or CAP_SYS_ADMIN; `runtime.clocks.access` is for users without. The module does not
know which clocks a GPU supports; the driver takes the nearest. Of the backends `NvmlClock` and
`RecordingClock` are here; others are `runtime.clocks.access.helper_clock.HelperClock` and
`runtime.virtual.virtual_gpu.VirtualGpu`.
"""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
from typing import Protocol

from runtime.clocks.controller import CLOCK, READY, REPAIR
from schedsearch import import_paths

_LOG = logging.getLogger(__name__)

START_TIMEOUT_S = 20.0
"""How long a controller may take to say whether it can lock clocks."""


class ClockError(RuntimeError):
    """The GPU's clock cannot be controlled; the message says why."""


class ClockBackend(Protocol):
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
        dwell_ms: Least time between a change and a lowering after it; see
            `runtime.clocks.controller.Follower`.
        zeusd: Socket of Zeus's daemon, which then locks the clock in place of the controller.

    Raises:
        ClockError: There is no driver, no such GPU, or no right to lock its clock.
    """

    def __init__(self, gpu: str, dwell_ms: float = 0.0, zeusd: str | None = None) -> None:
        """Start the controller and wait until it says that it can lock clocks."""
        self.requests: list[int] = []
        by = "NVML" if zeusd is None else f"Zeus's daemon at {zeusd}"
        self.description = f"clocks of GPU {gpu} are locked through {by}; if one stays locked, run: {REPAIR}"
        line = [sys.executable, "-m", "runtime.clocks.controller", gpu, str(os.getpid()), str(dwell_ms)]
        self._controller = subprocess.Popen(
            [*line, *([zeusd] if zeusd is not None else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=os.environ | import_paths(),
        )
        assert self._controller.stdin is not None
        os.set_blocking(self._controller.stdin.fileno(), False)
        answer = self._first_line()
        if answer != READY:
            self._controller.kill()  # It has locked nothing: it has had no request.
            self.reset()
            raise ClockError(answer)

    @property
    def controller_pid(self) -> int:
        """Return the process id of the controller."""
        return self._controller.pid

    @property
    def words(self) -> int:
        """Return a file that can be read once the controller has ended; see `last_words`."""
        assert self._controller.stdout is not None
        return self._controller.stdout.fileno()

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the controller, 0 if it gave the clock back; None while it runs."""
        return self._controller.returncode

    def set(self, clock_mhz: int) -> None:
        """Hand a request to the controller; this never waits.

        Raises:
            ClockError: The controller has ended, and the GPU's clock is given back; or it takes no requests.
        """
        assert self._controller.stdin is not None
        self.requests.append(clock_mhz)
        try:
            os.write(self._controller.stdin.fileno(), CLOCK.pack(clock_mhz))
        except BrokenPipeError:
            said = self.last_words()
            reason = f": {said}" if said else ""
            raise ClockError(
                f"the clock controller has ended before {clock_mhz} MHz could be set{reason}"
            ) from None
        except BlockingIOError:
            raise ClockError(
                f"the clock controller, process {self.controller_pid}, takes no requests; "
                "does the driver hang?"
            ) from None

    def reset(self) -> None:
        """End the pipe, and wait until the controller has unlocked the GPU; one that hangs is killed.

        Then the clock may stay locked, and the log says what to do.
        """
        assert self._controller.stdin is not None and self._controller.stdout is not None
        self._controller.stdin.close()
        try:
            self._controller.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._controller.kill()
            self._controller.wait()
            _LOG.warning("the clock controller hung and was killed; if a clock stays locked, run: %s", REPAIR)
        self._controller.stdout.close()

    def last_words(self) -> str:
        """Return why the controller has ended, once it has; nothing if it did not say."""
        assert self._controller.stdout is not None
        self._controller.wait()
        return self._controller.stdout.read().decode().strip()

    def _first_line(self) -> str:
        assert self._controller.stdout is not None
        readable, _, _ = select.select([self._controller.stdout], [], [], START_TIMEOUT_S)
        if not readable:
            return f"the clock controller did not answer within {START_TIMEOUT_S:g} s"
        return (
            self._controller.stdout.readline().decode().strip() or "the clock controller ended without a word"
        )
