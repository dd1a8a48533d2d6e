"""The clock helper: locks clocks for users who may not, on a Unix socket, and gives them back.

Each client has a thread, and a controller process (`runtime.clocks.controller`) for its GPU, which unlocks
the GPU when the client's socket or process ends, and also when the helper itself is killed. Who a client is,
the kernel says (``SO_PEERCRED``). The helper does not know plans.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from runtime.clocks.access.allowed import AllowList, RefusedError
from runtime.clocks.access.helper_clock import MAX_LINE, read_line
from runtime.clocks.clock import ClockError, NvmlClock
from runtime.clocks.controller import CLOCK, READY
from runtime.clocks.nvml import NvmlError, NvmlGpu

REQUEST_S = 5.0
"""How long a client may take to say which GPU it wants."""

RELEASE_S = 2.0
"""How long a GPU's last client may take to give it back, since its process may just have been killed."""

_CREDENTIALS = struct.Struct("3i")


class Peer(NamedTuple):
    """The process that opened a connection, as the kernel saw it then.

    Attributes:
        pid: Process id, in the helper's namespace; 0 where it cannot be seen from there.
        uid: User id.
    """

    pid: int
    uid: int

    @classmethod
    def of(cls, connection: socket.socket) -> Peer:
        """Return who is at the other end."""
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(found)
        return cls(pid, uid)


class ClockHelper(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Serves the clients of a socket.

    Args:
        path: Where the socket is made; every user may connect, and is then checked.
        allowed: What is done for whom.
        max_clients: Clients at a time.

    Raises:
        OSError: The socket cannot be made.
    """

    def __init__(self, path: Path, allowed: AllowList, max_clients: int) -> None:
        """Make the socket; `serve_forever` serves it."""
        self._path, self._allowed, self._max_clients = path, allowed, max_clients
        self._gpu_of: dict[socket.socket, str | None] = {}
        self._changed = threading.Condition()
        super().__init__(str(path), socketserver.BaseRequestHandler)
        path.chmod(0o666)

    def close(self) -> None:
        """Give all clocks back and remove the socket; call it in another thread than `serve_forever`."""
        self.shutdown()
        with self._changed:
            for connection in self._gpu_of:
                connection.shutdown(socket.SHUT_RD)  # its thread takes this for the client's end
        self.server_close()
        self._path.unlink(missing_ok=True)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Admit a client, or say why not and end its connection."""
        try:
            self._allowed.check_user(Peer.of(request).uid)
            with self._changed:
                if len(self._gpu_of) >= self._max_clients:
                    raise RefusedError(f"it has {self._max_clients} clients, which is its limit; try later")
                self._gpu_of[request] = None
        except RefusedError as error:
            _say(request, str(error))
            return False
        return True

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve one client until it ends, in a thread of its own."""
        try:
            self._serve(request)
        except (RefusedError, ClockError, NvmlError) as error:
            _say(request, str(error))
        except OSError:
            pass  # the client is gone
        finally:
            with self._changed:
                del self._gpu_of[request]
                self._changed.notify_all()

    def _serve(self, request: socket.socket) -> None:
        peer = Peer.of(request)
        request.settimeout(REQUEST_S)
        gpu, dwell_ms = _wanted(read_line(request))
        request.settimeout(None)
        device = NvmlGpu(gpu)
        self._allowed.check_gpu(peer.uid, device.uuid)
        with self._reserved(request, device.uuid), _process(peer.pid) as process:
            clock = NvmlClock(device.uuid, dwell_ms)
            try:
                _say(request, READY)
                self._pass_on(request, process, clock)
            finally:
                clock.reset()
                if clock.exit_code != 0:  # it was killed, and has given nothing back
                    device.unlock()

    def _pass_on(self, request: socket.socket, process: int, clock: NvmlClock) -> None:
        """Pass clocks on until the client or the controller has ended.

        Raises:
            RefusedError: A clock is not allowed.
            ClockError: The controller has ended.
        """
        poll = select.poll()
        for file in (request.fileno(), process, clock.words):
            poll.register(file, select.POLLIN)
        unread = b""
        while True:
            ready = {file for file, _ in poll.poll()}
            if process in ready:
                return
            if clock.words in ready:
                raise ClockError(clock.last_words() or "the clock controller has ended")
            data = request.recv(1 << 16)
            if not data:
                return
            unread += data
            whole = len(unread) // CLOCK.size * CLOCK.size
            clocks_mhz = [clock_mhz for (clock_mhz,) in CLOCK.iter_unpack(unread[:whole])]
            unread = unread[whole:]
            for clock_mhz in clocks_mhz:
                self._allowed.check_clock(clock_mhz)
            if clocks_mhz:
                clock.set(clocks_mhz[-1])

    @contextlib.contextmanager
    def _reserved(self, request: socket.socket, uuid: str) -> Iterator[None]:
        """Keep a GPU for one client.

        Raises:
            RefusedError: Another one has it.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: uuid not in self._gpu_of.values(), RELEASE_S):
                raise RefusedError(
                    f"the clock of GPU {uuid} is set by another run; end that first, or use another GPU"
                )
            self._gpu_of[request] = uuid
        try:
            yield
        finally:
            with self._changed:
                self._gpu_of[request] = None
                self._changed.notify_all()


def _wanted(line: str) -> tuple[str, float]:
    """Return the GPU and the dwell in ms of a client's first line."""
    try:
        data = json.loads(line)
        gpu, dwell_ms = data["gpu"], data["dwell_ms"]
        if isinstance(gpu, str) and gpu.isascii() and type(dwell_ms) in (int, float) and 0 <= dwell_ms < 1e9:
            return gpu, float(dwell_ms)
    except (ValueError, TypeError, KeyError):
        pass
    raise RefusedError(f"{line[:80]!r} is no request; use the client of the same version")


@contextlib.contextmanager
def _process(pid: int) -> Iterator[int]:
    """Yield a file that can be read once a process has ended, though a fork of it may have its socket.

    Raises:
        RefusedError: It cannot be seen from here.
    """
    try:
        file = os.pidfd_open(pid)
    except OSError:
        raise RefusedError(
            "the helper cannot see your process; start it outside of containers, where it sees all processes"
        ) from None
    try:
        yield file
    finally:
        os.close(file)


def _say(request: socket.socket, line: str) -> None:
    with contextlib.suppress(OSError):
        request.sendall(line.encode()[: MAX_LINE - 1] + b"\n")
