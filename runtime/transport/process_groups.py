"""Devices that are processes, joined by `torch.distributed`: a group for each channel and each team.

Messages carry no tags, because NCCL has none: on a channel they match by order. Each direction has a
group of its own, so that a posted receive never holds up a send. Every process creates every group, in
the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from placements import Placement
from runtime.transport.protocol import Channel, Pending, Team, shards_and_groups, teams_of_blocks
from runtime.transport.shards import Shards

NCCL_EXTRA_S = 600.0
"""By how much longer NCCL waits than a device, which counts from later on and says where it stands."""


@dataclass(frozen=True)
class Channels:
    """The groups of one process; a `runtime.transport.protocol.Transport`.

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

    def group_beside(self) -> dist.ProcessGroup | None:
        """Create a group of all processes, on the CPU."""
        group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=timedelta(seconds=self.timeout_s))
        return group

    def connect_teams(self, teams: Iterable[Team]) -> Mapping[Team, Shards]:
        """Create and warm up a group for each team."""
        return _connect_teams(teams, self.timeout_s)


def connect(placement: Placement, channels: Sequence[Channel], device: int, timeout_s: float) -> Channels:
    """Create and warm up all groups; every device must call it with the same arguments but `device`.

    Args:
        placement: What runs where.
        channels: All (source, target) pairs that messages take, in the same order everywhere.
        device: The caller.
        timeout_s: How long one transfer may wait for its other end.
    """
    control: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
    timeout, token = _timeout(timeout_s), _token()
    links = {channel: dist.new_group(sorted(channel), timeout=timeout) for channel in channels}
    for (source, target), group in links.items():
        if device == source:
            dist.send(token, target, group=group)
        elif device == target:
            dist.recv(token, source, group=group)
    teams = _connect_teams(teams_of_blocks(placement), timeout_s)
    shards, groups = shards_and_groups(placement, device, teams)
    return Channels(control, links, shards, timeout_s, groups)


def all_gather(group: dist.ProcessGroup, value: Tensor) -> list[Tensor]:
    """Return the tensors of all processes of a group, in its order; of equal shapes."""
    received = [
        torch.empty_like(value, memory_format=torch.contiguous_format)
        for _ in range(dist.get_world_size(group))
    ]
    dist.all_gather(received, value.contiguous(), group=group)
    return received


def _connect_teams(teams: Iterable[Team], timeout_s: float) -> dict[Team, Shards]:
    timeout, device = _timeout(timeout_s), dist.get_rank()
    groups = {team: dist.new_group(list(team), timeout=timeout) for team in teams}
    own = {
        team: Shards(team.index(device), len(team), partial(all_gather, group))
        for team, group in groups.items()
        if device in team
    }
    for shards in own.values():
        shards.gather(_token())
    return own


def _timeout(timeout_s: float) -> timedelta:
    """Return how long a group for tensors waits."""
    return timedelta(seconds=timeout_s + (NCCL_EXTRA_S if dist.get_backend() == "nccl" else 0.0))


def _token() -> Tensor:
    """Return what warms up a group: a lazy first use among others could deadlock or be timed."""
    return torch.zeros(1, device=torch_device())


def torch_device() -> torch.device:
    """Return where this process's tensors live: its GPU under NCCL, the CPU otherwise."""
    if dist.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
