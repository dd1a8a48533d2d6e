"""The iterator of a job that runs in rounds, around the loader of its training loop (dissertation, Sec. 5.6).

It does not know the content of a checkpoint; the loop says how to write and read one.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from placements.forms.texts import write_json

Batch = TypeVar("Batch")

LEASES, CHECKPOINTS, ACTOR = "SCHEDSEARCH_LEASES", "SCHEDSEARCH_CHECKPOINTS", "SCHEDSEARCH_ACTOR"
"""Environment variables of a job: folder of leases and reports, on its node; folder of checkpoints, which all
nodes see; id of the process on its node that hands out leases."""

STOP, _STOP_AT = "stop", "stop_at.json"
_NUM_KEPT = 2
_POLL_S = 0.01


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
    """End of a lease: steps of its checkpoint, and the time to write it.

    Attributes:
        first_step_at: When the process began its first step, in s since 1970; None in a later lease.
    """

    steps: int
    save_s: float = 0.0
    first_step_at: float | None = None


class LeasedIterator(Generic[Batch]):
    """Yields the batches of the steps that a job may do, epoch after epoch, and writes checkpoints.

    There is one after each round. Then the scheduler says whether the job stays where it is. Each process of
    a job that has several makes one. They do a step together, as those of a pipeline do, and all end after
    the same step::

        def save(path):
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)

        for inputs, targets in runtime.LeasedIterator(loader, load, save):
            ...

    A loader goes on with the batch after the last one: its epoch begins anew, and the batches that were read
    are passed over. Where the order is drawn, give it a sampler with ``set_epoch``, whose order depends on
    the epoch alone. A loader with ``load_state_dict`` is left to `load_checkpoint`.

    Attributes:
        num_steps: Steps that are done, of all rounds.
        lease: Steps that the job may do now, and their place.

    Args:
        loader: Batches of an epoch, as a DataLoader.
        load_checkpoint: Reads the file or folder that `save_checkpoint` wrote. It is called here, where
            the job did steps before.
        save_checkpoint: Writes all that the loop needs to go on into a file or folder of this path. Where a
            job has several processes, that of the first returns when all have written.

    Raises:
        LeaseError: This process was not started by a scheduler, or the loader has no batches.
    """

    def __init__(
        self,
        loader: Iterable[Batch],
        load_checkpoint: Callable[[Path], object],
        save_checkpoint: Callable[[Path], object],
    ) -> None:
        """Wait for the first lease, and go on from its checkpoint."""
        folder = os.environ.get(LEASES)
        if not folder:
            raise LeaseError(
                f"{LEASES} is not set; start this script with schedsearch cluster run.command='python ...'"
            )
        self._messages, self._loader, self._save_as = Path(folder), loader, save_checkpoint
        self._checkpoints, self._actor = Path(os.environ[CHECKPOINTS]), os.environ[ACTOR]
        self._rank, self._leases, self.num_steps = int(os.environ.get("RANK", "0")), 0, 0
        self.lease = self._next_lease()
        self.num_steps = self.lease.first
        keeps_place = hasattr(loader, "load_state_dict")
        epoch, passed = (0, 0) if keeps_place else divmod(self.num_steps, self._num_batches())
        self._batches = self._from_epoch(epoch)
        # Before the checkpoint is read, for a loader draws from the random generators that it has.
        for _ in range(passed):
            next(self._batches)
        if self.num_steps:
            load_checkpoint(self._checkpoints / str(self.num_steps))

    def __iter__(self) -> Iterator[Batch]:
        """Yield a batch for each step; when the next one is asked for the step is done."""
        while self.num_steps < self.lease.until:
            begin_at = None if self._leases else time.time()
            while self.num_steps < self.lease.until and not self._is_stopped():
                yield next(self._batches)
                self.num_steps += 1
            save_at = time.time()
            self._save()
            if os.environ.get("LOCAL_RANK", "0") == "0":
                report = LeaseReport(self.num_steps, time.time() - save_at, begin_at)
                write_json(self._messages / f"did_{self._leases}.json", report)
            self._leases += 1
            self.lease = self._next_lease()

    def _next_lease(self) -> Lease:
        """Wait for a lease; one without steps where the scheduler is gone."""
        path = self._messages / f"lease_{self._leases}.json"
        while not path.exists():
            if not Path(f"/proc/{self._actor}").exists():
                return Lease(self.num_steps, 0, "", ())
            time.sleep(_POLL_S)
        first, until, gpu_type, gpu_ids = json.loads(path.read_text())
        return Lease(first, until, gpu_type, tuple(gpu_ids))

    def _is_stopped(self) -> bool:
        """Return whether the job is to end before the next step.

        The first process says so before a step that all do together, so that each has read it after that.
        """
        step = self._messages / _STOP_AT
        if self._rank == 0 and (self._messages / STOP).exists() and not step.exists():
            write_json(step, self.num_steps + 1)
        return step.exists() and self.num_steps >= int(step.read_text())

    def _save(self) -> None:
        """Write a checkpoint, which is there when all of it is, and remove old ones."""
        torn, whole = (self._checkpoints / f"{name}{self.num_steps}" for name in ("torn_", ""))
        try:
            self._save_as(torn)
        except BaseException:
            remove(torn)  # makes room on a disk that is full
            raise
        if self._rank == 0:
            remove(whole)  # of a process that went on without its scheduler
            torn.replace(whole)
            for steps in _saved(self._checkpoints)[:-_NUM_KEPT]:
                remove(self._checkpoints / str(steps))

    def _from_epoch(self, epoch: int) -> Iterator[Batch]:
        sampler: Any = getattr(self._loader, "sampler", None)
        while True:
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
            epoch += 1
            yield from self._loader

    def _num_batches(self) -> int:
        loader: Any = self._loader
        try:
            number = len(loader)
        except TypeError:
            raise LeaseError("the loader has no length; give one that has, or load_state_dict") from None
        if not number:
            raise LeaseError("the loader has no batches; give it at least one")
        return number


def newest(checkpoints: Path) -> int:
    """Return the steps of the newest whole checkpoint in a folder; 0 where there is none."""
    return max(_saved(checkpoints), default=0)


def _saved(checkpoints: Path) -> list[int]:
    return sorted(int(path.name) for path in checkpoints.glob("[0-9]*"))


def remove(path: Path) -> None:
    """Remove a file or folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
