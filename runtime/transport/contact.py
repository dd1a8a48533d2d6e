"""Why a process no longer answers: what it said when it failed, or that it is gone.

A process that ends with an error says why in the store by which all have met. Torchrun keeps that, so the
word outlives the process, and who waits for it in vain can repeat it. A process that is killed says nothing;
on the same machine the others see that it is gone.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from torch.distributed.distributed_c10d import Store

from runtime.transport.agreement import PipelineError
from runtime.transport.protocol import TransferError

_LOST = re.compile("connection|broken pipe|remote process", re.IGNORECASE)
"""What gloo and NCCL say where the process at the other end has ended, unlike where it is late."""

_OF_GLOO = re.compile(r"^\[\S*:\d+\] |\. This is typically caused .*$|GLHF.*$")
"""What gloo adds: its own line of code, and where to look."""

_WAIT_S = 1.0
"""How long a process whose connections are closed may take to be gone; the kernel closes them first."""

_LOOK_S = 0.01


class Contact:
    """What the processes of a run know of each other beside their messages.

    Attributes:
        is_left: Whether this process ends by Ctrl-C, or because another one did not come.

    Args:
        store: Store by which they have met.
        device: This one.
        num_devices: Devices of the run.
    """

    def __init__(self, store: Store, device: int, num_devices: int) -> None:
        """Tell the others where this process is, and take back what it said in an earlier pipeline."""
        self._store, self._device, self._num_devices = store, device, num_devices
        self.is_left = False
        store.set(_last_words(device), "")
        store.set(_process(device), f"{_machine()} {os.getpid()}")

    def say(self, error: BaseException) -> None:
        """Tell the others why this process ends; what it has itself from another one, as that one said it."""
        self.is_left = isinstance(error, (KeyboardInterrupt, TransferError))
        words = getattr(error, "cause", None)  # of a transfer, or of a checkpoint
        if not isinstance(words, str):
            text = " ".join(str(error).split())
            named = isinstance(error, (PipelineError, TransferError))
            words = text if named else f"device {self._device}: {type(error).__name__}: {text}"
        with suppress(RuntimeError):  # the store may have ended first
            self._store.set(_last_words(self._device), words)

    def cause(self, error: RuntimeError, devices: Sequence[int] | None = None) -> str | None:
        """Return why a transfer failed, if another process has said so or is gone.

        Args:
            error: Error of torch.
            devices: Those that it waited for; by default all.
        """
        others = [each for each in devices or range(self._num_devices) if each != self._device]
        deadline_s = time.monotonic() + (_WAIT_S if _LOST.search(str(error)) else 0.0)
        while True:
            with suppress(RuntimeError):
                gone = self._gone(others)
                if found := self._said(others) or gone:  # in this order: who speaks does so before it is gone
                    return found
            if time.monotonic() > deadline_s:
                return None
            time.sleep(_LOOK_S)

    @contextmanager
    def meeting(self, devices: Sequence[int] | None = None) -> Iterator[None]:
        """Say of processes that do not meet which one waits for which, and why, as torch does not.

        Args:
            devices: Devices that meet; by default all.

        Raises:
            TransferError: Another one ended, or did not come in time.
        """
        try:
            yield
        except RuntimeError as error:
            team = ", ".join(map(str, devices or range(self._num_devices)))
            where, cause = (
                f"device {self._device}: waits for devices {team} to meet",
                self.cause(error, devices),
            )
            raise TransferError(f"{where}: {cause or reason(error)}", cause) from error

    def _said(self, devices: Sequence[int]) -> str | None:
        found = (self._read(_last_words(device)) for device in devices)
        return next(filter(None, found), None)

    def _gone(self, devices: Sequence[int]) -> str | None:
        gone: dict[int, str] = {}
        for device in devices:
            machine, _, pid = self._read(_process(device)).partition(" ")
            if machine and machine == _machine() and not is_alive(int(pid)):
                gone[device] = pid
        if not gone:
            return None
        named = ", ".join(f"device {device} (process {pid})" for device, pid in gone.items())
        return (
            f"{named} is gone without a word: killed by a signal or for its memory, or ended outside of its "
            "pipeline; whoever started it, as torchrun, knows the signal"
        )

    def _read(self, key: str) -> str:
        return self._store.get(key).decode() if self._store.check([key]) else ""


def reason(error: BaseException) -> str:
    """Return what torch says of a transfer that failed, in one line and without gloo's advice."""
    return _OF_GLOO.sub("", str(error).partition("\n")[0])


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended but was not yet waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z"


def _machine() -> str:
    """Return what tells where a number of a process means the same; empty where nothing does (not Linux)."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{Path('/proc/self/ns/pid').readlink()}"
    return ""


def _last_words(device: int) -> str:
    return f"schedsearch/last_words/{device}"


def _process(device: int) -> str:
    return f"schedsearch/process/{device}"
