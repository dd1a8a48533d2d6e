"""The task of `experiments.frontier`: steps 1 to 3."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from omegaconf import DictConfig

from experiments.config.command import Interrupted
from experiments.config.options import OptionError, read_options
from experiments.config.progress import StepBar
from experiments.config.records import EnergyOptions, Options
from experiments.report.pictures import draw_pictures
from experiments.steps.constrained_plans import (
    check_constrained_plans,
    check_constrained_plans_on,
    constrain_plans,
    constrained_plan_facts,
    describe_constrained_plans,
    frontier_to_dict,
    save_constrained_plans,
)
from experiments.steps.energy_baselines import (
    baselines_to_csv,
    baselines_to_dict,
    check_baselines,
    describe_baselines,
)
from experiments.steps.energy_methods import (
    check_methods,
    check_polish_on,
    describe_method,
    made_by,
    make_frontier,
    polish,
)
from experiments.steps.pipeline_steps import build_placement, complete_profile, read_profile
from experiments.steps.results import EnergyResult, SearchStepResult
from experiments.steps.savings import describe_savings, savings_csv
from experiments.steps.schedule_selection import check_orders, choose_order
from experiments.steps.search_step import output_directory, search_and_save
from placements import Placement
from placements.files import write_bytes, write_json, write_text
from schedsearch.energy import (
    EnergyError,
    all_maximum_clocks,
    changes_per_iteration,
    num_clock_changes,
    simulate,
)
from schedsearch.energy.baselines import compute_baselines
from schedsearch.energy.interchange import frequencies_csv, frontier_csv, relaxed_csv, zeus_files, zeus_stages
from schedsearch.schedule import Instance

log = logging.getLogger(__name__)

MOST_PLANS = 10_000
"""More deadlines than that take memory and say nothing new."""

PLAN_SCHEMA_VERSION = 1
"""Version of the form of ``plan.json``."""


def task(config: DictConfig) -> None:
    """Search, compute the frontier, and save."""
    options = read_options(config)
    check_energy_options(options.energy)
    check_constrained_plans(options)
    check_orders(options)
    directory = output_directory()
    profile = read_profile(options)
    placement = build_placement(options, profile)
    check_constrained_plans_on(options, placement, profile)
    check_energy_on(options, placement)
    found = search_and_save(options, placement, profile, directory)
    found = choose_order(options, found, directory)
    frontier_and_save(options, found, directory)


def check_energy_options(options: EnergyOptions) -> None:
    """Reject wrong options before any work starts.

    Raises:
        OptionError: One is out of its range.
    """
    if options.deadline_ms is not None and options.slowdown is not None:
        raise OptionError("energy.deadline_ms: is given beside energy.slowdown; give one of the two")
    if options.deadline_ms is not None and not 0 < options.deadline_ms < math.inf:
        raise OptionError(f"energy.deadline_ms: {options.deadline_ms:g} is not a time above 0")
    if options.slowdown is not None and not 1 <= options.slowdown < math.inf:
        raise OptionError(f"energy.slowdown: {options.slowdown:g} is not at least 1, no slowdown")
    if not 1 <= options.num_plans <= MOST_PLANS:
        raise OptionError(f"energy.num_plans: {options.num_plans} is not at least 1 and at most {MOST_PLANS}")
    if options.export not in (None, "zeus"):
        raise OptionError(f"energy.export: {options.export!r} is not known; use zeus or null")
    check_baselines(options)
    check_methods(options)


def check_energy_on(options: Options, placement: Placement) -> None:
    """Reject before the search a form that the placement does not have, and too many blocks to polish.

    Raises:
        OptionError: It has none, or there are too many.
    """
    check_polish_on(options, placement)
    if options.energy.export == "zeus":
        try:
            zeus_stages(placement)
        except EnergyError as error:
            raise OptionError(f"energy.{error}") from None


def frontier_and_save(options: Options, found: SearchStepResult, directory: Path) -> EnergyResult:
    """Compute the frontier, the plan for the deadline and the baselines; write all, and the pictures.

    Raises:
        OptionError: An option cannot be met, such as the deadline.
        Interrupted: Ctrl-C ended the polishing; all is written all the same.
    """
    energy, profile = options.energy, complete_profile(options, found.placement, found.profile)
    maximum = simulate(found.schedule, profile, all_maximum_clocks(found.schedule, profile))
    deadline_ms = energy.deadline_ms or maximum.time_ms * (energy.slowdown or 1.0)
    if found.order is not None:
        deadline_ms = found.order.chosen.deadline_ms  # over the time of the search's schedule, not the chosen
    bar = StepBar("frontier")
    with bar:
        try:
            frontier, deadline_ms = make_frontier(energy, found.schedule, profile, deadline_ms, bar)
            baselines = compute_baselines(
                energy.baselines, found.schedule, profile, energy.unit_ms, bar, frontier.relaxed
            )
            polished = polish(energy, found.schedule, profile, frontier, deadline_ms, bar)
        except EnergyError as error:
            raise OptionError(f"energy.{error}") from None
    frontier = frontier if polished is None else polished.frontier
    plan = frontier.at(deadline_ms)
    outcome = EnergyResult(
        profile,
        frontier,
        deadline_ms,
        plan,
        simulate(found.schedule, profile, plan.clock_mhz),
        baselines,
        method=describe_method(energy, polished),
    )
    constrained = constrain_plans(options, found, profile, frontier, deadline_ms)
    outcome = replace(
        outcome,
        constrained=tuple(constrained_plan_facts(outcome, constrained)),
        periodic=constrained.periodic_to_run,
        switched=constrained.switched.plan if constrained.switched else None,
    )
    profile.to_csv(directory / "profile.csv")
    data = {**frontier_to_dict(found, frontier), **made_by(energy, polished)}
    write_json(directory / "frontier.json", data)
    write_json(directory / "plan.json", plan_to_dict(found, outcome))
    write_text(directory / "frontier.csv", frontier_csv(found.schedule, frontier))
    if frontier.relaxed is not None:
        write_text(directory / "relaxed.csv", relaxed_csv(frontier.relaxed))
    write_text(directory / "frequencies.csv", frequencies_csv(found.schedule, profile, plan))
    write_text(directory / "savings.csv", savings_csv(outcome))
    if options.energy.export == "zeus":
        for name, text in zeus_files(found.schedule, frontier):
            write_text(directory / "zeus" / name, text)
    log.info("%s", describe(outcome))
    if baselines:
        write_json(directory / "baselines.json", baselines_to_dict(found.schedule, outcome))
        write_text(directory / "baselines.csv", baselines_to_csv(found.schedule, outcome))
    save_constrained_plans(outcome, constrained, directory)
    for line in (
        *describe_savings(outcome),
        *describe_baselines(found.schedule, outcome),
        *describe_constrained_plans(outcome),
    ):
        log.info("%s", line)
    outcome = replace(outcome, pictures=draw_pictures(found, outcome))
    for name, png in outcome.pictures.items():
        write_bytes(directory / f"{name}.png", png)
    log.info("frontier in %s", directory / "frontier.json")
    if polished is not None and polished.interrupted:
        raise Interrupted(f"interrupted; the best plans found so far are in {directory / 'frontier.json'}")
    return outcome


def plan_to_dict(found: SearchStepResult, outcome: EnergyResult) -> dict[str, object]:
    """Return the chosen plan as plain data."""
    frontier, plan = outcome.frontier, outcome.plan
    return {
        "schema_version": PLAN_SCHEMA_VERSION,
        "deadline_ms": outcome.deadline_ms,
        "time_ms": plan.time_ms,
        "energy_mj": plan.energy_mj,
        "lower_bound_mj": plan.lower_bound_mj,
        "energy_until_deadline_mj": frontier.energy_next_to(plan, outcome.deadline_ms),
        "saving": frontier.saving(plan, outcome.deadline_ms),
        "clock_mhz": {name: list(clocks) for name, clocks in plan.clock_mhz.items()},
        "clock_changes": list(num_clock_changes(found.schedule, plan.clock_mhz)),
        "changes_per_iteration": list(changes_per_iteration(found.schedule, plan.clock_mhz)),
        "start_ms": {name: _starts_of(name, outcome.simulation.start_ms) for name in plan.clock_mhz},
    }


def _starts_of(block: str, start_ms: Mapping[Instance, float]) -> list[float]:
    """Return a block's starts in milliseconds, by micro-batch."""
    return [start for (name, _), start in sorted(start_ms.items()) if name == block]


def describe(outcome: EnergyResult) -> str:
    """Return the frontier's ends and the chosen plan in one line."""
    frontier, plan = outcome.frontier, outcome.plan
    return (
        f"{len(frontier.plans)} plans "
        f"from {frontier.shortest.time_ms:.6g} to {frontier.plans[-1].time_ms:.6g} ms ({outcome.method}); "
        f"deadline {outcome.deadline_ms:.6g} ms: {plan.time_ms:.6g} ms, {plan.energy_mj / 1e3:.6g} J, "
        f"{frontier.saving(plan, outcome.deadline_ms):.2%} saved against the highest clocks, "
        f"{plan.gap:.2%} above the lower bound"
    )
