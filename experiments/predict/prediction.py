"""Time and memory of a plan, from its placement and schedule, beside its measurements."""

from __future__ import annotations

from collections import Counter

from experiments.predict.blocking_order import blocking_one_f_one_b
from experiments.predict.board import NOT_PREDICTED, BoardRun
from experiments.predict.errors import joined
from experiments.predict.measured_folder import TABLE, MeasuredFolder, MeasuredPlan
from placements import Placement
from placements.measured.layer_profile import NotProfiledError
from placements.measured.measured_placement import place_measured
from placements.measured.plan_file import ReplicatedPlan
from placements.measured.profile_folder import ProfiledModel
from schedsearch.metrics import peak_memory
from schedsearch.schedule import Schedule
from schedsearch.validate import validate

_MAX_BLOCKS = 2_000_000
"""Of a schedule that is made; more would take minutes and gigabytes."""


def predict(
    folder: MeasuredFolder, measured: MeasuredPlan, context_mib: float, compute_slowdown: float
) -> BoardRun:
    """Predict one plan; where it cannot be, the note says why. It comes first of all with the table's note.

    Context and slowdown are those of `placements.measured.measured_placement.place_measured`.
    """
    row, plan, profiles = measured.row, measured.plan, folder.profiles[measured.row.model]
    milliseconds = gib = None
    try:
        if not profiles:
            raise NotProfiledError(f"{row.model} lacks a file in memory/ or in profiles/")
        model = ProfiledModel(row.model, profiles, folder.links)
        placement = place_measured(plan, model, context_mib, compute_slowdown)
        schedule = scheduled(placement, plan.num_micro_batches)
        milliseconds = placement.ms(schedule.makespan)
        gib = placement.mib(int(peak_memory(schedule).max())) / 1024
        note = joined(row.note, *_remarks(plan, model))
    except NotProfiledError as why:
        note = joined(row.note, f"{NOT_PREDICTED}{why}")
    question = f"model {row.model}, gpus {plan.num_gpus}, global batch {plan.global_batch_size}"
    times = None if row.real_s is None else 1000 * row.real_s, milliseconds, None
    return BoardRun(TABLE, row.plan, question, row.plan, *times, row.max_gib, gib, None, note=note)


def scheduled(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return the schedule that the runtime keeps, with every rule checked, unless it has too many blocks."""
    if (count := len(placement.blocks) * num_micro_batches) > _MAX_BLOCKS:
        raise NotProfiledError(f"{count} blocks are more than the {_MAX_BLOCKS} that are simulated")
    return validate(blocking_one_f_one_b(placement, num_micro_batches))


def _remarks(plan: ReplicatedPlan, model: ProfiledModel) -> list[str]:
    """Return remarks on layers and sizes that are odd, or not as measured, in a plan that is predicted."""
    size = plan.micro_batch_size
    groups = {group for stage in plan.stages for group in stage.replicas}
    between = sorted(
        f"{group.gpu} with tensor parallelism {group.size}"
        for group in groups
        if (size, group.size) not in model.profiles[group.gpu].layers
    )
    remarks = (
        [f"micro-batches of {size} interpolated on {', '.join(dict.fromkeys(between))}"] if between else []
    )
    named = Counter(layer for stage in plan.stages for layer in stage.layers)
    every = range(next(iter(model.profiles.values())).num_layers)
    missing = [str(layer) for layer in every if not named[layer]]
    twice = [str(layer) for layer, count in sorted(named.items()) if count > 1]
    remarks += [f"layers in no stage: {' '.join(missing)}"] if missing else []
    return remarks + ([f"layers named more than once: {' '.join(twice)}"] if twice else [])
