"""The clock of a GPU, asked for over a Unix socket from the helper that may lock it.

A client sends one line of JSON, the GPU and the dwell, and gets a line back: `READY`, or why not. From then
on it sends clocks as the controller's pipe takes them. The helper gives the clock back when the socket or the
client's process ends.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
from pathlib import Path

from runtime.clocks.clock import START_TIMEOUT_S, ClockError
from runtime.clocks.controller import CLOCK, READY

_LOG = logging.getLogger(__name__)

MAX_LINE = 4096
"""Bytes that a line of either side may have."""


class HelperClock:
    """Lock a GPU's clock through the helper.

    Args:
        gpu: NVML's index or UUID of the GPU.
        path: Socket of the helper.
        dwell_ms: See `runtime.clocks.clock.NvmlClock`.

    Raises:
        ClockError: There is no helper, or it refuses.
    """

    def __init__(self, gpu: str, path: str | Path, dwell_ms: float = 0.0) -> None:
        """Ask the helper for the GPU and wait until it says that it can lock clocks."""
        self.requests: list[int] = []
        self.description = f"clocks of GPU {gpu} are locked by the helper at {path}"
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(START_TIMEOUT_S)
        try:
            self._socket.connect(str(path))
        except BlockingIOError:
            self._fail("it has too many clients waiting; try again")
        except OSError as error:
            self._fail(f"{error.strerror or error}; have it started: python -m runtime.clock serve")
        with contextlib.suppress(OSError):  # one that refuses the user may have gone; its line says why
            self._socket.sendall(json.dumps({"gpu": gpu, "dwell_ms": dwell_ms}).encode() + b"\n")
        answer = read_line(self._socket)
        if answer != READY:
            self._fail(answer or "it does not answer")
        self._socket.setblocking(False)

    def set(self, clock_mhz: int) -> None:
        """Hand a request to the helper; this never waits.

        Raises:
            ClockError: The helper refuses the clock or has ended, and the GPU's clock is given back; or it
                takes no requests.
        """
        self.requests.append(clock_mhz)
        try:
            self._socket.send(CLOCK.pack(clock_mhz))
        except BlockingIOError:
            raise ClockError(f"the clock helper at {self._path} takes no requests; does it hang?") from None
        except OSError:
            reason = read_line(self._socket) or "it has ended"
            raise ClockError(f"clock helper at {self._path}: {reason}") from None

    def reset(self) -> None:
        """End the requests, and wait until the helper has given the clock back."""
        with contextlib.suppress(OSError), self._socket:
            self._socket.shutdown(socket.SHUT_WR)
            self._socket.settimeout(START_TIMEOUT_S)
            try:
                while self._socket.recv(MAX_LINE):
                    pass
            except TimeoutError:
                _LOG.warning("the clock helper at %s does not say that it gave the clock back", self._path)

    def _fail(self, reason: str) -> None:
        self._socket.close()
        raise ClockError(f"clock helper at {self._path}: {reason}")


def read_line(connection: socket.socket) -> str:
    """Return the next line without its end; what there is of it where the other side ends or is too slow."""
    found = b""
    with contextlib.suppress(OSError):
        while not found.endswith(b"\n") and len(found) < MAX_LINE and (byte := connection.recv(1)):
            found += byte
    return found.decode(errors="replace").strip()
