"""Where a device stands, kept up to date for errors and for others to read.

On a GPU the script runs ahead of the compute stream that it feeds, and waits for no transfer itself. So there
the script's blocks and the transfers that the stream waits for are marked. The script stays a few blocks
ahead: enough that the GPU never waits for it, and not so much that nobody could say where the device stands
or that the memory of what was sent is kept for long. Nothing here knows CUDA: a mark is anything that says
whether it has been reached.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor

from runtime.clocks.gpu_clock import record_event
from runtime.clocks.stream_clock import GpuEvent
from runtime.execution.results import Position, Standing
from runtime.profiling.observer import DeviceObserver
from runtime.program.calls import Message
from runtime.program.instructions import Run

AHEAD_BLOCKS = 4
"""How many blocks the script may be ahead of the GPU."""

POLL_S = 0.00005
"""How often a mark is looked at while it is waited for."""


class ScriptPlace(DeviceObserver):
    """Says at which call the script stands, and which transfer it waits for there; see `place_observers`."""

    def __init__(self, position: Position, device: int, num_calls: Callable[[], int]) -> None:
        self._position, self._device, self._num_calls = position, device, num_calls
        self._iteration = self._call = 0
        self._before_wait = ""

    def begin(self, iteration: int) -> None:
        """Count the calls of an iteration from the first on."""
        self._iteration, self._call = iteration, 0

    def post(self, message: Message) -> None:
        """Stand at a send or receive."""
        self._go_on("sends" if message.source == self._device else "receives", message.transfer)

    def reach(self, run: Run) -> None:
        """Stand at a block."""
        self._go_on("runs", f"{run.block} of micro-batch {run.micro_batch}")

    def wait(self, message: Message) -> None:
        """Stand there and wait for a message."""
        sends = message.source == self._device
        other = message.target if sends else message.source
        self._before_wait = self._position.text
        text = f"{self._before_wait}, waits for {message.transfer} {'to' if sends else 'from'} device {other}"
        self._position.move(text, other)

    def waited(self, message: Message) -> None:
        """Wait no longer."""
        self._position.move(self._before_wait)

    def _go_on(self, verb: str, what: object) -> None:
        self._call += 1
        place = f"iteration {self._iteration}, call {self._call} of {self._num_calls()}"
        self._position.move(f"{place}, {verb} {what}")


class StreamTimeoutError(RuntimeError):
    """The GPU stands where it is for too long."""


class StreamPlace(DeviceObserver):
    """Keeps the script from running too far ahead, and says meanwhile where the stream stands.

    Args:
        position: Says where the script stands; is told where the stream does, while the script waits for it.
        mark: Marks the present end of the stream.
        timeout_s: How long the stream may take to come to a mark.
        ahead: See `AHEAD_BLOCKS`.
    """

    def __init__(
        self,
        position: Position,
        mark: Callable[[], GpuEvent],
        timeout_s: float = 300.0,
        ahead: int = AHEAD_BLOCKS,
    ) -> None:
        self._position, self._mark, self._timeout_s, self._ahead = position, mark, timeout_s, ahead
        self._waits: deque[tuple[Standing, GpuEvent]] = deque()
        self._blocks: deque[GpuEvent] = deque()

    def waited(self, message: Message) -> None:
        """Take note that the stream, not the script, now waits for a message."""
        self._waits.append((Standing(self._position.text, self._position.waits_for), self._mark()))

    def stop(self, run: Run, made: Iterable[Tensor]) -> None:
        """Take note that the stream was given a block."""
        self._blocks.append(self._mark())

    def reach(self, run: Run) -> None:
        """Wait until the script is no more blocks ahead than it may."""
        while len(self._blocks) > self._ahead:
            self._await(self._blocks.popleft())

    def drain(self) -> None:
        """Wait until the stream is empty."""
        self._blocks.clear()
        self._await(self._mark())
        self._waits.clear()

    def _await(self, mark: GpuEvent) -> None:
        before = Standing(self._position.text, self._position.waits_for)
        deadline_s = time.monotonic() + self._timeout_s
        while not mark.query():
            standing = self._standing() or before
            if standing.text != self._position.text:
                self._position.move(standing.text, standing.waits_for)
            if time.monotonic() > deadline_s:
                raise StreamTimeoutError(f"the GPU did not go on within {self._timeout_s:g} s")
            time.sleep(POLL_S)
        self._position.move(before.text, before.waits_for)
        self._standing()

    def _standing(self) -> Standing | None:
        """Return where the stream waits for a transfer next; forget transfers that ended."""
        while self._waits and self._waits[0][1].query():
            self._waits.popleft()
        return self._waits[0][0] if self._waits else None


def place_observers(
    position: Position, device: int, num_calls: Callable[[], int], where: torch.device, timeout_s: float
) -> Sequence[DeviceObserver]:
    """Return observers that say where a script stands, and on a GPU where its stream does.

    Args:
        position: Is told.
        device: The script's.
        num_calls: Returns the number of calls of this iteration.
        where: Its tensors live there.
        timeout_s: How long a GPU may stand at a transfer; elsewhere the transport knows.
    """
    script = ScriptPlace(position, device, num_calls)
    if where.type != "cuda":
        return [script]
    return [script, StreamPlace(position, partial(record_event, timed=False), timeout_s)]
