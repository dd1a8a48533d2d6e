"""Frequency plans, and the frontier of all that no other plan beats in both time and energy.

Two energies are needed. `FrequencyPlan.energy_mj` is what an iteration uses when the next one begins at
once. Next to a straggler the iteration lasts as long as the straggler's, and the devices that are done
wait at the blocking power: then a slower plan is better as long as its *effective* energy, above the
blocking power, is lower (Perseus, Sec. 3.1 and 4.1, Eq. 3 and 4). The frontier is of time and effective
energy. It ends at T*, where every block runs at its least effective energy. `FrequencyPlan.energy_mj`
alone is least before that, at `Frontier.min_energy`; Perseus's artifact ends at the least energy of the
blocks with waiting left out, which is a third place in between.

Where the blocking power depends on the clock, each plan waits at a power of its own after its end, and
effective energy is counted above the least power of any clock. The frontier then has the plans that are of
least energy until some deadline, and which one that is has to be asked for every deadline, beyond T* too.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from placements import Placement, Profile
from placements.files import read_json
from placements.plain_data import Field, in_file
from placements.profiles.operating_point import Clock, config_of
from schedsearch.energy.graph import EnergyError, Floats
from schedsearch.results import FileResult

_OF_ALL_MAXIMUM = ("time_ms", "energy_mj", "waiting_w")
"""What the file form tells of the plan to compare with."""

SCHEMA_VERSION = 1
"""Version of the frontier's file form."""

_AGAIN = "compute the frontier again"

OnProgress = Callable[[str, int, int], None]
"""Called with what is done (such as "rounding"), how much of it is done, and how much there is."""

TIME_TOLERANCE = 1e-9
"""Share by which a plan may be later than the deadline it was made for; rounding errors only."""


BOUND_TOLERANCE = 1e-6
"""Share of the energies that were added up by which a proved bound may be above what was found.

HiGHS keeps its rows, integers and reduced costs to 1e-6 and better, and the minimum cuts round powers to
2**-28 of the median one. A bound that is further above a plan is wrong, and must not be hidden.
"""


def proved(bound: float, found: float, scale: float = 0.0) -> float:
    """Return a lower bound of what was found, with rounding errors taken off where it is above.

    Args:
        bound: Bound of energy, time or cost; nothing is below it.
        found: Something that the bound is of.
        scale: Size of what was added up, where the sum itself may be about 0.
    """
    most = BOUND_TOLERANCE * (abs(found) + scale)
    assert bound <= found + most, f"the bound {bound!r} is above {found!r}, which was found"
    return min(bound, found)


@dataclass(frozen=True, eq=False)
class LowerBound:
    """The relaxed frontier, piecewise linear between its breakpoints.

    Attributes:
        time_ms: Length of the iteration at each breakpoint, ascending.
        effective_mj: Least effective energy there.
        waiting_w: Power of all devices while they wait, at the clock of least blocking power.
    """

    time_ms: Floats
    effective_mj: Floats
    waiting_w: float

    def at(self, time_ms: float) -> float:
        """Return the energy in millijoules, waiting included, below which no iteration this long can go."""
        return float(np.interp(time_ms, self.time_ms, self.effective_mj)) + self.waiting_w * time_ms

    def price_w(self, time_ms: float) -> float:
        """Return the shadow price of time there: what a shorter iteration costs, in millijoules per ms."""
        if len(self.time_ms) == 1 or time_ms >= self.time_ms[-1]:
            return 0.0
        after = max(int(np.searchsorted(self.time_ms, time_ms, side="right")), 1)
        slope = np.diff(self.effective_mj[after - 1 : after + 1]) / np.diff(
            self.time_ms[after - 1 : after + 1]
        )
        return float(-slope[0])


@dataclass(frozen=True)
class FrequencyPlan:
    """A clock for every block of every micro-batch, and what comes of it.

    Attributes:
        clock_mhz: For each block one clock per micro-batch, a `Clock` where the block has configurations.
        time_ms: Length of the iteration.
        energy_mj: Energy of all devices over that time, waiting included.
        lower_bound_mj: No plan of this time, at any clocks, uses less; from the relaxed problem.
        waiting_w: Power of all devices after the end, next to a straggler, at the clocks of their last
            blocks; None where the blocking power does not depend on the clock.
        made_by: The generator that found it, of `schedsearch.energy.planning.GENERATORS`; empty for others.
    """

    clock_mhz: Mapping[str, tuple[int, ...]]
    time_ms: float
    energy_mj: float
    lower_bound_mj: float
    waiting_w: float | None = None
    made_by: str = field(default="", compare=False)

    @property
    def power_w(self) -> float:
        """Return the average power of all devices together."""
        return self.energy_mj / self.time_ms

    @property
    def gap(self) -> float:
        """Return by how much of the lower bound the plan may be above the best one."""
        return self.energy_mj / self.lower_bound_mj - 1 if self.lower_bound_mj > 0 else math.nan


@dataclass(frozen=True)
class Frontier(FileResult):
    """The plans among which to choose, once for every deadline.

    Attributes:
        plans: Plans by strictly increasing time and strictly decreasing effective energy. Where the blocking
            power depends on the clock, by time, then energy.
        all_maximum: The plan to compare with: every block at its highest clock.
        blocking_power_w: Power of one waiting GPU, at the clock where it is least.
        num_devices: Devices of the placement; None if read from a file without being told.
        num_gpus: GPUs of all devices together; None for one each.
        blocking_power_by_clock: The profile's (MHz, W) points where the blocking power depends on the clock,
            else empty.
        relaxed: The whole continuous frontier of blocks that could take any time, by its breakpoints; None
            where it was not computed, or the frontier was read from a file.
        interrupted: Whether Ctrl-C ended its improvement; the plans are then the best so far.
    """

    plans: tuple[FrequencyPlan, ...]
    all_maximum: FrequencyPlan
    blocking_power_w: float
    num_devices: int | None = None
    num_gpus: int | None = None
    blocking_power_by_clock: tuple[tuple[int, float], ...] = ()
    relaxed: LowerBound | None = field(default=None, compare=False)
    interrupted: bool = field(default=False, compare=False)

    @classmethod
    def of(
        cls,
        plans: tuple[FrequencyPlan, ...],
        all_maximum: FrequencyPlan,
        placement: Placement,
        profile: Profile,
        relaxed: LowerBound | None = None,
        interrupted: bool = False,
    ) -> Frontier:
        """Return the frontier of some plans of a placement."""
        power = profile.blocking_power_w
        return cls(
            plans,
            all_maximum,
            profile.min_blocking_power_w,
            placement.num_devices,
            sum(placement.gpus) if placement.num_gpus else None,
            power if isinstance(power, tuple) and profile.waits_by_clock else (),
            relaxed,
            interrupted,
        )

    @property
    def all_gpus(self) -> int:
        """Return the GPUs of all devices together.

        Raises:
            EnergyError: The frontier was read from a file that does not tell the number of devices.
        """
        number = self.num_devices if self.num_gpus is None else self.num_gpus
        if number is None:
            raise EnergyError("num_devices: is not in the frontier's file; add it")
        return number

    @property
    def waiting_w(self) -> float:
        """Return the power of all devices while all wait at the clock of least blocking power.

        Raises:
            EnergyError: See `all_gpus`.
        """
        return self.blocking_power_w * self.all_gpus

    @property
    def shortest(self) -> FrequencyPlan:
        """Return the plan of the shortest time, T_min."""
        return self.plans[0]

    @property
    def min_energy(self) -> FrequencyPlan:
        """Return the plan of least `FrequencyPlan.energy_mj`: the best without straggler or deadline."""
        return min(self.plans, key=lambda plan: plan.energy_mj)

    @cached_property
    def _times_ms(self) -> tuple[float, ...]:
        return tuple(plan.time_ms for plan in self.plans)

    def at(self, deadline_ms: float) -> FrequencyPlan:
        """Return the best plan for an iteration that ends at the deadline, such as a straggler's end.

        This is the last plan not later than the deadline: min(T*, T') of Perseus (Sec. 3.1). Where the
        blocking power depends on the clock, it is of these plans the one of least energy until the deadline:
        one that ends sooner may wait at less power, and after T* it still matters how long the wait is.

        Raises:
            EnergyError: The deadline is before the end of the shortest plan.
        """
        if not deadline_ms >= self._times_ms[0] * (1 - TIME_TOLERANCE):
            raise EnergyError(
                f"deadline_ms: {deadline_ms:.12g} is below the shortest iteration of "
                f"{self._times_ms[0]:.6g} ms; give at least that"
            )
        last = max(bisect_right(self._times_ms, deadline_ms * (1 + TIME_TOLERANCE)) - 1, 0)
        if self.plans[last].waiting_w is None:
            return self.plans[last]
        return min(self.plans[: last + 1], key=lambda plan: self.energy_next_to(plan, deadline_ms))

    def energy_next_to(self, plan: FrequencyPlan, straggler_ms: float) -> float:
        """Return the energy in millijoules of an iteration that ends with a straggler (Perseus, Eq. 3).

        The devices that are done before wait at the blocking power, that of their last block's clock if it
        depends on the clock. A straggler that is faster than the plan changes nothing.
        """
        waiting_ms = max(straggler_ms - plan.time_ms, 0.0)
        if waiting_ms == 0.0:
            return plan.energy_mj
        return plan.energy_mj + (self.waiting_w if plan.waiting_w is None else plan.waiting_w) * waiting_ms

    def saving(self, plan: FrequencyPlan, straggler_ms: float = 0.0) -> float:
        """Return the share of energy that a plan saves against all clocks at maximum.

        Both are taken over an equal time: the straggler's, or that of the slower of the two if that is
        longer.
        """
        time_ms = max(straggler_ms, plan.time_ms, self.all_maximum.time_ms)
        return 1 - self.energy_next_to(plan, time_ms) / self.energy_next_to(self.all_maximum, time_ms)

    @cached_property
    def without_straggler(self) -> tuple[FrequencyPlan, ...]:
        """Return the plans that no other beats in time and `FrequencyPlan.energy_mj`, by increasing time."""
        best: list[FrequencyPlan] = []
        for plan in self.plans:
            if not best or plan.energy_mj < best[-1].energy_mj:
                best.append(plan)
        return tuple(best)

    def to_dict(self) -> dict[str, Any]:
        """Return the file form as plain data.

        ``plans`` is the frontier of time and total energy. Those that only pay next to a straggler, at whose
        pace the iteration lasts, are apart in ``straggler_plans``.
        """
        alone = {id(plan) for plan in self.without_straggler}
        maximum = _plan_to_dict(self.all_maximum)
        curve = {str(clock): watts for clock, watts in self.blocking_power_by_clock}
        return {
            "schema_version": SCHEMA_VERSION,
            "blocking_power_w": self.blocking_power_w,
            **({"blocking_power_by_clock": curve} if curve else {}),
            "num_devices": self.num_devices,
            **({} if self.num_gpus is None else {"num_gpus": self.num_gpus}),
            "all_maximum": {key: maximum[key] for key in _OF_ALL_MAXIMUM if key in maximum},
            "plans": [_plan_to_dict(plan) for plan in self.without_straggler],
            "straggler_plans": [_plan_to_dict(plan) for plan in self.plans if id(plan) not in alone],
        }

    @classmethod
    def from_dict(cls, data: object) -> Frontier:
        """Build a frontier from its file form, where all but the plans and `blocking_power_w` may be missing.

        The file form holds neither the clocks nor the lower bound of `all_maximum`; they read as empty
        and 0.

        Raises:
            EnergyError: A field is missing or wrong.
        """
        top = Field(data, "frontier", EnergyError, is_root=True)
        top.version(SCHEMA_VERSION, default=SCHEMA_VERSION)
        alone = _read_plans(top["plans"])
        if not alone:
            raise top["plans"].wrong("a list of at least one plan", _AGAIN)
        maximum = top["all_maximum"]
        return cls(
            plans=tuple(
                sorted((*alone, *_read_plans(top.get("straggler_plans", []))), key=lambda plan: plan.time_ms)
            ),
            all_maximum=FrequencyPlan(
                {}, _finite(maximum["time_ms"]), _finite(maximum["energy_mj"]), 0.0, _read_waiting_w(maximum)
            ),
            blocking_power_w=_finite(top["blocking_power_w"]),
            num_devices=_read_count(top.get("num_devices")),
            num_gpus=_read_count(top.get("num_gpus")),
            blocking_power_by_clock=_read_curve(top.get("blocking_power_by_clock", {})),
        )

    @classmethod
    def from_json(cls, path: str | Path) -> Frontier:
        """Read a frontier from a JSON file.

        Raises:
            EnergyError: The file cannot be read or is wrong; the message begins with its path.
        """
        data = read_json(path, "a frontier.json", EnergyError)
        with in_file(path, EnergyError):
            return cls.from_dict(data)


def _plan_to_dict(plan: FrequencyPlan) -> dict[str, Any]:
    return {
        "time_ms": plan.time_ms,
        "energy_mj": plan.energy_mj,
        "lower_bound_mj": plan.lower_bound_mj,
        **({} if plan.waiting_w is None else {"waiting_w": plan.waiting_w}),
        **({"made_by": plan.made_by} if plan.made_by else {}),
        **clocks_to_dict(plan.clock_mhz),
    }


def clocks_to_dict(clock_mhz: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return the clocks of a plan as plain data: ``clock_mhz``, and ``config`` where blocks have some."""
    named = {block: list(map(config_of, clocks)) for block, clocks in clock_mhz.items()}
    configs = {block: each for block, each in named.items() if any(each)}
    plain = {block: list(map(int, clocks)) for block, clocks in clock_mhz.items()}
    return {"clock_mhz": plain} | ({"config": configs} if configs else {})


def _read_plan(field: Field) -> FrequencyPlan:
    clocks, configs, made_by = field["clock_mhz"], field.get("config", {}), field.get("made_by")
    configs.mapping(remedy=_AGAIN)
    return FrequencyPlan(
        {name: _read_clocks(clocks[name], configs.get(name)) for name in clocks.mapping(remedy=_AGAIN)},
        _finite(field["time_ms"]),
        _finite(field["energy_mj"]),
        _finite(field.get("lower_bound_mj", 0.0)),
        _read_waiting_w(field),
        "" if made_by.value is None else made_by.text("a name", _AGAIN),
    )


def _read_waiting_w(plan: Field) -> float | None:
    power = plan.get("waiting_w")
    return None if power.value is None else _finite(power)


def _read_count(field: Field) -> int | None:
    return None if field.value is None else field.whole(remedy="give the placement's")


def _read_curve(field: Field) -> tuple[tuple[int, float], ...]:
    for clock in field.mapping(remedy=_AGAIN):
        if not (isinstance(clock, str) and clock.isdecimal() and int(clock)):
            raise EnergyError(f"{field.where}: {clock!r} is not a clock; give whole MHz above 0")
    return tuple(sorted((int(clock), _finite(field[clock])) for clock in field.value))


def _read_clocks(field: Field, configs: Field) -> tuple[int, ...]:
    clocks = field.items("a list of clocks", "give one for each micro-batch")
    if not clocks:
        raise field.wrong("a list of clocks", "give one for each micro-batch")
    plain = tuple(clock.whole("a clock", "give whole MHz above 0", 1) for clock in clocks)
    if configs.value is None:
        return plain
    names = configs.items("a list of configurations", "give one for each micro-batch")
    if len(names) != len(plain):
        raise configs.wrong(f"a list of {len(plain)} configurations", "give one for each micro-batch")
    named = [name.text("a name", _AGAIN) if name.value != "" else "" for name in names]
    return tuple(Clock(mhz, name) if name else mhz for mhz, name in zip(plain, named, strict=True))


def _read_plans(field: Field) -> list[FrequencyPlan]:
    plans = [_read_plan(plan) for plan in field.items("a list of plans", _AGAIN)]
    for i, (before, after) in enumerate(pairwise(plans)):
        is_equal = after.time_ms == before.time_ms and after.waiting_w is not None
        if after.time_ms <= before.time_ms and not is_equal:
            raise EnergyError(
                f"{field.where}[{i + 1}].time_ms: {after.time_ms:g} is not above {before.time_ms:g}; "
                "sort the plans by time"
            )
    return plans


def _finite(field: Field) -> float:
    return float(field.number("a number", "give a finite one", -sys.float_info.max, sys.float_info.max))
