"""Time and memory of a plan, from its placement and schedule, beside what was measured of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from experiments.predict.blocking_order import blocking_one_f_one_b
from experiments.predict.measured_folder import MeasuredFolder, MeasuredPlan
from placements import Placement
from placements.measured.layer_profile import NotProfiledError
from placements.measured.measured_placement import Measurements, place_measured
from placements.measured.plan_file import ReplicatedPlan
from schedsearch.metrics import peak_memory
from schedsearch.schedule import Schedule
from schedsearch.validate import validate

_MAX_BLOCKS = 2_000_000
"""Of a schedule that is made; more would take minutes and gigabytes."""


@dataclass(frozen=True)
class PlanPrediction:
    """What is said of one plan.

    Attributes:
        measured: The plan, with what was measured.
        predicted_s: Seconds of an iteration; None where it cannot be predicted, as the note says.
        predicted_gib: The most that a GPU holds; likewise.
        note: What stands beside the plan in its table, then what we have to say.
    """

    measured: MeasuredPlan
    predicted_s: float | None
    predicted_gib: float | None
    note: str

    @property
    def time_error(self) -> float | None:
        """How much of the measured time the prediction is above it; below where negative."""
        return _error(self.predicted_s, self.measured.measured_s)

    @property
    def memory_error(self) -> float | None:
        """Likewise of memory."""
        return _error(self.predicted_gib, self.measured.measured_gib)


def predict(
    folder: MeasuredFolder, measured: MeasuredPlan, context_mib: float, compute_slowdown: float
) -> PlanPrediction:
    """Predict one plan; where it cannot be, the note says why.

    Args:
        folder: What was measured of layers and links.
        measured: The plan.
        context_mib: See `placements.measured.measured_placement.Measurements`.
        compute_slowdown: Likewise.
    """
    profiles = folder.profiles[measured.model]
    if not profiles:
        why = f"not predicted: {measured.model} lacks a file in memory/ or in profiles/"
        return PlanPrediction(measured, None, None, _joined(measured.note, why))
    known = Measurements(profiles, folder.links, context_mib, compute_slowdown)
    try:
        placement = place_measured(measured.plan, known)
        schedule = scheduled(placement, measured.plan.num_micro_batches)
    except NotProfiledError as why:
        return PlanPrediction(measured, None, None, _joined(measured.note, f"not predicted: {why}"))
    seconds = placement.ms(schedule.makespan) / 1000
    gib = placement.mib(int(peak_memory(schedule).max())) / 1024
    notes = (measured.note, *_remarks(measured.plan, known))
    return PlanPrediction(measured, seconds, gib, _joined(*notes))


def scheduled(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return the schedule that the runtime keeps, with every rule checked.

    Raises:
        NotProfiledError: It has too many blocks.
    """
    if (count := len(placement.blocks) * num_micro_batches) > _MAX_BLOCKS:
        raise NotProfiledError(f"{count} blocks are more than the {_MAX_BLOCKS} that are simulated")
    return validate(blocking_one_f_one_b(placement, num_micro_batches))


def _remarks(plan: ReplicatedPlan, known: Measurements) -> list[str]:
    """Return what is odd or not as measured in a plan that is predicted."""
    size = plan.micro_batch_size
    groups = {group for stage in plan.stages for group in stage.replicas}
    between = sorted(
        f"{group.gpu} with tensor parallelism {group.size}"
        for group in groups
        if not known.profile_of(group).is_measured(size, group.size)
    )
    remarks = (
        [f"micro-batches of {size} interpolated on {', '.join(dict.fromkeys(between))}"] if between else []
    )
    named = Counter(layer for stage in plan.stages for layer in stage.layers)
    every = range(next(iter(known.profiles.values())).num_layers)
    missing = [str(layer) for layer in every if not named[layer]]
    twice = [str(layer) for layer, count in sorted(named.items()) if count > 1]
    remarks += [f"layers in no stage: {' '.join(missing)}"] if missing else []
    return remarks + ([f"layers named more than once: {' '.join(twice)}"] if twice else [])


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _error(predicted: float | None, measured: float | None) -> float | None:
    return None if predicted is None or measured is None else predicted / measured - 1
