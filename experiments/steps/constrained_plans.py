"""Plans that a real job can run, as files, lines and facts: clocks that repeat, change seldom, keep a cap."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from experiments.config.options import OptionError
from experiments.config.records import EnergyOptions, Options
from experiments.steps.clock_latency import check_switching, say_switching, switching_limits
from experiments.steps.pipeline_steps import complete_profile
from experiments.steps.results import EnergyResult, SearchStepResult
from experiments.steps.schedule_selection import order_to_dict
from placements import Placement, Profile
from placements.files import write_json
from schedsearch.baselines import HAND_MADE
from schedsearch.energy import (
    CappedPlan,
    EnergyError,
    FrequencyPlan,
    Frontier,
    Interval,
    Job,
    PeriodicPlan,
    PeriodicSchedule,
    Policy,
    PowerCap,
    SwitchedPeriodicPlan,
    SwitchedPlan,
    SwitchingLimits,
    all_maximum_clocks,
    capped_plan,
    changes_per_iteration,
    has_order_of,
    least_cost_policy,
    num_clock_changes,
    periodic_plan,
    read_signal,
    repetend_of,
    simulate,
    switched_periodic_plan,
    switched_plan,
    until,
)
from schedsearch.energy.waiting import waiting_w
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule

CONSTRAINED_PLANS_SCHEMA_VERSION = 1
"""Version of the forms of ``periodic.json``, ``switched.json``, ``periodic_switched.json``, ``capped.json``
and ``policy.json``."""

FREE_ROUNDS = 2
"""Whole rounds at each end of the steady part whose clocks are free; they cost little and save most."""


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


@dataclass(frozen=True)
class ConstrainedPlans:
    """What was asked for, None for what was not."""

    periodic: PeriodicResult | None = None
    switched: SwitchedPlan | None = None
    periodic_switched: SwitchedPeriodicPlan | None = None
    capped: CappedPlan | None = None
    policy: Policy | None = None

    @property
    def periodic_to_run(self) -> PeriodicPlan | None:
        """Return the plan whose clocks repeat, the one that changes seldom too if that was asked for."""
        if self.periodic_switched is not None:
            return self.periodic_switched.periodic
        return self.periodic.periodic if self.periodic else None


def check_constrained_plans(options: Options) -> None:
    """Reject wrong options before any work starts.

    Raises:
        OptionError: One is out of its range, or the signal is wrong.
    """
    energy = options.energy
    if energy.periodic and options.schedule == "searched" and options.search.method == "time_optimal":
        raise OptionError(
            "energy.periodic: search.method=time_optimal finds nothing that repeats; "
            "use search.method=modulo or energy.periodic=false"
        )
    check_switching(options)
    for name in ("power_cap_w", "device_power_cap_w"):
        value = getattr(energy, name)
        if value is not None and not 0 < value < math.inf:
            raise OptionError(f"energy.{name}: {value:g} is not a power above 0; give watts")
    _check_job(energy)


def _check_job(energy: EnergyOptions) -> None:
    for name in ("iterations", "job_deadline_s"):
        if energy.signal is None and getattr(energy, name) is not None:
            raise OptionError(f"energy.{name}: is given without energy.signal; give that CSV too")
    if energy.signal is None:
        return
    if energy.iterations is None:
        raise OptionError("energy.iterations: has no value beside energy.signal; give those of the job")
    if energy.iterations < 1:
        raise OptionError(f"energy.iterations: {energy.iterations} is not at least 1")
    _signal(energy)


def check_constrained_plans_on(options: Options, placement: Placement, profile: Profile | None) -> None:
    """Reject before the search what cannot be on this placement.

    Raises:
        OptionError: Waiting alone breaks a power cap, or a schedule made by hand does not repeat.
    """
    if options.energy.periodic and options.schedule in HAND_MADE and options.search.num_micro_batches > 0:
        _repetend_by_hand(options, placement)
    energy = options.energy
    profile = complete_profile(options, placement, profile)
    for name, least_w in (
        ("power_cap_w", waiting_w(placement, profile)),
        ("device_power_cap_w", profile.least_blocking_power_w),
    ):
        value = getattr(energy, name)
        if value is not None and value <= least_w:
            raise OptionError(f"energy.{name}: {value:g} is not above {least_w:g} W, all waiting; give more")


def _signal(energy: EnergyOptions) -> tuple[Interval, ...]:
    """Return the signal up to the job's deadline."""
    assert energy.signal is not None, "checked by the caller"
    try:
        signal = read_signal(energy.signal)
        return signal if energy.job_deadline_s is None else until(signal, energy.job_deadline_s)
    except EnergyError as error:
        where = "energy." if str(error).startswith("job_deadline_s") else "energy.signal: "
        raise OptionError(f"{where}{error}") from None


def constrain_plans(
    options: Options, found: SearchStepResult, profile: Profile, frontier: Frontier, deadline_ms: float
) -> ConstrainedPlans:
    """Return the plans that the options ask for.

    Raises:
        OptionError: There is none.
    """
    energy, schedule = options.energy, found.schedule
    limits = switching_limits(options)
    say_switching(options)
    cap = PowerCap(energy.power_cap_w, energy.device_power_cap_w)
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
            else _both(periodic, switched, limits),
            capped=None if cap == PowerCap() else capped_plan(schedule, profile, frontier, cap),
            policy=None
            if energy.signal is None
            else least_cost_policy(frontier, Job(energy.iterations or 0, _signal(energy))),
        )
    except EnergyError as error:
        raise OptionError(f"energy.{error}") from None


def _periodic(
    options: Options, found: SearchStepResult, profile: Profile, deadline_ms: float
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
    periodic = PeriodicSchedule(repetend, found.placement, FREE_ROUNDS)
    is_of_schedule = has_order_of(repetend, found.schedule)
    if not is_of_schedule and options.energy.deadline_ms is None:
        schedule = periodic.schedule(number)
        maximum = simulate(schedule, profile, all_maximum_clocks(schedule, profile))
        deadline_ms = maximum.time_ms * (options.energy.slowdown or 1.0)
    plan = periodic_plan(periodic, profile, number, deadline_ms)
    return PeriodicResult(plan, plan.unrolled(number), deadline_ms, is_of_schedule)


def _both(periodic: PeriodicResult, switched: SwitchedPlan, limits: SwitchingLimits) -> SwitchedPeriodicPlan:
    """Return the plan that repeats and keeps the limits, with the stronger bound of the two alone."""
    bound_mj = switched.lower_bound_mj if periodic.is_of_schedule else 0.0
    return switched_periodic_plan(periodic.periodic, limits, switched.free, bound_mj)


def _repetend_by_hand(options: Options, placement: Placement) -> Repetend:
    make = HAND_MADE[options.schedule]
    try:
        return repetend_of(lambda number: make(placement, number), options.search.num_micro_batches)
    except EnergyError:
        raise OptionError(
            f"energy.periodic: schedule={options.schedule} repeats nothing after a few micro-batches; "
            "use schedule=searched or energy.periodic=false"
        ) from None


def loss(outcome: EnergyResult, plan: FrequencyPlan, deadline_ms: float) -> float:
    """Return by which share a plan needs more than the free plan, both until the deadline."""
    frontier = outcome.frontier
    deadline_ms = max(deadline_ms, frontier.shortest.time_ms)
    free = frontier.energy_next_to(frontier.at(deadline_ms), deadline_ms)
    return frontier.energy_next_to(plan, deadline_ms) / free - 1


def save_constrained_plans(outcome: EnergyResult, constrained: ConstrainedPlans, directory: Path) -> None:
    """Write a JSON file for each plan that was asked for."""
    for name, data in _dicts(outcome, constrained):
        write_json(directory / f"{name}.json", {"schema_version": CONSTRAINED_PLANS_SCHEMA_VERSION, **data})


def _dicts(outcome: EnergyResult, constrained: ConstrainedPlans) -> Iterator[tuple[str, dict[str, object]]]:
    if constrained.periodic is not None:
        each = constrained.periodic
        yield (
            "periodic",
            {
                **each.periodic.to_dict(),
                "is_of_schedule": each.is_of_schedule,
                **_changes_of(each),
                "loss": loss(outcome, each.plan, each.deadline_ms),
                "plan": _plan_to_dict(each.plan),
            },
        )
    if constrained.switched is not None:
        switched = constrained.switched
        yield (
            "switched",
            {
                "deadline_ms": outcome.deadline_ms,
                "dwell_ms": switched.limits.dwell_ms,
                "switch_ms": switched.limits.latency_ms,
                **_switching_to_dict(switched),
                "loss": loss(outcome, switched.plan, outcome.deadline_ms),
                "plan": _plan_to_dict(switched.plan),
            },
        )
    if constrained.periodic_switched is not None:
        both, alone = constrained.periodic_switched, constrained.periodic
        assert alone is not None and constrained.switched is not None, "both were asked for"
        yield (
            "periodic_switched",
            {
                **both.periodic.to_dict(),
                "is_of_schedule": alone.is_of_schedule,
                "dwell_ms": both.switched.limits.dwell_ms,
                "switch_ms": both.switched.limits.latency_ms,
                **_switching_to_dict(both.switched),
                "loss": loss(outcome, both.switched.plan, alone.deadline_ms),
                "loss_to_periodic": _loss_to(outcome, both, alone.plan, alone.deadline_ms),
                "loss_to_switched": _loss_to(outcome, both, constrained.switched.plan, alone.deadline_ms),
                "plan": _plan_to_dict(both.switched.plan),
            },
        )
    if constrained.capped is not None:
        capped = constrained.capped
        yield (
            "capped",
            {
                "power_cap_w": capped.cap.job_w,
                "device_power_cap_w": capped.cap.device_w,
                "least_time_ms": capped.least_ms,
                "running_ms": capped.running_ms,
                "device_power_w": list(capped.power_w),
                "plan": _plan_to_dict(capped.plan),
            },
        )
    if constrained.policy is not None:
        yield "policy", _policy_to_dict(constrained.policy)


def _schedule_of(outcome: PeriodicResult) -> Schedule:
    return outcome.periodic.periodic.schedule(outcome.periodic.num_micro_batches)


def _changes_of(outcome: PeriodicResult) -> dict[str, object]:
    schedule, clocks = _schedule_of(outcome), outcome.plan.clock_mhz
    return {
        "clock_changes": list(num_clock_changes(schedule, clocks)),
        "changes_per_iteration": list(changes_per_iteration(schedule, clocks)),
    }


def _switching_to_dict(switched: SwitchedPlan) -> dict[str, object]:
    return {
        "back_to_back": switched.limits.back_to_back,
        "clock_changes": list(switched.num_changes),
        "changes_per_iteration": list(switched.changes_per_iteration),
        "lower_bound_mj": switched.lower_bound_mj,
        "gap": None if math.isnan(switched.gap) else switched.gap,
    }


def _loss_to(
    outcome: EnergyResult, both: SwitchedPeriodicPlan, other: FrequencyPlan, deadline_ms: float
) -> float:
    """Return by which share a plan needs more than another one, both until the deadline; below 0 if less."""
    frontier = outcome.frontier
    deadline_ms = max(deadline_ms, other.time_ms)
    own = frontier.energy_next_to(both.switched.plan, deadline_ms)
    return own / frontier.energy_next_to(other, deadline_ms) - 1


def _plan_to_dict(plan: FrequencyPlan) -> dict[str, object]:
    return {
        "time_ms": plan.time_ms,
        "energy_mj": plan.energy_mj,
        "clock_mhz": {name: list(clocks) for name, clocks in plan.clock_mhz.items()},
    }


def _policy_to_dict(policy: Policy) -> dict[str, object]:
    return {
        "cost": policy.cost,
        "least_cost": policy.least_cost,
        "energy_mj": policy.energy_mj,
        "intervals": [
            {
                "duration_s": stay.interval.duration_s,
                "price_per_kwh": stay.interval.price_per_kwh,
                "runs": [
                    {"iterations": count, "time_ms": plan.time_ms, "energy_mj": plan.energy_mj}
                    for plan, count in stay.runs
                ],
            }
            for stay in policy.stays
        ],
    }


def constrained_plan_facts(
    outcome: EnergyResult, constrained: ConstrainedPlans
) -> Iterator[tuple[str, str, str]]:
    """Yield title, value and note of each plan that was asked for."""
    if constrained.periodic is not None:
        each = constrained.periodic
        of = "" if each.is_of_schedule else ", of the unrolled repetend, as the schedule does not repeat"
        note = (
            f"{loss(outcome, each.plan, each.deadline_ms):.2%} above the free plan{of}; "
            f"{sum(num_clock_changes(_schedule_of(each), each.plan.clock_mhz))} changes of clock"
        )
        yield "Clocks that repeat", _time_and_energy(each.plan), note
    if constrained.switched is not None:
        switched = constrained.switched
        note = (
            f"{loss(outcome, switched.plan, outcome.deadline_ms):.2%} above the free plan; "
            f"{_changes_and_gap(switched)}"
        )
        yield "Few changes of clock", _time_and_energy(switched.plan), note
    if constrained.periodic_switched is not None:
        both, alone = constrained.periodic_switched, constrained.periodic
        assert alone is not None and constrained.switched is not None, "both were asked for"
        note = (
            f"{loss(outcome, both.switched.plan, alone.deadline_ms):.2%} above the free plan, "
            f"{_loss_to(outcome, both, alone.plan, alone.deadline_ms):.2%} above clocks that only repeat, "
            f"{_loss_to(outcome, both, constrained.switched.plan, alone.deadline_ms):.2%} above few changes "
            f"only; {_changes_and_gap(both.switched)}"
        )
        yield "Clocks that repeat and change seldom", _time_and_energy(both.switched.plan), note
    if constrained.capped is not None:
        capped = constrained.capped
        note = (
            f"{capped.job_power_w:.6g} W, at most {max(capped.power_w):.6g} W on a GPU; "
            f"no iteration under the cap is shorter than {capped.least_ms:.6g} ms"
        )
        yield "Under the power cap", _time_and_energy(capped.plan), note
    if constrained.policy is not None:
        policy = constrained.policy
        note = f"cost {policy.cost:.6g}, no policy below {policy.least_cost:.6g}"
        yield "Over the signal", f"{policy.energy_mj / 3.6e9:.6g} kWh", note


def describe_constrained_plans(outcome: EnergyResult) -> list[str]:
    """Return a line for each plan that was asked for."""
    return [f"{title}: {value}, {note}" for title, value, note in outcome.constrained]


def _changes_and_gap(switched: SwitchedPlan) -> str:
    changes = switched.changes_per_iteration
    return (
        f"{sum(switched.num_changes)} changes of clock, {sum(changes)} with those to the next iteration, "
        f"at most {max(changes)} on a device; at most {switched.gap:.2%} above the best such plan"
    )


def _time_and_energy(plan: FrequencyPlan) -> str:
    return f"{plan.time_ms:.6g} ms, {plan.energy_mj / 1e3:.6g} J"


def frontier_to_dict(found: SearchStepResult, frontier: Frontier) -> dict[str, object]:
    """Return the frontier as plain data, with each device's changes of clock beside each plan."""
    data = frontier.to_dict()
    for plan in (*data["plans"], *data["straggler_plans"]):
        plan["clock_changes"] = list(num_clock_changes(found.schedule, plan["clock_mhz"]))
        plan["changes_per_iteration"] = list(changes_per_iteration(found.schedule, plan["clock_mhz"]))
    if found.order is not None:
        data["order"] = order_to_dict(found.order)
    return data
