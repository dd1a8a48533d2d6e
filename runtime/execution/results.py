"""Files that the devices of a run leave behind, in one folder: they only grow complete, never half.

Objects are pickled: the folder is the launch's own, and is removed with it.

Each device writes where it stands (`Position`), its gradients after every iteration, and a summary at the
end; device 0 also a line of progress per iteration. A device that fails writes why.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from placements.forms.texts import write_bytes

_POSITION_WIDTH = 400

DONE = "done"
"""Where a device stands that has nothing left to do."""


class Progress(NamedTuple):
    """One iteration, as it is reported while the run goes on.

    Attributes:
        loss: Mean over the micro-batches.
        time_ms: From the common start to the end of the slowest device.
        note: News besides, before the next iteration; may be empty.
    """

    iteration: int
    loss: float
    time_ms: float
    note: str = ""

    def __str__(self) -> str:
        """Return the line that a user sees; not the note, which has a line of its own."""
        return f"iteration {self.iteration}: loss {self.loss:.6f}, {self.time_ms:.1f} ms"


class Failure(NamedTuple):
    """Why a device failed.

    Attributes:
        device: The one with the cause; all devices may report the same failure.
        traceback: Lines of the traceback of the device that reports.
        time_s: When it was reported, on the machine's clock.
    """

    device: int
    reason: str
    traceback: list[str]
    time_s: float


class Standing(NamedTuple):
    """Where a device stands, in words; the device that it waits for there, and its process, if any."""

    text: str
    waits_for: int | None = None
    pid: int | None = None


class Position:
    """Where a device stands, kept in memory and, if the run has a folder of results, in a file for others.

    Attributes:
        text: Where it stands, in words.
        waits_for: The device that it waits for there, or None.
    """

    def __init__(self, folder: Path | None, device: int) -> None:
        self.text = "starting"
        self.waits_for: int | None = None
        self._file = None
        if folder is not None:
            self._file = os.open(position_path(folder, device), os.O_WRONLY | os.O_CREAT, 0o644)

    def move(self, text: str, waits_for: int | None = None) -> None:
        """Say where the device stands now, and which device it waits for there."""
        self.text, self.waits_for = text, waits_for
        if self._file is not None:
            other = "-" if waits_for is None else waits_for
            line = f"{os.getpid()} {other} {text}"[: _POSITION_WIDTH - 1].ljust(_POSITION_WIDTH - 1) + "\n"
            os.pwrite(self._file, line.encode(errors="replace"), 0)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def position_path(folder: Path, device: int) -> Path:
    """Return the file of a device's position: process id, device waited for or ``-``, where it stands."""
    return folder / f"position_{device}.txt"


def read_position(folder: Path, device: int) -> Standing:
    """Return where a device stands."""
    try:
        pid, other, text = position_path(folder, device).read_text(errors="replace").split(" ", 2)
        return Standing(text.strip(), None if other == "-" else int(other), int(pid))
    except (OSError, ValueError):
        return Standing("not started")


def write_progress(folder: Path, progress: Progress) -> None:
    """Add a line to the progress of a run."""
    with (folder / "progress.jsonl").open("a") as file:
        file.write(json.dumps(progress) + "\n")


def read_progress(folder: Path) -> list[Progress]:
    """Return the iterations reported so far."""
    try:
        text = (folder / "progress.jsonl").read_text()
    except OSError:
        return []
    return [Progress(*json.loads(line)) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def write_failure(
    folder: Path, device: int, reason: str, traceback: Iterable[str] = (), cause: int | None = None
) -> None:
    """Write why a device fails; the cause is the device that has it, if that is another one."""
    failure = Failure(device if cause is None else cause, reason, list(traceback), time.time())
    write_bytes(folder / f"failure_{device}.json", json.dumps(failure).encode())


def read_failures(folder: Path) -> list[Failure]:
    """Return the failures, the first one first."""
    failures = [Failure(*json.loads(path.read_text())) for path in folder.glob("failure_*.json")]
    return sorted(failures, key=lambda failure: failure.time_s)


def write_result(folder: Path, device: int, name: str, result: object) -> None:
    """Write a device's result under a name, as ``summary`` or ``gradients_0``."""
    path = folder / f"{name}_{device}.tmp"
    torch.save(result, path)
    path.replace(path.with_suffix(".pt"))


def read_result(folder: Path, device: int, name: str) -> Any:
    """Return the object that `write_result` wrote."""
    return torch.load(folder / f"{name}_{device}.pt", weights_only=False)
