"""Costs of blocks at each clock, measured while they run (Perseus, Sec. 5): from the highest clock down.

Every iteration runs at one clock. A clock's figures are means over all micro-batches of its iterations. An
energy counter that moves only every ten milliseconds or so is waited for before and after each block, and
what the device uses in those waits is taken off again: repetition alone would not do, because the counter is
always late, never early. A driver may grant less than the clock that was asked for, as under a power limit:
figures are of the clock at which a block ran. The module does not know torch, NVML or what a block is.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median_low
from typing import NamedTuple

from runtime.clocks.clock import ClockBackend

CLOCK_STEP_MHZ = 15
"""What lies between two clocks of NVIDIA's GPUs; clocks that are nearer are taken for one."""


class Meter:
    """Measures a device; this one its time only."""

    def now_ms(self) -> float:
        """Return the time, from any start."""
        return time.perf_counter() * 1000

    def energy_mj(self) -> float | None:
        """Return the energy used since any start; None if nothing measures it."""
        return None


@dataclass(frozen=True)
class Sweep:
    """Length of a measurement, and when it ends.

    Attributes:
        iterations: Iterations at each clock, at least; one more is run before the first.
        min_ms: Minimum time of all runs of a block at each clock.
        rises: Rises of energy in a row, of every block, that end the sweep.
        blocking_clocks: Number of the sweep's clocks at which the blocking power is measured: the highest,
            the lowest and others evenly between.
    """

    iterations: int = 3
    min_ms: float = 0.0
    rises: int = 5
    blocking_clocks: int = 1


class MeasuredCost(NamedTuple):
    """Cost of a block at a clock, on one device: means of its runs; None for an unknown clock or energy."""

    kind: str
    clock_mhz: int | None
    time_ms: float
    energy_mj: float | None


class DeviceProfile(NamedTuple):
    """Measurements of one device, by decreasing clock, and a line on which clocks and whether energy.

    Attributes:
        blocking_w: Power while it waits for a transfer (Perseus, Sec. 4.1), by clock, None where it is not
            known; empty if not measured.
    """

    costs: tuple[MeasuredCost, ...]
    blocking_w: tuple[tuple[int | None, float], ...]
    description: str


class _Run(NamedTuple):
    """One run of a block; its energy is 0 where nothing measures it."""

    time_ms: float
    energy_mj: float
    clock_mhz: int | None


@dataclass
class Profiler:
    """Measures blocks between `begin` and `end` (Perseus, Table 2), and lowers the clock between iterations.

    Attributes:
        clock: Takes the clocks; None to measure at the device's own only.
        clocks_mhz: Clocks to go through, in any order; ignored without `clock`.
        current_mhz: Returns the clock at which the device runs; None where nothing tells.
        settle: Called after a clock was asked for; returns when it is in force.
        synchronize: Returns when what was computed so far is done.
        align: Returns when the energy counter has just moved; None if it moves all the time.
        meet: Returns when all devices of a block are there; else their waiting would count as the block's.
        is_done: Whether the sweep has ended.
        costs: Costs at the clocks that are done, the highest first.
        limit: One line if the device did not go as high as asked, else empty.
    """

    meter: Meter
    sweep: Sweep = Sweep()
    clock: ClockBackend | None = None
    clocks_mhz: Sequence[int] = ()
    current_mhz: Callable[[], int | None] = lambda: None
    settle: Callable[[], None] = lambda: None
    synchronize: Callable[[], None] = lambda: None
    align: Callable[[], None] | None = None
    meet: Callable[[str], None] = lambda kind: None
    is_done: bool = field(default=False, init=False)
    costs: list[MeasuredCost] = field(default_factory=list, init=False)
    limit: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self._left = sorted(set(self.clocks_mhz)) if self.clock is not None else []
        self._at: int | None = None
        self._iterations = -1
        self._runs: dict[str, list[_Run]] = defaultdict(list)  # at the present clock
        self._kept: dict[tuple[str, int | None], list[_Run]] = {}
        self._energies_mj: dict[str, list[float]] = defaultdict(list)  # by decreasing clock
        self._started: tuple[str, float, float, float | None] | None = None

    @property
    def measures_energy(self) -> bool:
        """Return whether the meter does."""
        return self.meter.energy_mj() is not None

    def begin_iteration(self) -> None:
        """Go to the clock of the iteration, and wait until it is in force."""
        if self.clock is not None and self._at is None and self._left:
            self._at = self._left.pop()
            self.clock.set(self._at)
            self.settle()

    def begin(self, kind: str) -> None:
        """Begin to measure a block."""
        assert self._started is None, f"{kind} begins within another block"
        self.synchronize()
        self.meet(kind)
        known = self._aligned()
        if self.align is not None:
            self.meet(kind)  # Each device has waited for a counter of its own.
        self._started = (kind, self.meter.now_ms(), *known)

    def end(self, kind: str) -> None:
        """Add the time and energy since `begin`, once the block is done."""
        self.synchronize()
        end_ms = self.meter.now_ms()
        clock_mhz = None if self._at is None else self.current_mhz()
        started, self._started = self._started, None
        assert started is not None and started[0] == kind, f"{kind} ends but did not begin"
        if not self.is_done and self._iterations >= 0:
            time_ms = end_ms - started[1]
            self._runs[kind].append(_Run(time_ms, self._energy_mj(time_ms, *started[2:]), clock_mhz))

    def end_iteration(self) -> None:
        """Take the clock down if all was measured enough, or end the sweep."""
        self._iterations += 1
        short = any(sum(run.time_ms for run in runs) < self.sweep.min_ms for runs in self._runs.values())
        if self.is_done or self._iterations < self.sweep.iterations or short:
            return
        self._keep()
        self._runs.clear()
        self._iterations = 0
        past_best = all(_rose(energies, self.sweep.rises) for energies in self._energies_mj.values())
        if not self._left or (self.measures_energy and past_best):
            self.is_done = True
            return
        self._at = None

    def power_w(self, wait: Callable[[], object]) -> float | None:
        """Return the device's power in a wait of half a second or more; None if nothing measures it."""
        self.synchronize()
        time_ms, energy_mj = self.meter.now_ms(), self.meter.energy_mj()
        wait()
        self.synchronize()
        lasted_ms, now_mj = self.meter.now_ms() - time_ms, self.meter.energy_mj()
        if energy_mj is None or now_mj is None or lasted_ms <= 0:
            return None
        return (now_mj - energy_mj) / lasted_ms

    def _aligned(self) -> tuple[float, float | None]:
        """Return a time and the energy used by then; the present ones, or soon."""
        if self.align is not None:
            self.align()
        return self.meter.now_ms(), self.meter.energy_mj()

    def _energy_mj(self, time_ms: float, before_ms: float, before_mj: float | None) -> float:
        """Return the energy of a block without the waits beside it; 0 if nothing measures it."""
        known_ms, known_mj = self._aligned()
        if known_mj is None or before_mj is None:
            return 0.0
        waited_ms = known_ms - before_ms - time_ms
        if self.align is None or waited_ms <= 0:
            return known_mj - before_mj
        later_ms, later_mj = self._aligned()
        assert later_mj is not None
        return known_mj - before_mj - waited_ms * (later_mj - known_mj) / (later_ms - known_ms)

    def _keep(self) -> None:
        """Add the runs to the figures of the clocks at which the blocks ran."""
        current_mhz = self.current_mhz() if self._at is None else self._at
        ran_at = {kind: self._ran_at_mhz(runs, current_mhz) for kind, runs in self._runs.items()}
        for kind, runs in self._runs.items():
            if self.measures_energy and (kind, ran_at[kind]) not in self._kept:
                self._energies_mj[kind].append(fmean(run.energy_mj for run in runs))
            self._kept.setdefault((kind, ran_at[kind]), []).extend(runs)
        self.costs = []
        for (kind, clock_mhz), runs in self._kept.items():
            energy_mj = fmean(run.energy_mj for run in runs) if self.measures_energy else None
            self.costs.append(MeasuredCost(kind, clock_mhz, fmean(run.time_ms for run in runs), energy_mj))
        highest_mhz = max((mhz for mhz in ran_at.values() if mhz is not None), default=None)
        if self._at is not None and highest_mhz is not None and highest_mhz < self._at:
            self._left = [mhz for mhz in self._left if mhz < highest_mhz]  # others would run the same again
            self.limit = self.limit or f"ran at {highest_mhz} MHz where {self._at} MHz were asked for"

    def _ran_at_mhz(self, runs: Sequence[_Run], asked_mhz: int | None) -> int | None:
        """Return the clock at which a block ran: of the sweep if one is near, as asked if unread."""
        read_mhz = [run.clock_mhz for run in runs if run.clock_mhz is not None]
        if not read_mhz or asked_mhz is None:
            return asked_mhz
        median = median_low(read_mhz)
        nearest = min((asked_mhz, *self._left), key=lambda mhz: abs(mhz - median))
        return nearest if abs(nearest - median) < CLOCK_STEP_MHZ else median


def _rose(energies_mj: Sequence[float], times: int) -> bool:
    """Tell whether energies once rose a number of times in a row."""
    rose = [after > before for before, after in pairwise(energies_mj)]
    return any(all(rose[i : i + times]) for i in range(len(rose) - times + 1))


def blocking_by_clock(profiles: Iterable[DeviceProfile]) -> dict[int | None, float]:
    """Return the mean blocking power of the devices at each clock, from the highest down."""
    by_clock: dict[int | None, list[float]] = {}
    for profile in profiles:
        for clock_mhz, power_w in profile.blocking_w:
            by_clock.setdefault(clock_mhz, []).append(power_w)
    return {clock_mhz: sum(powers) / len(powers) for clock_mhz, powers in by_clock.items()}


def merged(profiles: Iterable[DeviceProfile]) -> dict[str, tuple[MeasuredCost, ...]]:
    """Merge the costs of all devices of each block, by increasing clock.

    A block of several devices takes as long as on the slowest; its energy is the mean. Only clocks that all
    its devices have gone down to are there.
    """
    by_device: dict[str, list[dict[int | None, MeasuredCost]]] = {}
    for profile in profiles:
        for kind in dict.fromkeys(cost.kind for cost in profile.costs):
            by_clock = {cost.clock_mhz: cost for cost in profile.costs if cost.kind == kind}
            by_device.setdefault(kind, []).append(by_clock)
    return {kind: tuple(_merge(kind, costs)) for kind, costs in by_device.items()}


def _merge(kind: str, by_device: list[dict[int | None, MeasuredCost]]) -> Iterable[MeasuredCost]:
    if all(len(by_clock) == 1 for by_clock in by_device):  # perhaps each at a current clock of its own
        by_device = [{None: cost} for by_clock in by_device for cost in by_clock.values()]
    common = set.intersection(*(set(by_clock) for by_clock in by_device))
    for clock_mhz in sorted(common, key=lambda mhz: mhz or 0):
        costs = [by_clock[clock_mhz] for by_clock in by_device]
        energies = [cost.energy_mj for cost in costs if cost.energy_mj is not None]
        energy_mj = fmean(energies) if len(energies) == len(costs) else None
        yield MeasuredCost(kind, costs[0].clock_mhz, max(cost.time_ms for cost in costs), energy_mj)
