"""A GPU whose clock Zeus's daemon locks, by the HTTP interface that its documents describe from 0.4 on.

The daemon (zeusd) knows no clients: it gives no clock back by itself. So the controller process asks it, and
gives the clock back as it does where it locks clocks itself. Reading a GPU needs no daemon.
"""

from __future__ import annotations

import http.client
import os
import socket
from urllib.parse import urlencode

from runtime.clocks.nvml import NvmlError, NvmlGpu

ZEUSD_VARIABLE, TOKEN_VARIABLE = "ZEUSD_SOCK_PATH", "ZEUSD_TOKEN"
"""Zeus's own names of the environment: the daemon's socket, and the token that it may want."""

ANSWER_S = 10.0


class ZeusdGpu:
    """A GPU locked and unlocked through Zeus's daemon.

    Args:
        gpu: GPU to find its index by.
        path: Socket of the daemon.

    Raises:
        NvmlError: In methods: the daemon is not there, or refuses.
    """

    def __init__(self, gpu: NvmlGpu, path: str) -> None:
        """Keep the daemon's address and the GPU's number there."""
        self.uuid, self._index, self._path = gpu.uuid, gpu.index, path

    def lock(self, clock_mhz: int) -> None:
        """Ask for a clock, from soon on."""
        self._post("set_gpu_locked_clocks", min_clock_mhz=clock_mhz, max_clock_mhz=clock_mhz)

    def unlock(self) -> None:
        """Give the choice of the clock back to the driver."""
        self._post("reset_gpu_locked_clocks")

    def _post(self, what: str, **numbers: int) -> None:
        query = urlencode({"gpu_ids": self._index, **numbers, "block": "true"})
        token = os.environ.get(TOKEN_VARIABLE)
        connection = _UnixConnection(self._path)
        try:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            connection.request("POST", f"/gpu/{what}?{query}", headers=headers)
            answer = connection.getresponse()
            text = " ".join(answer.read(1000).decode(errors="replace").split())
        except (OSError, http.client.HTTPException) as error:
            raise NvmlError(f"Zeus's daemon at {self._path} does not answer ({error})") from None
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise NvmlError(
                f"Zeus's daemon at {self._path} refuses to {what.replace('_', ' ')} of GPU {self._index} "
                f"({answer.status} {text or answer.reason}); needed is zeusd 0.4 or later with gpu-control"
            )


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("zeusd", timeout=ANSWER_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(ANSWER_S)
        self.sock.connect(self._path)
