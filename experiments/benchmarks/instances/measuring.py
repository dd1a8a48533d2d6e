"""What the search and the hand-made schedules reach on an instance."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction

from experiments.benchmarks.instances.answers import InstanceAnswer
from experiments.benchmarks.instances.instance_file import Instance
from experiments.benchmarks.timing import CpuClock
from schedsearch.baselines import HAND_MADE, UnsuitablePlacementError
from schedsearch.device_span import device_spans, with_least_device_span
from schedsearch.modulo.result import Status
from schedsearch.modulo.search import search
from schedsearch.schedule import Schedule
from schedsearch.starts.steady_state import steady_state
from schedsearch.validate import InvalidScheduleError, validate

BY_HAND = "by_hand"
"""The method of rows with the best that any hand-made schedule reaches."""


@dataclass(frozen=True)
class InstanceRow:
    """What one method, ``search`` or `BY_HAND`, reached on one instance.

    Attributes:
        held_out: Whether the instance is never used to tune.
        status: Of the period, as the search says.
        period: Ticks per micro-batch as a fraction; None for none.
        period_bound: Ticks per micro-batch that no repetend beats, of any number of micro-batches.
        makespan: Ticks, as its bound.
        device_span: Ticks; with the devices' first starts chosen for it.
        seconds: Wall-clock time.
        note: Which hand-made schedules are the best.
    """

    instance: str
    group: str
    held_out: bool
    method: str
    seed: int
    status: str = ""
    period: str | None = None
    period_bound: str | None = None
    makespan: int | None = None
    makespan_bound: int | None = None
    device_span: int | None = None
    seconds: float = 0.0
    cpu_s: float = 0.0
    note: str = ""


def searched(
    instance: Instance, seed: int, time_limit_s: float, version: str
) -> tuple[InstanceRow, list[InstanceAnswer]]:
    """Search an instance with the default options.

    Raises:
        KeyboardInterrupt: It was interrupted.
    """
    clock, began = CpuClock(), time.monotonic()
    result = search(instance.placement, instance.num_micro_batches, time_limit_s=time_limit_s, seed=seed)
    seconds, cpu_s = round(time.monotonic() - began, 2), round(clock.seconds, 2)
    if result.interrupted:
        raise KeyboardInterrupt
    repetend, schedules = result.repetend, list[Schedule]()
    if result.schedule is not None:
        schedules.append(result.schedule)
    if repetend is not None:
        schedules.append(validate(repetend.unroll(instance.num_micro_batches)))
    found = InstanceAnswer(
        "search",
        version,
        seconds,
        repetend,
        tuple(dict.fromkeys(schedules)),
        _not_above(result.universal_bound),
        result.makespan_bound,
        result.device_span_bound,
        is_infeasible=result.status is Status.INFEASIBLE,
    )
    row = InstanceRow(
        instance.name,
        instance.group,
        instance.is_held_out,
        "search",
        seed,
        result.status.value,
        period=str(Fraction(repetend.period, repetend.micro_batches)) if repetend else None,
        period_bound=str(found.period_bound),
        makespan=result.schedule.makespan if result.schedule else None,
        makespan_bound=result.makespan_bound,
        device_span=min(map(_min_span, found.schedules), default=None),
        seconds=seconds,
        cpu_s=cpu_s,
    )
    return row, [found]


def made_by_hand(instance: Instance, version: str) -> tuple[InstanceRow, list[InstanceAnswer]]:
    """Make every hand-made schedule that fits an instance; the row has the best value of each figure."""
    clock, began = CpuClock(), time.monotonic()
    found = list(_by_hand(instance, version))
    best: dict[str, tuple[Fraction | int, str]] = {}
    for each in found:
        values: dict[str, Fraction | int] = {}
        if each.repetend is not None:
            values["period"] = Fraction(each.repetend.period, each.repetend.micro_batches)
        for schedule in each.schedules:
            values |= {"makespan": schedule.makespan, "device_span": _min_span(schedule)}
        for figure, value in values.items():
            if figure not in best or value < best[figure][0]:
                best[figure] = value, each.found_by
    row = InstanceRow(
        instance.name,
        instance.group,
        instance.is_held_out,
        BY_HAND,
        0,
        period=str(best["period"][0]) if "period" in best else None,
        makespan=int(best["makespan"][0]) if "makespan" in best else None,
        device_span=int(best["device_span"][0]) if "device_span" in best else None,
        seconds=round(time.monotonic() - began, 2),
        cpu_s=round(clock.seconds, 2),
        note=", ".join(f"{figure} {name}" for figure, (_, name) in best.items()),
    )
    return row, found


def _by_hand(instance: Instance, version: str) -> Iterator[InstanceAnswer]:
    """Yield what each hand-made schedule reaches, as a whole and in the midst of many micro-batches."""
    placement = instance.placement
    depth, number = placement.num_devices, instance.num_micro_batches
    many = (number if number >= 4 * depth else 6 * depth, 12 * depth)
    for name, make in HAND_MADE.items():
        schedules, repetend = list[Schedule](), None
        with suppress(UnsuitablePlacementError, InvalidScheduleError):
            schedules.append(validate(make(placement, number)))
        with suppress(UnsuitablePlacementError, InvalidScheduleError):
            longer = (validate(make(placement, each)) for each in many)
            repetend = next(filter(None, (steady_state(each, depth) for each in longer)), None)
        if schedules or repetend is not None:
            yield InstanceAnswer(name, version, repetend=repetend, schedules=tuple(schedules))


def _min_span(schedule: Schedule) -> int:
    """Return the longest device span with the devices' first starts chosen for it."""
    return int(device_spans(with_least_device_span(schedule)).max())


def _not_above(bound: float) -> Fraction:
    """Return a bound that is known as a float as the simple fraction that it is, or as one that is less."""
    simple = Fraction(bound).limit_denominator(1000)
    if abs(simple - Fraction(bound)) <= Fraction(1, 10**9) * simple:
        return simple
    return Fraction(math.floor(bound * 10**6), 10**6)
