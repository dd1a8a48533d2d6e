"""Timelines: the time of a schedule, whole or without the intervals in which blocks shared by devices run.

No two blocks that run on all of some devices together run at once, so in all they take their time times
the number of micro-batches. Cut these intervals out. A block that has a device in common with each of them
never ran in any and keeps its length; of all other blocks, and of transfers, nothing is known but that they
take no less than no time. Where a block waited for another it still does, and memory is in use as before.
So every bound that holds on the shortened timeline holds on the whole one, with the shared time added.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cached_property

from placements import Block, Placement


@dataclass(frozen=True)
class Timeline:
    """A placement's timeline without the intervals of the blocks that some devices share.

    Attributes:
        placement: What runs where.
        devices: Devices that share these blocks; if empty, no interval is cut out.
    """

    placement: Placement
    devices: frozenset[int]

    @cached_property
    def shared(self) -> list[Block]:
        """The blocks cut out, without optimizer blocks."""
        blocks = self.placement.per_micro_batch.blocks
        return [block for block in blocks if self.devices and self.devices <= set(block.devices)]

    @property
    def shared_time(self) -> int:
        """Ticks per micro-batch cut out."""
        return sum(block.time for block in self.shared)

    @cached_property
    def length(self) -> Mapping[str, int]:
        """Least remaining ticks of each block, by name."""
        if not self.devices:
            return {block.name: block.time for block in self.placement.blocks}
        shared = self.shared
        return {
            block.name: block.time
            if block not in shared
            and block in self.placement.per_micro_batch.blocks
            and all(set(block.devices) & set(other.devices) for other in shared)
            else 0
            for block in self.placement.blocks
        }

    def transfer_time(self, source: str, target: str) -> int:
        """Return the least remaining ticks of a transfer."""
        return 0 if self.devices else self.placement.transfer_time(source, target)

    @cached_property
    def ancestors(self) -> Mapping[str, frozenset[str]]:
        """The predecessors of each block, direct or not."""
        before: dict[str, frozenset[str]] = {}
        for block in self.placement.topological_order:
            before[block.name] = frozenset(block.after).union(*(before[name] for name in block.after))
        return before

    @cached_property
    def heads(self) -> Mapping[str, int]:
        """Least ticks of one micro-batch before each block's start."""
        return self.ticks_from(self.placement.by_name.keys())

    @cached_property
    def tails(self) -> Mapping[str, int]:
        """Least ticks from each block's end to the end of its micro-batch."""
        return self.ticks_from(self.placement.by_name.keys(), backwards=True)

    def ticks_from(self, names: Set[str], *, backwards: bool = False) -> dict[str, int]:
        """Return the least ticks from the first start of some blocks to each of their successors' starts.

        Args:
            names: Names of these blocks.
            backwards: Return instead the ticks from each predecessor's end to the last end of these blocks.
        """
        placement, ticks_to = self.placement, dict[str, int]()
        order = placement.topological_order
        for block in reversed(order) if backwards else order:
            ticks = [0] if block.name in names else []
            for name in placement.successors[block.name] if backwards else block.after:
                if name in ticks_to:
                    hop = (block.name, name) if backwards else (name, block.name)
                    ticks.append(ticks_to[name] + self.length[name] + self.transfer_time(*hop))
            if ticks:
                ticks_to[block.name] = max(ticks)
        return ticks_to


def timelines(placement: Placement) -> list[Timeline]:
    """Return the placement's whole timeline, and one without the blocks shared by each set of devices."""
    sets = {frozenset(block.devices) for block in placement.per_micro_batch.blocks if len(block.devices) > 1}
    return [Timeline(placement, devices) for devices in [frozenset[int](), *sorted(sets, key=sorted)]]
