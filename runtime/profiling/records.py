"""What a device did in one iteration, as plain data: its blocks, messages, clocks and memory over time.

All times are in milliseconds from the device's begin of the iteration; `aligned` puts those of several
devices on one axis. Nothing here knows how the times were taken; see `runtime.profiling.recorder`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from placements import Placement
from placements.copies.replicas import copies_in
from runtime.program.calls import Transfer
from schedsearch.schedule import Instance


class BlockRecord(NamedTuple):
    """A block that ran.

    Attributes:
        block: Its name.
        micro_batch: Number of the micro-batch.
        reached_ms: When the block was next and began to wait for what it takes.
        ready_ms: When all of that was there.
        begin_ms: When it began; later only by what recording takes.
        end_ms: When it ended.
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
    """One end of a message.

    Attributes:
        producer: The block that made it.
        consumer: The block that takes it.
        micro_batch: Micro-batch of both blocks.
        source: The device that sends it.
        target: The device that receives it.
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
        """Return what it carries."""
        return Transfer(self.producer, self.consumer, self.micro_batch)


class CounterSample(NamedTuple):
    """A value from a time on.

    Attributes:
        ms: Time from which the value holds.
        value: Value in the unit of the counter.
    """

    ms: float
    value: int


@dataclass(frozen=True)
class Record:
    """One iteration of one device.

    Attributes:
        device: Number of the device.
        iteration: Number of the iteration, from 0.
        machine: Machine whose clock `begin_s` is of.
        begin_s: When the device began, on the machine's monotonic clock.
        end_ms: When all that it computed and sent was done.
        blocks: Blocks in the order in which they ran.
        receives: Receives in the order in which they were posted.
        sends: Sends in the order in which they were posted.
        clock_mhz: Clocks, when they were asked for.
        held_bytes: Activation memory; see `runtime.profiling.activation_memory`.
        allocated_bytes: What torch's allocator has given out on a GPU, at the same times; empty on a CPU.
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

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return plain | {name: [tuple(row) for row in plain[name]] for name in _ROWS}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Record:
        """Return what `to_plain` was given."""
        rows = {name: tuple(row(*values) for values in plain[name]) for name, row in _ROWS.items()}
        return cls(**{**plain, **rows})


_ROWS: Mapping[str, type[BlockRecord] | type[MessageRecord] | type[CounterSample]] = {
    "blocks": BlockRecord,
    "receives": MessageRecord,
    "sends": MessageRecord,
    "clock_mhz": CounterSample,
    "held_bytes": CounterSample,
    "allocated_bytes": CounterSample,
}


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

    def message(row: MessageRecord) -> MessageRecord:
        producer, consumer = named(row.producer, row.source), named(row.consumer, row.target)
        return row._replace(producer=producer, consumer=consumer)

    return tuple(
        replace(
            record,
            blocks=tuple(row._replace(block=named(row.block, record.device)) for row in record.blocks),
            receives=tuple(map(message, record.receives)),
            sends=tuple(map(message, record.sends)),
        )
        for record in records
    )


def aligned(records: Sequence[Record], origin_s: float | None = None) -> dict[int, float]:
    """Return for each device what to add to its times so that those of one iteration are on one axis.

    Devices of one machine share its monotonic clock. Devices of different machines share only the barrier
    at which the iteration begins, so the first of each machine is taken to begin at the same time, which is
    wrong by as much as they leave the barrier apart.

    Args:
        records: Records of all devices, of the same iteration.
        origin_s: Time 0 of the axis on the clock of the first device's machine; by default the iteration's
            begin.

    Returns:
        Device -> milliseconds.
    """
    first_s: dict[str, float] = {}
    for record in records:
        first_s[record.machine] = min(record.begin_s, first_s.get(record.machine, record.begin_s))
    axis_s = first_s[records[0].machine]
    begin_ms = 0.0 if origin_s is None else (axis_s - origin_s) * 1000
    return {record.device: begin_ms + (record.begin_s - first_s[record.machine]) * 1000 for record in records}
