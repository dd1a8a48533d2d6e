"""The task of `experiments.profile`: the blocks of a placement run on this machine, and their costs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from experiments.config.command import Failed
from experiments.config.options import OptionError, require_least, require_path
from experiments.config.run_record import output_directory
from experiments.profile.lengths import lengths_to_measure, save_length_rules, save_measured_lengths
from experiments.profile.options import ProfileCommandOptions
from experiments.run.run_options import (
    check_device_of,
    check_runtime_options,
    choose_model,
    devices_in_words,
)
from experiments.search.kinds.files import PROFILE_FILES
from experiments.search.problem import SearchProblem, read_problem
from experiments.search.search_step import search_and_save
from placements import OperatingPoint, Placement, Profile, ProfileError
from placements.copies.replicas import copies_in
from placements.forms.reading import in_file
from placements.forms.texts import write_json, write_text
from placements.measured.run_trace import TraceError, read_traces
from placements.placement_file import placement_to_yaml
from placements.profiles.length_rules import LengthTimeRow, read_measured_lengths
from placements.profiles.operating_point import write_profile_rows
from runtime.codegen.codegen import generate
from runtime.execution.measurement import Measurement
from runtime.execution.run_options import RunOptions
from runtime.launching.launch import LaunchError, launch
from runtime.models import Blocks, Model, ModelOptions
from runtime.profiling.device_profiler import MOST_ITERATIONS
from runtime.profiling.profiler import MeasuredCost, Sweep, blocking_by_clock, merged
from runtime.program.deadlock import check
from runtime.program.lower import lower, recomputed
from schedsearch.baselines import gpipe
from schedsearch.core.progress import IterationBar
from schedsearch.schedule import Schedule

log = logging.getLogger(__name__)

PROFILE_SCHEMA_VERSION = 1
"""Version of the form of ``profile.json``."""


def task(options: ProfileCommandOptions) -> None:
    """Run the blocks, and write their costs and the placement with its times."""
    check_runtime_options(options.runtime)
    _check_profiling_options(options)
    directory = output_directory()
    problem = read_problem(options)
    placement = problem.placement
    if options.profiling.trace is not None:
        save_traced(placement, options.profiling.trace, options.profiling.pattern, directory)
        return
    if options.profiling.length_table is not None:
        path = require_path("profiling.length_table", options.profiling.length_table)
        measured = read_measured_lengths(path)
        with in_file(path, ProfileError):
            save_length_rules(measured, directory)
        return
    check_device_of(options.runtime, placement)
    number = options.search.num_micro_batches
    lengths = lengths_to_measure(options, placement)
    longest = replace(options.runtime, sequence_lengths=lengths[:1] * number or None)
    model = choose_model(longest, placement, number, problem.planned)
    schedules = _schedules(options, problem, directory)
    folders = [directory / (f"scripts_{k}" if k else "scripts") for k in range(len(schedules))]
    runs = [(each, _run(options, each, model, at)) for each, at in zip(schedules, folders, strict=True)]
    save_profile(placement, runs, directory)
    if not lengths:
        return
    rows = []
    for tokens in lengths:
        if tokens != lengths[0]:
            own = replace(model, sequence_lengths=(tokens,) * number)
            at = directory / f"scripts_{tokens}_tokens"
            runs = [(schedules[0], _run(options, schedules[0], own, at))]
        costs = merged(runs[0][1].profiles)
        rows += [LengthTimeRow(tokens, name, found[-1].time_ms) for name, found in costs.items()]
    save_measured_lengths(rows, directory)
    save_length_rules(rows, directory)


def save_traced(placement: Placement, trace: str, pattern: str | None, directory: Path) -> None:
    """Write ``profile.csv``, ``profile.json`` and ``placement.yaml`` of blocks that a trace has times of.

    Blocks that it does not name keep their times.

    Args:
        placement: Placement whose blocks ran.
        trace: A file or a folder; see `placements.measured.run_trace.read_traces`.
        pattern: Pattern of the labels; None for those of torch's pipelines.
        directory: Directory of the output.

    Raises:
        TraceError: The trace is wrong, or names blocks that the placement does not have.
    """
    times = read_traces(require_path("profiling.trace", trace), pattern)
    unknown = [name for name in times if name not in placement.runs]
    if unknown:
        raise TraceError(
            f"{trace}: has the block {unknown[0]}, and {placement.name} has "
            f"{', '.join(placement.runs)}; give the placement that was run"
        )
    described = f"medians of {sum(each.num_runs for each in times.values())} labelled spans of {trace}"
    costs = {name: (MeasuredCost(name, None, each.median_ms, None),) for name, each in times.items()}
    measured = _Measured(costs, {}, "a traced run", described, max(each.num_runs for each in times.values()))
    _save(placement, measured, directory)
    log.info(
        "%s",
        "\n".join(
            f"  {name}: {each.min_ms:.4g} to {each.max_ms:.4g} ms in {each.num_runs} runs"
            for name, each in times.items()
        ),
    )


def _schedules(options: ProfileCommandOptions, problem: SearchProblem, directory: Path) -> list[Schedule]:
    """Return the schedules in which blocks are measured: one, or one for each mode of blocks that have some.

    The pipeline's schedule is saved.

    Raises:
        OptionError: Blocks have modes, and are to be measured in a pipeline, where each may run in one alone.
    """
    placement, number = problem.placement.per_micro_batch, options.search.num_micro_batches
    if copies_in(placement):
        raise OptionError(
            f"placement: {placement.name} has copies of stages, which are alike; profile the placement "
            "without them"
        )
    if not options.profiling.in_pipeline:
        most = max((len(decision.choices) for decision in placement.decisions), default=1)
        return [one_after_another(placement, number, choice) for choice in range(most)]
    if placement.decisions:
        raise OptionError(
            f"profiling.in_pipeline: the blocks of {placement.name} have modes, each of which is measured on "
            "its own; use false"
        )
    unmeasured = replace(problem, profile=None)
    return [search_and_save(options, unmeasured, directory).schedule.per_micro_batch]


def one_after_another(placement: Placement, num_micro_batches: int, choice: int = 0) -> Schedule:
    """Return the schedule in which each micro-batch ends before the next one begins.

    Perseus measures in the midst of training (Sec. 5); here nothing else runs beside a block, so that its
    time is its own also where devices share a processor, and least memory is needed.

    Args:
        placement: Blocks to measure.
        num_micro_batches: Micro-batches of an iteration.
        choice: Number of the mode that all blocks run in, or their last where they have fewer.
    """
    chosen = tuple(min(choice, len(decision.choices) - 1) for decision in placement.decisions)
    one = gpipe(placement.as_run(chosen), 1)
    blocks = (
        block._replace(micro_batch=n, start=block.start + n * one.makespan)
        for n in range(num_micro_batches)
        for block in one.blocks
    )
    each = (chosen,) * num_micro_batches if chosen else ()
    return Schedule(placement, num_micro_batches, tuple(blocks), each)


def _run(
    options: ProfileCommandOptions, schedule: Schedule, model: ModelOptions, scripts: Path
) -> Measurement:
    """Generate the scripts and profile them."""
    by_gpu = schedule.placement.by_gpu
    blocks = Blocks(by_gpu, Model(model, by_gpu, {}), 1)
    programs = recomputed(lower(schedule), options.runtime.recompute or ())
    programs = check(programs.with_specs(blocks.spec_between))
    # Nothing is trained: a model that diverges over many iterations would compute with other numbers.
    generate(programs, {}, replace(model, learning_rate=0.0).to_dict(), scripts)
    chosen = options.profiling
    sweep = Sweep(chosen.iterations, chosen.min_ms, chosen.rises, chosen.blocking_clocks)
    log.info("profile: starting %s with %s", devices_in_words(schedule.placement), options.runtime.launcher)
    bar = IterationBar("profile")
    with bar:
        try:
            return launch(
                scripts,
                sum(schedule.placement.gpus),
                RunOptions.of(
                    {
                        "iterations": MOST_ITERATIONS,
                        "timeout_s": options.runtime.timeout_s,
                        "device": options.runtime.device,
                        "launcher": options.runtime.launcher,
                        "blocking": options.runtime.blocking,
                        "sweep": sweep,
                        "clock_latency": options.profile.clock_latency,
                    }
                ),
                bar,
            )
        except LaunchError as error:
            raise Failed(f"the run failed: {error}") from None


def save_profile(placement: Placement, runs: Sequence[tuple[Schedule, Measurement]], directory: Path) -> None:
    """Write ``profile.csv``, ``profile.json`` and ``placement.yaml`` of runs, and log the costs.

    Blocks that did not run (optimizer blocks) keep their times; beside them energies are not used, since a
    frontier needs those of all blocks. Of what ran in the same mode several times, the first counts.
    """
    costs: dict[str, tuple[MeasuredCost, ...]] = {}
    for schedule, each in runs:
        for block, found in merged(each.profiles).items():
            name = schedule.run_name(block, 0)
            costs.setdefault(name, tuple(cost._replace(kind=name) for cost in found))
    measurement = runs[0][1]
    measured = _Measured(
        costs,
        blocking_by_clock(measurement.profiles),
        measurement.device_names[0],
        measurement.profiles[0].description,
        measurement.iterations,
    )
    _save(placement, measured, directory)


class _Measured(NamedTuple):
    """Measured costs of blocks.

    Attributes:
        costs: Costs of each block, by increasing clock.
        blocking_w: Blocking power by clock.
        device: What ran them, or the file that says so.
        description: One line: how.
        iterations: Number of iterations in which they ran.
    """

    costs: Mapping[str, tuple[MeasuredCost, ...]]
    blocking_w: Mapping[Any, float]
    device: str
    description: str
    iterations: int


def _save(placement: Placement, measured: _Measured, directory: Path) -> None:
    costs, powers = measured.costs, measured.blocking_w
    rows = [
        (cost.kind, cost.clock_mhz, cost.time_ms, cost.energy_mj) for name in costs for cost in costs[name]
    ]
    write_profile_rows(directory / PROFILE_FILES.csv, rows)
    not_run = [name for name in placement.runs if name not in costs]
    has_energy = all(cost.energy_mj is not None for found in costs.values() for cost in found)
    facts = {
        "schema_version": PROFILE_SCHEMA_VERSION,
        "device": measured.device,
        "measured": measured.description,
        "energy": has_energy and not not_run,
        "blocking_power_w": dict(powers) if len(powers) > 1 else next(iter(powers.values()), None),
        "iterations": measured.iterations,
    }
    write_json(directory / PROFILE_FILES.facts, facts)
    write_text(directory / PROFILE_FILES.placement, placement_to_yaml(with_measured_times(placement, costs)))
    log.info("%s", facts["measured"])
    if len(powers) > 1:
        log.info(
            "while waiting: %s", ", ".join(f"{power:.4g} W at {mhz} MHz" for mhz, power in powers.items())
        )
    log.info("%s", "\n".join(f"  {name}: {_in_words(found)}" for name, found in costs.items()))
    if not_run:
        log.info(
            "not run: %s; their times stay as they are%s",
            ", ".join(not_run),
            ", and placement=profiled will use no measured energies" if has_energy else "",
        )
    log.info("profile in %s; search with: placement=profiled placement.path=%s", directory, directory)


def with_measured_times(placement: Placement, costs: Mapping[str, tuple[MeasuredCost, ...]]) -> Placement:
    """Return the placement with every block's time at its highest clock, in each of its modes.

    Blocks without costs keep theirs.
    """
    points = {}
    for name, block in placement.runs.items():
        time_ms = costs[name][-1].time_ms if name in costs else block.time * placement.tick_ms
        points[name] = (OperatingPoint(1, time_ms, 0.0),)
    return Profile("measured", points, 0.0).times_for(placement)


def _in_words(costs: tuple[MeasuredCost, ...]) -> str:
    highest = costs[-1]
    clock = "" if highest.clock_mhz is None else f" at {highest.clock_mhz} MHz"
    energy = "" if highest.energy_mj is None else f", {highest.energy_mj:.6g} mJ"
    more = f"; {len(costs)} clocks down to {costs[0].clock_mhz} MHz" if len(costs) > 1 else ""
    return f"{highest.time_ms:.4g} ms{energy}{clock}{more}"


def _check_profiling_options(options: ProfileCommandOptions) -> None:
    """Reject wrong options before any work starts."""
    require_least("search.num_micro_batches", options.search.num_micro_batches, 1)
