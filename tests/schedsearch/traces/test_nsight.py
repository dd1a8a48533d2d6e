"""Tables from traces of Nsight Systems, in the tables and columns that its exporter makes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from one_line_errors import raises_line

from schedsearch.traces.block_times import block_times
from schedsearch.traces.nsight import read_nsight
from schedsearch.traces.table import Span, TraceError

SCHEMA = """
    CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
    CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
        rangeId INTEGER, category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER,
        textId INTEGER, domainId INTEGER, jsonText TEXT, binaryData TEXT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
        eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
        returnValue INTEGER NOT NULL, callchainId INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
        deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
        correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL,
        deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
        correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
"""
MS = 10**6
STRINGS = ("cudaLaunchKernel_v7000", "gemm", "ncclDevKernel_SendRecv", "PP:0B0, op_id = 9")


def process(number: int) -> int:
    """The identifier of a process; a thread's adds its number."""
    return 0x1000000000000 + (number << 24)


def write(path: Path, stages: dict[int, int], begin_ns: int = 0) -> Path:
    """A file with a forward of each process's stage (and on stage 0 its backward, on another thread)."""
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(SCHEMA)
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(STRINGS))
        database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, '', '')", [10**18 + begin_ns])

        def label(number: int, begin_ms: int, text: str | None, of: int | None = None) -> None:
            into = "INSERT INTO NVTX_EVENTS (start, end, eventType, globalTid, text, textId)"
            database.execute(
                f"{into} VALUES (?,?,59,?,?,?)",
                [begin_ms * MS, (begin_ms + 1) * MS, process(number) + 1, text, of],
            )

        def kernel(number: int, key: int, at_ms: float, begin_ms: int, name: int) -> None:
            launch = [at_ms * MS, at_ms * MS + 9, 0, process(number) + key, key, 0, 0, None]
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?,?,?,?)", launch)
            row = [begin_ms * MS, (begin_ms + 2) * MS, 0, 1, 7, key, process(number), name, name]
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?,?,?)", row)

        for number, stage in stages.items():
            label(number, 1, f"PP:{stage}F0")
            kernel(number, 1, 1.25, 10 + stage, 1)
            kernel(number, 2, 1.5, 20, 2)
            if not stage:
                label(number, 5, None, 3)
                kernel(number, 3, 5.5, 30, 1)
                copy = [33 * MS, 34 * MS, 0, 1, 7, 3, process(number), 99, 2]
                database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?,?,?,?,?,?,?,?,?)", copy)
    return path


def test_ranges_and_kernels_of_several_processes(tmp_path: Path) -> None:
    path, seen = write(tmp_path / "a.sqlite", {900: 1, 901: 0}), list[tuple[str, int, int]]()
    table = read_nsight(path, on_progress=lambda *event: seen.append(event))
    assert table.is_one_clock
    assert [event[0].split()[0] for event in seen][-1] == "CUPTI_ACTIVITY_KIND_MEMCPY"
    assert sorted(table.spans, key=lambda span: (span.rank, span.start_ms)) == [
        Span(0, 0, "F", 0, 10.0, 12.0),
        Span(0, 0, "message", 0, 20.0, 22.0),
        Span(0, 0, "B", 0, 30.0, 34.0),
        Span(1, 1, "F", 0, 11.0, 13.0),
        Span(1, 1, "message", 0, 20.0, 22.0),
    ]
    assert {name: times.median_ms for name, times in block_times(path).items()} == {"F0": 2, "B0": 4, "F1": 2}


def test_files_begin_at_their_sessions(tmp_path: Path) -> None:
    for rank in range(2):
        write(tmp_path / f"rank{rank}.sqlite", {900: rank}, rank * 3 * MS)
    spans = read_nsight(tmp_path).spans
    assert {(span.rank, span.stage, span.start_ms) for span in spans if span.kind == "F"} == {
        (0, 0, 10),
        (1, 1, 14),
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.nsys-rep", "is a report; give the file that nsys export --type sqlite a.nsys-rep makes"),
        ("none.sqlite", "cannot be read as a trace of Nsight Systems (unable to open database file); give"),
        (
            "text.sqlite",
            "cannot be read as a trace of Nsight Systems (file is not a database); give the file",
        ),
        (
            "empty.sqlite",
            "cannot be read as a trace of Nsight Systems (no such table: NVTX_EVENTS); give the",
        ),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "text.sqlite").write_text("no database" * 99)
    (tmp_path / "empty.sqlite").write_text("")
    with raises_line(TraceError, str(tmp_path / name), has=message):
        read_nsight(tmp_path / name)
