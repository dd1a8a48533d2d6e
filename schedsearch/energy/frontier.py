"""Frequency plans, and the frontier of all that no other plan beats in both time and energy.

Two energies are needed. `FrequencyPlan.energy_mj` is the energy of an iteration when the next one begins
at once. Next to a straggler the iteration lasts as long as the straggler's, and the devices that are done
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
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from placements import Placement, Profile
from placements.forms.reading import Field, in_file
from placements.forms.texts import read_json
from placements.models.training_figures import UNKNOWN_WORK, IterationWork, TrainingFigures
from placements.profiles.operating_point import Clock, config_of
from schedsearch.energy.graph import EnergyError, Floats
from schedsearch.results import FileResult

SCHEMA_VERSION = 1
"""Version of the frontier's file form."""

OnProgress = Callable[[str, int, int], None]
"""Called with a step's name (such as "rounding"), its units done, and its units in all."""

TIME_TOLERANCE = 1e-9
"""Share by which a plan may be later than the deadline it was made for; rounding errors only."""

BOUND_TOLERANCE = 1e-6
"""Share of the summed energies by which rounding may put a proved bound above a plan's energy.

HiGHS keeps its rows, integers and reduced costs to 1e-6 and better, and the minimum cuts round powers to
2**-28 of the median one. A bound that is further above a plan is wrong, and must not be hidden.
"""


def proved(bound: float, value: float, scale: float = 0.0) -> float:
    """Return a lower bound, cut to the value found where rounding errors put the bound above.

    `scale` is the size of the summands, where the sum itself may be about 0.
    """
    most = BOUND_TOLERANCE * (abs(value) + scale)
    assert bound <= value + most, f"the bound {bound!r} is above {value!r}, which was found"
    return min(bound, value)


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

    @classmethod
    def of(cls, falling: Sequence[tuple[float, float]], waiting_w: float) -> LowerBound:
        """Return the bound of breakpoints (ms, mJ), longest iteration first."""
        time_ms, effective_mj = np.array(falling[::-1]).T
        return cls(time_ms, effective_mj, waiting_w)

    def at(self, time_ms: float) -> float:
        """Return the energy in millijoules, waiting included, below which no iteration this long can go."""
        return float(np.interp(time_ms, self.time_ms, self.effective_mj)) + self.waiting_w * time_ms

    def min_time_ms(self, power_w: float) -> float:
        """Return the time in ms that an iteration of at most this average power takes at least."""
        above_w = power_w - self.waiting_w
        below_mj = above_w * self.time_ms - self.effective_mj  # rises with the time
        longest_ms = float(self.effective_mj[-1]) / above_w  # of least energy, and waiting after it
        return max(float(np.interp(0.0, below_mj, self.time_ms)), longest_ms)

    def price_w(self, time_ms: float) -> float:
        """Return the shadow price of time, in mJ per ms: the energy that one ms less of iteration costs."""
        after = max(int(np.searchsorted(self.time_ms, time_ms, side="right")), 1)
        return float(np.append(-np.diff(self.effective_mj) / np.diff(self.time_ms), 0.0)[after - 1])


@dataclass(frozen=True)
class FrequencyPlan:
    """A clock for every block of every micro-batch, with the time and energy of the iteration.

    Attributes:
        clock_mhz: For each block one clock per micro-batch, a `Clock` where the block has configurations.
        time_ms: Length of the iteration.
        energy_mj: Energy of all devices over that time, waiting included.
        lower_bound_mj: No plan of this time, at any clocks, uses less; from the relaxed problem.
        waiting_w: Power of all devices after the end, next to a straggler, at the clocks of their last
            blocks; None where the blocking power does not depend on the clock.
    """

    clock_mhz: Mapping[str, tuple[int, ...]]
    time_ms: float
    energy_mj: float
    lower_bound_mj: float = 0.0
    waiting_w: float | None = None

    @property
    def power_w(self) -> float:
        """Return the average power of all devices together."""
        return self.energy_mj / self.time_ms

    @property
    def gap(self) -> float:
        """Return the gap of the plan's energy above its lower bound, as a share of the bound."""
        return self.energy_mj / self.lower_bound_mj - 1 if self.lower_bound_mj > 0 else math.nan

    def to_dict(self) -> dict[str, Any]:
        """Return the file form as plain data."""
        names = ("time_ms", "energy_mj", "lower_bound_mj", "waiting_w")
        numbers = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return numbers | clocks_to_dict(self.clock_mhz)

    @classmethod
    def from_field(cls, plan: Field) -> FrequencyPlan:
        """Read the file form."""
        clock_mhz = plan["clock_mhz"].typed(Mapping[str, tuple[int, ...]])
        configs = plan.get("config", {})
        for block, names in configs.typed(Mapping[str, tuple[str, ...]]).items():
            plain = clock_mhz.get(block, ())
            if len(names) != len(plain):
                raise configs[block].wrong(
                    f"a list of {len(plain)} configurations", "give one for each micro-batch"
                )
            pairs = zip(plain, names, strict=True)
            clock_mhz[block] = tuple(Clock(mhz, name) if name else mhz for mhz, name in pairs)
        return plan.record(cls, clock_mhz=clock_mhz)


def clocks_to_dict(clock_mhz: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return the clocks of a plan as plain data: ``clock_mhz``, and ``config`` where blocks have some."""
    named = {block: list(map(config_of, clocks)) for block, clocks in clock_mhz.items()}
    configs = {block: numbers for block, numbers in named.items() if any(numbers)}
    plain = {block: list(map(int, clocks)) for block, clocks in clock_mhz.items()}
    return {"clock_mhz": plain} | ({"config": configs} if configs else {})


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
        work: Tokens and operations of an iteration, where they are known; a file has them by plan alone.
    """

    plans: tuple[FrequencyPlan, ...]
    all_maximum: FrequencyPlan
    blocking_power_w: float
    num_devices: int | None = None
    num_gpus: int | None = None
    blocking_power_by_clock: tuple[tuple[int, float], ...] = ()
    relaxed: LowerBound | None = field(default=None, compare=False)
    interrupted: bool = field(default=False, compare=False)
    work: IterationWork = field(default=UNKNOWN_WORK, compare=False)

    @classmethod
    def of(
        cls,
        plans: tuple[FrequencyPlan, ...],
        all_maximum: FrequencyPlan,
        placement: Placement,
        profile: Profile,
        relaxed: LowerBound,
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
    def waiting_w(self) -> float:
        """Return the power of all devices while all wait at the clock of least blocking power.

        Raises:
            EnergyError: The frontier was read from a file that does not tell the number of devices.
        """
        number = self.num_devices if self.num_gpus is None else self.num_gpus
        if number is None:
            raise EnergyError("num_devices: is not in the frontier's file; add it")
        return self.blocking_power_w * number

    @property
    def shortest(self) -> FrequencyPlan:
        """Return the plan of the shortest time, T_min."""
        return self.plans[0]

    @property
    def min_energy(self) -> FrequencyPlan:
        """Return the plan of least `FrequencyPlan.energy_mj`: the best without straggler or deadline."""
        return min(self.plans, key=lambda plan: plan.energy_mj)

    def at(self, deadline_ms: float) -> FrequencyPlan:
        """Return the plan of least energy until a deadline, for example a straggler's end.

        This is the last plan not later than the deadline: min(T*, T') of Perseus (Sec. 3.1). Where the
        blocking power depends on the clock, it is of these plans the one of least energy until the deadline:
        one that ends sooner may wait at less power, and after T* it still matters how long the wait is.

        Raises:
            EnergyError: The deadline is before the end of the shortest plan.
        """
        shortest_ms = self.shortest.time_ms
        if not deadline_ms >= shortest_ms * (1 - TIME_TOLERANCE):
            raise EnergyError(
                f"deadline_ms: {deadline_ms:.12g} is below the shortest iteration of "
                f"{shortest_ms:.6g} ms; give at least that"
            )
        until_ms = max(deadline_ms * (1 + TIME_TOLERANCE), shortest_ms)
        last = bisect_right(self.plans, until_ms, key=lambda plan: plan.time_ms) - 1
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

    def training_figures(self, plan: FrequencyPlan) -> TrainingFigures:
        """Return the training figures of a plan alone, without a straggler."""
        return self.work.figures(plan.time_ms, plan.energy_mj)

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
        pace the iteration lasts, are apart in ``straggler_plans``. `all_maximum` has no clocks and no bound.
        """
        alone = {id(plan) for plan in self.without_straggler}
        left_out = ("clock_mhz", "config", "lower_bound_mj")
        curve = {str(clock): watts for clock, watts in self.blocking_power_by_clock}

        def figures(plan: FrequencyPlan) -> dict[str, Any]:
            return plan.to_dict() | self.training_figures(plan).known

        return {
            "schema_version": SCHEMA_VERSION,
            "blocking_power_w": self.blocking_power_w,
            **({"blocking_power_by_clock": curve} if curve else {}),
            "num_devices": self.num_devices,
            **({} if self.num_gpus is None else {"num_gpus": self.num_gpus}),
            "all_maximum": {k: v for k, v in figures(self.all_maximum).items() if k not in left_out},
            "plans": [*map(figures, self.without_straggler)],
            "straggler_plans": [figures(plan) for plan in self.plans if id(plan) not in alone],
        }

    @classmethod
    def from_dict(cls, data: object) -> Frontier:
        """Build a frontier from its file form, where all but the plans and `blocking_power_w` may be missing.

        Raises:
            EnergyError: A field is missing or wrong.
        """
        top = Field(data, "frontier", EnergyError, is_root=True, is_open=True)
        top.version(SCHEMA_VERSION, default=SCHEMA_VERSION)
        if not top["plans"].items():
            raise top["plans"].wrong("a list of at least one plan", "compute the frontier again")
        read = [*top["plans"].items(), *top.get("straggler_plans", []).items()]
        return cls(
            tuple(sorted(map(FrequencyPlan.from_field, read), key=lambda plan: plan.time_ms)),
            top["all_maximum"].record(FrequencyPlan, clock_mhz={}),
            top["blocking_power_w"].typed(float),
            top.get("num_devices").typed(int | None),
            top.get("num_gpus").typed(int | None),
            tuple(sorted(top.get("blocking_power_by_clock", {}).typed(Mapping[int, float]).items())),
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
