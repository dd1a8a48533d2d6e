"""The task of `experiments.frontier`: steps 1 to 3."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path

from experiments.config.options import OptionError, require
from experiments.config.run_record import output_directory
from experiments.frontier.constrained_plans import check_constrained_plans, constrained
from experiments.frontier.frontier_files import frontier_result, write_page
from experiments.frontier.options import EnergyOptions, FrontierCommandOptions
from experiments.frontier.results import EnergyResult
from experiments.frontier.schedule_selection import asked_deadline_ms, select_schedule
from experiments.report.result import Result
from experiments.search.problem import SearchProblem, read_problem
from experiments.search.results import SearchStepResult
from experiments.search.search_step import search_and_save
from placements import Profile
from schedsearch.core.progress import StepBar
from schedsearch.energy import EnergyError, Frontier, OnProgress, compute_frontier, simulate_at_clocks
from schedsearch.energy.baselines import compute_baselines, perseus_frontier
from schedsearch.energy.frontier import TIME_TOLERANCE
from schedsearch.energy.graph import check_clocks_of
from schedsearch.proof.makespan import makespan_bound
from schedsearch.schedule import Schedule

PROVED_GAP = 1e-6
"""Share of the bound above which a plan is not proved to be the best; less is rounding."""

log = logging.getLogger(__name__)


def task(options: FrontierCommandOptions) -> Result:
    """Search, compute the frontier, and return its files and lines."""
    problem = read_problem(options)
    check_energy_on(options, problem)
    solution, tuned = search_and_tune(options, problem, output_directory())
    result = frontier_result(options.energy, solution, tuned)
    return replace(result, files={**result.files, "report.html": partial(write_page, solution, tuned)})


def check_energy_on(options: FrontierCommandOptions, problem: SearchProblem) -> None:
    """Reject before the search options that this placement cannot have.

    Raises:
        OptionError: It has no such plans.
        EnergyError: Streams of it slow each other down.
        PlacementError: A plan that is asked for knows no modes or streams.
    """
    check_clocks_of(problem.placement)
    check_constrained_plans(options, problem)
    if (deadline_ms := options.energy.deadline_ms) is not None and problem.batch is None:
        bound = makespan_bound(problem.placement, options.search.num_micro_batches)
        bound_ms = problem.placement.ms(bound) * (1 - TIME_TOLERANCE)
        possible = f"possible: no schedule ends before {bound_ms:.6g} ms at the highest clocks"
        require(deadline_ms >= bound_ms, "energy.deadline_ms", deadline_ms, possible, "give at least that")


def search_and_tune(
    options: FrontierCommandOptions, problem: SearchProblem, directory: Path
) -> tuple[SearchStepResult, EnergyResult]:
    """Search a schedule and write it, select one by its energy, tune its clocks.

    Raises:
        OptionError: An option cannot be met, such as the deadline.
        Interrupted: Ctrl-C ended the search; its schedule is written all the same.
    """
    solution = select_schedule(options, problem, search_and_save(options, problem, directory), directory)
    schedule, profile, energy = solution.schedule, problem.whole_profile, options.energy
    if solution.selection is None:
        deadline_ms = asked_deadline_ms(energy, schedule, profile)
    else:
        deadline_ms = solution.selection.chosen.deadline_ms  # over the time of the search's schedule
    with StepBar("frontier") as bar:
        try:
            frontier, deadline_ms = make_frontier(energy, schedule, profile, deadline_ms, bar)
            names, unit_ms, bound = energy.baselines, energy.unit_ms, frontier.relaxed
            baselines = compute_baselines(names, schedule, profile, unit_ms, bar, bound)
        except EnergyError as error:
            raise OptionError(f"energy.{error}") from None
    tokens = energy.tokens_per_iteration or problem.built.work.tokens
    work = replace(problem.built.work, tokens=tokens, num_gpus=sum(problem.placement.gpus))
    plan = frontier.at(deadline_ms)
    tuned = EnergyResult(
        profile,
        solution.costs,
        replace(frontier, work=work),
        deadline_ms,
        plan,
        simulate_at_clocks(schedule, profile, plan.clock_mhz),
        baselines,
        method=describe_method(energy, frontier),
    )
    return solution, constrained(options, solution, tuned)


def make_frontier(
    options: EnergyOptions, schedule: Schedule, profile: Profile, deadline_ms: float, on_progress: OnProgress
) -> tuple[Frontier, float]:
    """Return the frontier by the method that the options name, and the deadline of its plan.

    Perseus's shortest plan may be later than the deadline, as its times are whole units. Where nobody asked
    for that deadline, the time of the shortest plan takes its place.

    Raises:
        OptionError: The deadline that was asked for is before the shortest plan.
        EnergyError: See `compute_frontier` and `perseus_frontier`.
    """
    if options.method == "exact":
        frontier = compute_frontier(
            schedule,
            profile,
            options.num_plans,
            deadline_ms,
            work_limit=options.work_limit,
            on_progress=on_progress,
        )
        return frontier, deadline_ms
    frontier = perseus_frontier(schedule, profile, options.unit_ms, on_progress)
    shortest_ms = frontier.shortest.time_ms
    if shortest_ms <= deadline_ms * (1 + TIME_TOLERANCE):
        return frontier, deadline_ms
    late = f"the shortest plan of energy.method=perseus takes {shortest_ms:.6g} ms"
    if given := [name for name in ("deadline_ms", "slowdown") if getattr(options, name) is not None]:
        remedy = f"a shorter energy.unit_ms than {options.unit_ms:g}, or energy.method=exact"
        wrong = f"energy.{given[0]}: {deadline_ms:.6g} ms cannot be kept, {late}"
        raise OptionError(f"{wrong}; give at least that, {remedy}")
    log.info("%s, all clocks at maximum %.6g ms; the plan is for the longer time", late, deadline_ms)
    return frontier, shortest_ms


def describe_method(options: EnergyOptions, frontier: Frontier) -> str:
    """Return how the frontier was made in words."""
    if options.method == "perseus":
        return f"Perseus's algorithm over fitted exponentials, in units of {options.unit_ms:g} ms"
    text = "continuous optimum over convex hulls, rounded to real clocks"
    if options.work_limit > 0:
        proved = sum(plan.gap <= PROVED_GAP for plan in frontier.plans)
        text += f", improved with a work limit of {options.work_limit:g}; "
        text += f"{proved} of {len(frontier.plans)} plans are proved to be the best for their time"
    return text
