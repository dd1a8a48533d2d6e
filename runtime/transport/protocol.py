"""What a device can ask of the others, whatever joins them; and which devices compute together.

A team is a set of devices that meet in collectives: those of a data-parallel group of a block, those that
hold the same shard in each of its groups, or those that hold replicas of the same parameters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from placements import Kind, Placement
from runtime.program.data_parallel import coordinate
from runtime.transport.communicators import Channel, StreamTeam, Team
from runtime.transport.copies import Copies
from runtime.transport.shards import WHOLE, Shards

__all__ = ["Channel", "Pending", "Team", "TransferError", "Transport", "shards_and_groups"]


class TransferError(RuntimeError):
    """A tensor did not arrive or could not be sent, or devices did not meet; it says where one stands.

    Args:
        text: Where, and why.
        cause: Why, if that is another device that failed or is gone.
    """

    def __init__(self, text: str, cause: str | None = None) -> None:
        """Keep the cause for those that wait for this device."""
        super().__init__(text)
        self.cause = cause


class Pending(Protocol):
    """A transfer on its way."""

    def wait(self) -> object:
        """Return when it has ended.

        Raises:
            RuntimeError: It never will.
        """

    def is_completed(self) -> bool:
        """Tell whether it has ended, as far as that is known without waiting."""


class Transport(ABC):
    """What a device needs of the others: `Channels` between processes, `MemoryTransport` in one.

    Attributes:
        shards: For each forward block on this device its shards.
        groups: For each forward block on this device its data-parallel groups, as shards of the samples.
    """

    shards: Mapping[str, Shards]
    groups: Mapping[str, Shards]

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Return where this device's tensors live."""

    @property
    def shares_gpu(self) -> bool:
        """Return whether all devices of the run are on one GPU, so that none has its clock for itself."""
        return False

    @property
    def has_own_process(self) -> bool:
        """Return whether this device is alone in its process, so that its streams may have threads."""
        return True

    @property
    def is_left(self) -> bool:
        """Return whether this process ends where others may be at another place: told to, or left by one."""
        return False

    @abstractmethod
    def has(self, channel: Channel) -> bool:
        """Tell whether there is such a channel."""

    def receiving(self) -> AbstractContextManager[object]:
        """Return where a receive's buffer is made and the receive posted: a stream of their own on a GPU."""
        return nullcontext()

    @abstractmethod
    def receive(self, buffer: Tensor, channel: Channel) -> Pending:
        """Post the receive of a channel's next message; the buffer belongs to the transfer until its end."""

    @abstractmethod
    def send(self, tensor: Tensor, channel: Channel) -> Pending:
        """Send a channel's next message; the tensor belongs to the transfer until its end."""

    def barrier(self) -> None:
        """Wait until every device has come here."""
        self.collect(None)

    @abstractmethod
    def collect(self, value: object) -> list[Any]:
        """Return every device's value, by device; plain data."""

    @abstractmethod
    def collecting(self) -> Callable[[object], Callable[[], list[Any]]]:
        """Return what collects values beside all else: begun with one's own, and waited for later.

        Every device must call it, and then what it returns, at the same places.
        """

    def add_up(self, values: Sequence[float]) -> list[float]:
        """Return the sums of what all devices give, as many floats each; between processes cheaper."""
        return [sum(each) for each in zip(*self.collect(list(values)), strict=True)]

    @abstractmethod
    def meet(self, devices: Sequence[int]) -> None:
        """Wait until each of these devices has come here; this is one of them."""

    def cause(self, error: RuntimeError, device: int | None = None) -> str | None:
        """Return why a transfer with a device failed, or with any, if that one has said so or is gone."""
        return None

    def group_beside(self) -> dist.ProcessGroup | None:
        """Return a new group of all processes, for use from another thread; None if devices are no processes.

        Every device must call it at the same place.
        """
        return None

    @abstractmethod
    def connect_copies(self, teams: Iterable[Team]) -> Mapping[Team, Copies]:
        """Return the same for operations that go on beside those of blocks."""


def shards_and_groups(
    placement: Placement, device: int, teams: Mapping[StreamTeam, Shards]
) -> tuple[Mapping[str, Shards], Mapping[str, Shards]]:
    """Return for each forward block on a device its shards, and its data-parallel groups.

    Args:
        placement: What runs where.
        device: Number of the device.
        teams: Those of `runtime.transport.communicators.teams_of_blocks` that the device is in.
    """
    own = [block for block in placement.on(device) if block.kind is Kind.F]
    found = {block.name: (coordinate(block, device), block.stream) for block in own}
    shards = {name: teams.get((each.team, stream), WHOLE) for name, (each, stream) in found.items()}
    return shards, {name: teams.get((each.peers, stream), WHOLE) for name, (each, stream) in found.items()}
