"""A block: one piece of one micro-batch's work, as it is written or as a mode runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

COMPUTE = "compute"
"""The stream of blocks that name none."""


class PlacementError(ValueError):
    """A placement breaks a rule; the message names the field, the value and the remedy in one line."""


class Kind(StrEnum):
    """Kind of work that a block does.

    F forward, B whole backward, I and W its input and weight halves; R computes a forward again, before its
    backward; O an optimizer step, which runs once, after the last micro-batch.
    """

    F = "F"
    B = "B"
    I = "I"  # noqa: E741 - the literature's name for the input-gradient half
    W = "W"
    R = "R"
    O = "O"  # noqa: E741


@dataclass(frozen=True)
class Block:
    """One piece of one micro-batch's work on its devices (Tessel, Sec. III-A).

    Attributes:
        name: Unique within the placement.
        kind: What it computes.
        devices: Device indices, kept ascending; several devices run it together.
        time: Ticks; at least 1.
        memory: Units held from its start when positive, released when negative: one number for each of its
            devices, or a tuple in the order of `devices`. A tuple of equal numbers is kept as the number.
        after: Names of the blocks of the same micro-batch that must end before it starts; for an optimizer
            block, of every micro-batch.
        transient: More units needed on each of its devices only while it runs.
        data_parallel: Its GPUs, in order, are so many equal groups. Each computes its share of the
            micro-batch's samples, and the GPUs of a group share the layers (tensor parallel).
        in_turns: Its groups take whole micro-batches in turn, instead of a share of each: the copies of a
            stage, as a run knows them. Which of them takes which is a matter of a schedule; see
            `placements.copies`.
        stream: Which of its devices' streams it runs on, each of which runs one block at a time: ``compute``,
            ``communication``, ``copy_out``, ``copy_in`` or any other name. Memory is the device's.
        host_memory: Units that the host of each of its devices holds from its start when positive, released
            when negative.
        sequence_slice: Which slice of the micro-batch's sequence it computes, from 0 on. A forward that is
            after one of another slice takes no tensor of it, but the keys and values that it left.
    """

    name: str
    kind: Kind
    devices: tuple[int, ...]
    time: int
    memory: int | tuple[int, ...] = 0
    after: tuple[str, ...] = ()
    transient: int = 0
    data_parallel: int = 1
    stream: str = COMPUTE
    host_memory: int = 0
    in_turns: bool = False
    sequence_slice: int = 0

    def __post_init__(self) -> None:
        """Sort the devices, so that all of them agree on their order, and their memory with them."""
        if isinstance(self.memory, tuple) and len(self.memory) == len(self.devices):
            units = tuple(each for _, each in sorted(zip(self.devices, self.memory, strict=True)))
            object.__setattr__(self, "memory", units[0] if len(set(units)) == 1 else units)
        object.__setattr__(self, "devices", tuple(sorted(self.devices)))

    def memory_on(self, device: int) -> int:
        """Return the units held on a device, released when negative; 0 where the block does not run."""
        return self._units.get(device, 0)

    @property
    def num_shares(self) -> int:
        """Into how many shares its groups cut the samples of a micro-batch."""
        return 1 if self.in_turns else self.data_parallel

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The devices of each data-parallel group, in order, where each device is one GPU.

        Raises:
            PlacementError: They are not as many: a device stands for several GPUs.
        """
        size, left = divmod(len(self.devices), self.data_parallel)
        if left or not size:
            raise PlacementError(
                f"blocks ({self.name}).data_parallel: {self.data_parallel} groups are of GPUs, not of the "
                f"{len(self.devices)} devices that stand for them; use the placement's by_gpu"
            )
        return tuple(self.devices[first : first + size] for first in range(0, len(self.devices), size))

    @cached_property
    def _units(self) -> Mapping[int, int]:
        each = self.memory if isinstance(self.memory, tuple) else (self.memory,) * len(self.devices)
        return dict(zip(self.devices, each, strict=True))
