"""The iterator of a job that runs in rounds, around the loader of its training loop (dissertation, Sec. 5.6).

It does not know the content of a checkpoint; the loop says how to write and read one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from runtime.leases.lease import LEASES, JobFolder, LeaseError, is_alive

Batch = TypeVar("Batch")

_POLL_S = 0.01


class LeasedIterator(Generic[Batch]):
    """Yields the batches of the steps that a job may do, epoch after epoch, and then writes a checkpoint.

    At the end of a lease the scheduler says whether the job stays where it is; then the loop goes on, without
    a checkpoint. Each process of a job that has several makes one. They do a step together, as those of a
    pipeline do, and all end after the same step::

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
        """Read the lease, and go on from the newest checkpoint."""
        folder = os.environ.get(LEASES)
        if not folder:
            raise LeaseError(
                f"{LEASES} is not set; start this script with schedsearch cluster run.command='python ...'"
            )
        self._folder, self._loader, self._save = JobFolder(Path(folder)), loader, save_checkpoint
        self._rank, self._num_ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self.lease = self._folder.lease()
        if self._rank == 0:
            self._folder.enter(os.getpid())
        self.num_steps, path = self._folder.newest_checkpoint()
        self._saved = self.num_steps
        keeps_place = hasattr(loader, "load_state_dict")
        epoch, passed = (0, 0) if keeps_place else divmod(self.num_steps, self._num_batches())
        self._batches = self._from_epoch(epoch)
        # Before the checkpoint is read, for a loader draws from the random generators that it has.
        for _ in range(passed):
            next(self._batches)
        if path is not None:
            load_checkpoint(path)

    def __iter__(self) -> Iterator[Batch]:
        """Yield a batch for each step; when the next one is asked for the step is done."""
        while self._goes_on():
            yield next(self._batches)
            self.num_steps += 1
        if self.num_steps > self._saved:
            self._folder.save(self.num_steps, self._save, self._rank)
            self._saved = self.num_steps

    def _goes_on(self) -> bool:
        """Return whether the job may do another step, perhaps of a renewed lease.

        At the end of a lease it waits for the scheduler's answer; a job that is to stop, or whose scheduler
        is gone, leaves.
        """
        stop = self._folder.stop_step(self.num_steps, self._rank, self._num_ranks)
        if stop is not None and self.num_steps >= stop:
            return False
        while self.num_steps >= self.lease.until:
            if self._rank == 0:
                self._folder.report(self.lease.round)
            while (renewal := self._folder.answers(self.lease.round)) is None:
                if self._folder.is_stopping or not is_alive(self.lease.scheduler_pid):
                    return False
                time.sleep(_POLL_S)
            if not renewal:
                return False
            (self.lease,) = renewal
        return True

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
