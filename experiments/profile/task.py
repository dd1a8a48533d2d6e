"""The task of `experiments.profile`: the blocks of a placement run on this machine, and their costs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from experiments.config.command import Failed
from experiments.config.options import OptionError, require, require_path
from experiments.config.run_record import output_directory
from experiments.profile.options import ProfileCommandOptions
from experiments.report.result import Result
from experiments.run.run_options import check_device_of, check_runtime_options, choose_model, devices_in_words
from experiments.search.kinds.files import PLACEMENT, PROFILE_CSV, PROFILE_FACTS
from experiments.search.problem import read_problem
from placements import OperatingPoint, Placement, Profile, ProfileError
from placements.copies.replicas import copies_in
from placements.forms.reading import in_file
from placements.forms.texts import csv_text
from placements.placement_file import placement_to_yaml
from placements.profiles.length_rules import LengthTimeRow, fit_rules, read_measured_lengths, rules_to_csv
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
from schedsearch.core.progress import IterationBar, StepBar
from schedsearch.schedule import Schedule
from schedsearch.traces.block_times import block_times
from schedsearch.traces.table import TraceError

log = logging.getLogger(__name__)

PROFILE_SCHEMA_VERSION = 1
"""Version of the form of ``profile.json``."""

Costs = Mapping[str, tuple[MeasuredCost, ...]]
"""Costs of each block, by increasing clock."""


def task(options: ProfileCommandOptions) -> Result:
    """Run the blocks, or read their times; return their costs and the placement with its times."""
    check_runtime_options(options.runtime)
    directory, problem, chosen = output_directory(), read_problem(options), options.profiling
    placement, number = problem.placement, options.search.num_micro_batches
    if chosen.trace is not None:
        return traced(placement, require_path("profiling.trace", chosen.trace), chosen.pattern, directory)
    if chosen.length_table is not None:
        path = require_path("profiling.length_table", chosen.length_table)
        with in_file(path, ProfileError):
            return length_rules(read_measured_lengths(path), directory)
    check_device_of(options.runtime, placement)
    given = options.runtime.sequence_lengths
    remedy = "give runtime.sequence_length, and profiling.length_table for rules of the length"
    require(given is None, "runtime.sequence_lengths", given, "for one measurement", remedy)
    model = choose_model(options.runtime, placement, number, problem.built.planned)
    if copies_in(placement):
        raise OptionError(
            f"placement: {placement.name} has copies of stages, which are alike; profile the placement "
            "without them"
        )
    alone = placement.per_micro_batch
    modes = max((len(decision.choices) for decision in alone.decisions), default=1)
    schedules = [one_after_another(alone, number, choice) for choice in range(modes)]
    folders = [directory / (f"scripts_{k}" if k else "scripts") for k in range(len(schedules))]
    runs = [_run(options, schedule, model, at) for schedule, at in zip(schedules, folders, strict=True)]
    return measured(placement, list(zip(schedules, runs, strict=True)), directory)


def length_rules(rows: Sequence[LengthTimeRow], directory: Path) -> Result:
    """Fit the rule of each block to times by length; return ``length_rules.csv``, and the rules' errors.

    Raises:
        ProfileError: A block has too few lengths.
    """
    rules, name = fit_rules(rows), "length_rules.csv"
    lines = [f"  {block}: {rule}" for block, rule in rules.items()]
    search = f"search with: search.micro_batches=FILE.csv search.length_rules={directory / name}"
    about = "rules of the length, where x is a thousand tokens:"
    return Result(files={name: rules_to_csv(rules)}, sentences=[about, *lines, search])


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
    modes = (chosen,) * num_micro_batches if chosen else ()
    return Schedule(placement, num_micro_batches, tuple(blocks), modes)


def _run(
    options: ProfileCommandOptions, schedule: Schedule, model: ModelOptions, scripts: Path
) -> Measurement:
    """Generate the scripts and profile them."""
    by_gpu, runtime, chosen = schedule.placement.by_gpu, options.runtime, options.profiling
    blocks = Blocks(by_gpu, Model(model, by_gpu, {}), 1)
    programs = recomputed(lower(schedule), runtime.recompute or ())
    programs = check(programs.with_specs(blocks.spec_between))
    # Nothing is trained: a model that diverges over many iterations would compute with other numbers.
    generate(programs, {}, replace(model, learning_rate=0.0).to_dict(), scripts)
    given: dict[str, object] = {"iterations": MOST_ITERATIONS, "clock_latency": options.profile.clock_latency}
    given |= {name: getattr(runtime, name) for name in ("timeout_s", "device", "launcher", "blocking")}
    given["sweep"] = Sweep(chosen.iterations, chosen.min_ms, chosen.rises, chosen.blocking_clocks)
    log.info("profile: starting %s with %s", devices_in_words(schedule.placement), runtime.launcher)
    with IterationBar("profile") as bar:
        try:
            return launch(scripts, sum(schedule.placement.gpus), RunOptions.of(given), bar)
        except LaunchError as error:
            raise Failed(f"the run failed: {error}") from None


def traced(placement: Placement, trace: str, pattern: str | None, directory: Path) -> Result:
    """Return the costs of blocks that a trace has times of; others keep their times.

    Args:
        placement: Placement whose blocks ran.
        trace: A file or a folder; see `schedsearch.traces.block_times.block_times`.
        pattern: Pattern of the labels; None for the known ones.
        directory: Directory of the output.

    Raises:
        TraceError: The trace is wrong, or names blocks that the placement does not have.
    """
    with StepBar("trace") as bar:
        times = block_times(trace, pattern, bar)
    unknown = [name for name in times if name not in placement.runs]
    if unknown:
        raise TraceError(
            f"{trace}: has the block {unknown[0]}, and {placement.name} has "
            f"{', '.join(placement.runs)}; give the placement that was run"
        )
    facts = {
        "device": "a traced run",
        "measured": f"medians of {sum(block.num_runs for block in times.values())} labelled spans of {trace}",
        "iterations": max(block.num_runs for block in times.values()),
    }
    costs = {name: (MeasuredCost(name, None, block.median_ms, None),) for name, block in times.items()}
    spans = [
        f"  {name}: {block.min_ms:.4g} to {block.max_ms:.4g} ms in {block.num_runs} runs"
        for name, block in times.items()
    ]
    return _result(placement, costs, {}, facts, directory, spans)


def measured(placement: Placement, runs: Sequence[tuple[Schedule, Measurement]], directory: Path) -> Result:
    """Return the costs of blocks in runs; of several runs of a block in one mode, the first counts.

    Blocks that did not run (optimizer blocks) keep their times; beside them energies are not used, since a
    frontier needs those of all blocks.
    """
    costs: dict[str, tuple[MeasuredCost, ...]] = {}
    for schedule, measurement in runs:
        for block, block_costs in merged(measurement.profiles).items():
            name = schedule.run_name(block, 0)
            costs.setdefault(name, tuple(cost._replace(kind=name) for cost in block_costs))
    first = runs[0][1]
    facts = {
        "device": first.device_names[0],
        "measured": first.profiles[0].description,
        "iterations": first.iterations,
    }
    return _result(placement, costs, blocking_by_clock(first.profiles), facts, directory)


def _result(
    placement: Placement,
    costs: Costs,
    powers: Mapping[int | None, float],
    facts: Mapping[str, object],
    directory: Path,
    more: Sequence[str] = (),
) -> Result:
    """Return ``profile.csv`` in seconds and joules, ``profile.json`` and ``placement.yaml``."""
    every = [cost for block_costs in costs.values() for cost in block_costs]
    not_run = [name for name in placement.runs if name not in costs]
    has_energy = all(cost.energy_mj is not None for cost in every)
    rows = (
        (c.kind, c.clock_mhz, repr(c.time_ms / 1e3), None if c.energy_mj is None else repr(c.energy_mj / 1e3))
        for c in every
    )
    by_clock = ", ".join(f"{power:.4g} W at {mhz} MHz" for mhz, power in powers.items())
    unused = ", and placement=profiled will use no measured energies" * has_energy
    return Result(
        files={
            PROFILE_CSV: csv_text(("block", "frequency", "time", "energy"), rows),
            PROFILE_FACTS: {
                "schema_version": PROFILE_SCHEMA_VERSION,
                **facts,
                "energy": has_energy and not not_run,
                "blocking_power_w": dict(powers) if len(powers) > 1 else next(iter(powers.values()), None),
            },
            PLACEMENT: placement_to_yaml(with_measured_times(placement, costs)),
        },
        sentences=[
            str(facts["measured"]),
            *([f"while waiting: {by_clock}"] if len(powers) > 1 else []),
            *(f"  {name}: {_in_words(block_costs)}" for name, block_costs in costs.items()),
            *([f"not run: {', '.join(not_run)}; their times stay as they are{unused}"] if not_run else []),
            *more,
            f"search with: placement=profiled placement.path={directory}",
        ],
    )


def with_measured_times(placement: Placement, costs: Costs) -> Placement:
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
