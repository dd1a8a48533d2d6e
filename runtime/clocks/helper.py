"""The clock helper: locks clocks for users who may not, on a Unix socket, and gives them back.

A client sends one line, its GPU and its dwell in ms, and from then on clocks as the controller's pipe takes
them. Its socket is handed to a controller process (`runtime.clocks.controller`) for its GPU, which answers
`READY`, or why not, and unlocks the GPU when the socket, the client or the helper ends. Who a client is, the
kernel says (``SO_PEERCRED``); who may set the clocks of which GPUs, the helper is told when it starts. It
does not know plans, and listens on no network.
"""

from __future__ import annotations

import argparse
import math
import os
import pwd
import select
import socket
import struct
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from runtime.clocks.clock import DEFAULT_SOCKET, MAX_LINE, ClockError, NvmlClock, read_line, start_controller
from runtime.clocks.controller import ending_signals
from runtime.clocks.nvml import NvmlError, NvmlGpu, num_gpus

REQUEST_S = 5.0
"""How long a client may take to say which GPU it wants."""

_CREDENTIALS = struct.Struct("3i")


class RefusedError(ValueError):
    """The helper refuses a request; the message gives the reason and a remedy."""


AllowList = Mapping[int, frozenset[str] | None]
"""For each user id the UUIDs of the GPUs whose clocks it may set; None for all GPUs."""


def read_allow_list(users: Sequence[str]) -> AllowList:
    """Return the list that a command line describes.

    Args:
        users: A user by name or id each, with its GPUs by NVML's index or UUID where it may not set all:
            ``alice`` or ``alice:0,1``. None for the user who starts the helper.

    Raises:
        RefusedError: A user cannot be read.
        NvmlError: There is no such GPU.
    """
    allowed: dict[int, frozenset[str] | None] = {}
    for user in users or [str(os.geteuid())]:
        name, colon, gpus = user.partition(":")
        try:
            uid = int(name) if name.isdigit() else pwd.getpwnam(name).pw_uid
        except KeyError:
            raise RefusedError(f"--allow {name}: is no user of this machine; give a name or an id") from None
        if colon and not all(gpus.split(",")):
            raise RefusedError(
                f"--allow {user}: names no GPU after the colon; give {name}:0, or {name} alone"
            )
        uuids = frozenset(NvmlGpu(gpu).uuid for gpu in gpus.split(",")) if colon else None
        before = allowed.get(uid, frozenset())
        allowed[uid] = None if uuids is None or before is None else uuids | before
    return allowed


def serve_client(client: socket.socket, allowed: AllowList) -> None:
    """Serve a client until it ends, or say why not.

    A controller needs no word from the helper to give its clock back, only that its process has ended.
    """
    with client:
        try:
            credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            process, user, _ = _CREDENTIALS.unpack(credentials)
            if user not in allowed:
                remedy = f"have the helper started with --allow {user} as well"
                raise RefusedError(f"user {user} may not set clocks; {remedy}")
            gpu, dwell_ms = _wanted(read_line(client.fileno(), REQUEST_S))
            device = NvmlGpu(gpu)
            gpus = allowed[user]
            if gpus is not None and device.uuid not in gpus:
                refused = f"user {user} may not set the clock of GPU {device.uuid}"
                raise RefusedError(f"{refused}; use {' or '.join(sorted(gpus))}")
            controller = start_controller(device.uuid, process, dwell_ms, stdin=client, stdout=client)
            if controller.wait() != 0:  # it was killed, and has given nothing back
                device.unlock()
                raise RefusedError("the clock controller has ended")
        except (RefusedError, NvmlError) as error:
            with suppress(OSError):  # the client is gone
                client.sendall(str(error).encode()[: MAX_LINE - 1] + b"\n")


def _wanted(line: str) -> tuple[str, float]:
    """Return the GPU and the dwell in ms of a client's first line."""
    gpu, _, dwell = line.partition(" ")
    with suppress(ValueError):
        if gpu.isascii() and 0 <= float(dwell) < math.inf:
            return gpu, float(dwell)
    raise RefusedError(f"{line[:80]!r} is no request; use the client of the same version")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="USER[:GPU,...]",
        help="a user by name or id who may set clocks, of these GPUs only if some are named; may be repeated "
        "(default: the user who starts it)",
    )
    parser.add_argument(
        "--socket", type=Path, default=DEFAULT_SOCKET, help="its socket (default %(default)s)"
    )


def run(parsed: argparse.Namespace) -> int:
    """Serve until SIGTERM, SIGHUP or Ctrl-C; return the exit code."""
    signals, path = ending_signals(), parsed.socket.absolute()
    os.chdir("/")  # where no user can put modules for the controllers to find
    try:
        allowed = read_allow_list(parsed.allow)
        # What a helper that was killed may have left locked is unlocked, which also shows whether it may.
        indices = range(num_gpus()) if None in allowed.values() else ()
        uuids = {NvmlGpu(str(index)).uuid for index in indices}
        for uuid in sorted(uuids.union(*(gpus or () for gpus in allowed.values()))):
            NvmlClock(uuid).reset()
        path.parent.mkdir(exist_ok=True)
        clear(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        path.chmod(0o666)  # every user may connect, and is then checked
        listener.listen()
    except (RefusedError, NvmlError, ClockError) as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{path}: cannot be made ({error.strerror or error}); give another --socket")
    sys.stdout.write(f"clock helper: {path}, for users {', '.join(map(str, allowed))}\n")
    sys.stdout.flush()
    while signals not in select.select([listener.fileno(), signals], [], [])[0]:
        client, _ = listener.accept()
        threading.Thread(target=serve_client, args=(client, allowed), daemon=True).start()
    path.unlink(missing_ok=True)
    return 0


def clear(path: Path) -> None:
    """Remove the socket of a helper that is gone; refuse one that is served, or another file."""
    if not path.exists():
        return
    if not path.is_socket():
        raise RefusedError(f"{path}: is no socket; give another --socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        try:
            other.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise RefusedError(f"{path}: another helper serves it; end that, or give another --socket")


def _fail(line: str) -> int:
    sys.stderr.write(f"clock helper: error: {line}\n")
    return 1
