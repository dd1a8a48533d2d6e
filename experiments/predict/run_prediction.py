"""Time and memory of runs by their model, their GPUs and their degrees."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from experiments.predict.calibration import Calibration
from experiments.predict.errors import joined
from experiments.predict.modelled_run import as_modelled
from experiments.predict.run_table import RunFolder
from experiments.predict.runs.run import Run
from placements.models.machine.measured_rates import MeasuredRates
from placements.models.memory import Framework
from placements.models.training_figures import IterationWork, TrainingFigures
from schedsearch.metrics import modelled_energy_mj
from schedsearch.planning.uniform_run import UniformRun


@dataclass(frozen=True)
class RunPrediction:
    """Prediction of one run.

    Attributes:
        run: The run, with its measurements.
        predicted: The run as it is modelled; None where it cannot be, as the note says.
        note: Note of the run in its table, then remarks on the prediction.
    """

    run: Run
    predicted: UniformRun | None
    note: str

    @property
    def predicted_ms(self) -> float | None:
        """Time of an iteration."""
        return None if self.predicted is None else self.predicted.iteration_ms

    @property
    def gib_by_stage(self) -> tuple[float, ...]:
        """The most that a GPU of each stage holds; empty where that is not predicted."""
        return () if self.predicted is None else self.predicted.gib_by_stage

    @property
    def predicted_gib(self) -> float | None:
        """The most that a GPU holds, of the stage that was measured."""
        if not self.gib_by_stage or self.run.measured_stage == "fullest":
            return max(self.gib_by_stage, default=None)
        return self.gib_by_stage[-1 if self.run.measured_stage == "last" else 0]

    @property
    def figures(self) -> TrainingFigures:
        """Throughput, MFU and modelled energy of a token of the prediction."""
        run = self.predicted
        if run is None:
            return TrainingFigures()
        gpus = run.plan.stage_gpus
        work = IterationWork.of(run.model, sum(gpus, Counter()), run.plan.global_batch_size)
        return work.figures(run.iteration_ms, modelled_energy_mj(run.schedule, gpus, run.iteration_ms))

    @property
    def fullest_stage(self) -> int:
        """The stage that holds the most."""
        return self.gib_by_stage.index(max(self.gib_by_stage))


def predict_run(
    folder: RunFolder, run: Run, framework: Framework, calibration: Calibration | None = None
) -> RunPrediction:
    """Predict one run, with the factors of its GPU; where it cannot be, the note says why."""
    try:
        model = as_modelled(folder, run, framework)
        if calibration is not None and calibration.gpu == run.gpu:
            model = replace(model, options=calibration.of(model.options))
        model.schedule  # noqa: B018  says what is wrong, before anything is told of the run
    except ValueError as why:
        return RunPrediction(run, None, joined(run.note, f"not predicted: {why}"))
    return RunPrediction(run, model, joined(run.note, *_remarks(folder, model, run)))


def _remarks(folder: RunFolder, model: UniformRun, run: Run) -> list[str]:
    if isinstance(model.costs.options.rates_on(model.cluster.whole.gpu), MeasuredRates):
        return []
    of_precision = f" in {run.precision}" if run.gpu in folder.machines else ""
    return [f"rates of {run.gpu}{of_precision} assumed, not measured"]
