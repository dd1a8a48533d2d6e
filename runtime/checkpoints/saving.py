"""Checkpoints, written: beside the training where the processes have a group for that.

A checkpoint is copied to memory of the host, then written from a thread while the training goes on. The next
checkpoint, and the end of the run, wait for it; whoever waits is told if it failed. Devices that are threads
of one process wait while the first of them writes for all.
"""

from __future__ import annotations

import atexit
import copy
import logging
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save

from runtime.checkpoints.manifest import prune, write_manifest
from runtime.checkpoints.shards import ShardSaver, ShardWriter
from runtime.checkpoints.training_state import CheckpointError, Item, TrainingState, check_plain, items_of
from runtime.transport.protocol import Transport

_LEFT_S = 5.0
"""Seconds that a process which ends by Ctrl-C, or because another is gone, waits for its last checkpoint.

Mostly the others are ending too, and the writing fails with them. Where two wait for each other, one must end
for the other to be told.
"""


class Checkpoints:
    """The checkpoints that a run writes; every device must make one and call it at the same places.

    Args:
        folder: Gets a folder for each checkpoint.
        num_kept: Number of newest whole checkpoints that stay; 0 for all.
        is_async: Whether the training goes on while a checkpoint is written, where devices are processes.

    Raises:
        CheckpointError: By every method, if a checkpoint could not be written; the message names the device
            and the cause. Whole ones from before are still there.
    """

    def __init__(
        self, folder: Path, transport: Transport, device: int, *, num_kept: int = 3, is_async: bool = True
    ) -> None:
        """Connect to the others, in a process group of their own for this."""
        self._folder, self._transport, self._device = folder, transport, device
        self._num_kept, self._is_async = num_kept, is_async
        self._group = transport.group_beside()
        self._pending: tuple[int, Future[Any]] | None = None

    def save(self, state: TrainingState, num_done: int, facts: Mapping[str, Any]) -> None:
        """Begin a checkpoint, after the end of the one before; older ones are removed once it is whole.

        Args:
            state: State of this process; it may be changed again when this returns.
            num_done: Iterations that went into it.
            facts: Facts of the run, the same on every device; see `runtime.checkpoints.manifest.facts_of`.
        """
        self.wait()
        check_plain(state.extra)
        items = items_of(state, self._device, self._transport.device, self._transport.collect)
        if self._group is None:
            self._save_for_all(items, num_done, facts)
            return
        planner = ShardSaver([*map(_staged, items)] if self._is_async else items)
        writer = self._writer(num_done, facts, self._group.size())
        write = partial(save, {}, storage_writer=writer, planner=planner, process_group=self._group)
        written: Future[object] = Future()
        written.add_done_callback(lambda _: planner.release())
        self._pending = num_done, written
        if self._is_async:
            atexit.register(self._before_exit)
            # A daemon, because Python waits without end for the threads of a pool when a process ends.
            Thread(target=_do, args=(write, written), name="checkpoint", daemon=True).start()
        else:
            _do(write, written)
            self.wait()

    def wait(self) -> None:
        """Return when no checkpoint is being written."""
        if self._pending is None:
            return
        num_done, written = self._pending
        self._pending = None
        atexit.unregister(self._before_exit)
        try:
            written.result()
        except (CheckpointException, RuntimeError, OSError) as error:
            raise self._failed(num_done, error) from None

    def _before_exit(self) -> None:
        """Let a checkpoint become whole; not for long where other processes may never come for it."""
        if self._pending is None:
            return
        _, written = self._pending
        if not wait([written], _LEFT_S if self._transport.is_left else None).done:
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)  # Python aborts where a thread comes back from torch while it ends

    def _writer(self, num_done: int, facts: Mapping[str, Any], num_devices: int) -> ShardWriter:
        folder = self._folder / f"iteration_{num_done}"

        def finish(files: Mapping[str, str]) -> None:
            write_manifest(folder, facts, num_done, num_devices, files)
            prune(self._folder, num_done, self._num_kept)

        return ShardWriter(folder, finish)

    def _save_for_all(self, items: list[Item], num_done: int, facts: Mapping[str, Any]) -> None:
        """Let the first device write the items of all; the others wait for it."""
        of_all = self._transport.collect(items)
        failure: CheckpointError | None = None
        if self._device == 0:
            planner = ShardSaver([item for of_device in of_all for item in of_device])
            writer = self._writer(num_done, facts, len(of_all))
            try:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
                    save({}, storage_writer=writer, planner=planner, no_dist=True)
            except (CheckpointException, RuntimeError, OSError) as error:
                failure = self._failed(num_done, error)
            planner.release()
        failure = self._transport.collect(failure)[0]
        if failure is not None:
            raise failure

    def _failed(self, num_done: int, error: BaseException) -> CheckpointError:
        """Return the error in one line, and remove the files written so far, so that they take no room."""
        folder, device, cause = self._folder / f"iteration_{num_done}", self._device, error
        if isinstance(error, CheckpointException) and error.failures:
            device = min(error.failures)
            cause = error.failures[device][0]
            if self._device == 0:  # all have ended, else they would not have said so
                with suppress(OSError):
                    shutil.rmtree(folder)
        reason = " ".join(f"{type(cause).__name__}: {cause}".split())
        of_others = self._transport.cause(error) if isinstance(error, RuntimeError) else None
        return CheckpointError(
            f"checkpoint {folder}: device {device} could not write it ({of_others or reason}); earlier ones "
            "are as they were",
            of_others,
        )


def _staged(item: Item) -> Item:
    """Return an item whose value is a copy in memory of the host."""
    value = item.value
    staged = value.to("cpu", copy=True) if isinstance(value, Tensor) else copy.deepcopy(value)
    return replace(item, value=staged)


def _do(compute: Callable[[], object], result: Future[object]) -> None:
    try:
        result.set_result(compute())
    except BaseException as error:  # as torch's, which is none of `Exception`
        result.set_exception(error)
