"""Where a GPU's compute stream stands. The script that feeds it runs ahead, and waits for no transfer itself.

The script marks its blocks and the transfers that the stream waits for. It stays a few blocks ahead: enough
that the GPU never waits for it, and not so much that nobody could say where the device stands or that the
memory of what was sent is kept for long. The module does not know CUDA: a mark is anything that says whether
it has been reached.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from runtime.execution.results import Position

AHEAD_BLOCKS = 4
"""How many blocks the script may be ahead of the GPU."""

POLL_S = 0.00005
"""How often a mark is looked at while it is waited for."""


class Mark(Protocol):
    """A point in a stream of work."""

    def query(self) -> bool:
        """Return whether the work up to it is done; does not wait."""


class StreamTimeoutError(RuntimeError):
    """The GPU stands where it is for too long."""


class StreamPosition:
    """What a script gave to the stream in an iteration, and how far the stream has come.

    Args:
        position: Is told where the stream stands, while the script waits for it.
        mark: Marks the present end of the stream.
        timeout_s: How long the stream may take to come to a mark.
        ahead: See `AHEAD_BLOCKS`.
    """

    def __init__(
        self,
        position: Position,
        mark: Callable[[], Mark],
        timeout_s: float = 300.0,
        ahead: int = AHEAD_BLOCKS,
    ) -> None:
        """Begin with an empty stream."""
        self._position = position
        self._mark = mark
        self._timeout_s = timeout_s
        self._ahead = ahead
        self._waits: deque[tuple[str, Mark]] = deque()
        self._blocks: deque[Mark] = deque()

    def waits(self, text: str) -> None:
        """Take note that the stream now waits for a transfer.

        Args:
            text: Where the device stands until that ends.
        """
        self._waits.append((text, self._mark()))

    def ran(self) -> None:
        """Take note that the stream was given a block."""
        self._blocks.append(self._mark())

    def let_catch_up(self) -> None:
        """Wait until the script is no more blocks ahead than it may.

        Raises:
            StreamTimeoutError: The stream did not come so far.
        """
        while len(self._blocks) > self._ahead:
            self._reach(self._blocks.popleft())

    def finish(self) -> None:
        """Wait until the stream is empty.

        Raises:
            StreamTimeoutError: It did not come to its end.
        """
        self._blocks.clear()
        self._reach(self._mark())
        self._waits.clear()

    def _reach(self, mark: Mark) -> None:
        before, deadline_s = self._position.text, time.monotonic() + self._timeout_s
        while not mark.query():
            standing = self._standing() or before
            if standing != self._position.text:
                self._position.move(standing)
            if time.monotonic() > deadline_s:
                raise StreamTimeoutError(f"the GPU did not go on within {self._timeout_s:g} s")
            time.sleep(POLL_S)
        self._position.move(before)
        self._standing()

    def _standing(self) -> str | None:
        """Return the text of the transfer that the stream has to wait for next; forget those that ended."""
        while self._waits and self._waits[0][1].query():
            self._waits.popleft()
        return self._waits[0][0] if self._waits else None
