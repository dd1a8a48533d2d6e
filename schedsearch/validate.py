"""Check of the rules of a schedule (Tessel, Sec. III-A, Eq. 1), whatever made the schedule.

Shares no code with any producer of schedules; every producer's schedules are validated here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

from placements import Block, Kind
from schedsearch.picture import picture, shortened
from schedsearch.schedule import Schedule

_Blocks = Mapping[str, Block]
"""The blocks of a micro-batch by name, in their chosen modes; a block that does not run has time 0."""


class _Run(NamedTuple):
    """A block of a micro-batch in its chosen mode, with start and end in ticks."""

    start: int
    end: int
    micro_batch: int
    block: Block

    @property
    def key(self) -> tuple[str, int]:
        return self.block.name, self.micro_batch

    def __str__(self) -> str:
        return f"{self.block.name} of micro-batch {self.micro_batch}"


class InvalidScheduleError(ValueError):
    """A schedule breaks a rule; the message names the block, and shows a small schedule.

    Attributes:
        reason: The rule and the block in one line; the message without the picture.
    """

    def __init__(self, reason: str, picture: str = "") -> None:
        super().__init__(reason, picture)
        self.reason = reason

    def __str__(self) -> str:
        return "\n".join(filter(None, self.args))


def validate(schedule: Schedule) -> Schedule:
    """Check that a schedule keeps every rule; return it.

    Every block of every micro-batch runs exactly once, from tick 0 on, after its inputs and their
    transfer, alone on each of its devices, and no device ever holds more than its capacity, with its static
    memory and the memory that a block needs only while it runs. Optimizer blocks run once, as blocks of the
    last micro-batch, after their inputs of every micro-batch.

    Raises:
        InvalidScheduleError: A rule is broken; the message names the blocks, devices and ticks.
    """
    blocks = _as_run(schedule)
    _check_complete(schedule, blocks)
    ends = _ends(schedule, blocks)
    in_order = sorted(schedule.blocks)
    run_of = {(name, n): _Run(start, ends[name, n], n, blocks[n][name]) for start, n, name in in_order}
    _check_dependencies(schedule, blocks, run_of)
    on_devices: list[list[_Run]] = [[] for _ in range(schedule.placement.num_devices)]
    for run in run_of.values():
        for device in run.block.devices:
            on_devices[device].append(run)
    _check_exclusive(schedule, on_devices)
    _check_memory(schedule, on_devices)
    return schedule


def _fail(schedule: Schedule, reason: str, mark: tuple[str, int] | None = None) -> InvalidScheduleError:
    lines: list[str] = []
    if len(schedule.blocks) <= 400 and schedule.makespan <= 10_000:
        near = schedule.placement.by_name[mark[0]].devices[0] if mark else 0
        lines = shortened(picture(schedule, mark=mark).splitlines(), near)
    return InvalidScheduleError(reason, "\n".join(lines))


def _as_run(schedule: Schedule) -> list[_Blocks]:
    """Return all blocks of each micro-batch in their chosen modes; raise an error for a wrong choice."""
    placement, number = schedule.placement, schedule.num_micro_batches
    if len(schedule.chosen) != (number if placement.decisions else 0):
        raise InvalidScheduleError(
            f"{len(schedule.chosen)} micro-batches have their modes chosen, of {number} "
            f"with {len(placement.decisions)} decisions each"
        )
    whole = {block.name: block for block in placement.blocks}
    known: dict[tuple[int, ...], _Blocks] = {(): whole}
    for micro_batch, chosen in enumerate(schedule.chosen):
        if chosen not in known:
            changed: dict[str, Block] = {}
            for choice, decision in zip(chosen, placement.decisions, strict=False):
                if len(chosen) != len(placement.decisions) or choice not in range(len(decision.choices)):
                    raise InvalidScheduleError(
                        f"the modes {list(chosen)} of micro-batch {micro_batch} are not of this placement"
                    )
                changed |= {block.name: block for block in decision.choices[choice].blocks}
            known[chosen] = {name: changed.get(name, block) for name, block in whole.items()}
    return [known[chosen] for chosen in schedule.chosen or [()] * number]


def _check_complete(schedule: Schedule, blocks: Sequence[_Blocks]) -> None:
    expected = {
        (block.name, micro_batch)
        for micro_batch, by_name in enumerate(blocks)
        for block in by_name.values()
        if block.time and (block.kind is not Kind.O or micro_batch == schedule.num_micro_batches - 1)
    }
    seen: set[tuple[str, int]] = set()
    for start, micro_batch, name in schedule.blocks:
        where = f"{name} of micro-batch {micro_batch}"
        if (name, micro_batch) not in expected:
            raise InvalidScheduleError(f"{where} is not of this placement and number")
        if (name, micro_batch) in seen:
            raise _fail(schedule, f"{where} runs twice", (name, micro_batch))
        if start < 0:
            raise InvalidScheduleError(f"{where} starts at {start}, before 0")
        seen.add((name, micro_batch))
    if missing := sorted(expected - seen):
        name, micro_batch = missing[0]
        raise _fail(schedule, f"{name} of micro-batch {micro_batch} never runs")


def _check_dependencies(
    schedule: Schedule, blocks: Sequence[_Blocks], run_of: Mapping[tuple[str, int], _Run]
) -> None:
    inputs_of: dict[int, list[tuple[Block, dict[str, int]]]] = {}
    last = schedule.num_micro_batches - 1
    for micro_batch, by_name in enumerate(blocks):
        if id(by_name) not in inputs_of:
            running = [block for block in by_name.values() if block.time]
            inputs_of[id(by_name)] = [(block, _inputs(schedule, by_name, block)) for block in running]
        for block, inputs in inputs_of[id(by_name)]:
            run = run_of[block.name, last if block.kind is Kind.O else micro_batch]
            for name, delay in inputs.items():
                source = run_of.get((name, micro_batch))
                if source is not None and run.start < source.end + delay:
                    arrival = f" and arrives at {source.end + delay}" if delay else ""
                    whose = f" of micro-batch {micro_batch}" if run.micro_batch != micro_batch else ""
                    raise _fail(
                        schedule,
                        f"{run} starts at {run.start}, before {name}{whose} ends at {source.end}{arrival}",
                        run.key,
                    )


def _inputs(schedule: Schedule, blocks: _Blocks, block: Block) -> dict[str, int]:
    """Return a block's inputs with transfer ticks; an input that does not run is replaced by its inputs."""
    delays = schedule.placement.transfer_time
    delay_of: dict[str, int] = {}
    missing = [(name, delays(name, block.name)) for name in block.after]
    while missing:
        name, delay = missing.pop()
        if delay_of.get(name, -1) >= delay:
            continue
        delay_of[name] = delay
        if not blocks[name].time:
            missing += [(source, delay + delays(source, name)) for source in blocks[name].after]
    return {name: delay for name, delay in delay_of.items() if blocks[name].time}


def _check_exclusive(schedule: Schedule, on_devices: Sequence[Sequence[_Run]]) -> None:
    """Check that each stream runs one block at a time, also streams that devices share."""
    lanes: dict[str, list[_Run]] = {}
    for shared in schedule.placement.shared_streams:
        of_all = {run.key: run for device in shared.devices for run in on_devices[device]}
        where = f"the stream {shared.stream} of devices {', '.join(map(str, shared.devices))}"
        in_order = sorted(of_all.values(), key=lambda run: run.start)
        lanes[where] = [run for run in in_order if run.block.stream == shared.stream]
    for device, runs in enumerate(on_devices):
        streams = {run.block.stream for run in runs}
        for run in runs:
            where = f"device {device}" + (f", stream {run.block.stream}" if len(streams) > 1 else "")
            lanes.setdefault(where, []).append(run)
    for where, runs in lanes.items():
        for one, later in pairwise(runs):
            if later.start < one.end:
                reason = f"{later} starts at {later.start} on {where}, where {one} runs until {one.end}"
                raise _fail(schedule, reason, later.key)


def _check_memory(schedule: Schedule, on_devices: Sequence[Sequence[_Run]]) -> None:
    """Check the memory of devices and hosts at each start, with the transient memory of running blocks."""
    placement = schedule.placement
    static, mib = placement.static_memory or (0,) * placement.num_devices, placement.memory_unit_mib
    unit = "" if mib is None else "MiB " if mib == 1 else f"x {mib:g} MiB "
    for device, runs in enumerate(on_devices):
        on_device = [(run.block.memory_on(device), run.block.transient) for run in runs]
        on_host = [(run.block.host_memory, 0) for run in runs]
        for where, capacity, begin, units in (
            (f"device {device}", placement.memory, static[device], on_device),
            (f"the host of device {device}", placement.host_memory, 0, on_host),
        ):
            if capacity is None:
                continue
            changes: Counter[int] = Counter()
            for run, (held, transient) in zip(runs, units, strict=True):
                changes[run.start] += held + transient
                changes[run.end] -= transient
            ticks = sorted(changes)
            needed = dict(zip(ticks, accumulate((changes[t] for t in ticks), initial=begin), strict=False))
            for run in runs:
                if (most := needed[run.start] + changes[run.start]) > capacity[device]:
                    raise _fail(
                        schedule,
                        f"{where} holds {most} {unit}of memory from {run.start} on, when {run} starts; its "
                        f"capacity is {capacity[device]}",
                        run.key,
                    )


def _ends(schedule: Schedule, as_run: Sequence[_Blocks]) -> Mapping[tuple[str, int], int]:
    """Return when each block of each micro-batch ends.

    While a stream runs beside others of its device that slow it down, it does a share of its work each tick;
    a block on several devices goes at the pace of the slowest.
    """
    nominal = {(name, n): start + as_run[n][name].time for start, n, name in schedule.blocks}
    if not schedule.placement.slowdown:
        return nominal
    factors = {}
    for slowdown in schedule.placement.slowdown:
        (one, other), (of_one, of_other) = slowdown.streams, slowdown.factors
        factors[one, other], factors[other, one] = Fraction(str(of_one)), Fraction(str(of_other))

    def slowed(block: Block, device: int, beside: Sequence[Block]) -> Fraction:
        streams = {other.stream for other in beside if device in other.devices}
        return math.prod(
            (factors.get((block.stream, other), Fraction(1)) for other in streams), start=Fraction(1)
        )

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
        beside = [block for block, _ in running.values()]
        pace = {
            key: max(slowed(b, device, beside) for device in b.devices) for key, (b, _) in running.items()
        }
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
