"""Time and memory of runs by their model, their GPUs and their degrees."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.predict.errors import error_of, joined
from experiments.predict.measured_folder import MeasuredFolderError
from experiments.predict.run_table import Run, RunFolder
from placements.models.costing.options import CostOptions
from placements.models.memory import Framework
from placements.planners.hybrid.uniform import Layout
from schedsearch.planning.uniform_run import UniformRun


@dataclass(frozen=True)
class RunPrediction:
    """Prediction of one run.

    Attributes:
        run: The run, with its measurements.
        predicted: The run as it is modelled; None where it cannot be, as the note says.
        note: Note of the run in its table, then remarks on the prediction.
        factor: Factor on modelled times.
    """

    run: Run
    predicted: UniformRun | None
    note: str
    factor: float = 1.0

    @property
    def predicted_ms(self) -> float | None:
        """Time of an iteration."""
        return None if self.predicted is None else self.factor * self.predicted.iteration_ms

    @property
    def gib_by_stage(self) -> tuple[float, ...]:
        """The most that a GPU of each stage holds; empty where that is not predicted."""
        return () if self.predicted is None else self.predicted.gib_by_stage

    @property
    def predicted_gib(self) -> float | None:
        """The most that a GPU holds."""
        return max(self.gib_by_stage, default=None)

    @property
    def fullest_stage(self) -> int:
        """The stage that holds the most."""
        return self.gib_by_stage.index(max(self.gib_by_stage))

    @property
    def time_error(self) -> float | None:
        """Share of the measured time by which the prediction is above it."""
        return error_of(self.predicted_ms, self.run.measured_ms)

    @property
    def memory_error(self) -> float | None:
        """Likewise of memory."""
        return error_of(self.predicted_gib, self.run.measured_gib)


def as_modelled(folder: RunFolder, run: Run, framework: Framework) -> UniformRun:
    """Return a run as it is modelled: by measured rates where its machine was measured in its precision.

    Raises:
        ValueError: A name is not known, or a degree does not divide.
    """
    model = folder.model(run)
    layout = Layout(run.degrees, run.micro_batch, run.num_micro_batches, recompute=run.recompute)
    options = CostOptions(machine=folder.machine(run, model.precision.name), framework=framework)
    return UniformRun(model, run.cluster(), layout, options, run.overlap)


def predict_run(folder: RunFolder, run: Run, framework: Framework, factor: float = 1.0) -> RunPrediction:
    """Predict one run, with a factor on times; where it cannot be, the note says why."""
    try:
        model = as_modelled(folder, run, framework)
        model.schedule  # noqa: B018  says what is wrong, before anything is told of the run
    except ValueError as why:
        return RunPrediction(run, None, joined(run.note, f"not predicted: {why}"))
    return RunPrediction(run, model, joined(run.note, *_remarks(folder, model, run)), factor)


def calibrated(folder: RunFolder, name: str, framework: Framework) -> tuple[str, float]:
    """Return the GPU of a run, and the factor with which the run takes as long as it was measured.

    Exchanges of GPUs are multiplied alike: one time does not tell them from computing.

    Raises:
        MeasuredFolderError: There is no run of that name, or its time was not measured.
    """
    found = next((run for run in folder.runs if run.run == name), None)
    if found is None or found.measured_ms is None:
        why = "is no run of the tables" if found is None else "has no measured_ms"
        raise MeasuredFolderError(f"calibrate: {name!r} {why}; name a run that was measured")
    return found.gpu, found.measured_ms / as_modelled(folder, found, framework).iteration_ms


def _remarks(folder: RunFolder, model: UniformRun, run: Run) -> list[str]:
    if model.options.machine is not None:
        return []
    of_precision = f" in {run.precision}" if run.gpu in folder.machines else ""
    return [f"rates of {run.gpu}{of_precision} assumed, not measured"]
