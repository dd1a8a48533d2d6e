"""The server's process: connections, and an end that waits for nobody."""

from __future__ import annotations

import socket
import sys

import uvicorn
from fastapi import FastAPI

_SWITCH_S = 5e-4
"""For how long one thread may keep Python from others; its default of 5 ms is what a straggler may take."""

_GRACE_S = 10
"""For how long requests that are being answered at the end may take."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that takes connections, which wait until there is a server for them.

    Raises:
        OSError: The address cannot be used.
    """
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    listener = socket.create_server((host, port), family=family, backlog=1024)
    # An answer is sent in two parts; without this the second one waits 40 ms for word that the first arrived.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


class Server(uvicorn.Server):
    """Serves an application of `runtime.server.app` until it is told to end.

    Args:
        app: What to serve.
        log_level: As uvicorn's.
    """

    def __init__(self, app: FastAPI, log_level: str = "warning") -> None:
        """Configure uvicorn."""
        self._app = app
        super().__init__(
            uvicorn.Config(app, log_level=log_level, access_log=False, timeout_graceful_shutdown=_GRACE_S)
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer the requests that wait for a plan, and then end as uvicorn does."""
        self._app.state.news.close()
        await super().shutdown(sockets)


def serve(app: FastAPI, listener: socket.socket) -> None:
    """Serve in this process, as all that it does, until Ctrl-C or SIGTERM."""
    sys.setswitchinterval(_SWITCH_S)
    Server(app).run(sockets=[listener])
