"""Messages between a scheduler and a job, as files in the folder of the job.

A lease is a number of steps, so that a job's work depends on no clock. The scheduler decides on the next
round while this one runs, and its answer waits for the job at the end of the lease.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from placements.forms.texts import write_json

LEASES = "SCHEDSEARCH_LEASES"
"""Environment variable with the folder of the job."""

_LEASE, _PROCESS, _STOP, _STOP_AT = "lease.json", "process.json", "stop.json", "stop_at.json"
_NUM_KEPT = 2


class LeaseError(ValueError):
    """A job has no lease, or cannot keep it; the message is one line with the remedy."""


@dataclass(frozen=True)
class Lease:
    """Steps of a job in a round, from 1, on some GPUs, whose ids are among those of the type.

    Attributes:
        first: Steps that were done before.
        until: Steps that are done at its end.
        scheduler_pid: Process of the scheduler, on the same machine.
    """

    round: int
    first: int
    until: int
    gpu_type: str
    gpu_ids: tuple[int, ...]
    scheduler_pid: int

    @property
    def place(self) -> tuple[str, tuple[int, ...]]:
        """Return its GPUs."""
        return self.gpu_type, self.gpu_ids


@dataclass(frozen=True)
class JobFolder:
    """The files of one job in a folder; each is whole or not there."""

    path: Path

    def begin(self) -> None:
        """Make the folder; of a run before only checkpoints and the log stay, and no process may be there."""
        pid = self._read(_PROCESS)
        if pid is not None and is_alive(pid):
            raise LeaseError(
                f"{self.path}: process {pid} of a run before still runs this job; wait until it is gone, or "
                "end it"
            )
        self._checkpoints.mkdir(parents=True, exist_ok=True)
        for old in [*self.path.glob("*.json"), *self._checkpoints.glob("torn_*")]:
            _remove(old)

    def start(self, lease: Lease) -> None:
        """Leave the lease with which the next process of the job begins."""
        write_json(self.path / _LEASE, asdict(lease))

    def enter(self, pid: int) -> None:
        """Note which process of this machine runs the job."""
        write_json(self.path / _PROCESS, pid)

    def leave(self) -> None:
        """Note that no process runs the job."""
        (self.path / _PROCESS).unlink(missing_ok=True)

    def lease(self) -> Lease:
        """Return the lease with which a process of the job begins; a `LeaseError` if there is none."""
        lease = self._read(_LEASE)
        if lease is None:
            raise LeaseError(f"{self.path / _LEASE}: there is no lease; start the job with run.command")
        return _lease_of(lease)

    def answer(self, number: int, renewal: Lease | None) -> None:
        """Tell the job its lease after that of a round; None to leave its GPUs."""
        write_json(self.path / f"after_{number}.json", [] if renewal is None else [asdict(renewal)])

    def answers(self, number: int) -> list[Lease] | None:
        """Return the lease after that of a round, none if the job is to leave; None before the answer."""
        leases = self._read(f"after_{number}.json")
        return None if leases is None else [*map(_lease_of, leases)]

    def report(self, number: int) -> None:
        """Tell the scheduler that the lease of a round is at its end."""
        write_json(self.path / f"did_{number}.json", number)

    def is_reported(self, number: int) -> bool:
        """Return whether a job is at the end of a round's lease."""
        return (self.path / f"did_{number}.json").exists()

    def stop(self) -> None:
        """Tell the job to end at its next step, after a checkpoint."""
        write_json(self.path / _STOP, True)

    @property
    def is_stopping(self) -> bool:
        """Whether the job is to end at its next step."""
        return (self.path / _STOP).exists()

    def stop_step(self, steps: int, rank: int, num_ranks: int) -> int | None:
        """Return the steps after which all processes of the job end; None while they need not.

        The first of several processes sets it before a step that all do together, to the end of the next
        one, so that each has read it by then.
        """
        last: int | None = self._read(_STOP_AT)
        if last is None and rank == 0 and self.is_stopping:
            last = steps if num_ranks == 1 else steps + 1
            write_json(self.path / _STOP_AT, last)
        return last

    def newest_checkpoint(self) -> tuple[int, Path | None]:
        """Return the steps of the newest whole checkpoint and its path; 0 and None where there is none."""
        steps = self._saved()
        return (steps[-1], self._checkpoints / str(steps[-1])) if steps else (0, None)

    def save(self, steps: int, save: Callable[[Path], object], rank: int) -> None:
        """Write a checkpoint, which is there when all of it is; older ones are removed but for one."""
        torn = self._checkpoints / f"torn_{steps}"  # torch refuses names that begin with a dot
        torn.parent.mkdir(exist_ok=True)
        save(torn)
        if rank == 0:
            torn.replace(torn.with_name(str(steps)))
            for old in self._saved()[:-_NUM_KEPT]:
                _remove(torn.with_name(str(old)))

    @property
    def _checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def _saved(self) -> list[int]:
        return sorted(int(path.name) for path in self._checkpoints.glob("[0-9]*"))

    def _read(self, name: str) -> Any:
        path = self.path / name
        return json.loads(path.read_text()) if path.exists() else None


def _lease_of(data: Any) -> Lease:
    return Lease(**{**data, "gpu_ids": tuple(data["gpu_ids"])})


def is_alive(pid: int) -> bool:
    """Return whether a process of this machine runs."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
