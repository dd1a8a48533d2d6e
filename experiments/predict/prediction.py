"""Time and memory of a plan, from its placement and schedule, beside its measurements; ranks of plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from experiments.predict.blocking_order import blocking_one_f_one_b
from experiments.predict.errors import error_of, joined
from experiments.predict.measured_folder import MeasuredFolder, MeasuredPlan
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


@dataclass(frozen=True)
class PlanPrediction:
    """Prediction of one plan.

    Attributes:
        measured: The plan, with its measurements.
        predicted_s: Seconds of an iteration; None where it cannot be predicted, as the note says.
        predicted_gib: Memory of the fullest GPU; likewise.
        note: Note of the plan in its table, then our remarks.
    """

    measured: MeasuredPlan
    predicted_s: float | None
    predicted_gib: float | None
    note: str

    @property
    def time_error(self) -> float | None:
        """Share of the measured time by which the prediction is above it."""
        return error_of(self.predicted_s, self.measured.row.real_s)

    @property
    def memory_error(self) -> float | None:
        """Likewise of memory."""
        return error_of(self.predicted_gib, self.measured.row.max_gib)


def predict(
    folder: MeasuredFolder, measured: MeasuredPlan, context_mib: float, compute_slowdown: float
) -> PlanPrediction:
    """Predict one plan; where it cannot be, the note says why.

    Context and slowdown are those of `placements.measured.measured_placement.place_measured`.
    """
    profiles = folder.profiles[measured.row.model]
    if not profiles:
        why = f"not predicted: {measured.row.model} lacks a file in memory/ or in profiles/"
        return PlanPrediction(measured, None, None, joined(measured.row.note, why))
    model = ProfiledModel(measured.row.model, profiles, folder.links)
    try:
        placement = place_measured(measured.plan, model, context_mib, compute_slowdown)
        schedule = scheduled(placement, measured.plan.num_micro_batches)
    except NotProfiledError as why:
        return PlanPrediction(measured, None, None, joined(measured.row.note, f"not predicted: {why}"))
    seconds = placement.ms(schedule.makespan) / 1000
    gib = placement.mib(int(peak_memory(schedule).max())) / 1024
    notes = (measured.row.note, *_remarks(measured.plan, model))
    return PlanPrediction(measured, seconds, gib, joined(*notes))


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


def counted(predictions: Iterable[PlanPrediction]) -> list[PlanPrediction]:
    """Return the predictions of plans that have no note in their table."""
    return [each for each in predictions if not each.measured.row.note]


def rankings(predictions: Iterable[PlanPrediction]) -> Iterator[str]:
    """Yield a line for each number of GPUs: whether plans come in the order of their measured times."""
    by_gpus: dict[int, list[tuple[float, float, str]]] = {}
    for each in predictions:
        if each.predicted_s is not None and each.measured.row.real_s is not None:
            row = (each.measured.row.real_s, each.predicted_s, each.measured.row.plan)
            by_gpus.setdefault(each.measured.plan.num_gpus, []).append(row)
    for num_gpus, rows in sorted(by_gpus.items()):
        wrong = [
            f"{later} is predicted before {earlier}"
            for (_, predicted, earlier), (_, next_predicted, later) in combinations(sorted(rows), 2)
            if next_predicted < predicted
        ]
        order = f"{len(rows)} plans, {'; '.join(wrong) or 'in the order of the measurements'}"
        yield f"{num_gpus} GPU{'s' * (num_gpus > 1)}: {'1 plan' if len(rows) == 1 else order}"
