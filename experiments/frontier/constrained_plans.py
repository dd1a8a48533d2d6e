"""Plans that a real job can run: their clocks repeat or change seldom, or limit power."""

from __future__ import annotations

import math
from dataclasses import dataclass

from experiments.config.options import OptionError, require
from experiments.frontier.clock_latency import check_switching, say_switching, switching_limits
from experiments.frontier.options import EnergyOptions, FrontierCommandOptions
from experiments.frontier.results import EnergyResult
from experiments.frontier.schedule_selection import asked_deadline_ms
from experiments.search.problem import SearchProblem
from experiments.search.results import SearchStepResult
from placements import Placement, Profile
from schedsearch.baselines import HAND_MADE
from schedsearch.energy import (
    EnergyError,
    FrequencyPlan,
    LimitedPlan,
    PeriodicPlan,
    PeriodicSchedule,
    PowerCap,
    SwitchingLimits,
    capped_plan,
    changes_per_iteration,
    has_order_of,
    num_clock_changes,
    periodic_plan,
    repetend_of,
    switched_periodic_plan,
    switched_plan,
)
from schedsearch.energy.limits.power_cap import AveragePower
from schedsearch.energy.limits.power_shape import PowerLimits, ShapedPower, shaped_plan
from schedsearch.energy.limits.robust import PlanIterations, Spread, robust_plan
from schedsearch.energy.limits.switching import ClockChanges
from schedsearch.energy.simulation import waiting_w
from schedsearch.repetend import Repetend
from schedsearch.schedule import require_one_stream, require_plain

SwitchedPlan = LimitedPlan[SwitchingLimits, ClockChanges]

FREE_ROUNDS = 2
"""Rounds of the repetend at each end of the steady part whose clocks are free; they save most for little.

Where the clocks repeat after several rounds, these are whole repetitions, as few as hold so many rounds.
"""


@dataclass(frozen=True)
class PeriodicResult:
    """The plan whose clocks repeat.

    Attributes:
        periodic: Its clocks.
        plan: For the micro-batches of the schedule.
        deadline_ms: It keeps.
        is_of_schedule: Whether it is of the schedule that was found, and not of its repetend unrolled.
    """

    periodic: PeriodicPlan
    plan: FrequencyPlan
    deadline_ms: float
    is_of_schedule: bool

    @property
    def changes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return each device's changes of clock in an iteration, without and with those to the next one."""
        schedule = self.periodic.periodic.schedule(self.periodic.num_micro_batches)
        clocks = self.plan.clock_mhz
        return num_clock_changes(schedule, clocks), changes_per_iteration(schedule, clocks)


@dataclass(frozen=True)
class ConstrainedPlans:
    """Plans under the limits of the options; None for a limit that was not asked for."""

    periodic: PeriodicResult | None = None
    switched: SwitchedPlan | None = None
    periodic_switched: tuple[PeriodicPlan, SwitchedPlan] | None = None
    capped: LimitedPlan[PowerCap, AveragePower] | None = None
    robust: LimitedPlan[float, PlanIterations] | None = None
    shaped: LimitedPlan[PowerLimits, ShapedPower] | None = None

    @property
    def periodic_to_run(self) -> PeriodicPlan | None:
        """Return the plan whose clocks repeat, the one that changes seldom too if that was asked for."""
        if self.periodic_switched is not None:
            return self.periodic_switched[0]
        return self.periodic.periodic if self.periodic else None


def check_constrained_plans(options: FrontierCommandOptions) -> None:
    """Reject wrong options before any work starts."""
    energy = options.energy
    if energy.periodic and options.schedule == "searched" and options.search.method == "time_optimal":
        raise OptionError(
            "energy.periodic: search.method=time_optimal finds nothing that repeats; "
            "use search.method=modulo or energy.periodic=0"
        )
    check_switching(options)
    try:
        _spread(options)
        _power_limits(energy)
    except EnergyError as error:
        raise OptionError(f"energy.{error}") from None


def _spread(options: FrontierCommandOptions) -> Spread:
    """Return how much times vary: blocks by the option, changes of clock as the table of clocks says."""
    limits = switching_limits(options)
    shortest_ms = limits.latency_ms
    if limits.table is not None:
        shortest_ms = min([*limits.table.by_target_ms.values(), *limits.table.by_pair_ms.values()])
    return Spread(options.energy.time_spread, (shortest_ms, limits.latency_ms))


def _power_limits(energy: EnergyOptions) -> PowerLimits | None:
    """Return the limits on the shape of power; None where there are none."""
    limits = PowerLimits(energy.peak_w, energy.ramp_w_per_s, energy.band_w)
    return None if limits == PowerLimits() else limits


def check_constrained_plans_on(options: FrontierCommandOptions, problem: SearchProblem) -> None:
    """Reject before the search options that this placement cannot have.

    Raises:
        OptionError: Waiting alone breaks a power cap, or a schedule made by hand does not repeat.
        PlacementError: It has modes or streams and clocks are to repeat, or streams and they are to change
            seldom.
    """
    seldom = not switching_limits(options).are_none
    if options.energy.periodic:
        require_plain(problem.placement, "energy.periodic", "use energy.periodic=0")
    if seldom:
        named = "energy.dwell_ms and energy.switch_ms"
        require_one_stream(problem.placement, named, "leave both at 0")
    if options.energy.periodic and options.schedule in HAND_MADE and options.search.num_micro_batches > 0:
        _repetend_by_hand(options, problem.placement)
    energy, profile = options.energy, problem.whole_profile
    if energy.periodic:
        profile.require_one_config("energy.periodic")
    if seldom:
        profile.require_one_config("energy.dwell_ms and energy.switch_ms")
    for name, min_w in (
        ("power_cap_w", waiting_w(problem.placement, profile)),
        ("device_power_cap_w", profile.min_blocking_power_w),
    ):
        value = getattr(energy, name)
        above = f"above {min_w:g} W, all waiting"
        require(value is None or value > min_w, f"energy.{name}", value, above, "give more")


def constrain_plans(
    options: FrontierCommandOptions, found: SearchStepResult, tuned: EnergyResult
) -> ConstrainedPlans:
    """Return the plans that the options ask for."""
    energy, schedule = options.energy, found.schedule
    profile, frontier, deadline_ms = tuned.profile, tuned.frontier, tuned.deadline_ms
    limits = switching_limits(options)
    say_switching(options)
    cap = PowerCap(energy.power_cap_w, energy.device_power_cap_w)
    shape = _power_limits(energy)
    try:
        periodic = _periodic(options, found, profile, deadline_ms) if energy.periodic else None
        switched = (
            None if limits.are_none else switched_plan(schedule, profile, frontier, limits, deadline_ms)
        )
        return ConstrainedPlans(
            periodic=periodic,
            switched=switched,
            periodic_switched=None
            if periodic is None or switched is None
            else switched_periodic_plan(periodic.periodic, limits, switched.free),
            capped=None if cap == PowerCap() else capped_plan(schedule, profile, frontier, cap),
            robust=None
            if energy.confidence is None
            else robust_plan(schedule, profile, frontier, deadline_ms, _spread(options), energy.confidence),
            shaped=None
            if shape is None
            else shaped_plan(schedule, profile, frontier, shape, deadline_ms, energy.copies),
        )
    except EnergyError as error:
        raise OptionError(f"energy.{error}") from None


def _periodic(
    options: FrontierCommandOptions, found: SearchStepResult, profile: Profile, deadline_ms: float
) -> PeriodicResult:
    """Return the periodic plan of the schedule, or where it does not repeat, of its repetend unrolled.

    The unrolled repetend may be longer than the schedule; a deadline that was not given in ms is then over
    its own time at the highest clocks.
    """
    number = options.search.num_micro_batches
    if found.result is None:
        repetend = _repetend_by_hand(options, found.placement)
    elif found.result.repetend is None:
        raise EnergyError("periodic: the search found no repetend; search longer")
    else:
        repetend = found.result.repetend
    each = options.energy.periodic
    periodic = PeriodicSchedule(repetend.repeated(each), found.placement, math.ceil(FREE_ROUNDS / each))
    is_of_schedule = has_order_of(repetend, found.schedule)
    if not is_of_schedule and options.energy.deadline_ms is None:
        schedule = periodic.schedule(number)
        deadline_ms = asked_deadline_ms(options.energy, schedule, profile)
    plan = periodic_plan(periodic, profile, number, deadline_ms)
    return PeriodicResult(plan, plan.unrolled(number), deadline_ms, is_of_schedule)


def _repetend_by_hand(options: FrontierCommandOptions, placement: Placement) -> Repetend:
    make = HAND_MADE[options.schedule]
    try:
        return repetend_of(lambda number: make(placement, number), options.search.num_micro_batches)
    except EnergyError:
        raise OptionError(
            f"energy.periodic: schedule={options.schedule} repeats nothing after a few micro-batches; "
            "use schedule=searched or energy.periodic=0"
        ) from None
