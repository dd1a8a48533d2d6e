"""The task of `experiments.run`: all steps, from a placement to a verified run and its report."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from hydra.core.hydra_config import HydraConfig

from experiments.config.options import OptionError
from experiments.config.run_record import output_directory
from experiments.frontier.clock_latency import switching_limits
from experiments.frontier.options import EnergyOptions
from experiments.frontier.results import EnergyResult
from experiments.frontier.task import check_energy_on, check_energy_options, search_and_tune
from experiments.run.beside import describe_beside, rows_beside
from experiments.run.followed_server import followed_server, without_own_clocks
from experiments.run.inference import (
    arrivals_of,
    check_requests_on,
    is_inference,
    request_rows,
    save_requests,
)
from experiments.run.measured_run import run_and_save
from experiments.run.options import NO_LAUNCHER, RunCommandOptions
from experiments.run.report import save_report, save_report_of_run
from experiments.run.resumed import KeptOptions, options_of, resumed_directory
from experiments.run.run_options import check_device_of, check_runtime_options, choose_model
from experiments.run.scripts import generate_scripts, planned_scripts
from experiments.run.simulated_run import check_simulated_on, simulate_scripts
from experiments.run.traces import save_trace, script_schedule
from experiments.search.options import ProfileOptions
from experiments.search.pictures import draw_schedule
from experiments.search.problem import SearchProblem, read_problem
from experiments.search.results import SearchStepResult
from experiments.search.search_step import figures, search_and_save
from placements import Placement
from runtime.checkpoints.loading import has_whole
from runtime.checkpoints.manifest import ensure_same_model, manifests
from runtime.codegen.job import JOB_FILE, read_job
from runtime.execution.measurement import Measurement
from runtime.program.calls import ScriptError

log = logging.getLogger(__name__)


def task(options: RunCommandOptions) -> dict[str, float | str]:
    """Search, tune, generate, run, compare, report; return the figures, none of a run that goes on."""
    if directory := resumed_directory(options.runtime):
        go_on(directory, options)
        return {}
    return begin(options)


def begin(options: RunCommandOptions) -> dict[str, float | str]:
    """Do all steps of a run; return the figures of its schedule and its plan."""
    check_energy_options(options)
    options = replace(options, runtime=without_own_clocks(options.runtime))
    check_runtime_options(options.runtime)
    directory = output_directory()
    problem = read_problem(options)
    placement = problem.placement
    check_device_of(options.runtime, placement)
    number = options.search.num_micro_batches
    check_requests_on(options.runtime, placement, number)
    is_batch = problem.batch is not None
    model = choose_model(options.runtime, placement, number, problem.planned, is_batch=is_batch)
    check_energy_on(options, problem)
    check_simulated_on(options)
    if problem.profile is not None:
        problem.profile.require_one_config("schedsearch run")
    resume = Path(options.runtime.resume) if options.runtime.resume else None
    if resume and not any(resume.glob("iteration_*/manifest.json")):
        raise OptionError(
            f"runtime.resume: {resume} holds no whole checkpoint; give the output directory or the "
            "checkpoints of a run"
        )
    for manifest in manifests(resume)[:1] if resume else ():
        ensure_same_model(manifest, model)
    tuned = None
    if asks_for_energy(options, problem):
        found, tuned = search_and_tune(options, problem, directory)
    else:
        found = search_and_save(options, problem, directory)
        draw_schedule(found, directory)
        log.info("%-12s%s", "clocks", "none planned; give options of energy or a profile for a plan")
    run_figures = found.figures | (tuned.figures if tuned else {})
    generate_scripts(options.runtime, found, tuned, model, directory / "scripts", is_batch=is_batch)
    if tuned and options.runtime.simulated_gpus:
        planned, latency_ms = planned_scripts(found, tuned), switching_limits(options).latency_ms
        simulate_scripts(planned, directory / "scripts", latency_ms, directory, found.costs)
    if options.runtime.launcher == NO_LAUNCHER:
        log.info("%-12s%s", "job", directory / "scripts")
        if is_inference(placement):
            _requests(options, found, tuned, directory)
        return run_figures
    with followed_server(options.runtime, found.schedule, tuned.profile if tuned else None, directory):
        measurement = run_and_save(KeptOptions.of(options), placement, directory, resume)
    utilisation = None
    if options.runtime.trace:
        on = script_schedule(found.schedule).placement
        plan = planned_scripts(found, tuned, measurement.num_micro_batches) if tuned else None
        utilisation = save_trace(measurement.records, on, directory, plan, found.costs)
    requests = _requests(options, found, tuned, directory, measurement) if is_inference(placement) else []
    rows = rows_beside(options.placement, problem, found, tuned)
    report = save_report(found, tuned, measurement, directory, utilisation, rows, requests)
    shown = dict(figures(found.schedule, found.result, found.memory_unit))
    for name in () if rows else ("period", "makespan", "bubble", "peak memory"):
        log.info("%-12s%s", name, shown.get(name, "none"))
    if tuned:
        log.info("%-12s%s", "energy", tuned.saved(tuned.plan))
    log.info("%-12s%s", "report", report)
    for line in describe_beside(rows, found.searched.proved if found.searched else ""):
        log.info("%s", line)
    return run_figures


def asks_for_energy(options: RunCommandOptions, problem: SearchProblem) -> bool:
    """Return whether clocks are planned: for times that are known and run here, or where options ask for it.

    Placeholder times say nothing of energy, and a job that is only written is of the searched order.
    """
    runtime, defaults = options.runtime, (EnergyOptions(), ProfileOptions(gpu=options.profile.gpu))
    energy = replace(options.energy, orders=max(options.energy.orders, EnergyOptions.orders))  # not for less
    is_asked = (energy, options.profile) != defaults or problem.profile is not None
    is_used = runtime.simulated_gpus or runtime.server is not None
    return is_asked or is_used or not (problem.costs.placeholder or runtime.launcher == NO_LAUNCHER)


def _requests(
    options: RunCommandOptions,
    found: SearchStepResult,
    tuned: EnergyResult | None,
    directory: Path,
    measurement: Measurement | None = None,
) -> list[str]:
    """Write and log how long the requests of an inference take; return the lines."""
    arrivals = arrivals_of(options.runtime)
    rows = request_rows(found, tuned, arrivals, measurement.records if measurement else ())
    lines = save_requests(rows, arrivals, directory)
    for line in lines:
        log.info("%s", line)
    return lines


def go_on(directory: Path, given: RunCommandOptions) -> None:
    """Go on with a run from its output directory: from its newest whole checkpoint, or else from the begin.

    All that the run makes is put there, as if it had not died; but its plan is not known any more.

    Args:
        directory: The output of the run.
        given: With which this command was started.

    Raises:
        OptionError: The directory is not that of a run, or an option cannot be changed any more.
        Failed: The run failed.
    """
    kept = options_of(directory, given, HydraConfig.get().overrides.task)
    check_runtime_options(kept.runtime)
    placement = _placement_of(directory / "scripts")
    check_device_of(kept.runtime, placement)
    checkpoints: Path | None = directory / "checkpoints"
    if not has_whole(directory / "checkpoints"):
        log.info("%s has no whole checkpoint: the run begins anew, with the same scripts", directory)
        checkpoints = None
    measurement = run_and_save(kept, placement, directory, checkpoints)
    utilisation = save_trace(measurement.records, placement, directory) if kept.runtime.trace else None
    log.info("report in %s", save_report_of_run(placement, measurement, directory, utilisation))


def _placement_of(scripts: Path) -> Placement:
    try:
        return read_job(scripts / JOB_FILE).placement
    except ScriptError as error:
        raise OptionError(f"runtime.resume: {scripts} has no scripts of a run ({error})") from None
