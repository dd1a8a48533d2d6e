"""The iterator of a job that runs in rounds, around the loader of its training loop (dissertation, Sec. 5.6).

It does not know the content of a checkpoint; the loop says how to write and read one.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from placements.forms.texts import write_json

Batch = TypeVar("Batch")

FOLDER, STARTER = "SCHEDSEARCH_JOB_FOLDER", "SCHEDSEARCH_STARTER"
"""Environment variables of a job: its folder, which all nodes see; id of the process that started it."""

LEASE, REPORT, CHECKPOINTS = "lease.json", "report.json", "checkpoints"
"""Files of a job in its folder: its lease now; seconds to write the last checkpoint, and when the first step
after a start began, in s since 1970; and a folder with a checkpoint for each number of steps."""

_NUM_KEPT = 2
_POLL_S = 0.01


class LeaseError(ValueError):
    """A job has no lease, or cannot keep it; the message is one line with the remedy."""


class Lease(NamedTuple):
    """Steps from `first`, which are done, to `last`, on GPUs of a type; one without steps ends the job."""

    first: int
    last: int
    gpu_type: str
    gpu_ids: Sequence[int]


class LeasedIterator(Generic[Batch]):
    """Yields the batches of the steps that a job may do, epoch after epoch, and writes checkpoints.

    There is one after each round. Then the scheduler says whether the job stays where it is. Each process of
    a job that has several makes one, and all do the same steps.

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
        """Read the first lease, and go on from its checkpoint."""
        if FOLDER not in os.environ:
            remedy = "start this script with schedsearch cluster run.command='python ...'"
            raise LeaseError(f"{FOLDER} is not set; {remedy}")
        self._folder, self._loader, self._save_as = Path(os.environ[FOLDER]), loader, save_checkpoint
        self.lease = self._next_lease(0)
        self.num_steps = self.lease.first
        keeps_place = hasattr(loader, "load_state_dict")
        epoch, passed = (0, 0) if keeps_place else divmod(self.num_steps, self._num_batches())
        self._batches = self._from_epoch(epoch)
        # Before the checkpoint is read, for a loader draws from the random generators that it has.
        for _ in range(passed):
            next(self._batches)
        if self.num_steps:
            load_checkpoint(self._folder / CHECKPOINTS / str(self.num_steps))

    def __iter__(self) -> Iterator[Batch]:
        """Yield a batch for each step; when the next one is asked for the step is done."""
        begin_at = time.time()
        while self.num_steps < self.lease.last:
            while self.num_steps < self.lease.last:
                yield next(self._batches)
                self.num_steps += 1
            self._save(begin_at)
            self.lease = self._next_lease(self.num_steps)

    def _next_lease(self, first: int) -> Lease:
        """Wait for a lease from a step on; without steps if the scheduler is gone."""
        while True:
            lease = Lease(*json.loads((self._folder / LEASE).read_text()))
            if lease.first >= first:
                return lease
            if not Path("/proc", os.environ[STARTER]).exists():
                return lease._replace(first=first, last=first)
            time.sleep(_POLL_S)

    def _save(self, begin_at: float) -> None:
        """Write a checkpoint, which is there when all of it is, and remove old ones."""
        folder, save_at = self._folder / CHECKPOINTS, time.time()
        torn, whole = folder / f"torn_{self.num_steps}", folder / str(self.num_steps)
        try:
            self._save_as(torn)
        except BaseException:
            remove(torn)  # makes room on a disk that is full
            raise
        if os.environ.get("RANK", "0") == "0":
            write_json(self._folder / REPORT, (time.time() - save_at, begin_at))
            remove(whole)  # of a process that went on without its scheduler
            torn.replace(whole)
            for steps in saved_steps(self._folder)[:-_NUM_KEPT]:
                remove(folder / str(steps))

    def _from_epoch(self, epoch: int) -> Iterator[Batch]:
        sampler: Any = getattr(self._loader, "sampler", None)
        while True:
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
            epoch += 1
            yield from self._loader

    def _num_batches(self) -> int:
        loader: Any = self._loader
        number = len(loader) if hasattr(loader, "__len__") else 0
        if not number:
            raise LeaseError("the loader has no batches or no length; give some, or load_state_dict")
        return number


def saved_steps(folder: Path) -> list[int]:
    """Return the steps of the whole checkpoints of a job, the newest last."""
    return sorted(int(path.name) for path in folder.glob(f"{CHECKPOINTS}/[0-9]*"))


def remove(path: Path) -> None:
    """Remove a file or folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
