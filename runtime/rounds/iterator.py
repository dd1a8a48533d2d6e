"""The iterator of a job that runs in rounds, around the loader of its training loop (dissertation, Sec. 5.6).

It does not know the content of a checkpoint; the loop says how to write and read one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from placements.forms.texts import write_json
from runtime.rounds.lease import (
    ACTOR,
    CHECKPOINTS,
    LEASES,
    START,
    STOP,
    STOP_AT,
    Lease,
    LeaseError,
    LeaseReport,
    remove,
    saved_steps,
)

Batch = TypeVar("Batch")

_NUM_KEPT = 2
_POLL_S = 0.01


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
        self._checkpoints, self._actor = Path(os.environ[CHECKPOINTS]), int(os.environ[ACTOR])
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
            begin_at = time.time()
            while self.num_steps < self.lease.until and not self._is_stopped():
                yield next(self._batches)
                self.num_steps += 1
            save_s = self._save()
            if os.environ.get("LOCAL_RANK", "0") == "0":
                report = LeaseReport(self.num_steps, save_s, begin_at)
                write_json(self._messages / f"did_{self._leases}.json", report)
            self._leases += 1
            self.lease = self._next_lease()

    def _next_lease(self) -> Lease:
        """Wait for a lease; one without steps where the scheduler is gone."""
        path = self._messages / f"lease_{self._leases}.json"
        while not path.exists():
            if not _is_alive(self._actor):
                return Lease(self.num_steps, 0, "", ())
            time.sleep(_POLL_S)
        first, until, gpu_type, gpu_ids = json.loads(path.read_text())
        return Lease(first, until, gpu_type, tuple(gpu_ids))

    def _is_stopped(self) -> bool:
        """Return whether the job is to end before the next step.

        The first process says so before a step that all do together, so that each has read it after that.
        """
        step = self._messages / STOP_AT
        if self._rank == 0 and (self._messages / STOP).exists() and not step.exists():
            write_json(step, self.num_steps + 1)
        return step.exists() and self.num_steps >= int(step.read_text())

    def _save(self) -> float:
        """Write a checkpoint, which is there when all of it is, remove old ones, and return the seconds."""
        begin_s = time.monotonic()
        torn = self._checkpoints / f"torn_{self.num_steps}_{os.environ[START]}"
        try:
            self._save_as(torn)
        except BaseException:
            remove(torn)  # makes room on a disk that is full
            raise
        if self._rank == 0:
            whole = self._checkpoints / str(self.num_steps)
            remove(whole)  # of a process that went on without its scheduler
            torn.replace(whole)
            for steps in saved_steps(self._checkpoints)[:-_NUM_KEPT]:
                remove(self._checkpoints / str(steps))
        return time.monotonic() - begin_s

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


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True
