"""The process that sets the clock of a GPU for a script, and gives it back when the script has ended.

It reads the wanted clocks from a pipe or a socket. It ends at the pipe's end, when the script's process is
gone though a fork of it still holds the pipe, and at a signal; in each case it unlocks the GPU first. One GPU
has one controller: two would unlock each other's clocks. The module does not know who asks for which clock,
or why.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import select
import signal
import stat
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from runtime.clocks.nvml import NvmlError, NvmlGpu

CLOCK = struct.Struct("<I")
"""A request on the pipe: MHz."""

READY = "ready"
"""The first line if clocks can be locked; any other is the reason why not. A second one says why it ended."""

REPAIR = "python -m runtime.clock reset"
"""Command for a user whose controller was killed before it could unlock its GPU."""

_OTHER_S = 2.0
"""How long another controller of the GPU may take to end, since its script may just have been killed."""


@dataclass
class Follower:
    """Decides when which of the clocks asked for is set: the latest one, never one twice in a row.

    A lowering waits until the current clock, set at `since_s`, has lasted for the dwell, for it would pay
    less than the change costs. A raise never waits, because that would make the iteration longer.
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


def ending_signals() -> int:
    """Return a pipe that can be read once a signal to end has come.

    No signal raises an exception: one that came while another ends the process would keep it from unlocking.
    It may come to any thread, so the main one waits for the pipe and not for a lock.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, frame: None)
    return read


def _watched(process: int) -> int:
    """Return a file that can be read once a process has ended."""
    try:
        return os.pidfd_open(process)
    except OSError as error:
        raise NvmlError(
            f"process {process} cannot be seen ({error.strerror}); start a clock helper outside of "
            "containers, where it sees all processes"
        ) from None


def _hold(uuid: str, gpu: str) -> int:
    """Return an open file that only one controller of a GPU can hold; it goes with the process."""
    path = Path(tempfile.gettempdir()) / f"schedsearch-clock-{uuid}.lock"
    try:
        # Another user's file in /tmp cannot be opened with O_CREAT.
        create = 0 if path.exists() else os.O_CREAT
        held = os.open(path, os.O_RDWR | os.O_NOFOLLOW | create, 0o666)
    except OSError as error:
        raise NvmlError(f"{path}: cannot be opened ({error.strerror}); remove it, or set TMPDIR") from None
    status = os.fstat(held)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:  # its content will be replaced
        raise NvmlError(f"{path}: is another file as well; remove it, or set TMPDIR")
    deadline = time.monotonic() + _OTHER_S
    while True:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            if time.monotonic() > deadline:
                other = os.pread(held, 20, 0).decode()
                raise NvmlError(
                    f"the clock of GPU {gpu} is controlled by process {other} already; end that run first, "
                    "or use another GPU"
                ) from None
            time.sleep(0.01)
    os.ftruncate(held, 0)
    os.pwrite(held, str(os.getpid()).encode(), 0)
    return held


def _follow(device: NvmlGpu, follower: Follower, ends: Sequence[int]) -> None:
    """Lock the clocks that arrive on standard input, until that ends or one of some files can be read."""
    unread = b""
    while True:
        wait_s = follower.wait_s(time.monotonic())
        if wait_s == 0.0 and follower.wanted_mhz is not None:
            device.lock(follower.wanted_mhz)
            follower.current_mhz, follower.since_s = follower.wanted_mhz, time.monotonic()
            continue
        ready, _, _ = select.select([0, *ends], [], [], wait_s)
        if not ready:
            continue
        if ready != [0] or not (data := os.read(0, 1 << 16)):
            return
        unread += data
        if whole := len(unread) // CLOCK.size * CLOCK.size:
            (follower.wanted_mhz,) = CLOCK.unpack_from(unread, whole - CLOCK.size)
            unread = unread[whole:]


def _say(line: str) -> None:
    with suppress(OSError):  # the script is gone, so nobody wants to know
        os.write(1, f"{line}\n".encode())


def main(arguments: list[str] | None = None) -> int:
    """Set the clocks that arrive on standard input until the script ends, then unlock the GPU."""
    parser = argparse.ArgumentParser(
        prog="python -m runtime.clocks.controller",
        description="Set the clocks that arrive on a pipe; started by scripts, not by hand.",
    )
    parser.add_argument("gpu", help="NVML's index or UUID")
    parser.add_argument("processes", type=int, nargs="+", help="processes each of which ends it by its end")
    parser.add_argument("--dwell-ms", type=float, default=0.0, help="see Follower")
    parsed = parser.parse_args(arguments)
    try:
        device = NvmlGpu(parsed.gpu)
        ends = [_watched(process) for process in parsed.processes]
        held = _hold(device.uuid, parsed.gpu)
        # Unlocking needs the same right as locking, and makes what was locked by a killed controller good.
        device.unlock()
    except NvmlError as error:
        _say(str(error))
        return 0
    ends.append(ending_signals())
    _say(READY)
    try:
        _follow(device, Follower(parsed.dwell_ms / 1000), ends)
    except NvmlError as error:
        _say(str(error))
    finally:
        try:
            device.unlock()
        except NvmlError as error:
            sys.stderr.write(f"{error}; run: {REPAIR}\n")
        os.close(held)
    return 0


if __name__ == "__main__":
    sys.exit(main())
