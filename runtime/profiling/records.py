"""Events of an iteration on one device: blocks, messages, clocks and memory over time.

All times are in milliseconds from the device's begin of the iteration; `aligned` puts those of several
devices on one axis. Nothing here knows how the times were taken; see `runtime.profiling.recorder`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from placements import Placement
from placements.copies.replicas import copies_in
from runtime.program.calls import Transfer
from schedsearch.schedule import Instance


class BlockRecord(NamedTuple):
    """A block that ran.

    It was next and began to wait for its inputs at `reached_ms`; all were there at `ready_ms`, and it began
    at `begin_ms`, later only by what recording takes.
    """

    block: str
    micro_batch: int
    reached_ms: float
    ready_ms: float
    begin_ms: float
    end_ms: float

    @property
    def instance(self) -> Instance:
        """Return (block, micro-batch)."""
        return self.block, self.micro_batch


class MessageRecord(NamedTuple):
    """One end of a message, from one block and device to another.

    Attributes:
        posted_ms: When this end was about to be posted.
        waited_ms: When the device began to wait for it, or None if it never waited.
        ended_ms: When it was first known to have ended: a receive when its wait was over, a send when its
            wait was over or, at the end of a block, it was seen to be complete; None if that is not known.
    """

    producer: str
    consumer: str
    micro_batch: int
    source: int
    target: int
    posted_ms: float
    waited_ms: float | None = None
    ended_ms: float | None = None

    @property
    def transfer(self) -> Transfer:
        """Return its blocks and micro-batch."""
        return Transfer(self.producer, self.consumer, self.micro_batch)


class CounterSample(NamedTuple):
    """A value of a counter, in its unit, from a time on."""

    ms: float
    value: int


@dataclass(frozen=True)
class Record:
    """One iteration of one device; blocks in the order in which they ran, messages in the order of posts.

    Attributes:
        begin_s: When the device began, on the machine's monotonic clock.
        end_ms: When all that it computed and sent was done.
        clock_mhz: Clocks, when they were asked for.
        held_bytes: Activation memory; see `runtime.profiling.recorder`.
        allocated_bytes: Bytes that torch's allocator has given out on a GPU; empty on a CPU.
    """

    device: int
    iteration: int
    machine: str
    begin_s: float
    end_ms: float
    blocks: tuple[BlockRecord, ...]
    receives: tuple[MessageRecord, ...] = ()
    sends: tuple[MessageRecord, ...] = ()
    clock_mhz: tuple[CounterSample, ...] = ()
    held_bytes: tuple[CounterSample, ...] = ()
    allocated_bytes: tuple[CounterSample, ...] = ()


def of_copies(records: Sequence[Record], placement: Placement) -> tuple[Record, ...]:
    """Return records of stages with the names of the copies that ran, where a placement has copies.

    Names of copies stay.
    """
    names = {
        (copy.stage, device): name
        for name, copy in copies_in(placement).items()
        for device in placement.by_name[name].devices
    }

    def named(block: str, device: int) -> str:
        return names.get((block, device), block)

    def renamed(rows: Sequence[MessageRecord]) -> tuple[MessageRecord, ...]:
        return tuple(
            row._replace(producer=named(row.producer, row.source), consumer=named(row.consumer, row.target))
            for row in rows
        )

    return tuple(
        replace(
            record,
            blocks=tuple(row._replace(block=named(row.block, record.device)) for row in record.blocks),
            receives=renamed(record.receives),
            sends=renamed(record.sends),
        )
        for record in records
    )


def aligned(records: Sequence[Record], origin_s: float | None = None) -> dict[int, float]:
    """Return the offset of each device's times that puts an iteration on one axis, in milliseconds.

    Devices of one machine share its monotonic clock. Devices of different machines share only the barrier
    at which the iteration begins, so the first of each machine is taken to begin at the same time, which is
    wrong by as much as they leave the barrier apart.

    Time 0 of the axis is `origin_s` on the clock of the first device's machine, or the iteration's begin.
    """
    first_s: dict[str, float] = {}
    for record in records:
        first_s[record.machine] = min(record.begin_s, first_s.get(record.machine, record.begin_s))
    begin_ms = 0.0 if origin_s is None else (first_s[records[0].machine] - origin_s) * 1000
    return {record.device: begin_ms + (record.begin_s - first_s[record.machine]) * 1000 for record in records}
