"""The task of `experiments.predict`: plans that were run, predicted and compared with their measurements.

The board of measured runs is a page, a figure and a printed table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from experiments.config.options import OptionError, require_path
from experiments.predict.board import (
    LEFT_OUT,
    BoardRun,
    StageTensor,
    board_rows,
    by_table,
    group_rows,
    refusals,
)
from experiments.predict.measured_folder import TABLE, predict_plan, read_measured_folder
from experiments.predict.modelled_run import calibration_of
from experiments.predict.options import PredictOptions
from experiments.predict.run_prediction import predict_run
from experiments.predict.run_table import read_run_folder
from experiments.report.html_report import Fact, Picture, Section, write_report
from experiments.report.result import Result, Table
from placements.forms.texts import text_columns
from placements.models.memory import FRAMEWORKS
from schedsearch.core.progress import StepBar
from schedsearch.figures.canvas import image, save
from schedsearch.figures.predicted import draw_predicted

MOST_SHOWN = 12
"""Most runs that are printed one by one."""

MOST_LINES = 10
"""Groups of a table on the page, and reasons in the log."""

HEADS = {
    "table": "table",
    "runs": "runs",
    "refused": "refused",
    "time_error_percent": "time",
    "worst_time_error_percent": "worst",
    "peer_time_error_percent": "others",
    "memory_error_percent": "memory",
    "worst_memory_error_percent": "worst",
    "peer_memory_error_percent": "others",
    "pairs_in_order_percent": "order",
    "longer_percent": "choice",
    "worst_longer_percent": "worst",
}
"""Heads of the table for people, by the names of columns."""

_UNITS = {"time (ms)": "ms", "memory (GiB)": "gib"}

_INTRODUCTION = f"""Time and memory of training runs that others measured, beside our predictions.
Errors are shares of the measured figures: the mean of their sizes, the worst, and the mean of other tools \
where the table has their predictions. The run of a calibration is left out.
Runs of a table with the same model, GPUs, global batch, tokens and precision are choices of one question. \
Order: share of their pairs that come in the measured order, where times differ by {LEFT_OUT:.0%} or more. \
Choice: how much longer the run with the shortest prediction takes than the shortest run that was measured.
Runs are in predictions.csv, questions in groups.csv, and the table in board.csv."""


def task(options: PredictOptions) -> Result:
    """Predict all that a folder has; the figures are the mean errors.

    A folder with a table of plans is one of profiles; otherwise its tables are of runs. The board leaves out
    plans with a note in their table.
    """
    path = Path(require_path("data", options.data))
    if not (path / TABLE).is_file():
        return predict_runs(path, options)
    plans = read_measured_folder(path)
    runs = [predict_plan(plan, 1024 * options.context_gib, options.compute_slowdown) for plan in plans]
    return _result(runs, [run for run, plan in zip(runs, plans, strict=True) if not plan.row.note])


def predict_runs(path: Path, options: PredictOptions) -> Result:
    """Predict the runs of the tables of a folder; see `task`. Ctrl-C keeps finished predictions."""
    folder = read_run_folder(path) if path.is_dir() else None
    if folder is None or not folder.tables:
        why = "has no such table" if folder else "is no folder" if path.exists() else "is not there"
        wanted = "a folder with a CSV of runs (columns run, gpu, gpus, sequence_length ...)"
        raise OptionError(f"data: {path} {why}; give {wanted}, or with {TABLE}, plans/ and profiles/")
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
        sentences=[
            *lines,
            *map(str, runs if len(runs) <= MOST_SHOWN else ()),
            *text_columns(board_table(counted)),
            *reasons,
        ],
    )


def board_table(runs: Sequence[BoardRun]) -> list[tuple[str, ...]]:
    """Return the board as a table, its heads first; an empty column is left out."""
    rows = board_rows(runs)
    lines = [[cell(name, row[name]) for name in HEADS] for row in rows]
    columns = [column for column in zip(HEADS.values(), *lines, strict=True) if any(column[1:])]
    return list(zip(*columns, strict=True)) if rows else [("nothing to compare",)]


def cell(name: str, value: object) -> str:
    """Return a figure of a column for people; empty where it is not known, or is a count of 0."""
    return str(value or "") if not name.endswith("percent") else "" if value is None else f"{value:.1f}%"


def write_board(runs: Sequence[BoardRun], sentences: Sequence[str], path: Path) -> None:
    """Write the page, with the figure in it and beside it; sentences are those on the calibration."""
    sections, tables = [Section("All tables", rows=board_table(runs))], by_table(runs)
    panels = dict[str, dict[str, list[tuple[float, float]]]]()
    for title, unit in _UNITS.items():
        pairs = {table: [pair for run in some if (pair := run.pair(unit))] for table, some in tables.items()}
        if points := {table: some for table, some in pairs.items() if some}:
            panels[title] = points
    if panels:
        save(draw_predicted(panels), path.with_suffix(""))
        pictures = [
            Picture(
                image(draw_predicted({title: points}), "png"),
                f"Predicted {title} against the measured, by table",
            )
            for title, points in panels.items()
        ]
        sections.append(Section("Measured and predicted", pictures=tuple(pictures)))
    sections += [Section(table, facts) for table, some in tables.items() if (facts := tuple(_facts(some)))]
    introduction = "\n".join([_INTRODUCTION, *sentences])
    write_report(path, "Predictions beside measured runs", sections, introduction=introduction)


def _facts(runs: Sequence[BoardRun]) -> Iterator[Fact]:
    """Yield why runs of a table are not predicted, and the questions to which our choice is worst."""
    yield from (Fact("not predicted", str(count), why) for why, count in refusals(runs))
    groups = sorted(group_rows(runs), key=lambda row: -row["longer_percent"])
    longer = [row for row in groups if row["longer_percent"] > 0]
    for row in longer[:MOST_LINES]:
        times = (f"{name}: {row[name]}, {row[f'{name}_ms']:,.6g} ms" for name in ("chosen", "best"))
        note = f"{'; '.join(times)}; {row['pairs_in_order']} of {row['pairs']} pairs in order"
        yield Fact(row["question"], f"+{row['longer_percent']:.1f} %", note)
    if groups:
        best = f"our choice is the shortest in {len(groups) - len(longer)}"
        yield Fact("questions", str(len(groups)), best, link="groups.csv")
