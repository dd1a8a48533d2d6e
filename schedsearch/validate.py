"""The rules of a schedule (Tessel, Sec. III-A, Eq. 1), checked without knowing how it was found.

Shares no code with anything that makes a schedule; every producer goes through it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

from placements import Block, Kind
from schedsearch.picture import picture, shortened
from schedsearch.schedule import Schedule

_Ends = Mapping[tuple[str, int], int]
"""The end of each (block, micro-batch)."""

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
    ends = _ends(schedule)
    _check_dependencies(schedule, ends)
    on_devices = _on_devices(schedule)
    _check_exclusive(schedule, on_devices, ends)
    _check_memory(schedule, on_devices, ends)
    return schedule


def _fail(schedule: Schedule, reason: str, mark: tuple[str, int] | None = None) -> InvalidScheduleError:
    lines: list[str] = []
    if len(schedule.blocks) <= 400 and schedule.makespan <= 10_000:
        near = schedule.placement.by_name[mark[0]].devices[0] if mark else 0
        lines = shortened(picture(schedule, mark=mark).splitlines(), near)
    return InvalidScheduleError(reason, "\n".join(lines))


def _check_complete(schedule: Schedule) -> None:
    placement = schedule.placement
    if len(schedule.chosen) != (schedule.num_micro_batches if placement.decisions else 0):
        raise InvalidScheduleError(
            f"{len(schedule.chosen)} micro-batches have their modes chosen, of {schedule.num_micro_batches} "
            f"with {len(placement.decisions)} decisions each"
        )
    for micro_batch, chosen in enumerate(schedule.chosen):
        if len(chosen) != len(placement.decisions) or not all(
            0 <= number < len(decision.choices)
            for number, decision in zip(chosen, placement.decisions, strict=True)
        ):
            raise InvalidScheduleError(
                f"the modes {list(chosen)} of micro-batch {micro_batch} are not of this placement"
            )
    expected = {
        (block.name, micro_batch)
        for micro_batch in range(schedule.num_micro_batches)
        for block in _as_run(schedule, micro_batch)
        if block.time and (block.kind is not Kind.O or micro_batch == schedule.num_micro_batches - 1)
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


def _check_dependencies(schedule: Schedule, ends: _Ends) -> None:
    start_at = {(name, micro_batch): start for start, micro_batch, name in schedule.blocks}
    known: dict[tuple[int, ...], tuple[dict[str, Block], list[tuple[Block, dict[str, int]]]]] = {}
    for micro_batch in range(schedule.num_micro_batches):
        chosen = schedule.chosen[micro_batch] if schedule.chosen else ()
        if chosen not in known:
            blocks = {block.name: block for block in _as_run(schedule, micro_batch)}
            known[chosen] = (
                blocks,
                [(block, _inputs(schedule, blocks, block)) for block in blocks.values() if block.time],
            )
        blocks, waits = known[chosen]
        for block, inputs in waits:
            waiting = schedule.num_micro_batches - 1 if block.kind is Kind.O else micro_batch
            for source, delay in inputs.items():
                if (source, micro_batch) not in start_at:
                    continue  # an optimizer block, which runs once
                end = ends[source, micro_batch]
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


def _check_exclusive(schedule: Schedule, on_devices: Sequence[_DeviceBlocks], ends: _Ends) -> None:
    _check_shared(schedule, on_devices, ends)
    for device, blocks in enumerate(on_devices):
        runs: dict[str, list[tuple[int, int, str, int]]] = {}
        for start, micro_batch, block in blocks:
            span = start, ends[block.name, micro_batch], block.name, micro_batch
            runs.setdefault(block.stream, []).append(span)
        for stream, spans in runs.items():
            for (_, end, name, micro_batch), (start, _, later, later_micro_batch) in pairwise(sorted(spans)):
                if start < end:
                    where = f"device {device}" + (f", stream {stream}" if len(runs) > 1 else "")
                    raise _fail(
                        schedule,
                        f"{later} of micro-batch {later_micro_batch} starts at {start} on {where}, "
                        f"where {name} of micro-batch {micro_batch} runs until {end}",
                        (later, later_micro_batch),
                    )


def _check_shared(schedule: Schedule, on_devices: Sequence[_DeviceBlocks], ends: _Ends) -> None:
    """Check that a stream that devices share runs one block at a time."""
    for shared in schedule.placement.shared_streams:
        spans = {
            (start, ends[block.name, n], block.name, n)
            for device in shared.devices
            for start, n, block in on_devices[device]
            if block.stream == shared.stream
        }
        for (_, end, name, n), (start, _, later, later_n) in pairwise(sorted(spans)):
            if start < end:
                raise _fail(
                    schedule,
                    f"{later} of micro-batch {later_n} starts at {start} on the stream {shared.stream} of "
                    f"devices {', '.join(map(str, shared.devices))}, where {name} of micro-batch {n} runs "
                    f"until {end}",
                    (later, later_n),
                )


def _check_memory(schedule: Schedule, on_devices: Sequence[_DeviceBlocks], ends: _Ends) -> None:
    placement = schedule.placement
    for device, blocks in enumerate(on_devices):
        if placement.memory is not None:
            static = placement.static_memory[device] if placement.static_memory else 0
            held = [(start, n, block, block.memory_on(device), block.transient) for start, n, block in blocks]
            _check_held(schedule, f"device {device}", static, placement.memory[device], held, ends)
        if placement.host_memory is not None:
            held = [(start, n, block, block.host_memory, 0) for start, n, block in blocks]
            on_host = placement.host_memory[device]
            _check_held(schedule, f"the host of device {device}", 0, on_host, held, ends)


def _check_held(
    schedule: Schedule,
    where: str,
    static: int,
    capacity: int,
    held: Sequence[tuple[int, int, Block, int, int]],
    ends: _Ends,
) -> None:
    """Check one memory, at each tick at which a block starts that moves it.

    Args:
        schedule: Its schedule.
        where: Whose memory it is.
        static: What is held all the time.
        capacity: What may be.
        held: Starts, micro-batches, blocks, what they hold from then on and what they need until they end.
        ends: When that is.
    """
    changes: dict[int, int] = {}
    for start, micro_batch, block, units, transient in held:
        end = ends[block.name, micro_batch]
        changes[start] = changes.get(start, 0) + units + transient
        changes[end] = changes.get(end, 0) - transient
    in_use, needed = static, {}
    for tick in sorted(changes):
        in_use += changes[tick]
        needed[tick] = in_use
    for start, micro_batch, block, _, _ in held:
        if needed[start] > capacity:
            raise _fail(
                schedule,
                f"{where} holds {needed[start]} of memory from {start} on, when {block.name} of "
                f"micro-batch {micro_batch} starts; its capacity is {capacity}",
                (block.name, micro_batch),
            )


def _ends(schedule: Schedule) -> _Ends:
    """Return when each block of each micro-batch ends.

    While a stream runs beside others of its device that slow it down, it does a share of its work each tick;
    a block on several devices goes at the pace of the slowest.
    """
    as_run = [
        {block.name: block for block in _as_run(schedule, n)} for n in range(schedule.num_micro_batches)
    ]
    nominal = {(name, n): start + as_run[n][name].time for start, n, name in schedule.blocks}
    if not schedule.placement.slowdown:
        return nominal
    factors = {}
    for each in schedule.placement.slowdown:
        (one, other), (of_one, of_other) = each.streams, each.factors
        factors[one, other], factors[other, one] = Fraction(str(of_one)), Fraction(str(of_other))
    ends: dict[tuple[str, int], int] = {}
    waiting = sorted(schedule.blocks, reverse=True)
    running: dict[tuple[str, int], tuple[Block, Fraction]] = {}
    tick = 0
    while waiting or running:
        if not running:
            tick = max(tick, waiting[-1].start)
        while waiting and waiting[-1].start <= tick:
            _, n, name = waiting.pop()
            running[name, n] = as_run[n][name], Fraction(as_run[n][name].time)
        pace = {}
        for key, (block, _) in running.items():
            pace[key] = max(
                math.prod(
                    (
                        factors.get((block.stream, stream), Fraction(1))
                        for stream in {b.stream for b, _ in running.values() if device in b.devices}
                    ),
                    start=Fraction(1),
                )
                for device in block.devices
            )
        ticks = min(math.ceil(left * pace[key]) for key, (_, left) in running.items())
        if waiting:
            ticks = min(ticks, waiting[-1].start - tick)
        tick += ticks
        for key, (block, left) in list(running.items()):
            if (rest := left - ticks / pace[key]) > 0:
                running[key] = block, rest
            else:
                ends[key] = tick
                del running[key]
    return ends


def _on_devices(schedule: Schedule) -> list[_DeviceBlocks]:
    """Return for each device what runs on it."""
    on: list[_DeviceBlocks] = [[] for _ in range(schedule.placement.num_devices)]
    as_run = [
        {block.name: block for block in _as_run(schedule, n)} for n in range(schedule.num_micro_batches)
    ]
    for start, micro_batch, name in sorted(schedule.blocks):
        block = as_run[micro_batch][name]
        for device in block.devices:
            on[device].append((start, micro_batch, block))
    return on


def _as_run(schedule: Schedule, micro_batch: int) -> Sequence[Block]:
    """Return all blocks as the modes of a micro-batch run them; those that do not run take no time."""
    placement = schedule.placement
    if not schedule.chosen:
        return placement.blocks
    changed: dict[str, Block] = {}
    for number, decision in zip(schedule.chosen[micro_batch], placement.decisions, strict=True):
        changed |= {block.name: block for block in decision.choices[number].blocks}
    return [changed.get(block.name, block) for block in placement.blocks]


def _inputs(schedule: Schedule, blocks: Mapping[str, Block], block: Block) -> dict[str, int]:
    """Return what a block waits for, with the ticks of transfer, through blocks that do not run."""
    delays = schedule.placement.transfer_time
    found: dict[str, int] = {}
    missing = [(name, delays(name, block.name)) for name in block.after]
    while missing:
        name, delay = missing.pop()
        if found.get(name, -1) >= delay:
            continue
        found[name] = delay
        if not blocks[name].time:
            missing += [(each, delay + delays(each, name)) for each in blocks[name].after]
    return {name: delay for name, delay in found.items() if blocks[name].time}
