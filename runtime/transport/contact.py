"""Last words of a process, for others that wait for it: its error, or that it is gone.

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
"""Time that a process whose connections are closed may take to be gone; the kernel closes them first."""

_LOOK_S = 0.01


class Contact:
    """Words of a run's processes beside their messages.

    Attributes:
        is_left: Whether this process ends by Ctrl-C, or because another one did not come.
    """

    def __init__(self, store: Store, device: int, num_devices: int) -> None:
        """Tell the others where this process is, and take back its words of an earlier pipeline."""
        self._store, self._device, self._devices = store, device, range(num_devices)
        self.is_left = False
        store.set(f"schedsearch/last_words/{device}", "")
        store.set(f"schedsearch/process/{device}", f"{machine_name()} {os.getpid()}")

    def say(self, error: BaseException) -> None:
        """Tell the others why this process ends, in the words of another one if it has it from there."""
        self.is_left = isinstance(error, (KeyboardInterrupt, TransferError))
        words = getattr(error, "cause", None)  # of a transfer, or of a checkpoint
        if not isinstance(words, str):
            text = " ".join(str(error).split())
            named = isinstance(error, (PipelineError, TransferError))
            words = text if named else f"device {self._device}: {type(error).__name__}: {text}"
        with suppress(RuntimeError):  # the store may have ended first
            self._store.set(f"schedsearch/last_words/{self._device}", words)

    def cause(self, error: RuntimeError, devices: Sequence[int] | None = None) -> str | None:
        """Return why torch failed to wait for devices, by default all, if one has said so or is gone."""
        others = [device for device in devices or self._devices if device != self._device]
        deadline_s = time.monotonic() + (_WAIT_S if _LOST.search(str(error)) else 0.0)
        while True:
            with suppress(RuntimeError):
                gone = self._gone(others)  # before what they said: who speaks does so before it is gone
                said = (self._read(f"last_words/{device}") for device in others)
                if cause := next(filter(None, said), gone):
                    return cause
            if time.monotonic() > deadline_s:
                return None
            time.sleep(_LOOK_S)

    @contextmanager
    def meeting(self, devices: Sequence[int] | None = None) -> Iterator[None]:
        """Say of devices that do not meet, by default all, which one waits for which, and why.

        Raises:
            TransferError: Another one ended, or did not come in time.
        """
        try:
            yield
        except RuntimeError as error:
            team, cause = ", ".join(map(str, devices or self._devices)), self.cause(error, devices)
            where = f"device {self._device}: waits for devices {team} to meet"
            raise TransferError(f"{where}: {cause or reason(error)}", cause) from error

    def _gone(self, devices: Sequence[int]) -> str | None:
        gone = []
        for device in devices:
            machine, _, pid = self._read(f"process/{device}").partition(" ")
            if machine and machine == machine_name() and not is_alive(int(pid)):
                gone.append(f"device {device} (process {pid})")
        if not gone:
            return None
        return (
            f"{', '.join(gone)} is gone without a word: killed by a signal or for its memory, or ended "
            "outside of its pipeline; whoever started it, as torchrun, knows the signal"
        )

    def _read(self, name: str) -> str:
        key = f"schedsearch/{name}"
        return self._store.get(key).decode() if self._store.check([key]) else ""


def reason(error: BaseException) -> str:
    """Return torch's error of a transfer in one line, without gloo's advice."""
    return _OF_GLOO.sub("", str(error).partition("\n")[0])


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended but was not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def machine_name() -> str:
    """Return a name that is the same where clocks and numbers of processes are; empty if it is not Linux."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{Path('/proc/self/ns/pid').readlink()}"
    return ""
