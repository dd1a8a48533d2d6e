"""The task of `experiments.run`: all steps, from a placement to a verified run and its report."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
import math
from importlib import metadata
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from experiments.clock_latency import switching_limits
from experiments.command import Failed
from experiments.frontier_task import check_energy_on, check_energy_options, frontier_and_save
from experiments.options import NUM_LAYERS, OptionError, RuntimeOptions, did_you_mean, read_options
from experiments.orders import check_orders, choose_order
from experiments.outcomes import EnergyOutcome, SearchOutcome
from experiments.planned_model import what_is_run, with_planned_layers
from experiments.plans import Planned as Plan
from experiments.progress import StepBar
from experiments.realisable import check_realisable, check_realisable_on
from experiments.report import save_report, save_report_of_run
from experiments.resumed import options_of, resume_command, resumed_directory, save_options
from experiments.search_task import output_directory, search_and_save
from experiments.simulated_run import check_simulated_on, simulate_scripts
from experiments.steps import build_placement, planned_by, read_profile
from experiments.traces import planned_run, save_trace
from placements import Placement
from runtime.autodiff import pair_backward
from runtime.calls import ScriptError
from runtime.checkpoint import has_whole
from runtime.codegen import Clocks, generate
from runtime.deadlock import UnsafeProgramsError, check
from runtime.early import peak_posted, post_early
from runtime.launch import LAUNCHERS, LaunchError, launch
from runtime.measure import Measurement
from runtime.models import MODEL_NAMES, Blocks, Model, ModelError, ModelOptions, body_of, suitable_model
from runtime.periodic_clocks import PeriodicClocks
from runtime.planned import Planned
from runtime.program import lower
from runtime.program_file import programs_to_dict
from runtime.run_options import check_device
from runtime.script import read_script
from runtime.trace import write_trace
from schedsearch.files import write_json
from schedsearch.picture import picture
from schedsearch.schedule import Schedule
from schedsearch.validate import validate

log = logging.getLogger(__name__)


def task(config: DictConfig) -> None:
    """Search, tune, generate, run, compare, report."""
    options = read_options(config)
    if directory := resumed_directory(options.runtime):
        go_on(directory, options.runtime)
        return
    check_energy_options(options.energy)
    check_realisable(options)
    check_orders(options)
    check_runtime_options(options.runtime)
    directory = output_directory()
    profile = read_profile(options)
    placement = build_placement(options, profile)
    check_device_of(options.runtime, placement)
    check_realisable_on(options, placement, profile)
    number = options.search.num_micro_batches
    model = choose_model(options.runtime, placement, number, planned_by(options))
    check_energy_on(options, placement)
    check_simulated_on(options)
    found = search_and_save(options, placement, profile, directory)
    found = choose_order(options, found, directory)
    tuned = frontier_and_save(options, found, directory)
    generate_scripts(options.runtime, found, tuned, model, directory / "scripts")
    if options.runtime.simulated_gpus:
        planned, latency_ms = _planned(found, tuned), switching_limits(options).latency_ms
        simulate_scripts(planned, directory / "scripts", latency_ms, directory, traces=options.runtime.trace)
    measurement = run_and_save(options.runtime, placement, directory, options.profile.clock_latency)
    busy = None
    if options.runtime.trace:
        planned = _planned(found, tuned, measurement.num_micro_batches)
        busy = save_trace(measurement.records, planned, directory)
    save_report(found, tuned, measurement, directory, busy)
    _list_files(directory)


def go_on(directory: Path, given: RuntimeOptions) -> None:
    """Go on with a run from its output directory: from its newest whole checkpoint, or else from the begin.

    All that the run makes is put there, as if it had not died.

    Args:
        directory: The output of the run.
        given: With which this command was started.

    Raises:
        OptionError: The directory is not that of a run, or an option cannot be changed any more.
    """
    options = options_of(directory, given, HydraConfig.get().overrides.task)
    check_runtime_options(options)
    placement = _placement_of(directory / "scripts")
    checkpoints = directory / "checkpoints"
    if has_whole(checkpoints, placement.num_devices):
        options = dataclasses.replace(options, resume=str(checkpoints))
    else:
        log.info("%s has no whole checkpoint: the run begins anew, with the same scripts", directory)
    measurement = run_and_save(options, placement, directory)
    if options.trace:
        write_trace(directory / "trace.json", placement, measurement.records)
    save_report_of_run(placement, measurement, directory)
    _list_files(directory)


def _placement_of(scripts: Path) -> Placement:
    try:
        return read_script(scripts / "device_0.py").placement
    except (OSError, ScriptError) as error:
        raise OptionError(f"runtime.resume: {scripts} has no scripts of a run ({error})") from None


def _list_files(directory: Path) -> None:
    made = sorted(path for path in directory.rglob("*") if path.is_file() and path.parent.name != ".hydra")
    log.info("made:\n%s", "\n".join(f"  {path}" for path in made))


def check_runtime_options(options: RuntimeOptions) -> None:
    """Reject wrong options before any work starts.

    Raises:
        ValueError: One is out of its range.
    """
    names = ["auto", *MODEL_NAMES]
    if options.model not in names:
        raise OptionError(
            f"runtime.model: {options.model!r} is not known; {did_you_mean(options.model, names)}"
        )
    if options.iterations < 1:
        raise OptionError(f"runtime.iterations: {options.iterations} is not at least 1")
    if not options.timeout_s > 0:
        raise OptionError(f"runtime.timeout_s: {options.timeout_s:g} is not a positive number of seconds")
    if options.launcher not in LAUNCHERS:
        remedy = did_you_mean(options.launcher, LAUNCHERS)
        raise OptionError(f"runtime.launcher: {options.launcher!r} is not known; {remedy}")
    for name, least in (
        ("num_micro_batches", 1),
        ("receive_ahead", 0),
        ("receive_memory", 0),
        ("checkpoint_every", 0),
        ("keep_checkpoints", 0),
    ):
        value = getattr(options, name)
        if value is not None and value < least:
            raise OptionError(f"runtime.{name}: {value} is not at least {least}")
    if options.resume is not None and not Path(options.resume).is_dir():
        raise OptionError(
            f"runtime.resume: {options.resume} is not a folder; give the output directory or the checkpoints "
            "of a run"
        )
    _model_options(options, "gpt" if options.model == "auto" else options.model)


def check_device_of(options: RuntimeOptions, placement: Placement) -> None:
    """Reject a device that this machine lacks, or that the launcher cannot use for the placement.

    Raises:
        OptionError: It is so.
    """
    try:
        check_device(options.device, options.launcher, sum(placement.gpus))
    except ScriptError as error:
        raise OptionError(f"runtime.{error}") from None


def choose_model(
    options: RuntimeOptions, placement: Placement, num_micro_batches: int, plan: Plan | None
) -> ModelOptions:
    """Return the model to run on the GPUs of the placement, optimizer blocks aside.

    A GPT on the placement of a plan has the plan's layers in each block; what of it is not run is logged.

    Raises:
        OptionError: It does not fit the placement, or its text or Python file cannot be read.
        UnrunnablePlacementError: Gradients have no way through the placement.
    """
    placement = placement.per_micro_batch.by_gpu
    pair_backward(placement)
    name = options.model
    if name == "auto":
        name = suitable_model(placement, options.num_heads)
    if plan is not None and name == "gpt":
        options = with_planned_layers(options, plan)
    model = _model_options(options, name)
    try:
        body_of(model, placement).data(num_micro_batches, "cpu")
    except ModelError as error:
        raise _in_options(error) from None
    for line in what_is_run(plan.plan, model) if plan is not None else ():
        log.info("%s", line)
    return model


def generate_scripts(
    options: RuntimeOptions, found: SearchOutcome, tuned: EnergyOutcome, model: ModelOptions, directory: Path
) -> list[Path]:
    """Lower the schedule, prove the programs free of deadlock, and write one script per GPU.

    The scripts' own optimizer step, after the last micro-batch, stands for the optimizer blocks. Where a plan
    whose clocks repeat was asked for, the scripts are of it and of its repetend's schedule, else of one whose
    clocks change seldom if there is one. Beside them the same programs are written as text, in
    ``programs.json``.
    """
    whole, clocks = _schedule_and_clocks(found, tuned)
    schedule = whole.per_micro_batch
    schedule = validate(dataclasses.replace(schedule, placement=schedule.placement.by_gpu))
    blocks = Blocks(schedule.placement, Model(model, schedule.placement, {}), 1)
    size_bytes = functools.partial(_message_bytes, blocks)
    programs = lower(schedule).with_forms(blocks.form_between)
    programs = post_early(programs, options.receive_ahead, options.receive_memory, size_bytes)
    check(programs)
    posted = max(peak_posted(programs, size_bytes))
    log.info("receives posted and not yet taken: at most %d bytes on a device", posted)
    write_json(directory / "programs.json", programs_to_dict(programs))
    device_of = [device for device, count in enumerate(whole.placement.gpus) for _ in range(count)]
    repetend = tuned.periodic.periodic.repetend if tuned.periodic else found.result and found.result.repetend
    return generate(
        programs,
        clocks,
        model.to_dict(),
        directory,
        shift=repetend.micro_batches if repetend else None,
        title=found.placement.name,
        picture=picture(whole, max_columns=100),
        versions={name: metadata.version(name) for name in ("schedsearch", "torch")},
        rows=device_of if whole.placement.num_gpus else None,
    )


def _planned(found: SearchOutcome, tuned: EnergyOutcome, num_micro_batches: int | None = None) -> Planned:
    """Return what is planned for the scripts, by default for their own number of micro-batches."""
    schedule, clocks = _schedule_and_clocks(found, tuned, num_micro_batches)
    return planned_run(schedule, tuned.profile, clocks, found.memory_unit)


def _schedule_and_clocks(
    found: SearchOutcome, tuned: EnergyOutcome, num_micro_batches: int | None = None
) -> tuple[Schedule, Clocks]:
    """Return what is run: the schedule with a clock for each block, or a repetend with clocks that repeat."""
    names = found.placement.per_micro_batch.by_name
    if tuned.periodic is None:
        plan = tuned.plan if tuned.switched is None else tuned.switched
        clocks = {name: mhz for name, mhz in plan.clock_mhz.items() if name in names}
        return found.schedule, clocks
    data: dict[str, Any] = tuned.periodic.to_dict()
    warmup, steady, cooldown = (
        {name: lanes for name, lanes in data[part].items() if name in names}
        for part in ("warmup", "steady", "cooldown")
    )
    number = found.schedule.num_micro_batches if num_micro_batches is None else num_micro_batches
    schedule = tuned.periodic.periodic.schedule(number)
    return schedule, PeriodicClocks(warmup, steady, cooldown, data["micro_batches_per_repetend"])


def _message_bytes(blocks: Blocks, producer: str, consumer: str) -> int:
    return math.prod(blocks.form_between(producer, consumer).shape) * blocks.dtype.itemsize


def run_and_save(
    options: RuntimeOptions, placement: Placement, directory: Path, clock_latency: str | None = None
) -> Measurement:
    """Run the scripts, compare with the unpipelined model, write ``measurement.json``.

    Raises:
        OptionError: The scripts cannot run so many micro-batches, or not go on from the checkpoints.
        Failed: The run failed; the message ends with the command that resumes it.
    """
    save_options(options, directory)
    num_gpus = sum(placement.gpus)
    log.info("starting %d processes with %s", num_gpus, options.launcher)
    if options.checkpoint_every:
        log.info("if the run dies, resume it: %s", resume_command(directory))
    done = itertools.count(1)
    bar = StepBar("run")
    with bar:
        try:
            measurement = launch(
                directory / "scripts",
                num_gpus,
                options.iterations,
                options.timeout_s,
                device=options.device,
                launcher=options.launcher,
                blocking=options.blocking,
                num_micro_batches=options.num_micro_batches,
                checkpoint_every=options.checkpoint_every,
                checkpoints=directory / "checkpoints",
                keep_checkpoints=options.keep_checkpoints,
                resume=options.resume,
                trace=options.trace,
                progress=lambda line: bar(line, next(done), options.iterations),
                clock_latency=clock_latency,
            )
        except ScriptError as error:
            raise OptionError(f"runtime.{error}") from None
        except UnsafeProgramsError as error:
            raise Failed(f"the run failed: {error}") from None
        except LaunchError as error:
            raise Failed(f"the run failed: {error}\nresume it: {resume_command(directory)}") from None
    write_json(directory / "measurement.json", measurement.to_dict())
    log.info("%s", describe(measurement))
    return measurement


def describe(measurement: Measurement) -> str:
    """Return the losses and the comparison in one line."""
    comparison = measurement.comparison
    assert comparison is not None, "a launch compares unless told not to"
    blocking = ", blocking" if measurement.blocking else ""
    first, last = (sum(losses) / len(losses) for losses in (measurement.losses[0], measurement.losses[-1]))
    return (
        f"{measurement.backend}{blocking}: "
        f"loss {first:.4f} to {last:.4f} in {measurement.iterations} iterations; "
        f"against the unpipelined model: largest gradient error {comparison.max_gradient_error:.1e}, "
        f"bitwise equal to its replay: {comparison.bitwise_equal}; clocks: {measurement.clock_backend}"
    )


def _in_options(error: ModelError) -> OptionError:
    """Return a model's error in the words of the options."""
    text = str(error).replace("model.name", "runtime.model").replace("model.", "runtime.", 1)
    return OptionError(text.replace("use model=", "use runtime.model="))


def _model_options(options: RuntimeOptions, name: str) -> ModelOptions:
    given: dict[str, Any] = dataclasses.asdict(options)
    given["name"] = name
    if options.num_layers is None and options.layers_per_block is None:
        given["num_layers"] = NUM_LAYERS
    if options.path is not None:
        given["path"] = str(Path(options.path).resolve())
    try:
        return ModelOptions.from_dict(
            {field.name: given[field.name] for field in dataclasses.fields(ModelOptions)}
        )
    except ModelError as error:
        raise _in_options(error) from None
