"""Requests of a device to the others, whatever joins them; and the teams of devices that compute together.

A team is a set of devices that meet in collectives: those of a data-parallel group of a block, those that
hold the same shard in each of its groups, or those that hold replicas of the same parameters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from placements import Kind, Placement
from runtime.program.data_parallel import coordinate
from runtime.transport.communicators import Channel, StreamTeam, Team
from runtime.transport.shards import WHOLE, Shards

__all__ = ["Channel", "Pending", "Team", "TransferError", "Transport", "shards_and_groups"]


class TransferError(RuntimeError):
    """A tensor did not arrive or could not be sent, or devices did not meet; it says where one stands.

    Attributes:
        cause: Why, if that is another device that failed or is gone; for those that wait for this device.
    """

    def __init__(self, text: str, cause: str | None = None) -> None:
        super().__init__(text)
        self.cause = cause


class Pending(Protocol):
    """A transfer on its way."""

    def wait(self) -> object:
        """Return when it has ended; RuntimeError if it never will."""

    def is_completed(self) -> bool:
        """Tell whether it has ended, as far as that is known without waiting."""


class Transport(ABC):
    """A device's way to the others: `Channels` between processes, `MemoryTransport` in one.

    Attributes:
        channels: Channels that messages may take.
        shards: For each forward block on this device its shards.
        groups: For each forward block on this device its data-parallel groups, as shards of the samples.
        has_own_process: Whether this device is alone in its process, so that its streams may have threads.
    """

    channels: Collection[Channel]
    shards: Mapping[str, Shards]
    groups: Mapping[str, Shards]
    has_own_process = True

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Return where this device's tensors live."""

    @property
    def shares_gpu(self) -> bool:
        """Return whether all devices of the run are on one GPU, so that none has its clock for itself."""
        return not self.has_own_process and self.device.type == "cuda"

    @property
    def is_left(self) -> bool:
        """Return whether this process ends where others may be at another place: told to, or left by one."""
        return False

    def has(self, channel: Channel) -> bool:
        """Tell whether a channel exists."""
        return channel in self.channels

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

    def add_up(self, values: Sequence[float]) -> list[float]:
        """Return the sums of all devices' values, as many floats each; between processes cheaper."""
        return [sum(numbers) for numbers in zip(*self.collect(list(values)), strict=True)]

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
    def connect_copies(self, teams: Iterable[Team]) -> Mapping[Team, Shards]:
        """Return this device's place in each team, for operations beside the blocks."""


def shards_and_groups(
    placement: Placement, device: int, teams: Mapping[StreamTeam, Shards]
) -> tuple[dict[str, Shards], dict[str, Shards]]:
    """Return for each forward block on a device its shards, and its data-parallel groups.

    The teams are those of `runtime.transport.communicators.teams_of_blocks` that the device is in.
    """
    shards, groups = {}, {}
    for block in placement.on(device):
        if block.kind is Kind.F:
            place = coordinate(block, device)
            shards[block.name] = teams.get((place.team, block.stream), WHOLE)
            groups[block.name] = teams.get((place.peers, block.stream), WHOLE)
    return shards, groups
