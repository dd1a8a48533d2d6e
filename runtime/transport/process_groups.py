"""How a device reaches the others: the process groups of a run, behind a small protocol.

There is one group per directed channel, and one per set of devices that compute together: the devices of a
data-parallel group of a block, and those that hold the same shard in each of its groups.

Messages carry no tags, because NCCL has none: on a channel they match by order. Each direction has a
group of its own, so that a posted receive never holds up a send. Every process creates every group, in
the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from placements import Kind, Placement
from runtime.program.data_parallel import coordinate
from runtime.transport.shards import WHOLE, ProcessShards, Shards

Channel = tuple[int, int]
"""(source device, target device)."""

NCCL_EXTRA_S = 600.0
"""By how much longer NCCL waits than a device, which counts from later on and says where it stands."""


class Pending(Protocol):
    """A transfer on its way."""

    def wait(self) -> object:
        """Return when it has ended.

        Raises:
            RuntimeError: It never will.
        """

    def is_completed(self) -> bool:
        """Tell whether it has ended, as far as that is known without waiting."""


class Transport(Protocol):
    """What a device needs of the others: `Channels` between processes, `MemoryTransport` in one."""

    @property
    def device(self) -> torch.device:
        """Return where this device's tensors live."""

    @property
    def shares_gpu(self) -> bool:
        """Return whether all devices of the run are on one GPU, so that none has its clock for itself."""

    @property
    def shards(self) -> Mapping[str, Shards]:
        """Return for each forward block on this device its shards."""

    @property
    def groups(self) -> Mapping[str, Shards]:
        """Return for each forward block on this device its data-parallel groups, as shards of the samples."""

    def has(self, channel: Channel) -> bool:
        """Tell whether there is such a channel."""

    def receive(self, buffer: Tensor, channel: Channel) -> Pending:
        """Post the receive of a channel's next message; the buffer belongs to the transfer until its end."""

    def send(self, tensor: Tensor, channel: Channel) -> Pending:
        """Send a channel's next message; the tensor belongs to the transfer until its end."""

    def barrier(self) -> None:
        """Wait until every device has come here."""

    def collect(self, value: object) -> list[Any]:
        """Return every device's value, by device; plain data."""

    def meet(self, devices: Sequence[int]) -> None:
        """Wait until each of these devices has come here; this is one of them."""

    def connect_copies(self, copies: Iterable[tuple[int, ...]]) -> Mapping[tuple[int, ...], Shards]:
        """Return for each set of devices that hold copies of parameters, this one among them, its own copy.

        Each set is ascending.

        Every device must call it at the same place, with the same sets in the same order.
        """


@dataclass(frozen=True)
class Channels:
    """The groups of one process; a `Transport`.

    Attributes:
        control: All devices; for barriers and small objects, never for tensors of the model.
        links: For each channel its group.
        shards: For each forward block on this device its shards.
        timeout_s: How long one transfer may wait for its other end.
        groups: For each forward block on this device its data-parallel groups.
    """

    control: dist.ProcessGroup
    links: Mapping[Channel, dist.ProcessGroup]
    shards: Mapping[str, Shards]
    timeout_s: float = 300.0
    groups: Mapping[str, Shards] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        """Return where this process's tensors live."""
        return torch_device()

    @property
    def shares_gpu(self) -> bool:
        """Return no: NCCL takes a GPU for each device."""
        return False

    def has(self, channel: Channel) -> bool:
        """Tell whether there is such a channel."""
        return channel in self.links

    def receive(self, buffer: Tensor, channel: Channel) -> Pending:
        """Post a receive."""
        work: Pending | None = dist.irecv(buffer, channel[0], group=self.links[channel])
        assert work is not None
        return work

    def send(self, tensor: Tensor, channel: Channel) -> Pending:
        """Begin a send."""
        work: Pending | None = dist.isend(tensor, channel[1], group=self.links[channel])
        assert work is not None
        return work

    def barrier(self) -> None:
        """Wait for all devices."""
        dist.barrier(group=self.control)

    def collect(self, value: object) -> list[Any]:
        """Return every device's value."""
        collected: list[Any] = [None] * dist.get_world_size(self.control)
        dist.all_gather_object(collected, value, group=self.control)
        return collected

    def meet(self, devices: Sequence[int]) -> None:
        """Wait for some devices, over the group of all."""
        others, token = [other for other in devices if other != dist.get_rank()], torch.zeros(1)
        sent = [dist.isend(token, other, group=self.control) for other in others]
        for other in others:
            dist.recv(torch.empty_like(token), other, group=self.control)
        for work in sent:
            assert work is not None
            work.wait()

    def connect_copies(self, copies: Iterable[tuple[int, ...]]) -> Mapping[tuple[int, ...], Shards]:
        """Create and warm up a group for each set."""
        timeout, device = _timeout(self.timeout_s), dist.get_rank()
        teams = {devices: dist.new_group(list(devices), timeout=timeout) for devices in copies}
        _warm_up({}, teams, device)
        return {
            devices: ProcessShards(group, devices.index(device), len(devices))
            for devices, group in teams.items()
            if device in devices
        }


def connect(placement: Placement, channels: Sequence[Channel], device: int, timeout_s: float) -> Channels:
    """Create and warm up all groups; every device must call it with the same arguments but `device`.

    Args:
        placement: What runs where.
        channels: All (source, target) pairs that messages take, in the same order everywhere.
        device: The caller.
        timeout_s: How long one transfer may wait for its other end.
    """
    control: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
    timeout = _timeout(timeout_s)
    links = {channel: dist.new_group(sorted(channel), timeout=timeout) for channel in channels}
    teams = {devices: dist.new_group(list(devices), timeout=timeout) for devices in _teams(placement)}
    _warm_up(links, teams, device)

    def member(team: tuple[int, ...]) -> Shards:
        if len(team) == 1:
            return WHOLE
        return ProcessShards(teams[team], team.index(device), len(team))

    shards, groups = shards_and_groups(placement, device, member)
    return Channels(control, links, shards, timeout_s, groups)


def shards_and_groups(
    placement: Placement, device: int, member: Callable[[tuple[int, ...]], Shards]
) -> tuple[Mapping[str, Shards], Mapping[str, Shards]]:
    """Return for each forward block on a device its shards, and its data-parallel groups.

    Args:
        placement: What runs where.
        device: Which device.
        member: Makes them for a team of devices, ascending, of which each has one.
    """
    coordinates = {
        block.name: coordinate(block, device) for block in placement.on(device) if block.kind is Kind.F
    }
    shards = {name: member(found.team) for name, found in coordinates.items()}
    return shards, {name: member(found.peers) for name, found in coordinates.items()}


def _timeout(timeout_s: float) -> timedelta:
    """Return how long a group for tensors waits."""
    return timedelta(seconds=timeout_s + (NCCL_EXTRA_S if dist.get_backend() == "nccl" else 0.0))


def _teams(placement: Placement) -> Iterable[tuple[int, ...]]:
    """Return the devices of every group, and those of every shard of all groups."""
    forward = [block for block in placement.blocks if block.kind is Kind.F]
    coordinates = [coordinate(block, device) for block in forward for device in block.devices]
    return sorted({team for found in coordinates for team in (found.team, found.peers) if len(team) > 1})


def _warm_up(
    links: Mapping[Channel, dist.ProcessGroup],
    teams: Mapping[tuple[int, ...], dist.ProcessGroup],
    device: int,
) -> None:
    """Use every group once, one after the other: a lazy first use among others could deadlock or be timed."""
    token = torch.zeros(1, device=torch_device())
    for (source, target), group in links.items():
        if device == source:
            dist.send(token, target, group=group)
        elif device == target:
            dist.recv(token, source, group=group)
    for devices, group in teams.items():
        if device in devices:
            dist.all_gather([torch.empty_like(token) for _ in devices], token, group=group)


def torch_device() -> torch.device:
    """Return where this process's tensors live: its GPU under NCCL, the CPU otherwise."""
    if dist.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
