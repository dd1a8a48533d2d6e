"""Devices that are threads of one process, of which exactly one runs at any time.

A device runs until it must wait for another, and then hands over to the next one that can go on, in the
order of the devices. So a run is deterministic, and when none can go on, that is a deadlock, known at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


class DeadlockError(RuntimeError):
    """No device can go on: each waits for another, or for one that has ended."""


class StoppedError(RuntimeError):
    """The run was given up, because another device failed or whoever started it stopped it."""


class Turns:
    """Turns of threads that take part, each under its number; device 0 begins."""

    def __init__(self, num_devices: int) -> None:
        self._changed = threading.Condition()
        self._waits: dict[int, Callable[[], bool]] = {device: lambda: True for device in range(num_devices)}
        self._num_devices, self._turn = num_devices, 0
        self._error: RuntimeError | None = None

    def begin(self, device: int) -> None:
        """Wait for a device's turn; the first thing that its thread does."""
        with self._changed:
            self._changed.wait_for(lambda: self._turn == device)

    def wait_until(self, device: int, is_met: Callable[[], bool]) -> None:
        """Let others go on until a condition is met; only the device whose turn it is may call it.

        Raises:
            DeadlockError: It never will be.
            StoppedError: The run was given up.
        """
        if self._error is None and not is_met():
            self._waits[device] = is_met
            self._pass_on(device)
            self.begin(device)
        if self._error is not None:
            raise type(self._error)(*self._error.args)

    def end(self, device: int, failed: bool) -> None:
        """Hand over for good; the last thing that a device's thread does."""
        if failed:
            self.stop()
        del self._waits[device]
        self._pass_on(device)

    def stop(self) -> None:
        """Let every device fail where it waits next; called from outside."""
        self._error = self._error or StoppedError("the run was stopped")

    def _pass_on(self, device: int) -> None:
        others = ((device + i) % self._num_devices for i in range(1, self._num_devices + 1))
        left = [other for other in others if other in self._waits]
        able = (other for other in left if self._error or self._waits[other]())
        following = next(able, None)
        if left and following is None:
            self._error, following = DeadlockError("the devices wait for each other"), left[0]
        with self._changed:
            self._turn = -1 if following is None else following
            self._changed.notify_all()


@contextmanager
def backward_in_own_thread(device: torch.device) -> Iterator[None]:
    """Let the backward of this thread run in this thread.

    Torch has one thread for the backward of everything on a GPU. If a block there waited for its other
    devices, theirs could not even begin.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
    with torch.autograd.set_multithreading_enabled(False):
        yield
