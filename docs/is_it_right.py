"""The page of measured runs: how far predictions are off, and the cost of a choice by them.

``python docs/is_it_right.py FOLDER[:RUN] ...`` predicts the tables of folders anew, records the board's rows
in ``experiments/reproduce/results/board.json``, and writes the page's table from them.
With ``:RUN`` the table of that run has a row of its predictions after a calibration by it. Without a folder
only the page is written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.config.machine import commit
from experiments.predict.options import PredictOptions
from experiments.predict.task import HEADS, cell, predict_runs
from experiments.reproduce.recorded import FOLDER
from placements.forms.texts import markdown_table, write_json

PAGE = Path(__file__).parent / "concepts" / "is_it_right.md"

RECORD = FOLDER / "board.json"

_BEGIN, _END = "<!-- board -->\n", "<!-- end of the board -->\n"


def folder_rows(folder: Path, calibrate: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the board's rows of a folder's tables; with a run, the row of its table after a calibration."""
    result = predict_runs(folder, PredictOptions(data=str(folder), calibrate=calibrate))
    given = {run.table for run in result.tables["predictions"].rows if run.is_given}
    for row in result.tables["board"].rows:
        if row["table"] != "all tables" and (calibrate is None or row["table"] in given):
            name = row["table"] + (f", {calibrate} given" if calibrate else "")
            yield {"folder": folder.name, **row, "table": name}


def recorded() -> list[dict[str, Any]]:
    """Return the recorded rows."""
    return list(json.loads(RECORD.read_text(encoding="utf-8"))["rows"])


def with_table(text: str) -> str:
    """Return the page with the table of the recorded rows."""
    table = markdown_table(HEADS.values(), ([cell(name, row[name]) for name in HEADS] for row in recorded()))
    before, rest = text.split(_BEGIN)
    return f"{before}{_BEGIN}\n{table}\n\n{_END}{rest.split(_END)[1]}"


if __name__ == "__main__":
    given = [argument.partition(":") for argument in sys.argv[1:]]
    if rows := [row for folder, _, run in given for row in folder_rows(Path(folder), run or None)]:
        write_json(RECORD, {"version": commit(), "rows": rows})
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
