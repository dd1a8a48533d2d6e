"""Events of an iteration on a device, in order, for its observers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from runtime.program.calls import Message
from runtime.program.instructions import Run
from runtime.transport.protocol import Pending


class DeviceObserver:
    """Is told of each event; takes note of nothing.

    A device has several, one around the other. What comes before a block or a wait is told from the outermost
    to the innermost, all else the other way round, so that the innermost is next to the block itself.

    Attributes:
        is_told_beside: Whether it is also told of blocks of other streams than ``compute``, by their threads
            where they are threads: of reaching, starting and stopping, and of the messages they wait for.
    """

    is_told_beside = False

    def begin(self, iteration: int) -> None:
        """An iteration begins, right after the barrier; the compute stream is empty."""

    def post(self, message: Message) -> None:
        """A receive or send is about to be posted."""

    def posted(self, message: Message, work: Pending) -> None:
        """It was posted."""

    def reach(self, run: Run) -> None:
        """A block is next, and waits for its inputs."""

    def wait(self, message: Message) -> None:
        """The device begins to wait for a message to end."""

    def waited(self, message: Message) -> None:
        """It has ended, or on a GPU the compute stream waits for its end."""

    def start(self, run: Run, arrived: Sequence[Tensor]) -> None:
        """The block begins, with these tensors."""

    def stop(self, run: Run, made: Iterable[Tensor]) -> None:
        """It has ended, or on a GPU was given to the stream, and made these tensors."""

    def drain(self) -> None:
        """All calls of the iteration were made; the stream may still run."""

    def end(self) -> None:
        """All that was computed and sent is done."""
