"""Devices that are threads of one process, of which exactly one runs at any time.

A device runs until it must wait for another, and then hands over to the next one that can go on, in the
order of the devices. So a run is deterministic, and when none can go on, that is a deadlock, known at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")


class DeadlockError(RuntimeError):
    """No device can go on: each waits for another, or for one that has ended."""


class StoppedError(RuntimeError):
    """The run was given up, because another device failed or whoever started it stopped it."""


class Turns:
    """Whose turn it is.

    Args:
        num_devices: Threads that take part, each under its number.
    """

    def __init__(self, num_devices: int) -> None:
        """Let device 0 begin."""
        self._changed = threading.Condition()
        self._waits: list[Callable[[], bool] | None] = [lambda: True for _ in range(num_devices)]
        self._turn: int | None = 0
        self._error: type[RuntimeError] | None = None

    def begin(self, device: int) -> None:
        """Wait for a device's first turn; the first thing that its thread does."""
        self._await_turn(device)

    def wait_until(self, device: int, is_met: Callable[[], bool]) -> None:
        """Let others go on until a condition is met; only the device whose turn it is may call it.

        Raises:
            DeadlockError: It never will be.
            StoppedError: The run was given up.
        """
        if self._error is None and not is_met():
            self._waits[device] = is_met
            self._pass_on(device)
            self._await_turn(device)
        if self._error is not None:
            is_deadlock = self._error is DeadlockError
            raise self._error("the devices wait for each other" if is_deadlock else "the run was stopped")

    def end(self, device: int, failed: bool) -> None:
        """Hand over for good; the last thing that a device's thread does."""
        if failed and self._error is None:
            self._error = StoppedError
        self._waits[device] = None
        self._pass_on(device)

    def stop(self) -> None:
        """Let every device fail where it waits next; called from outside."""
        self._error = self._error or StoppedError

    def _await_turn(self, device: int) -> None:
        with self._changed:
            while self._turn != device:
                self._changed.wait()

    def _pass_on(self, device: int) -> None:
        num_devices = len(self._waits)
        left = [(device + i) % num_devices for i in range(1, num_devices + 1)]
        left = [other for other in left if self._waits[other] is not None]
        able = [other for other in left if self._error or self._is_met(other)]
        if left and not able:
            self._error = DeadlockError
        with self._changed:
            self._turn = next(iter(able or left), None)
            self._changed.notify_all()

    def _is_met(self, device: int) -> bool:
        is_met = self._waits[device]
        return is_met is not None and is_met()


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


def run_in_turns(turns: Turns, where: torch.device, parts: Sequence[Callable[[], T]]) -> list[T]:
    """Run each device's part in a thread of its own, and return what they return, by device.

    Args:
        turns: New, of as many devices.
        where: The devices' tensors live there.
        parts: Part of each device.

    Raises:
        DeadlockError: None of the devices can go on.
    """
    found: dict[int, T] = {}
    errors: list[BaseException] = []
    num_threads = torch.get_num_threads()

    def run(device: int) -> None:
        turns.begin(device)
        torch.set_num_threads(num_threads)  # OpenMP keeps it for each thread, and results depend on it.
        try:
            with backward_in_own_thread(where):
                found[device] = parts[device]()
        except BaseException as error:
            errors.append(error)
        turns.end(device, device not in found)

    threads = [threading.Thread(target=run, args=(device,), daemon=True) for device in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [found[device] for device in range(len(parts))]
