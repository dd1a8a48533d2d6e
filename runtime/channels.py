"""The process groups of a run: one per directed channel, one per set of devices that share blocks.

Messages carry no tags, because NCCL has none: on a channel they match by order. Each direction has a
group of its own, so that a posted receive never holds up a send. Every process creates every group, in
the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from placements import Kind, Placement
from runtime.models import WHOLE, ProcessShards, Shards

Channel = tuple[int, int]
"""(source device, target device)."""


@dataclass(frozen=True)
class Channels:
    """The groups of one process.

    Attributes:
        control: All devices; for barriers and small objects, never for tensors of the model.
        links: For each channel its group.
        shards: For each forward block on this device its shards.
    """

    control: dist.ProcessGroup
    links: Mapping[Channel, dist.ProcessGroup]
    shards: Mapping[str, Shards]


def connect(placement: Placement, channels: Sequence[Channel], device: int, timeout_s: float) -> Channels:
    """Create and warm up all groups; every device must call it with the same arguments but `device`.

    Args:
        placement: What runs where.
        channels: All (source, target) pairs that messages take, in the same order everywhere.
        device: The caller.
        timeout_s: How long one transfer may wait for its other end.
    """
    timeout = timedelta(seconds=timeout_s)
    control: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=timeout)
    links = {channel: dist.new_group(sorted(channel), timeout=timeout) for channel in channels}
    teams = {devices: dist.new_group(list(devices), timeout=timeout) for devices in _teams(placement)}
    _warm_up(links, teams, device)
    shards: dict[str, Shards] = {}
    for block in placement.blocks:
        if block.kind is Kind.F and device in block.devices:
            count = len(block.devices)
            index = block.devices.index(device)
            shards[block.name] = WHOLE if count == 1 else ProcessShards(teams[block.devices], index, count)
    return Channels(control, links, shards)


def connect_copies(
    copies: Iterable[tuple[int, ...]], device: int, timeout_s: float
) -> dict[tuple[int, ...], Shards]:
    """Create and warm up a group for each set of devices that hold copies of parameters.

    Args:
        copies: The sets of devices, ascending, in the same order in every process.
        device: The caller.
        timeout_s: How long one exchange may wait.

    Returns:
        For each set with the caller which copy is its own.
    """
    timeout = timedelta(seconds=timeout_s)
    teams = {devices: dist.new_group(list(devices), timeout=timeout) for devices in copies}
    _warm_up({}, teams, device)
    return {
        devices: ProcessShards(group, devices.index(device), len(devices))
        for devices, group in teams.items()
        if device in devices
    }


def _teams(placement: Placement) -> Iterable[tuple[int, ...]]:
    return sorted({block.devices for block in placement.blocks if len(block.devices) > 1})


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
