"""Communicators of a run, in the order in which all processes create them: for channels and for teams.

A communicator is a process group; NCCL carries its operations out one after the other, in the order in which
they are posted. So each channel has one of its own: in one for both directions a receive that is not due
would hold up a later send to the same device. Under gloo it holds up nothing, so there one communicator
carries all channels (`runtime.transport.process_groups`).

The module knows placements, and neither torch nor processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from placements import Kind, Placement
from placements.block import COMPUTE
from runtime.program.data_parallel import coordinate

Channel = tuple[int, int]
"""(source device, target device)."""

Team = tuple[int, ...]
"""Devices of a team, ascending."""

StreamTeam = tuple[Team, str]
"""The team of blocks of a stream: streams run side by side, so each has a communicator of its own."""


class Communicator(NamedTuple):
    """A process group: of a channel, as ``0 to 1``, or of a team, as ``team 0 1 2``."""

    name: str
    devices: Team
    channel: Channel | None = None
    stream: str = COMPUTE


def communicators(placement: Placement, channels: Sequence[Channel]) -> list[Communicator]:
    """Return the communicators for tensors of the model; the one of all processes is for barriers.

    Args:
        placement: What runs where, each device one GPU.
        channels: Channels that messages take.

    >>> from placements.shapes import m_shape
    >>> [group.name for group in communicators(m_shape(3), [(0, 1), (1, 0), (1, 2)])]
    ['0 to 1', '1 to 0', '1 to 2', 'team 0 1 2']
    """
    made = []
    for source, target in channels:
        pair = min(source, target), max(source, target)
        made.append(Communicator(f"{source} to {target}", pair, (source, target)))
    for team, stream in teams_of_blocks(placement):
        name = " ".join(("team", *map(str, team), *(() if stream == COMPUTE else (stream,))))
        made.append(Communicator(name, team, stream=stream))
    return made


def teams_of_blocks(placement: Placement) -> list[StreamTeam]:
    """Return the devices of every data-parallel group, and of every shard of all groups, by stream."""
    forward = [block for block in placement.blocks if block.kind is Kind.F]
    places = [(coordinate(block, device), block.stream) for block in forward for device in block.devices]
    return sorted(
        {(team, stream) for place, stream in places for team in (place.team, place.peers) if len(team) > 1}
    )
