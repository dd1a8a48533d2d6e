"""Leases: steps of a job in a round, so that its work depends on no clock; errors; and checkpoints by steps."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

LEASES, CHECKPOINTS, START, ACTOR = (
    f"SCHEDSEARCH_{name}" for name in ("LEASES", "CHECKPOINTS", "START", "ACTOR")
)
"""Environment variables of a job: folder of its messages, on its node; folder of its checkpoints, which all
nodes see; name of this start, unlike all others; id of the process beside it that hands out leases."""

STOP, STOP_AT = "stop", "stop_at.json"
"""Files of messages: the job is to end soon, and after this step. ``lease_0.json`` is its first lease."""


class LeaseError(ValueError):
    """A job has no lease, or cannot keep it; the message is one line with the remedy."""


class Lease(NamedTuple):
    """Steps of a job, on GPUs whose ids are among those of the type; one without steps ends it.

    Attributes:
        first: Steps that were done before.
        until: Steps that are done at its end.
    """

    first: int
    until: int
    gpu_type: str
    gpu_ids: tuple[int, ...]

    @property
    def place(self) -> str:
        """Return its GPUs, for people."""
        return f"{self.gpu_type} {','.join(map(str, self.gpu_ids))}"


class LeaseReport(NamedTuple):
    """End of a lease.

    Attributes:
        steps: Steps of the checkpoint that was written.
        save_s: Time to write it, in s.
        first_step_at: When the first step of the lease began, in s since 1970.
    """

    steps: int
    save_s: float
    first_step_at: float


def saved_steps(checkpoints: Path) -> list[int]:
    """Return the steps of all whole checkpoints in a folder, the newest last."""
    return sorted(int(path.name) for path in checkpoints.glob("[0-9]*"))


def remove(path: Path) -> None:
    """Remove a checkpoint, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
