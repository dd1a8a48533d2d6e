"""Slow, obvious answers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from placements import Block, Kind, Placement
from placements.modes import Chosen
from schedsearch.schedule import CyclicOrderError, Instance, Schedule, as_soon_as_possible
from schedsearch.validate import InvalidScheduleError, validate


def min_period(placement: Placement, longest: int, rounds: int = 4) -> int | None:
    """The least period of a repetend of one micro-batch, by trying every start of every block.

    Args:
        placement: At most four or five blocks, of a few ticks.
        longest: Greatest period to try.
        rounds: Starts up to ``rounds * period`` are tried.
    """
    for period in range(1, longest + 1):
        if _some_starts(placement, period, rounds * period, 2**60):
            return period
    return None


def min_span(placement: Placement, period: int, longest: int) -> int | None:
    """The least span of a repetend of one micro-batch and a period, by trying every start of every block.

    Args:
        placement: As in `min_period`.
        period: Ticks.
        longest: Greatest span to try.
    """
    for span in range(1, longest + 1):
        if _some_starts(placement, period, span, span):
            return span
    return None


def min_latency(placement: Placement, longest: int) -> tuple[int, int]:
    """The least latency of one micro-batch, and the least period of a repetend that keeps it."""
    ample = sum(block.time for block in placement.blocks) + sum(t for _, _, t in placement.transfer)
    for latency in range(1, ample + 1):
        if _some_starts(placement, ample, latency, latency):
            for period in range(1, longest + ample):
                if _some_starts(placement, period, latency, latency):
                    return period, latency
    raise AssertionError("one block after another is a schedule")


def _some_starts(placement: Placement, period: int, last_start: int, last_end: int) -> bool:
    order = placement.topological_order
    starts: dict[str, int] = {}

    def extend(i: int) -> bool:
        if i == len(order):
            return _memory_fits(placement, period, starts)
        block = order[i]
        ready = max(
            (
                starts[a] + placement.by_name[a].time + placement.transfer_time(a, block.name)
                for a in block.after
            ),
            default=0,
        )
        for start in range(ready, min(last_start, last_end - block.time + 1)):
            if all(
                not set(block.devices) & set(placement.by_name[other].devices)
                or _apart(start, block.time, starts[other], placement.by_name[other].time, period)
                for other in starts
            ):
                starts[block.name] = start
                if extend(i + 1):
                    return True
                del starts[block.name]
        return False

    return all(block.time <= period for block in order) and extend(0)


def _apart(a: int, a_time: int, b: int, b_time: int, period: int) -> bool:
    """Whether two blocks that repeat every period never run at once: no tick of the round is in both."""
    ticks = {(a + k) % period for k in range(a_time)}
    return not ticks & {(b + k) % period for k in range(b_time)}


def _memory_fits(placement: Placement, period: int, starts: dict[str, int]) -> bool:
    if placement.memory is None:
        return True
    many = 2 + max(starts.values()) // period
    for device, capacity in enumerate(placement.memory):
        events = sorted(
            (starts[block.name] + n * period, _units(block, device), block.transient)
            for block in placement.on(device)
            for n in range(2 * many)
        )
        held = placement.static[device]
        for _, memory, transient in events:
            held += memory
            if held + transient > capacity:
                return False
    return True


def _units(block: Block, device: int) -> int:
    """Memory that a block allocates on one of its devices."""
    if not isinstance(block.memory, tuple):
        return block.memory
    return dict(zip(block.devices, block.memory, strict=True))[device]


def min_makespan(placement: Placement, num_micro_batches: int) -> int | None:
    """The least makespan of a schedule, by trying every order in which blocks can start as soon as they can.

    Args:
        placement: With `num_micro_batches` times its blocks about ten at most.
        num_micro_batches: Of any order; nothing is assumed of their symmetry.
    """
    every = range(num_micro_batches)
    runs = {b.name: every[-1:] if b.kind is Kind.O else every for b in placement.blocks}
    names = [(block.name, n) for block in placement.blocks for n in runs[block.name]]
    best: list[int] = []

    def extend(ends: dict[tuple[str, int], int], idle: list[int], held: list[int]) -> None:
        if len(ends) == len(names):
            best.append(max(ends.values()))
            return
        for name, n in names:
            block = placement.by_name[name]
            inputs = [(a, k) for a in block.after for k in (runs[a] if block.kind is Kind.O else (n,))]
            if (name, n) in ends or any(source not in ends for source in inputs):
                continue
            holds = [h + (_units(block, d) if d in block.devices else 0) for d, h in enumerate(held)]
            if placement.memory is not None and any(
                placement.static[d] + holds[d] + block.transient > placement.memory[d] for d in block.devices
            ):
                continue
            ready = [idle[d] for d in block.devices]
            ready += [ends[a, k] + placement.transfer_time(a, name) for a, k in inputs]
            end = max(ready) + block.time
            if not best or end < min(best):
                later = [end if d in block.devices else t for d, t in enumerate(idle)]
                extend({**ends, (name, n): end}, later, holds)

    extend({}, [0] * placement.num_devices, [0] * placement.num_devices)
    return min(best, default=None)


def valid_schedules(
    placement: Placement,
    number: int,
    orders_of_devices: Iterable[Sequence[Sequence[Instance]]],
    chosen: Sequence[Chosen] = (),
) -> Iterator[Schedule]:
    """Every valid schedule of some orders of all devices."""
    for orders in orders_of_devices:
        try:
            yield validate(as_soon_as_possible(placement, number, orders, tuple(chosen)))
        except (CyclicOrderError, InvalidScheduleError):
            continue


def min_makespan_of_modes(placement: Placement, chosen: Sequence[Chosen]) -> int:
    """The least makespan of micro-batches in these modes, each forward before its backward on a device."""
    numbers = range(len(chosen))
    orders = (
        [
            order
            for order in itertools.permutations(
                (block.name, n) for block in placement.on(device) for n in numbers
            )
            if all(next(name for name, number in order if number == n).startswith("F") for n in numbers)
        ]
        for device in range(placement.num_devices)
    )
    schedules = valid_schedules(placement, len(chosen), itertools.product(*orders), chosen)
    return min(schedule.makespan for schedule in schedules)
