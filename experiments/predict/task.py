"""The task of `experiments.predict`: plans that were run, predicted and compared with their measurements."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from omegaconf import DictConfig

from experiments.config.options import read_record, require_path
from experiments.config.run_record import output_directory
from experiments.predict.errors import Errors, counted, rankings
from experiments.predict.measured_folder import read_measured_folder
from experiments.predict.options import PredictOptions
from experiments.predict.prediction import PlanPrediction, predict
from placements.files import csv_text, write_text

log = logging.getLogger(__name__)

COLUMNS = ("plan", "measured_s", "predicted_s", "measured_gib", "predicted_gib", "note")


def task(config: DictConfig) -> dict[str, float]:
    """Predict every plan, write the table and log how far off it is; return the mean absolute errors."""
    options = read_record(config, PredictOptions)
    context_gib, slowdown = options.context_gib, options.compute_slowdown
    folder = read_measured_folder(require_path("data", options.data))
    predictions = [predict(folder, plan, 1024 * context_gib, slowdown) for plan in folder.plans]
    path = write_text(output_directory() / "predictions.csv", to_csv(predictions))
    shown = counted(predictions)
    time, memory = (
        Errors.of(each.time_error for each in shown),
        Errors.of(each.memory_error for each in shown),
    )
    several = [each for each in shown if each.measured.plan.num_micro_batches > 1]
    log.info("time: %s", time)
    log.info("time with several micro-batches: %s", Errors.of(each.time_error for each in several))
    log.info("memory: %s", memory)
    for line in rankings(shown):
        log.info("%s", line)
    for each in predictions:
        if each.predicted_s is None:
            log.info("%s: %s", each.measured.name, each.note)
    log.info("table: %s", path)
    found = {"time": time, "memory": memory}
    return {f"mean_absolute_{name}_error": each.mean_absolute for name, each in found.items() if each.errors}


def to_csv(predictions: Sequence[PlanPrediction]) -> str:
    """Return the table as CSV; empty where a figure was not measured or cannot be predicted."""
    rows = []
    for each in predictions:
        measured = each.measured
        times, memory = (measured.measured_s, each.predicted_s), (measured.measured_gib, each.predicted_gib)
        figures = [*(_shown(value, 5) for value in times), *(_shown(value, 3) for value in memory)]
        rows.append([measured.name, *figures, each.note])
    return csv_text(COLUMNS, rows)


def _shown(value: float | None, places: int) -> str:
    return "" if value is None else f"{value:.{places}f}"
