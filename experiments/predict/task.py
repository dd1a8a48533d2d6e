"""The task of `experiments.predict`: plans that were run, predicted and compared with their measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from experiments.config.options import OptionError, require_known, require_path
from experiments.predict.board import BoardRun, board_rows, by_table, group_rows, refusals
from experiments.predict.board_page import MOST_LINES, board_text, write_board
from experiments.predict.calibration import calibration_of
from experiments.predict.measured_folder import TABLE, predict_plan, read_measured_folder
from experiments.predict.options import PredictOptions
from experiments.predict.run_prediction import predict_run
from experiments.predict.run_table import read_run_folder
from experiments.predict.stage_memory import StageTensor
from experiments.report.result import Result, Table
from placements.models.memory import FRAMEWORKS
from schedsearch.core.progress import StepBar

MOST_SHOWN = 12
"""Most runs that are printed one by one."""


def task(options: PredictOptions) -> Result:
    """Predict all that a folder has; the figures are the mean errors.

    A folder with a table of plans is one of profiles; otherwise its tables are of runs.
    """
    path = Path(require_path("data", options.data))
    return predict_plans(path, options) if (path / TABLE).is_file() else predict_runs(path, options)


def predict_plans(path: Path, options: PredictOptions) -> Result:
    """Predict the plans of a folder of profiles; the board leaves out those with a note in their table."""
    plans = read_measured_folder(path)
    runs = [predict_plan(plan, 1024 * options.context_gib, options.compute_slowdown) for plan in plans]
    return _result(runs, [run for run, plan in zip(runs, plans, strict=True) if not plan.row.note])


def predict_runs(path: Path, options: PredictOptions) -> Result:
    """Predict the runs of the tables of a folder; see `task`. Ctrl-C keeps those that are predicted."""
    require_known("framework", options.framework, FRAMEWORKS)
    folder = read_run_folder(path) if path.is_dir() else None
    if folder is None or not folder.tables:
        why = "has no such table" if folder else "is no folder" if path.exists() else "is not there"
        raise OptionError(
            f"data: {path} {why}; give a folder with a CSV of runs (columns run, gpu, gpus, sequence_length "
            f"...), or with {TABLE}, plans/ and profiles/"
        )
    framework, calibration = FRAMEWORKS[options.framework], None
    if options.calibrate is not None:
        calibration = calibration_of(options.calibrate, folder, framework)
    runs, left = list[BoardRun](), ""
    with StepBar("runs") as show:
        try:
            for table, run in ((table, run) for table, some in folder.tables.items() for run in some):
                runs.append(predict_run(folder, run, framework, calibration, table))
                show(f"{table}, {run.run}", len(runs), len(folder.runs))
        except KeyboardInterrupt:
            left = f"{len(runs)} of {len(folder.runs)} runs are in"
    lines = [] if calibration is None else [calibration.in_words]
    return replace(_result(runs, runs, lines), interrupted=left)


def _result(runs: Sequence[BoardRun], counted: Sequence[BoardRun], lines: Sequence[str] = ()) -> Result:
    """Return the predictions of all runs and the board of some; lines are on the calibration."""
    rows, groups = board_rows(counted), group_rows(counted)
    tables = {"predictions": Table(BoardRun, runs), "board": Table(dict, rows), "groups": Table(dict, groups)}
    tables["memory"] = Table(StageTensor, [part for run in runs for part in run.memory])
    last = rows[-1] if rows else {}
    reasons = [
        f"{table}: {count} x {why}"
        for table, some in by_table(counted).items()
        for why, count in refusals(some)[:MOST_LINES]
    ]
    return Result(
        figures={name: last[name] for name in last if name.endswith("percent") and last[name] is not None},
        tables={name: table for name, table in tables.items() if table.rows},
        files={"board.html": partial(write_board, counted, lines)} if counted else {},
        sentences=[*lines, *map(str, runs if len(runs) <= MOST_SHOWN else ()), board_text(counted), *reasons],
    )
