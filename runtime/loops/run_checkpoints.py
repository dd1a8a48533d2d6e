"""The checkpoints of a run: which iterations have one, where it goes on, and how it ends when it is told to.

A loop of the user's own says itself when it wants one; see `runtime.loops.loop_state`.

A process that is told to end (SIGTERM) takes note of that. After the iteration that then runs, all devices
write a checkpoint together and end with status `TERMINATED`; the clocks are given back on the way. A second
SIGTERM ends the process at once. Without a folder for checkpoints SIGTERM is left as it is.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from runtime.checkpoints.loading import Resumed, load_checkpoint
from runtime.checkpoints.manifest import facts_of
from runtime.checkpoints.training_state import TrainingState
from runtime.codegen.script import Script
from runtime.execution.process import Process
from runtime.execution.run_options import RunOptions
from runtime.transport.protocol import Transport

if TYPE_CHECKING:
    from runtime.checkpoints.saving import Checkpoints

TERMINATED = 128 + signal.SIGTERM
"""Exit status of a process that was told to end and has written a checkpoint: 143."""


class TerminatedError(SystemExit):
    """A run was told to end; all that it had done is in a checkpoint."""

    def __init__(self, num_done: int, folder: object) -> None:
        """Say where."""
        super().__init__(TERMINATED)
        self._line = f"SIGTERM: ended after {num_done} iterations, which are in {folder}"

    def __str__(self) -> str:
        """Return one line."""
        return self._line


class Termination:
    """Whether this process was told to end.

    Attributes:
        is_asked: Whether it was.
    """

    def __init__(self) -> None:
        """Begin without."""
        self.is_asked = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Take note of a signal; the next one has its usual effect."""
        self.is_asked = True
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def termination(options: RunOptions) -> Iterator[Termination]:
    """Take note of SIGTERM rather than end, where a process is one device and can write checkpoints."""
    asked = Termination()
    if options.checkpoints is None or threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = signal.signal(signal.SIGTERM, asked.ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGTERM, before)


class RunCheckpoints:
    """The checkpoints of a run; every device calls each method at the same place.

    Args:
        script: Script of this device.
        process: Its options say where checkpoints are, how many, and whether the run goes on from one.
        transport: Reaches the other devices.
    """

    def __init__(self, script: Script, process: Process, transport: Transport) -> None:
        """Do nothing yet."""
        self._facts, self._device, self._transport = facts_of(script), process.device, transport
        self._options = process.options
        self._checkpoints: Checkpoints | None = None

    def resume(self, state: TrainingState) -> Resumed:
        """Read the newest whole checkpoint if the run goes on from one.

        Raises:
            ScriptError: It cannot; see `runtime.checkpoints.loading.load_checkpoint`.
        """
        options = self._options
        if options.resume is None:
            return Resumed(0)
        return load_checkpoint(
            options.resume,
            state,
            self._facts,
            self._transport,
            self._device,
            most_iterations=options.iterations,
        )

    def after_iteration(self, num_done: int, state: TrainingState, ends: bool) -> None:
        """Begin a checkpoint if it is due.

        Args:
            num_done: Iterations that are done.
            state: State of this process.
            ends: Whether a device was told to end, the same on all devices.

        Raises:
            CheckpointError: This one or the one before could not be written.
            TerminatedError: The run was told to end, and its checkpoint is written.
        """
        options = self._options
        if options.checkpoints is None:
            return
        is_due = options.checkpoint_every and num_done % options.checkpoint_every == 0
        if is_due or ends:
            self._opened().save(state, num_done, self._facts)
        if ends:
            self.wait()
            raise TerminatedError(num_done, options.checkpoints / f"iteration_{num_done}")

    def wait(self) -> None:
        """Return when no checkpoint is being written.

        Raises:
            CheckpointError: The last one could not be written.
        """
        if self._checkpoints is not None:
            self._checkpoints.wait()

    def _opened(self) -> Checkpoints:
        # PyTorch's module takes half a second to import, which a run without checkpoints need not wait for.
        from runtime.checkpoints.saving import Checkpoints

        options = self._options
        assert options.checkpoints is not None
        if self._checkpoints is None:
            self._checkpoints = Checkpoints(
                options.checkpoints,
                self._transport,
                self._device,
                num_kept=options.keep_checkpoints,
                is_async=options.checkpoint_async,
            )
        return self._checkpoints
