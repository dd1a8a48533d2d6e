"""Costs of each block at each clock, measured or modelled; in milliseconds and millijoules."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import numpy as np

from placements.block import Block
from placements.forms.tables import csv_records
from placements.modes import Choice, Decision
from placements.profiles.operating_point import (
    OperatingPoint,
    ProfileError,
    ProfileRow,
    StageRow,
    write_profile_rows,
)
from placements.spec import Placement

BlockingPower = float | tuple[tuple[int, float], ...]
"""Power in W of a GPU that waits: one number, or (MHz, W) points by clock."""

DOUBTFUL = 100.0
"""Factor between times of a profile and of a placement from which these likely differ in their unit."""


@dataclass(frozen=True)
class Profile:
    """The cost of every block at every clock (Perseus, Sec. 5), per GPU.

    Attributes:
        device: Name of the GPU.
        points: For each block name its operating points by increasing clock, and by configuration where
            a clock has several; in its modes by the names of `Placement.runs`, as ``B0@recompute``.
        blocking_power_w: Power of a GPU that waits for a transfer (Perseus, Sec. 4.1): one number, or
            (MHz, W) points, kept by increasing clock; linear between them and constant outside. Points of
            equal power are kept as the number.

    Raises:
        ProfileError: A block has no points or unsorted clocks, or a figure makes no sense.
    """

    device: str
    points: Mapping[str, tuple[OperatingPoint, ...]]
    blocking_power_w: BlockingPower

    def __post_init__(self) -> None:
        """Check every figure."""
        object.__setattr__(self, "blocking_power_w", checked_blocking_power(self.blocking_power_w))
        for block, points in self.points.items():
            _check_points(block, points)

    def blocking_w(self, clock_mhz: int) -> float:
        """Return the power of a GPU that waits at a clock."""
        power = self.blocking_power_w
        if not isinstance(power, tuple):
            return power
        clocks_mhz, powers_w = zip(*power, strict=True)
        return float(np.interp(clock_mhz, clocks_mhz, powers_w))

    @cached_property
    def _blocking_powers_w(self) -> frozenset[float]:
        """Blocking powers at the profile's clocks."""
        clocks = {point.clock_mhz for points in self.points.values() for point in points}
        return frozenset(map(self.blocking_w, clocks))

    @cached_property
    def min_blocking_power_w(self) -> float:
        """The least power of a waiting GPU over the profile's clocks, in W."""
        return min(self._blocking_powers_w, default=self.blocking_w(0))

    @cached_property
    def waits_by_clock(self) -> bool:
        """Whether the blocking power differs between the profile's clocks."""
        return len(self._blocking_powers_w) > 1

    def fastest(self, block: str) -> OperatingPoint:
        """Return a block's point at its highest clock, in its fastest configuration at this clock."""
        points = self.points[block]
        highest = points[-1].clock_mhz
        return min((point for point in points if point.clock_mhz == highest), key=lambda point: point.time_ms)

    def in_fastest_configs(self) -> Profile:
        """Return the profile with the fastest configuration of each clock, for planners of clocks alone."""
        points = {}
        for block, all_points in self.points.items():
            slowest_first = sorted(all_points, key=lambda point: (point.clock_mhz, -point.time_ms))
            points[block] = tuple({point.clock_mhz: point for point in slowest_first}.values())
        return self if points == self.points else replace(self, points=points)

    def require_one_config(self, field: str) -> None:
        """Check that no clock of a block has several configurations, for planners of clocks alone.

        Raises:
            ProfileError: A clock has; the message begins with `field`, the option that needs clocks alone.
        """
        pairs = ((block, pair) for block, points in self.points.items() for pair in pairwise(points))
        for block, (before, after) in pairs:
            if before.clock_mhz == after.clock_mhz:
                raise ProfileError(
                    f"{field}: chooses clocks alone, but {block} at {after.clock_mhz} MHz has several "
                    "configurations; leave it out, or keep one configuration for each clock"
                )

    def require(self, placement: Placement) -> None:
        """Check that the profile has all blocks of a placement; other blocks are allowed.

        Raises:
            ProfileError: The profile lacks a block.
        """
        if missing := [name for name in placement.runs if name not in self.points]:
            is_mode = any(placement.runs[name].name in self.points for name in missing)
            raise ProfileError(
                f"profile: lacks {_some(missing)} of {placement.name}, it has {_some(self.points)}; profile "
                f"them, or use the placement that was profiled{' and `with_modes`' if is_mode else ''}"
            )

    def doubtful_times(self, placement: Placement, option: str) -> str:
        """Return a hint if the profile's times are off the placement's by `DOUBTFUL` times or more, else "".

        The option is the factor on the times of the profile.
        """
        total_ms = sum(self.fastest(name).time_ms for name in placement.runs)
        other_ms = sum(block.time for block in placement.runs.values()) * placement.tick_ms
        if 1 / DOUBTFUL < total_ms / other_ms < DOUBTFUL:
            return ""
        cause = f"its times are read as seconds; if they are milliseconds, set {option}=0.001"
        if total_ms < other_ms:
            cause = f"correct the times or tick_ms of the placement, or set {option}"
        return (
            f"its blocks take {total_ms:.6g} ms at their highest clocks, those of {placement.name} "
            f"{other_ms:.6g} ms; {cause}"
        )

    def times_for(self, placement: Placement) -> Placement:
        """Return the placement with every block's time at its highest clock.

        Transfers are kept, in the new ticks, rounded up. A tick is the longest power of ten ms of which the
        shortest block has at least half a million: exact to a millionth.

        Raises:
            ProfileError: The profile lacks a block.
        """
        self.require(placement)
        shortest_ms = min(self.fastest(name).time_ms for name in placement.runs)
        tick_ms = float(f"1e{math.floor(math.log10(shortest_ms / 500_000) + 1e-9)}")
        finer = Fraction(str(placement.tick_ms)) / Fraction(str(tick_ms))

        def timed(blocks: Sequence[Block], choice: Choice) -> tuple[Block, ...]:
            times = [math.ceil(block.time * finer) for block in blocks]  # as written a block may never run
            for i, name in enumerate(placement.name_in(choice, block.name) for block in blocks):
                if name in self.points and blocks[i].time:
                    times[i] = round(self.fastest(name).time_ms / tick_ms)
            return tuple(replace(block, time=time) for block, time in zip(blocks, times, strict=True))

        return replace(
            placement,
            tick_ms=tick_ms,
            blocks=timed(placement.blocks, Choice("")),
            transfer=tuple((a, b, math.ceil(ticks * finer)) for a, b, ticks in placement.transfer),
            decisions=tuple(
                Decision(tuple(replace(mode, blocks=timed(mode.blocks, mode)) for mode in decision.choices))
                for decision in placement.decisions
            ),
        )

    @classmethod
    def from_csv(
        cls,
        path: str | Path,
        *,
        device: str = "unknown",
        blocking_power_w: BlockingPower,
        time_scale: float = 1.0,
        energy_scale: float = 1.0,
    ) -> Profile:
        """Read a profile from a CSV file.

        The columns are ``block,frequency,time,energy``, with ``config`` where blocks have several
        configurations, or Zeus's ``stage,instruction,frequency,time,energy`` with ``forward`` and
        ``backward``, whose stage 3 is the blocks F3 and B3 of a V-shape. Clocks are in MHz, times in seconds
        and energies in joules on one device, each times its scale. Rows and columns may be in any order.

        Raises:
            ProfileError: The file cannot be read or is wrong; the message begins with its path.
        """
        for name, scale in (("time_scale", time_scale), ("energy_scale", energy_scale)):
            if not 0 < scale < math.inf:
                raise ProfileError(f"{name}: {scale} is not a factor above 0")
        by_block: dict[str, list[OperatingPoint]] = {}
        forms: tuple[type[ProfileRow | StageRow], ...] = (ProfileRow, StageRow)
        once = ("block", "frequency", "config")
        for _, row in csv_records(Path(path), "block and clock", ProfileError, *forms, once=once):
            costs = row.time * (1e3 * time_scale), row.energy * (1e3 * energy_scale)
            by_block.setdefault(row.block, []).append(OperatingPoint(row.frequency, *costs, row.config))
        by_clock = attrgetter("clock_mhz", "config")
        points = {block: tuple(sorted(points, key=by_clock)) for block, points in by_block.items()}
        return cls(device, points, blocking_power_w)

    def to_csv(self, path: str | Path) -> None:
        """Write the profile as CSV with the columns ``block,frequency,time,energy``, all rows or no file.

        Where points have configurations, there is a column ``config`` too.

        Raises:
            ProfileError: The file cannot be written.
        """
        write_profile_rows(
            Path(path),
            ((block, *astuple(point)) for block, points in self.points.items() for point in points),
        )


def checked_blocking_power(power: BlockingPower) -> BlockingPower:
    """Return a blocking power in a profile's form: one number, or points by increasing clock.

    Raises:
        ProfileError: A clock or power is out of range, or the list of points is empty or repeats a clock.
    """
    for clock, watts in power if isinstance(power, tuple) else ((1, power),):
        if not 0 < clock < math.inf:
            raise ProfileError(f"blocking_power_w: {clock} is not a clock; give MHz above 0")
        if not 0 <= watts < math.inf:
            where = f" at {clock} MHz" if isinstance(power, tuple) else ""
            fault = f"{watts}{where} is not a power in W"
            raise ProfileError(f"blocking_power_w: {fault}; give a number of 0 or more")
    if not isinstance(power, tuple):
        return power
    clocks = Counter(clock for clock, _ in power).most_common(1)
    if not power or clocks[0][1] > 1:
        problem = f"{clocks[0][0]} MHz is given twice; give it once" if power else "has no points; give one"
        raise ProfileError(f"blocking_power_w: {problem}")
    return power[0][1] if len({watts for _, watts in power}) == 1 else tuple(sorted(power))


def _check_points(block: str, points: tuple[OperatingPoint, ...]) -> None:
    if not points:
        raise ProfileError(f"points.{block}: is empty; give at least one operating point")
    for point in points:
        if not (0 < point.time_ms < math.inf and 0 <= point.energy_mj < math.inf and point.clock_mhz > 0):
            fault = f"{point.clock_mhz} MHz, {point.time_ms} ms, {point.energy_mj} mJ is no operating point"
            remedy = "clock and time must be above 0 and energy at least 0"
            raise ProfileError(f"points.{block}: {fault}; {remedy}")
    for before, after in pairwise((point.clock_mhz, point.config) for point in points):
        if before >= after:
            first, second = (
                f"{mhz} MHz" + f" of config {config}" * (config > "") for mhz, config in (after, before)
            )
            fault = f"{first} follows {second}"
            raise ProfileError(f"points.{block}: {fault}; sort by clock and config, and give each once")


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
