"""The command ``python -m runtime.clock serve``: the clock helper, until it is told to end."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading
from pathlib import Path

from runtime.clocks.access.allowed import AllowList, RefusedError, read_allow_list
from runtime.clocks.access.helper import ClockHelper
from runtime.clocks.access.opening import DEFAULT_SOCKET
from runtime.clocks.clock import ClockError, NvmlClock
from runtime.clocks.controller import ending_signals
from runtime.clocks.nvml import NvmlError, NvmlGpu, num_gpus


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
    parser.add_argument("--clocks", metavar="MIN-MAX", help="clocks in MHz that may be set (default: any)")
    parser.add_argument(
        "--socket", type=Path, default=DEFAULT_SOCKET, help="its socket (default %(default)s)"
    )
    parser.add_argument("--max-clients", type=int, default=64, help="clients at a time (default %(default)s)")


def run(parsed: argparse.Namespace) -> int:
    """Serve until SIGTERM, SIGHUP or Ctrl-C; return the exit code."""
    signals = ending_signals()
    path = parsed.socket.absolute()
    os.chdir("/")  # where no user can put modules for the controllers to find
    try:
        allowed = read_allow_list(parsed.allow, parsed.clocks)
        _unlock(allowed)
        path.parent.mkdir(exist_ok=True)
        _clear(path)
        helper = ClockHelper(path, allowed, parsed.max_clients)
    except (RefusedError, NvmlError, ClockError) as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{path}: cannot be made ({error.strerror or error}); give another --socket")
    thread = threading.Thread(target=helper.serve_forever, args=(0.05,))
    thread.start()
    sys.stdout.write(f"clock helper: {path}, for users {', '.join(map(str, allowed.gpus_of))}\n")
    sys.stdout.flush()
    os.read(signals, 1)
    helper.close()
    thread.join()
    return 0


def _unlock(allowed: AllowList) -> None:
    """Unlock what a helper that was killed may have left locked, which also shows whether it may.

    Raises:
        ClockError: It may not, or a run that needs no helper sets the clock.
    """
    own = [gpus for gpus in allowed.gpus_of.values() if gpus is not None]
    every = (
        {NvmlGpu(str(index)).uuid for index in range(num_gpus())}
        if len(own) < len(allowed.gpus_of)
        else set()
    )
    for uuid in sorted(every.union(*own)):
        NvmlClock(uuid).reset()


def _clear(path: Path) -> None:
    """Remove the socket of a helper that is gone.

    Raises:
        RefusedError: Another one serves it, or it is something else.
    """
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
