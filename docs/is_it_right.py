"""The page of measured runs: how far predictions are off, and what a choice by them costs.

``python docs/is_it_right.py FOLDER[:RUN] ...`` predicts the tables of folders anew, records the board's rows
in ``experiments/reproduce/results/board.json``, and writes the page's table and the README's rows from them.
With ``:RUN`` the table of that run has a row of its predictions after a calibration by it. Without a folder
only the texts are written.
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

README = Path(__file__).parents[1] / "README.md"

RECORD = FOLDER / "board.json"

_BEGIN, _END = "<!-- board -->\n", "<!-- end of the board -->\n"

_README_ROWS = {
    "b200_layers.csv": (
        "| SimuMax, a simulator of training, with its rates and its 22 measured runs on 8 B200 | ",
        "Predicted times are off by {time_error_percent:.1f} % on average (SimuMax "
        "{peer_time_error_percent:.1f} %), memory by {memory_error_percent:.1f} % "
        "({peer_memory_error_percent:.1f} %), nothing fitted",
    ),
    "vtrain_multi_node.csv": (
        "| vTrain's 73 measured runs of GPTs on 64 and 512 A100, none of them given | ",
        "Of pairs of layouts {pairs_in_order_percent:.0f} % come in the measured order; the layout that we "
        "would choose takes {longer_percent:.1f} % longer than the best measured one, at most "
        "{worst_longer_percent:.1f} %. Times are off by {time_error_percent:.1f} % on average, "
        "at most {worst_time_error_percent:.0f} %",
    ),
}
"""Begins of rows of the README and their figures, by the table that they are of."""


def rows_of(folder: Path, calibrate: str | None = None) -> Iterator[dict[str, Any]]:
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


def with_rows(readme: str) -> str:
    """Return the README with its rows about the recorded tables."""
    lines, end = readme.split("\n"), " | [is it right?](docs/concepts/is_it_right.md) |"
    rows = ((_README_ROWS[row["table"]], row) for row in recorded() if row["table"] in _README_ROWS)
    for (begin, figures), row in rows:
        text = begin + figures.format_map(row) + end
        lines = [text if line.startswith(begin) else line for line in lines]
    return "\n".join(lines)


if __name__ == "__main__":
    given = [argument.partition(":") for argument in sys.argv[1:]]
    if rows := [row for folder, _, run in given for row in rows_of(Path(folder), run or None)]:
        write_json(RECORD, {"version": commit(), "rows": rows})
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    README.write_text(with_rows(README.read_text(encoding="utf-8")), encoding="utf-8")
