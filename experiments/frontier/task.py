"""The task of `experiments.frontier`: steps 1 to 3."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from experiments.config.command import Interrupted
from experiments.config.options import OptionError, require
from experiments.config.run_record import output_directory
from experiments.frontier.constrained_plan_files import (
    constrained_plan_forms,
    describe_constrained_plans,
    save_constrained_plans,
)
from experiments.frontier.constrained_plans import (
    check_constrained_plans,
    check_constrained_plans_on,
    constrain_plans,
)
from experiments.frontier.energy_baselines import check_baselines, describe_baselines
from experiments.frontier.energy_methods import (
    describe_method,
    make_frontier,
)
from experiments.frontier.frontier_files import save_frontier
from experiments.frontier.options import EnergyOptions, FrontierCommandOptions
from experiments.frontier.report import save_frontier_report
from experiments.frontier.results import EnergyResult
from experiments.frontier.savings import beside_hand_made, describe_savings
from experiments.frontier.schedule_selection import asked_deadline_ms, select_schedule
from experiments.search.problem import SearchProblem, read_problem
from experiments.search.results import SearchStepResult
from experiments.search.search_step import search_and_save
from schedsearch.core.progress import StepBar
from schedsearch.energy import EnergyError, simulate_at_clocks
from schedsearch.energy.baselines import compute_baselines
from schedsearch.energy.frontier import TIME_TOLERANCE
from schedsearch.energy.graph import check_clocks_of
from schedsearch.energy.interchange import zeus_stages
from schedsearch.proof.makespan import makespan_bound

log = logging.getLogger(__name__)


def task(options: FrontierCommandOptions) -> dict[str, float | str]:
    """Search, compute the frontier, and save; return the figures."""
    check_energy_options(options)
    directory = output_directory()
    problem = read_problem(options)
    check_energy_on(options, problem)
    found, tuned = search_and_tune(options, problem, directory)
    save_frontier_report(found, tuned, directory)
    return found.figures | tuned.figures


def check_energy_options(options: FrontierCommandOptions) -> None:
    """Reject wrong options before any work starts."""
    _check_frontier_options(options.energy)
    check_constrained_plans(options)


def _check_frontier_options(energy: EnergyOptions) -> None:
    if energy.deadline_ms is not None and energy.slowdown is not None:
        raise OptionError("energy.deadline_ms: is given beside energy.slowdown; give one of the two")
    check_baselines(energy)


def check_energy_on(options: FrontierCommandOptions, problem: SearchProblem) -> None:
    """Reject before the search options that this placement cannot have.

    Raises:
        OptionError: It has no such form or plans.
        EnergyError: Streams of it slow each other down.
        PlacementError: A plan that is asked for knows no modes or streams.
    """
    check_clocks_of(problem.placement)
    check_constrained_plans_on(options, problem)
    if (deadline_ms := options.energy.deadline_ms) is not None and problem.batch is None:
        bound = makespan_bound(problem.placement, options.search.num_micro_batches)
        bound_ms = problem.placement.ms(bound) * (1 - TIME_TOLERANCE)
        possible = f"possible: no schedule ends before {bound_ms:.6g} ms at the highest clocks"
        require(deadline_ms >= bound_ms, "energy.deadline_ms", deadline_ms, possible, "give at least that")
    if options.energy.export == "zeus":
        try:
            zeus_stages(problem.placement)
        except EnergyError as error:
            raise OptionError(f"energy.{error}") from None


def search_and_tune(
    options: FrontierCommandOptions, problem: SearchProblem, directory: Path
) -> tuple[SearchStepResult, EnergyResult]:
    """Search a schedule, select one by its energy, tune its clocks; write all, and the pictures.

    Raises:
        OptionError: An option cannot be met, such as the deadline.
        Interrupted: Ctrl-C ended a step; what was found is written all the same.
    """
    found = search_and_save(options, problem, directory)
    found = select_schedule(options, problem, found, directory)
    tuned = _tuned(options.energy, problem, found)
    constrained = constrain_plans(options, found, tuned)
    tuned = replace(
        tuned,
        constrained=tuple(constrained_plan_forms(tuned, constrained)),
        periodic=constrained.periodic_to_run,
        switched=constrained.switched.plan if constrained.switched else None,
    )
    save_frontier(options.energy, found, tuned, directory)
    save_constrained_plans(tuned, directory)
    tables = (*describe_savings(tuned), *describe_baselines(found.schedule, tuned))
    for line in (*tables, *describe_constrained_plans(tuned)):
        log.info("%s", line)
    if found.by_hand:
        log.info("the chosen plan takes %s", beside_hand_made(found, tuned))
    from experiments.frontier.pictures import draw_pictures  # loads matplotlib

    draw_pictures(found, tuned, directory)
    log.info("frontier in %s", directory / "frontier.json")
    if tuned.frontier.interrupted:
        raise Interrupted(f"interrupted; the best plans found so far are in {directory / 'frontier.json'}")
    return found, tuned


def _tuned(energy: EnergyOptions, problem: SearchProblem, found: SearchStepResult) -> EnergyResult:
    """Return the frontier of a schedule, with the plan for the deadline and the baselines."""
    schedule, profile = found.schedule, problem.whole_profile
    deadline_ms = asked_deadline_ms(energy, schedule, profile)
    if found.selection is not None:
        deadline_ms = found.selection.chosen.deadline_ms  # over the time of the search's schedule
    with StepBar("frontier") as bar:
        try:
            frontier, deadline_ms = make_frontier(energy, schedule, profile, deadline_ms, bar)
            baselines = compute_baselines(
                energy.baselines, schedule, profile, energy.unit_ms, bar, frontier.relaxed
            )
        except EnergyError as error:
            raise OptionError(f"energy.{error}") from None
    plan = frontier.at(deadline_ms)
    return EnergyResult(
        profile,
        found.costs,
        frontier,
        deadline_ms,
        plan,
        simulate_at_clocks(schedule, profile, plan.clock_mhz),
        baselines,
        method=describe_method(energy, frontier),
    )
