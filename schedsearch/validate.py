"""The rules of a schedule (Tessel, Sec. III-A, Eq. 1), checked without knowing how it was found.

Shares no code with anything that makes a schedule; every producer goes through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from placements import Block, Kind
from schedsearch.picture import picture, shortened
from schedsearch.schedule import Schedule

_DeviceBlocks = list[tuple[int, int, Block]]
"""The starts, micro-batches and blocks that run on a device, by start."""


class InvalidScheduleError(ValueError):
    """A schedule breaks a rule; the message says which block, and shows the schedule where it is small.

    Attributes:
        reason: Which rule and which block, in one line; the message without the picture.
    """

    def __init__(self, reason: str, picture: str = "") -> None:
        super().__init__(reason, picture)
        self.reason = reason

    def __str__(self) -> str:
        return "\n".join(filter(None, self.args))


def validate(schedule: Schedule) -> Schedule:
    """Return the schedule if it keeps every rule.

    Every block of every micro-batch runs exactly once, from tick 0 on, after its inputs and their
    transfer, alone on each of its devices, and no device ever holds more than its capacity, with what it
    always holds and what a block needs only while it runs. Optimizer blocks run once, as blocks of the last
    micro-batch, after their inputs of every micro-batch.

    Raises:
        InvalidScheduleError: A rule is broken; the message names the blocks, devices and ticks.
    """
    _check_complete(schedule)
    _check_dependencies(schedule)
    on_devices = _on_devices(schedule)
    _check_exclusive(schedule, on_devices)
    _check_memory(schedule, on_devices)
    return schedule


def _fail(schedule: Schedule, reason: str, mark: tuple[str, int] | None = None) -> InvalidScheduleError:
    lines: list[str] = []
    if len(schedule.blocks) <= 400 and schedule.makespan <= 10_000:
        near = schedule.placement.by_name[mark[0]].devices[0] if mark else 0
        lines = shortened(picture(schedule, mark=mark).splitlines(), near)
    return InvalidScheduleError(reason, "\n".join(lines))


def _check_complete(schedule: Schedule) -> None:
    expected = {
        (block.name, micro_batch)
        for block in schedule.placement.blocks
        for micro_batch in range(schedule.num_micro_batches)
        if block.kind is not Kind.O or micro_batch == schedule.num_micro_batches - 1
    }
    seen: set[tuple[str, int]] = set()
    for start, micro_batch, name in schedule.blocks:
        if (name, micro_batch) not in expected:
            raise InvalidScheduleError(
                f"{name} of micro-batch {micro_batch} is not of this placement and number"
            )
        if (name, micro_batch) in seen:
            raise _fail(schedule, f"{name} of micro-batch {micro_batch} runs twice", (name, micro_batch))
        if start < 0:
            raise InvalidScheduleError(f"{name} of micro-batch {micro_batch} starts at {start}, before 0")
        seen.add((name, micro_batch))
    if missing := sorted(expected - seen):
        name, micro_batch = missing[0]
        raise _fail(schedule, f"{name} of micro-batch {micro_batch} never runs")


def _check_dependencies(schedule: Schedule) -> None:
    start_at = {(name, micro_batch): start for start, micro_batch, name in schedule.blocks}
    times = {block.name: block.time for block in schedule.placement.blocks}
    delays = {(source, target): ticks for source, target, ticks in schedule.placement.transfer}
    for block in schedule.placement.blocks:
        for source in block.after:
            delay = delays.get((source, block.name), 0)
            for micro_batch in range(schedule.num_micro_batches):
                if (source, micro_batch) not in start_at:
                    continue  # an optimizer block, which runs once
                end = start_at[source, micro_batch] + times[source]
                waiting = schedule.num_micro_batches - 1 if block.kind is Kind.O else micro_batch
                start = start_at[block.name, waiting]
                if start < end + delay:
                    arrival = f" and arrives at {end + delay}" if delay else ""
                    whose = f" of micro-batch {micro_batch}" if waiting != micro_batch else ""
                    raise _fail(
                        schedule,
                        f"{block.name} of micro-batch {waiting} starts at {start}, "
                        f"before {source}{whose} ends at {end}{arrival}",
                        (block.name, waiting),
                    )


def _check_exclusive(schedule: Schedule, on_devices: Sequence[_DeviceBlocks]) -> None:
    for device, blocks in enumerate(on_devices):
        spans = [(start, start + block.time, block.name, micro_batch) for start, micro_batch, block in blocks]
        for (_, end, name, micro_batch), (start, _, later, later_micro_batch) in pairwise(sorted(spans)):
            if start < end:
                raise _fail(
                    schedule,
                    f"{later} of micro-batch {later_micro_batch} starts at {start} on device {device}, "
                    f"where {name} of micro-batch {micro_batch} runs until {end}",
                    (later, later_micro_batch),
                )


def _check_memory(schedule: Schedule, on_devices: Sequence[_DeviceBlocks]) -> None:
    if schedule.placement.memory is None:
        return
    for device, blocks in enumerate(on_devices):
        capacity = schedule.placement.memory[device]
        in_use = schedule.placement.static_memory[device] if schedule.placement.static_memory else 0
        for start, micro_batch, block in blocks:
            in_use += block.memory_on(device)
            needed = in_use + block.transient
            if needed > capacity:
                raise _fail(
                    schedule,
                    f"device {device} holds {needed} of memory from {start} on, when {block.name} of "
                    f"micro-batch {micro_batch} starts; its capacity is {capacity}",
                    (block.name, micro_batch),
                )


def _on_devices(schedule: Schedule) -> list[_DeviceBlocks]:
    """Return for each device what runs on it."""
    by_name = {block.name: block for block in schedule.placement.blocks}
    on: list[_DeviceBlocks] = [[] for _ in range(schedule.placement.num_devices)]
    for start, micro_batch, name in sorted(schedule.blocks):
        for device in by_name[name].devices:
            on[device].append((start, micro_batch, by_name[name]))
    return on
