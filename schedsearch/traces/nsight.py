"""Traces of Nsight Systems, in the SQLite files that ``nsys export --type sqlite`` writes.

NVTX ranges are the labels. A kernel has the process and the correlation number of its launch. See Nsight's
`schema <https://docs.nvidia.com/nsight-systems/UserGuide/index.html#sqlite-schema-reference>`_.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import chain

from schedsearch.traces.labelled import Form, OnProgress, Source, TracedFile, read_files, table_of, traffic
from schedsearch.traces.table import TraceError, TraceTable

_PROCESS = "global{0} >> 24 & 0xFFFFFF"
_KEY = f"({_PROCESS}) * 0x80000000 + correlationId"
_IS_KNOWN = "correlationId IS NOT NULL AND global{0} IS NOT NULL"
_COPY = f"SELECT {_KEY}, start, end, 0 FROM CUPTI_ACTIVITY_KIND_MEM{{1}} WHERE {_IS_KNOWN}"
_QUERIES = {
    "TARGET_INFO_SESSION_START_TIME": "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME",
    # Ranges of a thread (59) and of a process (60) that have ended.
    "NVTX_EVENTS": f"""
        SELECT coalesce(text, value, ''), start, end, {_PROCESS}
        FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId
        WHERE eventType IN (59, 60) AND end IS NOT NULL AND globalTid IS NOT NULL""".format("Tid"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": f"""
        SELECT {_KEY}, start, {_PROCESS} FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE {_IS_KNOWN}""".format("Tid"),
    "CUPTI_ACTIVITY_KIND_KERNEL": f"""
        SELECT {_KEY}, start, end, traffic(value)
        FROM CUPTI_ACTIVITY_KIND_KERNEL LEFT JOIN StringIds ON id = shortName
        WHERE {_IS_KNOWN}""".format("Pid"),
    "CUPTI_ACTIVITY_KIND_MEMCPY": _COPY.format("Pid", "CPY"),
    "CUPTI_ACTIVITY_KIND_MEMSET": _COPY.format("Pid", "SET"),
}
"""Tables that are read, row by row; a process's number is in those of its threads."""


def read_nsight(
    source: Source, pattern: str | None = None, on_progress: OnProgress | None = None
) -> TraceTable:
    """Read traces of Nsight Systems.

    Args:
        source: An ``.sqlite`` file (of one process or more), a folder of them, or files.
        pattern: Pattern of the NVTX ranges; see `schedsearch.traces.labels.label_reader`.
        on_progress: Called with a table and the file, tables read, and tables in all.

    Raises:
        TraceError: A file is no such file or lacks a table, or no range is a block's; one line.
    """
    return table_of(read_files(NSIGHT, source, pattern, on_progress))


def _read(file: TracedFile, on_progress: OnProgress) -> None:
    if file.path.suffix != ".sqlite":
        raise TraceError(f"is a report; give the file that nsys export --type sqlite {file.path.name} makes")
    try:
        address = f"{file.path.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as database:
            database.create_function("traffic", 1, traffic, deterministic=True)
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
            for done, (table, query) in enumerate(_QUERIES.items()):
                if table not in tables and table != "NVTX_EVENTS":
                    continue  # tables without rows are not exported
                on_progress(f"{table} of {file.path.name}", done, len(_QUERIES))
                rows = database.execute(query)
                if table.startswith("TARGET"):
                    file.base_ns = next(rows, (0,))[0]
                elif table.startswith("NVTX"):
                    for row in rows:
                        file.add(*row)
                else:
                    column = file.launches if table.endswith("RUNTIME") else file.kernels
                    column.extend(chain.from_iterable(rows))
    except sqlite3.Error as error:
        raise TraceError(
            f"cannot be read as a trace of Nsight Systems ({error}); give the file that nsys export --type "
            "sqlite makes of a report with NVTX ranges"
        ) from None


NSIGHT = Form((".sqlite", ".nsys-rep", ".qdrep"), 1e6, _read)
