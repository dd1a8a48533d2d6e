"""The task of `experiments.predict`: plans that were run, predicted and compared with their measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.config.options import OptionError, require_known, require_path
from experiments.predict.calibration import calibration_of
from experiments.predict.errors import Errors, error_of
from experiments.predict.measured_folder import TABLE, read_measured_folder
from experiments.predict.options import PredictOptions
from experiments.predict.prediction import PlanPrediction, counted, predict, rankings
from experiments.predict.run_prediction import RunPrediction, predict_run
from experiments.predict.run_table import RunFolder, read_run_folder
from experiments.predict.stage_memory import stage_memory
from experiments.report.result import Result
from placements.forms.texts import csv_text
from placements.models.memory import FRAMEWORKS

RUN_COLUMNS = ("run", "measured_ms", "predicted_ms", "measured_gib", "predicted_gib", "gib_by_stage", "note")
MEMORY_COLUMNS = ("run", "stage", "kind", "tensor", "gib", "held", "rule")
COLUMNS = ("plan", "measured_s", "predicted_s", "measured_gib", "predicted_gib", "note")


def task(options: PredictOptions) -> Result:
    """Predict all that a folder has; the figures are the mean errors.

    A folder with a table of plans is one of profiles; otherwise its tables are of runs.
    """
    path = Path(require_path("data", options.data))
    if (path / TABLE).is_file():
        return predict_plans(path, options)
    folder = read_run_folder(path) if path.is_dir() else None
    if folder is None or not folder.tables:
        why = "has no table of runs" if folder else "is no folder" if path.exists() else "is not there"
        raise OptionError(
            f"data: {path} {why}; give a folder with a CSV of runs (columns run, gpu, gpus, sequence_length "
            f"...) or with {TABLE}, plans/ and profiles/"
        )
    require_known("framework", options.framework, FRAMEWORKS)
    return predict_runs(folder, options)


def predict_plans(path: Path, options: PredictOptions) -> Result:
    """Predict the plans of a folder of profiles; see `task`."""
    folder = read_measured_folder(path)
    predictions = [
        predict(folder, plan, 1024 * options.context_gib, options.compute_slowdown) for plan in folder.plans
    ]
    shown = counted(predictions)
    time, memory = _errors(shown, "plan")
    several = [each for each in shown if each.measured.plan.num_micro_batches > 1]
    left_out = (each for each in predictions if each.predicted_s is None)
    return Result(
        figures=_means(time, memory),
        files={"predictions.csv": to_csv(predictions)},
        sentences=[
            f"time: {time}",
            f"time with several micro-batches: {Errors.of(each.time_error for each in several)}",
            f"memory: {memory}",
            *rankings(shown),
            *(f"{each.measured.row.plan}: {each.note}" for each in left_out),
        ],
    )


def predict_runs(folder: RunFolder, options: PredictOptions) -> Result:
    """Predict the runs of the tables of a folder; see `task`."""
    framework, lines = FRAMEWORKS[options.framework], list[str]()
    calibration = None
    if options.calibrate is not None:
        calibration = calibration_of(options.calibrate, folder, framework)
        lines.append(calibration.in_words)
    shown: list[RunPrediction] = []
    for name, runs in folder.tables.items():
        own = [predict_run(folder, run, framework, calibration) for run in runs]
        shown += own
        time, memory = _errors(own, "run")
        peer_time = Errors.of((error_of(each.run.peer_ms, each.run.measured_ms) for each in own), "run")
        peer_memory = Errors.of((error_of(each.run.peer_gib, each.run.measured_gib) for each in own), "run")
        for what, ours, peer in (("time", time, peer_time), ("memory", memory, peer_memory)):
            beside = f"; the table's other predictions: {peer}" if peer.errors else ""
            lines.append(f"{name}, {what}: {ours}{beside}")
        lines += [f"{each.run.run}: {each.note}" for each in own if each.predicted_ms is None]
    files = {"predictions.csv": runs_to_csv(shown), "memory.csv": memory_to_csv(shown)}
    return Result(figures=_means(*_errors(shown, "run")), files=files, sentences=lines)


def _errors(predictions: Sequence[PlanPrediction | RunPrediction], what: str) -> tuple[Errors, Errors]:
    return (
        Errors.of((each.time_error for each in predictions), what),
        Errors.of((each.memory_error for each in predictions), what),
    )


def _means(time: Errors, memory: Errors) -> dict[str, float | str]:
    found = {"time": time, "memory": memory}
    return {f"mean_absolute_{name}_error": each.mean_absolute for name, each in found.items() if each.errors}


def runs_to_csv(predictions: Sequence[RunPrediction]) -> str:
    """Return the table of runs as CSV; empty where a figure was not measured or cannot be predicted."""
    rows = []
    for each in predictions:
        run, gib_by_stage = each.run, ";".join(f"{gib:.2f}" for gib in each.gib_by_stage)
        figures = (
            *_figures(run.measured_ms, each.predicted_ms, 1),
            *_figures(run.measured_gib, each.predicted_gib, 2),
        )
        rows.append([run.run, *figures, gib_by_stage, each.note])
    return csv_text(RUN_COLUMNS, rows)


def memory_to_csv(predictions: Sequence[RunPrediction]) -> str:
    """Return the memory of each run's fullest stage by its tensors, as CSV."""
    rows = [
        [each.run.run, each.fullest_stage, part.kind, part.name, f"{part.gib:.3f}", part.held, part.rule]
        for each in predictions
        if each.predicted is not None
        for part in stage_memory(each.predicted, each.fullest_stage)
    ]
    return csv_text(MEMORY_COLUMNS, rows)


def to_csv(predictions: Sequence[PlanPrediction]) -> str:
    """Return the table as CSV; empty where a figure was not measured or cannot be predicted."""
    rows = []
    for each in predictions:
        row = each.measured.row
        times, memory = (row.real_s, each.predicted_s), (row.max_gib, each.predicted_gib)
        rows.append([row.plan, *_figures(*times, 5), *_figures(*memory, 3), each.note])
    return csv_text(COLUMNS, rows)


def _figures(measured: float | None, predicted: float | None, places: int) -> list[str]:
    return ["" if value is None else f"{value:.{places}f}" for value in (measured, predicted)]
