"""Zeus for pipelines: one clock for all devices, or one for each (Perseus, Sec. 6.4, the two baselines).

Zeus sets power limits and measures; with a profile the limit of a device is its clock. A block that was not
profiled at the clock of its device runs at its highest clock below it, or else at its lowest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from placements import Kind, OperatingPoint
from placements.block import COMPUTE
from schedsearch.energy.problem import ClockProblem, Clocks
from schedsearch.energy.simulation import clocks_of


def zeus_global(problem: ClockProblem) -> Iterator[Clocks]:
    """Yield plans with one clock for all blocks on all devices, from the highest downwards (ZeusGlobal)."""
    names = list(problem.schedule.placement.runs)
    for limit in _clocks_of(problem, names):
        yield _clocks_within(problem, dict.fromkeys(names, limit))


def zeus_per_stage(problem: ClockProblem) -> Iterator[Clocks]:
    """Yield plans with one clock per device that balance the forward times of the devices (ZeusPerStage).

    The heaviest device is the one with the longest forward time of a micro-batch at the highest clocks. For
    each of its clocks, from the highest downwards, every other device goes down from its highest clock to
    where its forward time is nearest to the heaviest one's, of equally near clocks to the lowest. A device
    without forward blocks keeps its highest clock. A block on several devices runs at the lowest clock of
    these: it is only done when the slowest of its devices is.

    The original stops as soon as any device is at its lowest limit; here that one stays there and the others
    go on, which only adds plans, and is needed where a device has one clock. The original goes down until it
    gets further from the target, which a single step does where times are noisy.
    """
    schedule, runs = problem.schedule, problem.schedule.placement.runs
    steps, forward_ms = dict[int, list[int]](), dict[int, dict[int, float]]()
    for device in range(schedule.placement.num_devices):
        computing = [name for name, b in runs.items() if device in b.devices and b.stream == COMPUTE]
        first = [b for b in schedule.as_run(0).on(device) if b.kind is Kind.F and b.stream == COMPUTE]
        names = [schedule.run_name(block.name, 0) for block in first]
        if computing:
            steps[device] = _clocks_of(problem, computing)
            forward_ms[device] = {
                limit: sum(_at_most(problem, name, limit).time_ms for name in names)
                for limit in steps[device]
            }
    heaviest = max(steps, key=lambda device: forward_ms[device][steps[device][0]])
    for limit in steps[heaviest]:
        target_ms, limits = forward_ms[heaviest][limit], {}
        for device, times in forward_ms.items():
            nearest = min(reversed(steps[device]), key=lambda clock: abs(times[clock] - target_ms))
            limits[device] = nearest if any(times.values()) else steps[device][0]
        limits[heaviest] = limit
        of_runs = {name: min(limits.get(d, limit) for d in block.devices) for name, block in runs.items()}
        yield _clocks_within(problem, of_runs)


def _clocks_within(problem: ClockProblem, limit_mhz: Mapping[str, int]) -> Clocks:
    """Return the clocks of all micro-batches under a limit on each block's clock."""
    chosen = {name: _at_most(problem, name, limit).clock_mhz for name, limit in limit_mhz.items()}
    return clocks_of(problem.schedule, chosen)


def _clocks_of(problem: ClockProblem, names: Iterable[str]) -> list[int]:
    """Return the clocks that any of some blocks was profiled at, highest first."""
    points = problem.profile.points
    return sorted({point.clock_mhz for name in names for point in points[name]}, reverse=True)


def _at_most(problem: ClockProblem, name: str, limit_mhz: int) -> OperatingPoint:
    """Return a block's point at its highest clock up to the limit, or else at its lowest."""
    points = problem.profile.points[name]
    return max((point for point in points if point.clock_mhz <= limit_mhz), default=points[0])
