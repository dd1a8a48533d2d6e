"""The page of measured runs: how far predictions are off, beside what other tools publish.

``python docs/is_it_right.py FOLDER`` writes its tables anew from a folder of tables of runs, as that of
`docs/commands/predict.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from experiments.predict.calibration import calibration_of
from experiments.predict.errors import Errors, error_of
from experiments.predict.run_prediction import RunPrediction, predict_run
from experiments.predict.run_table import RunFolder, read_run_folder
from placements.models.memory import FRAMEWORKS

PAGE = Path(__file__).parent / "concepts" / "is_it_right.md"

BEGIN, END = "<!-- runs -->\n", "<!-- end of runs -->\n"

TABLES = ("b200_layers.csv", "mlperf.csv")
"""Tables of the page; others have too many rows."""

CALIBRATED_ON = "mlperf_v5.0_eos-dfw_n64_ngc25.01_nemo"
"""The run that fixes the factor of its GPU, where a folder has it."""


def with_tables(text: str, folder: Path) -> str:
    """Return the page with the tables of a folder."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n".join(["", *_lines(read_run_folder(folder)), ""]) + END + rest.split(END)[1]


def _lines(folder: RunFolder) -> Iterator[str]:
    framework = FRAMEWORKS["megatron"]
    is_there = any(run.run == CALIBRATED_ON for run in folder.runs)
    calibration = calibration_of(CALIBRATED_ON, folder, framework) if is_there else None
    for name in TABLES:
        runs = folder.tables.get(name, ())
        predictions = [predict_run(folder, run, framework, calibration) for run in runs]
        yield f"## {name}\n"
        yield from _errors(predictions)
        yield ""
        yield "| run | measured ms | predicted ms | error | measured GiB | predicted GiB | error |"
        yield "|---|---|---|---|---|---|---|"
        for each in predictions:
            run = each.run
            cells = [
                *(_number(run.measured_ms, 1), _number(each.predicted_ms, 1), _percent(each.time_error)),
                *(_number(run.measured_gib, 2), _number(each.predicted_gib, 2), _percent(each.memory_error)),
            ]
            mark = " (calibrated on it)" if run.run == CALIBRATED_ON else ""
            yield f"| {run.run}{mark} | {' | '.join(cells)} |"
        yield ""


def _errors(predictions: list[RunPrediction]) -> Iterator[str]:
    yield "| | mean absolute error | worst | other predictions in the table: mean | worst |"
    yield "|---|---|---|---|---|"
    counted = [each for each in predictions if each.run.run != CALIBRATED_ON]
    for what, ours, peer in (
        (
            "time",
            Errors.of(each.time_error for each in counted),
            Errors.of(error_of(each.run.peer_ms, each.run.measured_ms) for each in counted),
        ),
        (
            "memory",
            Errors.of(each.memory_error for each in counted),
            Errors.of(error_of(each.run.peer_gib, each.run.measured_gib) for each in counted),
        ),
    ):
        if ours.errors:
            cells = [
                f"{figure:.1%}" if found.errors else ""
                for found in (ours, peer)
                for figure in ((found.mean_absolute, found.worst) if found.errors else (0.0, 0.0))
            ]
            yield f"| {what}, {len(ours.errors)} runs | {' | '.join(cells)} |"


def _number(value: float | None, places: int) -> str:
    return "" if value is None else f"{value:,.{places}f}"


def _percent(error: float | None) -> str:
    return "" if error is None else f"{error:+.1%}"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), Path(sys.argv[1])), encoding="utf-8")
