"""The task of `experiments.run`: all steps, from a placement to a verified run and its report."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from experiments.command import Failed
from experiments.frontier_task import check_energy_on, check_energy_options, frontier_and_save
from experiments.options import OptionError, RuntimeOptions, did_you_mean, read_options
from experiments.orders import check_orders, choose_order
from experiments.outcomes import EnergyOutcome, SearchOutcome
from experiments.progress import StepBar
from experiments.realisable import check_realisable, check_realisable_on
from experiments.report import save_report
from experiments.search_task import output_directory, search_and_save
from experiments.simulated_run import check_simulated_on, simulate_scripts
from experiments.steps import build_placement, read_profile
from placements import Placement
from runtime.autodiff import pair_backward
from runtime.codegen import generate
from runtime.deadlock import check
from runtime.launch import LaunchError, launch
from runtime.measure import Measurement
from runtime.models import MODEL_NAMES, ModelError, ModelOptions, body_of, suitable_model
from runtime.program import lower
from runtime.program_file import programs_to_dict
from schedsearch.files import write_json
from schedsearch.picture import picture

log = logging.getLogger(__name__)


def task(config: DictConfig) -> None:
    """Search, tune, generate, run, compare, report."""
    options = read_options(config)
    check_energy_options(options.energy)
    check_realisable(options)
    check_orders(options)
    check_runtime_options(options.runtime)
    directory = output_directory()
    profile = read_profile(options)
    placement = build_placement(options, profile)
    check_realisable_on(options, placement, profile)
    model = choose_model(options.runtime, placement, options.search.num_micro_batches)
    check_energy_on(options, placement)
    check_simulated_on(options, placement)
    found = search_and_save(options, placement, profile, directory)
    found = choose_order(options, found, directory)
    tuned = frontier_and_save(options, found, directory)
    generate_scripts(found, tuned, model, directory / "scripts")
    if options.runtime.simulated_gpus:
        simulate_scripts(found, tuned, directory / "scripts", options.energy.switch_ms, directory)
    measurement = run_and_save(options.runtime, placement, directory)
    save_report(found, tuned, measurement, directory)
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
    _model_options(options, "synthetic" if options.model == "auto" else options.model)


def choose_model(options: RuntimeOptions, placement: Placement, num_micro_batches: int) -> ModelOptions:
    """Return the model to run on the placement, optimizer blocks aside.

    Raises:
        OptionError: It does not fit the placement, or its text or Python file cannot be read.
        UnrunnablePlacementError: Gradients have no way through the placement.
    """
    placement = placement.per_micro_batch
    pair_backward(placement)
    name = options.model
    if name == "auto":
        name = suitable_model(placement, options.num_heads)
    model = _model_options(options, name)
    try:
        body_of(model, placement).data(num_micro_batches, "cpu")
    except ModelError as error:
        raise _in_options(error) from None
    return model


def generate_scripts(
    found: SearchOutcome, tuned: EnergyOutcome, model: ModelOptions, directory: Path
) -> list[Path]:
    """Lower the schedule, prove the programs free of deadlock, and write one script per device.

    Beside them the same programs are written as text, ``programs.json``.

    The scripts' own optimizer step, after the last micro-batch, stands for the optimizer blocks.
    """
    schedule = found.schedule.per_micro_batch
    programs = check(lower(schedule))
    repetend = found.result.repetend if found.result else None
    write_json(directory / "programs.json", programs_to_dict(programs))
    return generate(
        programs,
        {name: clocks for name, clocks in tuned.plan.clock_mhz.items() if name in schedule.placement.by_name},
        model.to_dict(),
        directory,
        shift=repetend.micro_batches if repetend else 1,
        title=found.placement.name,
        picture=picture(found.schedule, max_columns=100),
    )


def run_and_save(options: RuntimeOptions, placement: Placement, directory: Path) -> Measurement:
    """Run the scripts under torchrun, compare with the unpipelined model, write ``measurement.json``."""
    log.info("starting %d processes with torchrun", placement.num_devices)
    done = itertools.count(1)
    bar = StepBar("run")
    with bar:
        try:
            measurement = launch(
                directory / "scripts",
                placement.num_devices,
                options.iterations,
                options.timeout_s,
                progress=lambda line: bar(line, next(done), options.iterations),
            )
        except LaunchError as error:
            raise Failed(f"the run failed: {error}") from None
    write_json(directory / "measurement.json", measurement.to_dict())
    log.info("%s", describe(measurement))
    return measurement


def describe(measurement: Measurement) -> str:
    """Return the losses and the comparison in one line."""
    comparison = measurement.comparison
    assert comparison is not None, "a launch compares unless told not to"
    first, last = (sum(losses) / len(losses) for losses in (measurement.losses[0], measurement.losses[-1]))
    return (
        f"{measurement.backend}: loss {first:.4f} to {last:.4f} in {measurement.iterations} iterations; "
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
    if options.path is not None:
        given["path"] = str(Path(options.path).resolve())
    try:
        return ModelOptions.from_dict(
            {field.name: given[field.name] for field in dataclasses.fields(ModelOptions)}
        )
    except ModelError as error:
        raise _in_options(error) from None
