"""Traces of any form that is read, told apart by their content."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from schedsearch.traces.chrome import read_chrome
from schedsearch.traces.job_table import COLUMNS, read_job_table
from schedsearch.traces.megatron_log import is_log, read_megatron_log
from schedsearch.traces.nsight import read_nsight
from schedsearch.traces.primus import read_primus
from schedsearch.traces.table import TraceError, TraceTable
from schedsearch.traces.texts import text_of

JOB, PRIMUS, LOG, CHROME, NSIGHT = FORMS = (
    "a job's table trace-NAME.csv.gz with meta-NAME.yaml",
    "Primus' pp_rank_N.json with config.json",
    "a log of Megatron-LM with timers of all ranks",
    "Chrome JSON of torch's profiler or of schedsearch run",
    "SQLite of Nsight Systems",
)
"""The forms of traces that are read."""

_PATTERNS = (
    (PRIMUS, r'\s*\{\s*"\d+"\s*:\s*\{[^{}]*"fwd_start"'),
    (CHROME, r'\s*(\{.*"traceEvents"|\[\s*\{.*"ph")'),
)
"""Forms of JSON, and the begin of their files as a regular expression."""

_NOTES = (".md", ".rst", ".yaml", ".yml", ".html", ".png", ".svg", ".py", ".sh")
"""Ends of names of files that stand beside traces, and are not read."""

_HEAD_BYTES = 2**20
"""Bytes from a file's begin by which its form is known."""

_REPORT = ".nsys-rep"
"""End of the name of a report of Nsight Systems, which its own program alone reads."""


def read_folder(
    path: str | Path, pattern: str | None = None, on_progress: Callable[[str, int, int], None] | None = None
) -> list[TraceTable]:
    """Read a trace, or all traces of a folder: one job of each table, log and set of ranks' files.

    Args:
        path: A file or a folder; other files in a folder, such as notes, are left out.
        pattern: Regular expression for labels of profilers; None for usual ones.
        on_progress: Called now and then with the file that is read, what is done, and all there is.

    Raises:
        TraceError: There is no trace, or one is wrong; one line with its path, the place and the remedy.
    """
    path = Path(path)
    if not path.exists():
        raise TraceError(f"{path}: there is no such file or folder; give a trace, or a folder of traces")
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    by_form = defaultdict[str | None, list[Path]](list)
    for file in files:
        is_exported = file.suffix == _REPORT and file.with_suffix(".sqlite") in files
        if not (is_exported or (path.is_dir() and file.suffix in _NOTES)):
            by_form[form_of(file)].append(file)
    unknown = by_form.pop(None, [])
    if not by_form:
        where = (
            f"{path}: is no trace" if unknown == [path] else f"{path}: has no trace (subfolders are not read)"
        )
        raise TraceError(f"{where}; traces that can be read are {'; '.join(FORMS)}")
    tables = [read_job_table(file) for file in by_form[JOB]]
    tables += [read_primus(folder) for folder in dict.fromkeys(file.parent for file in by_form[PRIMUS])]
    tables += [read_megatron_log(file) for file in by_form[LOG]]
    if by_form[CHROME]:
        tables.append(read_chrome(by_form[CHROME], pattern, on_progress))
    if by_form[NSIGHT]:
        tables.append(read_nsight(by_form[NSIGHT], pattern, on_progress))
    return tables


def form_of(path: Path) -> str | None:
    """Return the form of a file by its content; None if it is no trace.

    Raises:
        TraceError: The file cannot be read, or is one that another program has to write anew.
    """
    head = text_of(path, _HEAD_BYTES)
    if path.suffix == _REPORT or head.startswith("SQLite format 3\0"):
        return NSIGHT  # its reader says how to export a report
    if head.startswith("PAR1"):
        raise TraceError(
            f"{path}: is Parquet; write it as a table, by pandas: "
            f"read_parquet({path.name!r}).to_csv({path.with_suffix('.csv.gz').name!r}, index=False)"
        )
    if re.match(r'\s*(\{\s*"|\[\s*\{)', head):
        return next((form for form, begin in _PATTERNS if re.match(begin, head, re.DOTALL)), None)
    first = re.split(r"[\r\n]", head.lstrip("\ufeff\r\n"), maxsplit=1)[0]
    if {*COLUMNS} <= {cell.strip(' "').casefold() for cell in re.split(r"[,;\t]", first)}:
        return JOB
    return LOG if is_log(head) else None
