"""The forms of plans that a real job can run: JSON files, and facts for the report and the log."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments.frontier.constrained_plans import ConstrainedPlans, PeriodicResult, SwitchedPlan
from experiments.frontier.results import ConstrainedPlan, EnergyResult, PlanFact
from placements.forms.texts import write_json
from schedsearch.energy import FrequencyPlan, Frontier, LimitedPlan, PeriodicPlan, PowerCap
from schedsearch.energy.frontier import clocks_to_dict
from schedsearch.energy.limits.power_cap import AveragePower
from schedsearch.energy.limits.power_shape import PowerLimits, PowerShape, ShapedPower, spectrum
from schedsearch.energy.limits.robust import PlanIterations

CONSTRAINED_PLANS_SCHEMA_VERSION = 1
"""Version of the forms of ``periodic.json``, ``switched.json``, ``periodic_switched.json``, ``capped.json``,
``robust.json`` and ``shaped.json``."""

_Form = tuple[dict[str, Any], PlanFact]
"""Content of the file of a plan, and what is said of it."""

QUANTILES = (0.5, 0.9, 0.95, 0.99)
"""Shares of the simulated iterations whose longest time stands in ``robust.json``."""


def save_constrained_plans(tuned: EnergyResult, directory: Path) -> None:
    """Write a JSON file for each plan that was asked for."""
    for name, data, _ in tuned.constrained:
        version = {"schema_version": CONSTRAINED_PLANS_SCHEMA_VERSION}
        write_json(directory / f"{name}.json", {**version, **data, **tuned.costs.to_dict()})


def describe_constrained_plans(tuned: EnergyResult) -> list[str]:
    """Return a line for each plan that was asked for."""
    return [f"{title}: {value}, {note}" for _, _, (title, value, note) in tuned.constrained]


def constrained_plan_forms(tuned: EnergyResult, plans: ConstrainedPlans) -> Iterator[ConstrainedPlan]:
    """Yield the file's name, its content and the fact of each plan."""
    frontier, deadline_ms = tuned.frontier, tuned.deadline_ms
    periodic, switched, both = plans.periodic, plans.switched, plans.periodic_switched
    if periodic is not None:
        yield "periodic", *_of_periodic(frontier, periodic)
    if switched is not None:
        yield "switched", *_of_switched(frontier, deadline_ms, switched)
    if both is not None:
        assert periodic is not None and switched is not None, "both were asked for"
        yield "periodic_switched", *_of_both(frontier, both, periodic, switched)
    if plans.capped is not None:
        yield "capped", *_of_capped(plans.capped)
    if plans.robust is not None:
        yield "robust", *_of_robust(plans.robust)
    if plans.shaped is not None:
        yield "shaped", *_of_shaped(plans.shaped)


def _of_periodic(frontier: Frontier, found: PeriodicResult) -> _Form:
    own, in_each = found.changes
    loss = _loss(frontier, found.plan, found.deadline_ms)
    data = {
        **found.periodic.to_dict(),
        "is_of_schedule": found.is_of_schedule,
        "clock_changes": list(own),
        "changes_per_iteration": list(in_each),
        "loss": loss,
        "plan": _plan_to_dict(found.plan),
    }
    of = "" if found.is_of_schedule else ", for the unrolled repetend, as the schedule itself does not repeat"
    note = f"{_more_or_less(loss)} energy than the plan without limits{of}; {sum(own)} clock changes"
    return data, ("Clocks that repeat", _time_and_energy(found.plan), note)


def _of_switched(frontier: Frontier, deadline_ms: float, found: SwitchedPlan) -> _Form:
    loss = _loss(frontier, found.plan, deadline_ms)
    data = {"deadline_ms": deadline_ms, **_switched_to_dict(found, {"loss": loss})}
    note = f"{_more_or_less(loss)} energy than the plan without limits; {_changes_and_gap(found)}"
    return data, ("Few changes of clock", _time_and_energy(found.plan), note)


def _of_both(
    frontier: Frontier,
    both: tuple[PeriodicPlan, SwitchedPlan],
    periodic: PeriodicResult,
    switched: SwitchedPlan,
) -> _Form:
    clocks, limited = both
    plan, deadline_ms = limited.plan, periodic.deadline_ms
    losses = {
        "loss": _loss(frontier, plan, deadline_ms),
        "loss_to_periodic": _loss(frontier, plan, deadline_ms, periodic.plan),
        "loss_to_switched": _loss(frontier, plan, deadline_ms, switched.plan),
    }
    data = {
        **clocks.to_dict(),
        "is_of_schedule": periodic.is_of_schedule,
        **_switched_to_dict(limited, losses),
    }
    note = (
        f"{_more_or_less(losses['loss'])} energy than the plan without limits, "
        f"{_more_or_less(losses['loss_to_periodic'])} than with clocks that only repeat, "
        f"{_more_or_less(losses['loss_to_switched'])} than with few changes only; "
        f"{_changes_and_gap(limited)}"
    )
    return data, ("Clocks that repeat and change seldom", _time_and_energy(plan), note)


def _of_capped(found: LimitedPlan[PowerCap, AveragePower]) -> _Form:
    data = {
        "power_cap_w": found.limits.job_w,
        "device_power_cap_w": found.limits.device_w,
        "least_time_ms": found.min_ms,
        "running_ms": found.outcome.running_ms,
        "device_power_w": list(found.outcome.power_w),
        "plan": _plan_to_dict(found.plan),
    }
    note = (
        f"{found.plan.power_w:.6g} W, at most {max(found.outcome.power_w):.6g} W on a GPU; "
        f"no iteration under the cap is shorter than {found.min_ms:.6g} ms"
    )
    return data, ("Under the power cap", _time_and_energy(found.plan), note)


def _of_robust(found: LimitedPlan[float, PlanIterations]) -> _Form:
    deadline_ms, confidence, at_free = found.deadline_ms, found.limits, found.free_outcome
    assert at_free is not None, "the plan for fixed times was simulated too"
    kept, nominal = (_outcome_to_dict(each, deadline_ms) for each in (found.outcome, at_free))
    data = {
        "deadline_ms": deadline_ms,
        "confidence": confidence,
        **kept,
        "nominal": nominal,
        "plan": _plan_to_dict(found.plan),
    }
    price = kept["mean_energy_mj"] / nominal["mean_energy_mj"] - 1
    note = (
        f"{kept['share_within']:.1%} of {len(found.outcome.time_ms)} simulated iterations end by "
        f"{deadline_ms:.6g} ms, with the plan for fixed times {nominal['share_within']:.1%}; "
        f"{_more_or_less(price)} energy than that one"
    )
    return data, (
        f"Keeps the deadline in {confidence:.6g} of iterations",
        _time_and_energy(found.plan),
        note,
    )


def _outcome_to_dict(outcome: PlanIterations, deadline_ms: float) -> dict[str, Any]:
    return {
        "share_within": outcome.share_within(deadline_ms),
        "mean_energy_mj": outcome.mean_energy_mj(deadline_ms),
        "mean_time_ms": float(outcome.time_ms.mean()),
        "time_quantiles_ms": {str(share): outcome.quantile_ms(share) for share in QUANTILES},
        "iterations": [
            {"time_ms": time_ms, "energy_mj": energy_mj}
            for time_ms, energy_mj in zip(outcome.time_ms.tolist(), outcome.energy_mj.tolist(), strict=True)
        ],
    }


def _of_shaped(found: LimitedPlan[PowerLimits, ShapedPower]) -> _Form:
    own, at_free = found.outcome, found.free_outcome
    assert at_free is not None, "the plan without limits has a shape too"
    energy_price, time_price = own.price_over(at_free)
    frequency_hz, amplitude_w = spectrum(own.trace, own.copies, own.stagger_ms, found.limits.high_hz)
    data = {
        "length_ms": own.trace.length_ms,
        "stagger_ms": own.stagger_ms,
        "copies": own.copies,
        "limits": asdict(found.limits),
        "shape": asdict(own.shape),
        "free_shape": asdict(at_free.shape),
        "time_price": time_price,
        "energy_price": energy_price,
        "power": {"at_ms": own.trace.at_ms.tolist(), "power_w": own.trace.power_w.tolist()},
        "spectrum": {"frequency_hz": frequency_hz.tolist(), "amplitude_w": amplitude_w.tolist()},
        "plan": _plan_to_dict(found.plan),
    }
    copies = (
        ""
        if own.copies == 1
        else f"{own.copies} copies, each starts {own.stagger_ms:.6g} ms after the one before; "
    )
    note = (
        f"{copies}{_shape_in_words(own.shape)}; without limits {_shape_in_words(at_free.shape)}; "
        f"{_more_or_less(energy_price)} energy, {_more_or_less(time_price)} time"
    )
    return data, ("Under limits on the shape of power", _time_and_energy(found.plan), note)


def _more_or_less(share: float) -> str:
    """Return a change in words.

    >>> _more_or_less(0.02), _more_or_less(-0.0145)
    ('2.00% more', '1.45% less')
    """
    return f"{abs(share):.2%} {'more' if share >= 0 else 'less'}"


def _shape_in_words(shape: PowerShape) -> str:
    return f"peak {shape.peak_w:,.0f} W, ramp {shape.ramp_w_per_s:,.0f} W/s, band {shape.band_w:,.0f} W"


def _loss(
    frontier: Frontier, plan: FrequencyPlan, deadline_ms: float, other: FrequencyPlan | None = None
) -> float:
    """Return by which share a plan needs more than another one until the deadline; below 0 if less.

    Args:
        frontier: Frontier of the free plans.
        plan: Any.
        deadline_ms: Until which both are paid for; the other plan's time where that is longer.
        other: None for the free plan.
    """
    if other is None:
        other = frontier.at(max(deadline_ms, frontier.shortest.time_ms))
    until_ms = max(deadline_ms, other.time_ms)
    return frontier.energy_next_to(plan, until_ms) / frontier.energy_next_to(other, until_ms) - 1


def _switched_to_dict(switched: SwitchedPlan, losses: dict[str, float]) -> dict[str, Any]:
    return {
        "dwell_ms": switched.limits.dwell_ms,
        "switch_ms": switched.limits.latency_ms,
        "back_to_back": switched.limits.back_to_back,
        "clock_changes": list(switched.outcome.own),
        "changes_per_iteration": list(switched.outcome.per_iteration),
        "lower_bound_mj": switched.lower_bound_mj,
        "gap": None if math.isnan(switched.gap) else switched.gap,
        **losses,
        "plan": _plan_to_dict(switched.plan),
    }


def _plan_to_dict(plan: FrequencyPlan) -> dict[str, Any]:
    return {
        "time_ms": plan.time_ms,
        "energy_mj": plan.energy_mj,
        **clocks_to_dict(plan.clock_mhz),
    }


def _changes_and_gap(switched: SwitchedPlan) -> str:
    changes = switched.outcome.per_iteration
    return (
        f"{sum(switched.outcome.own)} clock changes, {sum(changes)} with those between iterations, at most "
        f"{max(changes)} on one device; at most {switched.gap:.2%} above the best plan under these limits"
    )


def _time_and_energy(plan: FrequencyPlan) -> str:
    return f"{plan.time_ms:.6g} ms, {plan.energy_mj / 1e3:.6g} J"
