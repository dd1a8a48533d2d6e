"""A block: one piece of one micro-batch's work, as written or as run in a mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from typing import Annotated, Any

from placements.forms.meaning import Meaning, declared_fields

COMPUTE = "compute"
"""The stream of blocks that name none."""

LARGEST = 1e15
"""Largest number of units or ticks: sums of many stay exact in 64 bits."""


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

    Devices are kept ascending. Memory that differs by device is a tuple in the order of `devices`; one of
    equal numbers is kept as the number. The fields' declarations also hold for files; there, time may be a
    fraction, and memory a mapping from devices.
    """

    name: Annotated[str, Meaning("name, unique in the placement")]
    kind: Annotated[
        Kind,
        Meaning(
            "`F` forward, `B` backward, `I` input gradient, `W` weight gradient, `R` recomputed forward, `O` "
            "optimizer step, which runs once, after the last micro-batch"
        ),
    ]
    devices: Annotated[
        tuple[int, ...], Meaning("devices of the block; several run it together (tensor parallel)")
    ]
    time: Annotated[int, Meaning("duration", "ticks", above=0)]
    memory: Annotated[
        int | tuple[int, ...],
        Meaning(
            "memory allocated at the start, negative if released: a number for each of its devices, or a "
            "mapping from devices such as `{0: 1, 2: 3}` (keys in quotes in JSON)",
            "units",
        ),
    ] = 0
    after: Annotated[tuple[str, ...], Meaning("predecessors in the same micro-batch")] = ()
    transient: Annotated[int, Meaning("extra memory on each device while it runs", "units", min=0)] = 0
    data_parallel: Annotated[
        int, Meaning("data-parallel groups, each with a share of the samples", min=1)
    ] = 1
    stream: Annotated[
        str, Meaning("stream of the device, such as `communication`; it runs one block at a time")
    ] = COMPUTE
    host_memory: Annotated[
        int, Meaning("host memory allocated for each device, negative if released", "units")
    ] = 0
    in_turns: Annotated[
        bool, Meaning("whether data-parallel groups take whole micro-batches in turn (PipeDream)")
    ] = False
    sequence_slice: Annotated[
        int, Meaning("index of the sequence slice; it reads keys and values of earlier slices", min=0)
    ] = 0

    def __post_init__(self) -> None:
        """Sort the devices, so that all devices agree on their order; sort their memory with them."""
        if isinstance(self.memory, tuple) and len(self.memory) == len(self.devices):
            units = tuple(held for _, held in sorted(zip(self.devices, self.memory, strict=True)))
            object.__setattr__(self, "memory", units[0] if len(set(units)) == 1 else units)
        object.__setattr__(self, "devices", tuple(sorted(self.devices)))

    def memory_on(self, device: int) -> int:
        """Return the units held on a device, negative for released units; 0 if the block is not on it."""
        return self.units.get(device, 0)

    @property
    def num_shares(self) -> int:
        """Number of shares into which the data-parallel groups cut a micro-batch's samples."""
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
    def units(self) -> Mapping[int, int]:
        """Units held on each device of the block, negative for released units."""
        memory = self.memory if isinstance(self.memory, tuple) else (self.memory,) * len(self.devices)
        return dict(zip(self.devices, memory, strict=True))


@cache
def _limited(record: Any) -> list[tuple[str, Meaning]]:
    return [(name, rule) for name, _, _, rule, _ in declared_fields(record) if rule and rule.limits]


def check_limits(record: Any, where: str = "") -> None:
    """Check a record's numbers, those in tuples too, against the limits declared for its fields.

    Raises:
        PlacementError: A number is not within its limits.
    """
    for name, meaning in _limited(type(record)):  # type: ignore[arg-type]
        value = getattr(record, name)
        for i, number in enumerate(value if isinstance(value, tuple) else (value,)):
            if number is not None and not meaning.allows(number):
                place = f"{where}{name}[{i}]" if isinstance(value, tuple) else f"{where}{name}"
                raise PlacementError(f"{place}: {number} is not {meaning.limits}; {meaning.remedy}")
