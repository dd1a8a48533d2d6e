"""The task of `experiments.predict`: runs predicted and compared with their measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.config.options import OptionError, require_path
from experiments.predict.errors import Errors, error_of
from experiments.predict.options import PredictOptions
from experiments.predict.run_prediction import RunPrediction, calibrated, predict_run
from experiments.predict.run_table import Run, RunTableError, read_run_folder
from experiments.report.result import Result, Table
from placements.forms.tables import csv_files
from placements.models.memory import FRAMEWORKS

RUN_COLUMNS = ("run", "measured_ms", "predicted_ms", "measured_gib", "predicted_gib", "gib_by_stage", "note")
MEMORY_COLUMNS = ("run", "stage", "kind", "tensor", "gib", "held", "rule")

Row = dict[str, Any]


def task(options: PredictOptions) -> Result:
    """Predict the runs of the tables of a folder; the figures are the mean errors."""
    path = Path(require_path("data", options.data))
    if not path.is_dir() or not csv_files(path, Run, RunTableError):
        why = "has no such table" if path.is_dir() else "is no folder" if path.exists() else "is not there"
        raise OptionError(
            f"data: {path} {why}; give a folder with a CSV of runs (columns run, model, gpu, gpus ...)"
        )
    folder, framework = read_run_folder(path), FRAMEWORKS[options.framework]
    factors: dict[str, float] = {}
    lines: list[str] = []
    if options.calibrate is not None:
        gpu, factor = calibrated(folder, options.calibrate, framework)
        factors[gpu] = factor
        lines.append(f"times on {gpu} are multiplied with {factor:.3f}, so that {options.calibrate} is right")
    shown: list[RunPrediction] = []
    for name, runs in folder.tables.items():
        own = [predict_run(folder, run, framework, factors.get(run.gpu, 1.0)) for run in runs]
        shown += own
        time, memory = _errors(own)
        peer_time = Errors.of(error_of(each.run.peer_ms, each.run.measured_ms) for each in own)
        peer_memory = Errors.of(error_of(each.run.peer_gib, each.run.measured_gib) for each in own)
        for what, ours, peer in (("time", time, peer_time), ("memory", memory, peer_memory)):
            beside = f"; the table's other predictions: {peer}" if peer.errors else ""
            lines.append(f"{name}, {what}: {ours}{beside}")
        lines += [f"{each.run.run}: {each.note}" for each in own if each.predicted_ms is None]
    memory_rows = [row for each in shown for row in memory_rows_of(each)]
    tables = {
        "predictions": Table(dict, [run_row(each) for each in shown], RUN_COLUMNS),
        "memory": Table(dict, memory_rows, MEMORY_COLUMNS),
    }
    return Result(figures=_means(*_errors(shown)), tables=tables, sentences=lines)


def _errors(predictions: Sequence[RunPrediction]) -> tuple[Errors, Errors]:
    return (
        Errors.of(each.time_error for each in predictions),
        Errors.of(each.memory_error for each in predictions),
    )


def _means(time: Errors, memory: Errors) -> dict[str, float | str]:
    found = {"time": time, "memory": memory}
    return {f"mean_absolute_{name}_error": each.mean_absolute for name, each in found.items() if each.errors}


def run_row(each: RunPrediction) -> Row:
    """Return a row of the table of runs; None where a figure was not measured or cannot be predicted."""
    run = each.run
    return {
        "run": run.run,
        **_figures("ms", run.measured_ms, each.predicted_ms, 1),
        **_figures("gib", run.measured_gib, each.predicted_gib, 2),
        "gib_by_stage": ";".join(f"{gib:.2f}" for gib in each.gib_by_stage),
        "note": each.note,
    }


def memory_rows_of(each: RunPrediction) -> list[Row]:
    """Return the memory of a run's fullest stage by its tensors; nothing where it is not predicted."""
    if each.predicted is None:
        return []
    stage = each.fullest_stage
    return [
        {
            "run": each.run.run,
            "stage": stage,
            "kind": part.kind,
            "tensor": part.name,
            "gib": f"{part.gib:.3f}",
            "held": part.held,
            "rule": part.rule,
        }
        for part in each.predicted.memory(stage)
    ]


def _figures(unit: str, measured: float | None, predicted: float | None, places: int) -> Row:
    values = {f"measured_{unit}": measured, f"predicted_{unit}": predicted}
    return {name: None if value is None else f"{value:.{places}f}" for name, value in values.items()}
