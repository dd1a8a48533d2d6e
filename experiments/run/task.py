"""The task of `experiments.run`: all steps, from a placement to a verified run and its report."""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from experiments.config.options import OptionError
from experiments.config.run_record import given_words, output_directory
from experiments.frontier.constrained_plans import switching_limits
from experiments.frontier.frontier_files import frontier_result, write_page
from experiments.frontier.options import EnergyOptions
from experiments.frontier.results import EnergyResult
from experiments.frontier.task import check_energy_on, search_and_tune
from experiments.report.html_report import Section
from experiments.report.result import Result
from experiments.run import measured_run
from experiments.run.beside import beside_lines, beside_table, in_words, rows_beside
from experiments.run.options import NO_LAUNCHER, RunCommandOptions
from experiments.run.resumed import KeptOptions, kept_options, resumed_directory
from experiments.run.run_options import check_device_of, check_runtime_options, choose_model
from experiments.run.scripts import generate_scripts, planned_scripts, script_schedule, simulate_scripts
from experiments.search.options import ProfileOptions
from experiments.search.pictures import draw_memory, draw_timeline
from experiments.search.problem import SearchProblem, read_problem
from experiments.search.results import SearchStepResult
from experiments.search.search_step import figures, search_and_save
from runtime.checkpoints.loading import has_whole
from runtime.checkpoints.manifest import ensure_same_model, manifests
from runtime.codegen.job import JOB_FILE, read_job
from runtime.execution.measurement import Measurement
from runtime.models import ModelOptions
from runtime.program.calls import ScriptError

log = logging.getLogger(__name__)


def task(options: RunCommandOptions) -> Result:
    """Search, tune, generate, run, compare, report; or go on with a run, which has no figures."""
    runtime, directory = options.runtime, output_directory()
    if (resumed := resumed_directory(runtime)) is not None:
        return go_on(resumed, options)
    check_runtime_options(runtime)
    problem = read_problem(options)
    model = check_run_on(options, problem)
    resume = _checkpoints(runtime.resume, model)
    tuned = None
    if asks_for_energy(options, problem):
        solution, tuned = search_and_tune(options, problem, directory)
        plans = frontier_result(options.energy, solution, tuned)
        if plans.interrupted:
            return plans
        plans.write(directory)
        plans.show(directory)
    else:
        solution = search_and_save(options, problem, directory)
        draw_timeline(solution, directory / "timeline")
        draw_memory(solution, directory / "memory")
        log.info("%-12s%s", "clocks", "none planned; give options of energy or a profile for a plan")
    scripts, is_batch = directory / "scripts", problem.batch is not None
    generate_scripts(runtime, solution, tuned, model, scripts, is_batch=is_batch)
    if tuned and runtime.simulated_gpus:
        latency_ms = switching_limits(options).latency_ms
        simulate_scripts(planned_scripts(solution, tuned), latency_ms, directory, solution.costs)
    if runtime.launcher == NO_LAUNCHER:
        figures = solution.figures | (tuned.figures if tuned else {})
        return Result(figures=figures, sentences=[f"{'job':<12}{scripts}"])
    profile = tuned.profile if tuned else None
    with measured_run.followed_server(runtime, solution.schedule, profile, directory):
        measurement = measured_run.run_and_save(KeptOptions.of(options), problem.placement, directory, resume)
    return run_result(options, problem, solution, tuned, measurement)


def check_run_on(options: RunCommandOptions, problem: SearchProblem) -> ModelOptions:
    """Reject before the search options that this placement cannot have; return the model that is run.

    Raises:
        ValueError: An option does not fit the placement; the message is a line with the remedy.
    """
    runtime, placement, number = options.runtime, problem.placement, options.search.num_micro_batches
    check_device_of(runtime, placement)
    is_batch = problem.batch is not None
    model = choose_model(runtime, placement, number, problem.built.planned, is_batch=is_batch)
    check_energy_on(options, problem)
    if runtime.trace and "perfetto" in options.search.exports:
        raise OptionError("runtime.trace: writes a trace.json, as search.export=perfetto does; leave one out")
    if runtime.simulated_gpus and isinstance(options.profile.blocking_power_w, Mapping):
        wrong = "is for one blocking power, but profile.blocking_power_w depends on the clock"
        raise OptionError(f"runtime.simulated_gpus: {wrong}; give one number or use false")
    if problem.profile is not None:
        problem.profile.require_one_config("schedsearch run")
    return model


def _checkpoints(folder: str | None, model: ModelOptions) -> Path | None:
    """Return the folder of checkpoints to go on from; an error if there is none, or of another model."""
    if not folder:
        return None
    path = Path(folder)
    if not any(path.glob("iteration_*/manifest.json")):
        wanted = "give the output directory or the checkpoints of a run"
        raise OptionError(f"runtime.resume: {folder} holds no whole checkpoint; {wanted}")
    for manifest in manifests(path)[0][:1]:
        ensure_same_model(manifest, model)
    return path


def asks_for_energy(options: RunCommandOptions, problem: SearchProblem) -> bool:
    """Return whether clocks are planned: for times that are known and run here, or where options ask for it.

    Placeholder times say nothing of energy, and a job that is only written is of the searched order.
    """
    runtime, defaults = options.runtime, (EnergyOptions(), ProfileOptions(gpu=options.profile.gpu))
    energy = replace(options.energy, orders=max(options.energy.orders, EnergyOptions.orders))  # not for less
    is_asked = (energy, options.profile) != defaults or problem.profile is not None
    is_used = runtime.simulated_gpus or runtime.server is not None
    return is_asked or is_used or not (problem.costs.placeholder or runtime.launcher == NO_LAUNCHER)


def run_result(
    options: RunCommandOptions,
    problem: SearchProblem,
    solution: SearchStepResult,
    tuned: EnergyResult | None,
    measurement: Measurement,
) -> Result:
    """Return figures, report and lines of a run, beside its plan and usual schedules."""
    utilisation = None
    if options.runtime.trace:
        on = script_schedule(solution.schedule).placement
        plan = planned_scripts(solution, tuned, measurement.num_micro_batches) if tuned else None
        utilisation = measured_run.save_trace(
            measurement.records, on, output_directory(), plan, solution.costs
        )
    rows = rows_beside(options.placement, problem, solution, tuned)
    proved = solution.searched.proved if solution.searched else "made by hand"
    table, notes = beside_table(rows)
    brought = in_words(rows, proved) if table else ""
    run = measured_run.run_section(measurement, utilisation)
    page = partial(
        write_page,
        solution,
        tuned,
        summary=[measured_run.equality(measurement)],
        before=[Section("Beside usual schedules", text="\n".join(notes), rows=table)] * bool(table),
        after=[run],
        brought=brought,
    )
    shown = dict(figures(solution.schedule, solution.result))
    names = () if rows else ("period", "makespan", "bubble", "peak memory")
    energy = [f"{'energy':<12}{tuned.saved(tuned.plan)}"] if tuned else []
    return Result(
        figures=solution.figures | (tuned.figures if tuned else {}),
        files={"report.html": page},
        sentences=[
            *(f"{name:<12}{shown.get(name, 'none')}" for name in names),
            *energy,
            *beside_lines(table, notes),
            *textwrap.wrap(brought, 79),
        ],
    )


def go_on(directory: Path, given: RunCommandOptions) -> Result:
    """Go on with a run from its output directory: from its newest whole checkpoint, or else from the begin.

    All that the run makes is put there, as if it had not died; but its plan is not known any more.

    Raises:
        OptionError: The directory is not that of a run, or an option cannot be changed any more.
        Failed: The run failed.
    """
    kept = kept_options(directory, given, given_words())
    check_runtime_options(kept.runtime)
    scripts, checkpoints = directory / "scripts", directory / "checkpoints"
    try:
        placement = read_job(scripts / JOB_FILE).placement
    except ScriptError as error:
        raise OptionError(f"runtime.resume: {scripts} has no scripts of a run ({error})") from None
    check_device_of(kept.runtime, placement)
    is_anew = not has_whole(checkpoints)
    if is_anew:
        log.info("%s has no whole checkpoint: the run begins anew, with the same scripts", directory)
    measurement = measured_run.run_and_save(kept, placement, directory, None if is_anew else checkpoints)
    utilisation = None
    if kept.runtime.trace:
        utilisation = measured_run.save_trace(measurement.records, placement, directory)
    path = measured_run.write_resumed_page(placement, measurement, directory / "report.html", utilisation)
    return Result(sentences=[f"report in {path}"])
