"""Checkpoints, written: beside the training where the processes have a group for that.

A checkpoint is copied to memory of the host, then written from a thread while the training goes on. The next
checkpoint, and the end of the run, wait for it; whoever waits is told if it failed. Devices that are threads
of one process wait while the first of them writes for all.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save

from runtime.checkpoints.manifest import prune, write_manifest
from runtime.checkpoints.shards import ShardItem, ShardSaver, ShardWriter, items_of, state_dict_of
from runtime.checkpoints.training_state import CheckpointError, TrainingState, check_plain
from runtime.transport.protocol import Transport

_LEFT_S = 5.0
"""How long a process that ends by Ctrl-C, or because another one is gone, waits for its last checkpoint.

Mostly the others are ending too, and the writing fails with them. Where two wait for each other, one must end
for the other to be told.
"""


class Checkpoints:
    """The checkpoints that a run writes; every device must make one and call it at the same places.

    Args:
        folder: Gets a folder for each checkpoint.
        transport: Reaches the other devices.
        device: This one.
        num_kept: How many whole checkpoints stay, the newest; 0 for all.
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

        The state may be changed again when this returns.

        Args:
            state: State of this process.
            num_done: Iterations that went into it.
            facts: What is run, the same on every device; see `runtime.checkpoints.manifest.facts_of`.
        """
        self.wait()
        check_plain(state.extra)
        items = items_of(state, self._device, self._transport.device, self._transport.collect)
        if self._group is None:
            self._save_for_all(items, num_done, facts)
            return
        planner, writer = ShardSaver(items), self._writer(num_done, facts, self._group.size())
        values = state_dict_of(items)
        staged = writer.stage(values) if self._is_async else values
        write = partial(save, staged, storage_writer=writer, planner=planner, process_group=self._group)
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
        return ShardWriter(folder, partial(self._finish, folder, facts, num_done, num_devices))

    def _finish(
        self,
        folder: Path,
        facts: Mapping[str, Any],
        num_done: int,
        num_devices: int,
        files: Mapping[str, str],
    ) -> None:
        """Make a checkpoint whole; called by one process."""
        write_manifest(folder, facts, num_done, num_devices, files)
        prune(self._folder, num_done, self._num_kept)

    def _save_for_all(self, items: list[ShardItem], num_done: int, facts: Mapping[str, Any]) -> None:
        """Let the first device write what all hold; the others wait for it."""
        of_all = self._transport.collect(items)
        failure: CheckpointError | None = None
        if self._device == 0:
            joined = [item for each in of_all for item in each]
            try:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
                    save(
                        state_dict_of(joined),
                        storage_writer=self._writer(num_done, facts, len(of_all)),
                        planner=ShardSaver(joined),
                        no_dist=True,
                    )
            except (CheckpointException, RuntimeError, OSError) as error:
                failure = self._failed(num_done, error)
        failure = self._transport.collect(failure)[0]
        if failure is not None:
            raise failure

    def _failed(self, num_done: int, error: BaseException) -> CheckpointError:
        """Return the error in one line, and remove what was written, so that it takes no room."""
        device, cause = self._device, error
        if isinstance(error, CheckpointException) and error.failures:
            device = min(error.failures)
            cause = error.failures[device][0]
            if self._device == 0:  # all have ended, else they would not have said so
                with suppress(OSError):
                    shutil.rmtree(self._folder / f"iteration_{num_done}")
        reason = " ".join(f"{type(cause).__name__}: {cause}".split())
        of_others = self._transport.cause(error) if isinstance(error, RuntimeError) else None
        return CheckpointError(
            f"checkpoint {self._folder / f'iteration_{num_done}'}: device {device} could not write it "
            f"({of_others or reason}); earlier ones are as they were",
            of_others,
        )


def _do(compute: Callable[[], object], result: Future[object]) -> None:
    try:
        result.set_result(compute())
    except BaseException as error:  # as torch's, which is none of `Exception`
        result.set_exception(error)
