"""The scripts of a schedule and its clocks, proved, their plan, and the plan on simulated GPUs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import schedsearch
from experiments.config.options import OptionError
from experiments.frontier.results import EnergyResult
from experiments.run.options import RuntimeOptions
from experiments.run.run_options import as_option_errors
from experiments.search.profile_reading import CostSource
from experiments.search.results import SearchStepResult
from placements.copies.replicas import as_stages, copies_in, orders_of_stages
from placements.forms.texts import write_json
from runtime.clocks.periodic_clocks import ScriptClocks, clocks_of_rounds, unrolled_clocks
from runtime.codegen.codegen import PICTURE_WIDTH, generate
from runtime.codegen.script import programs_of, read_scripts
from runtime.models import GIVEN_MODEL, Blocks, Model, ModelOptions
from runtime.plans.planned import PlannedIteration
from runtime.program.deadlock import check, check_updates
from runtime.program.instructions import Programs
from runtime.program.lower import lower, recomputed, scattered, scattered_in_words, with_updates
from runtime.program.prefetch import peak_posted, prefetch_receives
from runtime.program.program_file import programs_to_dict
from runtime.program.tensor_flow import pair_backward
from runtime.virtual.virtual_gpu import VirtualGpu
from runtime.virtual.virtual_run import run_virtually
from schedsearch.picture import fitted
from schedsearch.repetend import Repetend
from schedsearch.schedule import CyclicOrderError, Schedule
from schedsearch.semantics.check import check_versions
from schedsearch.semantics.versions import Updates, WeightMode, WeightVersionError, find_versions
from schedsearch.validate import validate

log = logging.getLogger(__name__)

SIMULATED_SCHEMA_VERSION = 1
"""Version of the form of ``simulated.json``."""


def generate_scripts(
    options: RuntimeOptions,
    solution: SearchStepResult,
    tuned: EnergyResult | None,
    model: ModelOptions,
    directory: Path,
    *,
    is_batch: bool = False,
) -> list[Path]:
    """Lower the schedule, prove the programs free of deadlock, and write one script per GPU and their job.

    The scripts' own optimizer step, after the last micro-batch, stands for the optimizer blocks. Where a plan
    whose clocks repeat was asked for, the scripts are of it and of its repetend's schedule, else of one whose
    clocks change seldom if there is one; without any plan they have no clocks. Beside them the same programs
    are written as text, in ``programs.json``.

    Raises:
        OptionError: The schedule cannot be run with the versions of weights that were asked for.
    """
    whole, clocks = _schedule_and_clocks(solution, tuned) if tuned else (solution.schedule, {})
    schedule = validate(script_schedule(whole))
    if model.weight_versions != WeightMode.FLUSH:
        schedule = _with_updates(schedule, model)
    programs = _programs(lower(schedule, is_batch=is_batch), model, options)
    write_json(directory / "programs.json", programs_to_dict(programs))
    device_of = [device for device, count in enumerate(whole.placement.gpus) for _ in range(count)]
    repetend = repetend_of_scripts(solution, tuned)
    return generate(
        programs,
        _of_each_micro_batch(whole, clocks) if options.has_clocks else {},
        model.to_dict(),
        directory,
        shift=repetend.micro_batches if repetend else None,
        title=solution.placement.name,
        picture=fitted(whole, PICTURE_WIDTH, repetend, with_end=True),
        versions={"schedsearch": schedsearch.__version__, "torch": metadata.version("torch")},
        rows=device_of if whole.placement.num_gpus else None,
    )


def _with_updates(schedule: Schedule, model: ModelOptions) -> Schedule:
    """Return a schedule in which copies of a stage wait for each other at each update of the weights.

    All rules of the mode of the weights are checked first. How many versions of its weights each block holds
    is told, and the end where it is later.

    Raises:
        OptionError: The schedule has no such versions, or copies wait for each other in a cycle.
    """
    placement, number = as_stages(schedule.placement), schedule.num_micro_batches
    alone, devices = schedule.per_micro_batch, range(schedule.placement.num_devices)
    orders = orders_of_stages(schedule.placement, [alone.order(device) for device in devices])
    updates = Updates(WeightMode(model.weight_versions), model.micro_batches_per_update)
    with as_option_errors(WeightVersionError):
        versions = find_versions(placement, orders, number, updates, pair_backward(placement))
    held = check_versions(placement, orders, versions).peak_held(placement, orders)
    at_most = ", ".join(f"{count} of {name}" for name, count in held.items())
    log.info("%-12s%s, at most %s", "weights", updates.mode, at_most)
    try:
        updated = with_updates(schedule, model.micro_batches_per_update)
    except CyclicOrderError as error:
        raise OptionError(f"runtime.weight_versions: {error}; use flush, or schedule=pipedream") from None
    if updated.makespan > schedule.makespan:
        end_ms = schedule.placement.ms(updated.makespan)
        log.info("%-12s%s", "", f"copies wait for each other's gradients: they end at {end_ms:g} ms")
    return updated


def _programs(programs: Programs, model: ModelOptions, options: RuntimeOptions) -> Programs:
    """Return proved programs; without the sizes of messages where only a user's own script knows them.

    A receive is posted one block of its device ahead, unless the options say otherwise, but not where every
    transfer waits for its other end: there it would wait longer, and blocking would seem to cost more.
    """
    ahead = int(not options.blocking) if options.receive_ahead is None else options.receive_ahead
    programs = scattered(recomputed(programs, options.recompute or ()), options.scatter)
    if words := scattered_in_words(programs):
        log.info("%-12s%s", "transfers", words)
    if model.name == GIVEN_MODEL:
        return check(prefetch_receives(programs, ahead))
    stages, copies = as_stages(programs.placement), copies_in(programs.placement)
    blocks = Blocks(stages, Model(model, stages, {}), 1)

    def between(producer: str, consumer: str) -> tuple[str, str]:
        return (copies[producer].stage, copies[consumer].stage) if copies else (producer, consumer)

    def size_bytes(*ends: str) -> int:
        return blocks.max_bytes(*between(*ends))

    programs = programs.with_specs(lambda *ends: blocks.spec_between(*between(*ends)))
    programs = prefetch_receives(programs, ahead, options.receive_memory, size_bytes)
    check(programs)
    if model.weight_versions != WeightMode.FLUSH:
        check_updates(programs, model.micro_batches_per_update)
    posted = max(peak_posted(programs, size_bytes))
    log.info("receive buffers: at most %d bytes at a time on a device", posted)
    return programs


def _of_each_micro_batch(schedule: Schedule, clocks: ScriptClocks) -> ScriptClocks:
    """Return clocks with one for each micro-batch, also where copies of a stage take only some: there 0."""
    all_clocks = dict(clocks)
    for name in copies_in(schedule.placement) if clocks else ():
        mhz = cast(Sequence[int], clocks.get(name, ()))
        copy_clocks = dict(zip(schedule.runs_of.get(name, ()), mhz, strict=True))
        all_clocks[name] = [copy_clocks.get(n, 0) for n in range(schedule.num_micro_batches)]
    return all_clocks


def script_schedule(schedule: Schedule) -> Schedule:
    """Return a schedule as scripts run it: its micro-batches, a device for each GPU."""
    schedule = schedule.per_micro_batch
    return replace(schedule, placement=schedule.placement.by_gpu)


def repetend_of_scripts(solution: SearchStepResult, tuned: EnergyResult | None) -> Repetend | None:
    """Return the repetend of the scripts, by the clocks where these repeat; None if unknown."""
    if tuned is not None and tuned.periodic is not None:
        return tuned.periodic.periodic.repetend
    return solution.result.repetend if solution.result else None


def planned_scripts(
    solution: SearchStepResult, tuned: EnergyResult, num_micro_batches: int | None = None
) -> PlannedIteration:
    """Return the plan of the scripts, by default for their own number of micro-batches.

    Optimizer blocks are not in it, for the scripts have none. Where a device stands for several GPUs, the
    plan is told by GPU.
    """
    schedule, clocks = _schedule_and_clocks(solution, tuned, num_micro_batches)
    schedule = script_schedule(schedule)
    unrolled = unrolled_clocks(clocks, schedule.num_micro_batches)
    return PlannedIteration.of(schedule, tuned.profile, unrolled, solution.memory_unit)


def _schedule_and_clocks(
    solution: SearchStepResult, tuned: EnergyResult, num_micro_batches: int | None = None
) -> tuple[Schedule, ScriptClocks]:
    """Return the schedule with a clock for each block, or a repetend with clocks that repeat."""
    names = solution.placement.per_micro_batch.by_name
    if tuned.periodic is None:
        plan = tuned.plan if tuned.switched is None else tuned.switched
        clocks = {name: mhz for name, mhz in plan.clock_mhz.items() if name in names}
        return solution.schedule, clocks
    data: dict[str, Any] = tuned.periodic.to_dict()
    phases = (data[phase].items() for phase in ("warmup", "steady", "cooldown"))
    warmup, steady, cooldown = ({name: mhz for name, mhz in phase if name in names} for phase in phases)
    number = solution.schedule.num_micro_batches if num_micro_batches is None else num_micro_batches
    schedule = tuned.periodic.periodic.schedule(number)
    return schedule, clocks_of_rounds(warmup, steady, cooldown, data["micro_batches_per_repetend"], number)


def simulate_scripts(
    planned: PlannedIteration, latency_ms: float, directory: Path, costs: CostSource
) -> None:
    """Run the scripts in virtual time; write ``simulated.json``, and a line beside the plan.

    The plan counts no time for changes of clock, of which each takes `latency_ms` here.
    """
    profile = planned.profile
    highest = max(points[-1].clock_mhz for points in profile.points.values())
    devices = range(planned.schedule.placement.num_devices)
    gpus = [VirtualGpu(highest, profile.min_blocking_power_w, latency_ms) for _ in devices]
    run = run_virtually(programs_of(read_scripts(directory / "scripts")), profile, gpus)
    facts = {
        "schema_version": SIMULATED_SCHEMA_VERSION,
        "clock_backend": gpus[0].description,
        "switch_ms": latency_ms,
        "time_ms": run.time_ms,
        "energy_mj": run.energy_mj,
        "planned_time_ms": planned.time_ms,
        "planned_energy_mj": planned.energy_mj,
        **costs.to_dict(),
    }
    write_json(directory / "simulated.json", facts)
    figures = (latency_ms, run.time_ms, run.energy_mj / 1e3, planned.time_ms, planned.energy_mj / 1e3)
    text = "on simulated GPUs, with %g ms per change of clock: %.6g ms, %.6g J; planned: %.6g ms, %.6g J"
    log.info(text, *figures)
