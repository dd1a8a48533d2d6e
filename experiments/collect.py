"""Make one table of many runs: ``python -m experiments.collect DIRECTORY...``; in Python `collect`."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.config.command import USER_ERROR

if TYPE_CHECKING:
    import pandas as pd

TABLE = "runs.csv"
"""The table's file, in the first of the directories."""

_MOST_CHARACTERS = 50
"""Characters of a message that are printed; the file has all of it."""


def collect(*directories: str | Path) -> pd.DataFrame:
    """Return a row for each run below the directories that has ended, and for each point of a sweep.

    The columns are where it is, its command, one for each option that a command line gave, how it ended, its
    figures, and its version and message; figures that a run lacks are NaN.

    Args:
        directories: Folders of runs or sweeps, or their parents, such as ``outputs`` and ``multirun``.

    Raises:
        RunRecordError: There is no run, or a ``result.json`` is wrong.
    """
    import pandas as pd

    from experiments.config.run_record import FILE, RunRecordError, read_run_record

    rows, options, figures = [], dict[str, None](), dict[str, None]()
    for directory in map(Path, directories):
        runs = sorted((path.parent for path in directory.rglob(FILE)), key=_by_number)
        if not runs:
            remedy = "give the directory of a run or of a sweep"
            raise RunRecordError(f"{directory}: has no {FILE} in it; {remedy}")
        for run in runs:
            record = read_run_record(run)
            given = record.options
            options |= dict.fromkeys(given)
            figures |= dict.fromkeys(record.figures)
            ends = {"status": record.status, "version": record.version, "message": record.message or None}
            rows.append({"directory": str(run), "command": record.command, **given, **ends, **record.figures})
    # A figure may repeat an option, as policy.
    columns = ["directory", "command", *options, "status", *(name for name in figures if name not in options)]
    columns += ["version", "message"]
    return pd.DataFrame(rows, columns=columns)


def _by_number(path: Path) -> list[tuple[int, str]]:
    """Return a key that sorts point 10 after point 9."""
    return [(int(part) if part.isdecimal() else -1, part) for part in path.parts]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table and write it as CSV."""
    parser = argparse.ArgumentParser(
        prog="schedsearch collect",
        description="Make one table of many runs: a row for each, with the options of its command line, how "
        "it ended and its figures. In Python: experiments.collect.collect(DIRECTORY), a pandas DataFrame.",
    )
    parser.add_argument(
        "directories", nargs="+", metavar="DIRECTORY", help="of runs or sweeps, as outputs multirun/search"
    )
    parser.add_argument("--output", metavar="FILE", help=f"the CSV; default: {TABLE} in the first DIRECTORY")
    chosen = parser.parse_args(arguments)
    path = Path(chosen.output or Path(chosen.directories[0]) / TABLE)
    try:
        table = collect(*chosen.directories)
        path.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(path, index=False)
    except (ValueError, OSError) as error:
        print(f"collect: error: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(USER_ERROR)
    shown = table.drop(columns="version").dropna(axis="columns", how="all").set_index("directory")
    width = shutil.get_terminal_size((100, 24)).columns
    print(shown.to_string(na_rep="", line_width=width, max_colwidth=_MOST_CHARACTERS))  # noqa: T201
    print(f"{len(table)} runs in {path}")  # noqa: T201


if __name__ == "__main__":
    main()
