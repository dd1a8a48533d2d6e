"""Plans that a real job can run: clocks repeat or change seldom; power is limited.

`constrained` makes each plan that the options ask for, with the content of its file and a line about it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import replace

from experiments.config.options import OptionError, require
from experiments.frontier.options import AUTO, FrontierCommandOptions
from experiments.frontier.results import ConstrainedPlan, EnergyResult
from experiments.frontier.schedule_selection import asked_deadline_ms
from experiments.search.options import read_gpu
from experiments.search.problem import SearchProblem
from experiments.search.results import SearchStepResult
from placements import Placement
from placements.hardware import ClockLatency
from runtime.clocks.latency import read_clock_latency
from schedsearch.baselines import HAND_MADE
from schedsearch.energy import (
    CappedPlan,
    EnergyError,
    FrequencyPlan,
    Frontier,
    PeriodicPlan,
    PeriodicSchedule,
    SwitchedPlan,
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
from schedsearch.energy.simulation import waiting_w
from schedsearch.repetend import Repetend
from schedsearch.schedule import require_one_stream, require_plain

FREE_ROUNDS = 2
"""Rounds of the repetend at each end of the steady part whose clocks are free; they save most for little.

Where the clocks repeat after several rounds, these are whole repetitions, as few as hold so many rounds.
"""

log = logging.getLogger(__name__)


def clock_latency_of(options: FrontierCommandOptions) -> ClockLatency:
    """Return the table of the file that the options name, or where they name none, of their GPU.

    Raises:
        OptionError: There is no such GPU.
        ProfileError: The file is wrong.
    """
    if options.profile.clock_latency is not None:
        return read_clock_latency(options.profile.clock_latency)
    return read_gpu(options.profile.gpu, options.placement).clock_latency


def switching_limits(options: FrontierCommandOptions) -> SwitchingLimits:
    """Return how often and how fast a device changes its clock: numbers of the options, or the table's.

    With a measured table a change takes as long as there, by its two clocks; where the two were not tried,
    as long as to the clock after.
    """
    energy, latency = options.energy, clock_latency_of(options)
    dwell_ms = latency.dwell_ms if energy.dwell_ms == AUTO else float(energy.dwell_ms)
    if energy.switch_ms != AUTO:
        return SwitchingLimits(dwell_ms, float(energy.switch_ms), energy.back_to_back)
    table = latency if latency.by_target_ms else None
    return SwitchingLimits(dwell_ms, latency.longest_ms, energy.back_to_back, table)


def check_constrained_plans(options: FrontierCommandOptions, problem: SearchProblem) -> None:
    """Reject before the search options that this placement cannot have.

    Raises:
        OptionError: Waiting alone breaks a power cap, or a schedule made by hand does not repeat.
        PlacementError: It has modes or streams and clocks are to repeat, or streams and they are to change
            seldom.
        ProfileError: The table of clocks is wrong, or clocks have several configurations.
    """
    energy, placement, profile = options.energy, problem.placement, problem.whole_profile
    if energy.periodic:
        require_plain(placement, "energy.periodic", "use energy.periodic=0")
        profile.require_one_config("energy.periodic")
        if options.schedule in HAND_MADE and options.search.num_micro_batches > 0:
            _repetend_by_hand(options, placement)
    if not switching_limits(options).are_none:
        named = "energy.dwell_ms and energy.switch_ms"
        require_one_stream(placement, named, "leave both at 0")
        profile.require_one_config(named)
    cap_w, min_w = energy.power_cap_w, waiting_w(placement, profile)
    above = f"above {min_w:g} W, all waiting"
    require(cap_w is None or cap_w > min_w, "energy.power_cap_w", cap_w, above, "give more")


def constrained(
    options: FrontierCommandOptions, solution: SearchStepResult, tuned: EnergyResult
) -> EnergyResult:
    """Return the result with the plans that the options ask for.

    Raises:
        OptionError: No plan keeps a limit.
    """
    energy, schedule, limits = options.energy, solution.schedule, switching_limits(options)
    profile, frontier, deadline_ms = tuned.profile, tuned.frontier, tuned.deadline_ms
    if AUTO in (energy.dwell_ms, energy.switch_ms):
        figures = limits.dwell_ms, limits.latency_ms, clock_latency_of(options).source
        log.info("a clock stays for at least %g ms, and a change takes %g ms: %s", *figures)
    cap_w, number = energy.power_cap_w, options.search.num_micro_batches
    plans, to_run, switched, periodic_ms, is_of_schedule = list[ConstrainedPlan](), None, None, 0.0, True
    try:
        if energy.periodic:
            periodic, is_of_schedule = _periodic_schedule(options, solution)
            is_longer = not is_of_schedule and energy.deadline_ms is None  # the unrolled repetend may be
            on = periodic.schedule(number)
            periodic_ms = asked_deadline_ms(energy, on, profile) if is_longer else deadline_ms
            to_run = periodic_plan(periodic, profile, number, periodic_ms)
            plans.append(_periodic_form(frontier, to_run, periodic_ms, is_of_schedule))
        if not limits.are_none:
            switched = switched_plan(schedule, profile, frontier, limits, deadline_ms)
            plans.append(_switched_form(frontier, switched, deadline_ms))
        if to_run is not None and switched is not None:
            others = {"periodic": plans[0].plan, "switched": switched.plan}
            to_run, both = switched_periodic_plan(to_run, limits, switched.free)
            form = _switched_form(frontier, both, periodic_ms, others)
            data = {**to_run.to_dict(), "is_of_schedule": is_of_schedule, **form.data}
            title = "Clocks that repeat and change seldom"
            plans.append(form._replace(name="periodic_switched", title=title, data=data))
        if cap_w is not None:
            plans.append(_capped_form(capped_plan(schedule, profile, frontier, cap_w)))
    except EnergyError as error:
        raise OptionError(f"energy.{error}") from None
    plan = None if switched is None else switched.plan
    return replace(tuned, constrained=tuple(plans), periodic=to_run, switched=plan)


def _periodic_schedule(
    options: FrontierCommandOptions, solution: SearchStepResult
) -> tuple[PeriodicSchedule, bool]:
    """Return the schedule whose clocks repeat, and whether it is the one found, not its unrolled repetend."""
    if solution.result is None:
        repetend = _repetend_by_hand(options, solution.placement)
    elif solution.result.repetend is None:
        raise EnergyError("periodic: the search found no repetend; search longer")
    else:
        repetend = solution.result.repetend
    repeats = options.energy.periodic
    rounds = math.ceil(FREE_ROUNDS / repeats)
    periodic = PeriodicSchedule(repetend.repeated(repeats), solution.placement, rounds)
    return periodic, has_order_of(repetend, solution.schedule)


def _repetend_by_hand(options: FrontierCommandOptions, placement: Placement) -> Repetend:
    make = HAND_MADE[options.schedule]
    try:
        return repetend_of(lambda number: make(placement, number), options.search.num_micro_batches)
    except EnergyError:
        wrong = f"schedule={options.schedule} repeats nothing after a few micro-batches"
        raise OptionError(f"energy.periodic: {wrong}; use schedule=searched or energy.periodic=0") from None


def _periodic_form(
    frontier: Frontier, clocks: PeriodicPlan, deadline_ms: float, is_of_schedule: bool
) -> ConstrainedPlan:
    """Return the file and the line of a plan whose clocks repeat."""
    number = clocks.num_micro_batches
    plan, schedule = clocks.unrolled(number), clocks.periodic.schedule(number)
    changes = num_clock_changes(schedule, plan.clock_mhz)
    loss = _loss(frontier, plan, deadline_ms)
    data = {
        **clocks.to_dict(),
        "is_of_schedule": is_of_schedule,
        "clock_changes": list(changes),
        "changes_per_iteration": list(changes_per_iteration(schedule, plan.clock_mhz)),
        "loss": loss,
    }
    of = "" if is_of_schedule else ", for the unrolled repetend, as the schedule itself does not repeat"
    note = f"{_more_or_less(loss)} energy than the plan without limits{of}; {sum(changes)} clock changes"
    return ConstrainedPlan("periodic", "Clocks that repeat", plan, note, data)


_OTHERS = {"periodic": "clocks that only repeat", "switched": "few changes only"}


def _switched_form(
    frontier: Frontier,
    switched: SwitchedPlan,
    deadline_ms: float,
    others: Mapping[str, FrequencyPlan] | None = None,
) -> ConstrainedPlan:
    """Return the plan whose clocks change seldom, also beside plans that keep one of its two limits."""
    within, changes, limits = switched.changes.within, switched.changes.per_iteration, switched.limits
    losses = {"loss": _loss(frontier, switched.plan, deadline_ms)}
    note = f"{_more_or_less(losses['loss'])} energy than the plan without limits"
    for name, other in (others or {}).items():
        loss = losses[f"loss_to_{name}"] = _loss(frontier, switched.plan, deadline_ms, other)
        note += f", {_more_or_less(loss)} than with {_OTHERS[name]}"
    data = {
        "deadline_ms": deadline_ms,
        "dwell_ms": limits.dwell_ms,
        "switch_ms": limits.latency_ms,
        "back_to_back": limits.back_to_back,
        "clock_changes": list(within),
        "changes_per_iteration": list(changes),
        "lower_bound_mj": switched.lower_bound_mj,
        "gap": None if math.isnan(switched.gap) else switched.gap,
        **losses,
    }
    note += (
        f"; {sum(within)} clock changes, {sum(changes)} with those between iterations, at most "
        f"{max(changes)} on one device; at most {switched.gap:.2%} above the best plan under these limits"
    )
    return ConstrainedPlan("switched", "Few changes of clock", switched.plan, note, data)


def _capped_form(capped: CappedPlan) -> ConstrainedPlan:
    """Return the shortest iteration under a power cap."""
    data = {
        "power_cap_w": capped.power_cap_w,
        "min_time_ms": capped.min_ms,
        "running_ms": capped.running_ms,
    }
    note = f"{capped.plan.power_w:.6g} W; no iteration under the cap is shorter than {capped.min_ms:.6g} ms"
    return ConstrainedPlan("capped", "Under the power cap", capped.plan, note, data)


def _more_or_less(share: float) -> str:
    """Return a change in words.

    >>> _more_or_less(0.02), _more_or_less(-0.0145)
    ('2.00% more', '1.45% less')
    """
    return f"{abs(share):.2%} {'more' if share >= 0 else 'less'}"


def _loss(
    frontier: Frontier, plan: FrequencyPlan, deadline_ms: float, other: FrequencyPlan | None = None
) -> float:
    """Return the extra energy of a plan until the deadline as a share of another's; below 0 if less.

    Energy counts until the other plan's own end if that is later. Without another it is the free plan's.
    """
    if other is None:
        other = frontier.at(max(deadline_ms, frontier.shortest.time_ms))
    until_ms = max(deadline_ms, other.time_ms)
    return frontier.energy_next_to(plan, until_ms) / frontier.energy_next_to(other, until_ms) - 1
