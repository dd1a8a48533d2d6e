"""Communicators of a run, in the order in which all processes create them: for channels and for teams.

A communicator is a process group; NCCL carries its operations out one after the other, in the order in which
they are posted. Channels may have one each, or the two directions between a pair of devices share one.

Sharing is safe for all programs that `runtime.program.deadlock.check` has proved. They end even if every send
and receive blocks its device, and then both devices of a pair go through all messages between them, of either
direction, in one order. So each operation finds its other end where the earlier ones of the pair have ended,
and waits for less than under blocking. What sharing can cost is overlap, and only where an operation starts
when it is posted: a receive that is not due holds up a later send to the same device under NCCL. Under gloo
it holds up nothing, so there one communicator for all does as well (`runtime.transport.process_groups`).
`runtime.virtual.play.cheapest_sharing` tells whether a schedule loses by sharing.

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

DIRECTED, PAIR, AUTO = SHARINGS = ("directed", "pair", "auto")
"""One communicator for each channel; one for both directions between two devices; the second where nothing is
lost by it, else the first, and on gloo one for all."""


class Communicator(NamedTuple):
    """A process group: of channels, as ``0 to 1`` or ``0 and 1``, or of a team, as ``team 0 1 2``."""

    name: str
    devices: Team
    channels: tuple[Channel, ...] = ()
    stream: str = COMPUTE


def communicators(
    placement: Placement, channels: Sequence[Channel], sharing: str
) -> tuple[Communicator, ...]:
    """Return the communicators for tensors of the model; the one of all processes is for barriers.

    Args:
        placement: What runs where, each device one GPU.
        channels: Channels that messages take.
        sharing: `DIRECTED` or `PAIR`.

    >>> from placements.shapes import m_shape
    >>> for each in communicators(m_shape(3), [(0, 1), (1, 0), (1, 2)], PAIR):
    ...     print(each.name, each.channels)
    0 and 1 ((0, 1), (1, 0))
    1 and 2 ((1, 2),)
    team 0 1 2 ()
    """
    own: dict[tuple[str, Team], list[Channel]] = {}
    for source, target in channels:
        first, last = pair = tuple(sorted((source, target)))
        name = f"{source} to {target}" if sharing == DIRECTED else f"{first} and {last}"
        own.setdefault((name, pair), []).append((source, target))
    of_teams = []
    for team, stream in teams_of_blocks(placement):
        name = " ".join(("team", *map(str, team), *(() if stream == COMPUTE else (stream,))))
        of_teams.append(Communicator(name, team, stream=stream))
    return (*(Communicator(*name_and_pair, tuple(each)) for name_and_pair, each in own.items()), *of_teams)


def teams_of_blocks(placement: Placement) -> list[StreamTeam]:
    """Return the devices of every data-parallel group, and of every shard of all groups, by stream."""
    forward = [block for block in placement.blocks if block.kind is Kind.F]
    found = [(coordinate(block, device), block.stream) for block in forward for device in block.devices]
    return sorted(
        {(team, stream) for each, stream in found for team in (each.team, each.peers) if len(team) > 1}
    )
