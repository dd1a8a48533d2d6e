"""Zeus for pipelines: one clock for all devices, or one for each (Perseus, Sec. 6.4, the two baselines).

Zeus sets power limits and measures; with a profile the limit of a device is its clock. A block that was not
profiled at the clock of its device runs at its highest clock below it, or else at its lowest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from placements import Kind, OperatingPoint
from placements.block import COMPUTE
from schedsearch.energy.problem import ClockProblem, Clocks


def zeus_global(problem: ClockProblem) -> Iterator[Clocks]:
    """Yield plans with one clock for all blocks on all devices, from the highest downwards (ZeusGlobal)."""
    names = list(problem.schedule.placement.runs)
    for limit in _clocks_of(problem, names):
        yield problem.for_every_micro_batch(
            {name: _at_most(problem, name, limit).clock_mhz for name in names}
        )


def zeus_per_stage(problem: ClockProblem) -> Iterator[Clocks]:
    """Yield plans with one clock per device that balance the forward times of the devices (ZeusPerStage).

    The heaviest device is the one with the longest forward time of a micro-batch at the highest clocks. For
    each of its clocks, from the highest downwards, every other device goes down from its highest clock to
    where its forward time is nearest to the heaviest one's. A device without forward
    blocks keeps its highest clock. A block on several devices runs at the lowest clock of these: it is only
    done when the slowest of its devices is.

    The original stops as soon as any device is at its lowest limit; here that one stays there and the others
    go on, which only adds plans, and is needed where a device has one clock.
    """
    placement = problem.schedule.placement
    runs = placement.runs
    computed = {
        device: [name for name, block in runs.items() if device in block.devices and block.stream == COMPUTE]
        for device in range(placement.num_devices)
    }
    devices = [device for device, names in computed.items() if names]
    steps = {device: _clocks_of(problem, computed[device]) for device in devices}
    forward = {device: _forward_ms(problem, device) for device in devices}
    heaviest = max(devices, key=lambda device: forward[device](steps[device][0]))
    for limit in steps[heaviest]:
        limits = {
            device: limit
            if device == heaviest
            else _balanced(steps[device], forward[device], forward[heaviest](limit))
            for device in devices
        }
        yield problem.for_every_micro_batch(
            {
                name: _at_most(
                    problem, name, min(limits.get(each, limit) for each in block.devices)
                ).clock_mhz
                for name, block in runs.items()
            }
        )


def _balanced(steps: list[int], forward_ms: Callable[[int], float], target_ms: float) -> int:
    """Return the clock whose forward time is nearest to the target; of equally near ones the lowest.

    The original goes down until it gets further from the target, which a single step does where times are
    noisy.
    """
    if forward_ms(steps[0]) == 0:
        return steps[0]
    return min(reversed(steps), key=lambda clock: abs(forward_ms(clock) - target_ms))


def _forward_ms(problem: ClockProblem, device: int) -> Callable[[int], float]:
    """Return the forward time of the first micro-batch on a device, as a function of the device's clock."""
    schedule = problem.schedule
    forwards = (b.name for b in schedule.as_run(0).on(device) if b.kind is Kind.F and b.stream == COMPUTE)
    names = [schedule.run_name(name, 0) for name in forwards]
    return lambda limit: sum(_at_most(problem, name, limit).time_ms for name in names)


def _clocks_of(problem: ClockProblem, names: list[str]) -> list[int]:
    """Return the clocks that any of some blocks was profiled at, highest first."""
    points = problem.profile.points
    return sorted({point.clock_mhz for name in names for point in points[name]}, reverse=True)


def _at_most(problem: ClockProblem, name: str, limit_mhz: int) -> OperatingPoint:
    """Return a block's point at its highest clock up to the limit, or else at its lowest."""
    points = problem.profile.points[name]
    return max((point for point in points if point.clock_mhz <= limit_mhz), default=points[0])
