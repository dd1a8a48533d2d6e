"""The ``trace.json`` of `experiments.run`: its measured blocks, not its planned ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from placements.forms.reading import Field, in_file
from placements.forms.texts import read_json
from schedsearch.traces.table import Span, TraceError, TraceTable

MEASURED = "measured"
"""Name of the threads with measured blocks."""

_DEVICE, _BLOCK = re.compile(r"device (\d+)"), re.compile(r"([FBIW])(\d+)")


def read_own_trace(path: str | Path) -> TraceTable:
    """Read the measured blocks of a run.

    Raises:
        TraceError: The file cannot be read, or has no measured blocks of stages; one line with the remedy.
    """
    path = Path(path)
    with in_file(path, TraceError):
        names, spans = dict[tuple[str, Any], str](), list[Span]()
        for event in events(path):
            match event.value:
                case {"ph": "M", "name": name, "args": {"name": str(title)}}:
                    kind = "tid" if name == "thread_name" else "pid"
                    names[kind, event.value.get(kind)] = title
                case {"ph": "X", "pid": pid, "tid": tid} if names.get(("tid", tid)) == MEASURED:
                    device = _DEVICE.fullmatch(names.get(("pid", pid), ""))
                    if device is None:
                        raise event.mistake("is of no process 'device N'; give the trace.json of a run")
                    spans.append(_span(event, int(device[1])))
        if not spans:
            raise TraceError("has no measured blocks; give the trace.json of schedsearch run")
    number, last = 1 + max(span.rank for span in spans), 1 + max(span.stage or 0 for span in spans)
    chunks = None if last % number else last // number
    return TraceTable(path.resolve().parent.name, spans, (), None, number, chunks, is_one_clock=True)


def _span(event: Field, rank: int) -> Span:
    """Return the measured block of a slice."""
    arguments, start_us = event["args"], event["ts"].number("a time", "give microseconds")
    found = _BLOCK.fullmatch(arguments["block"].text())
    if found is None:
        raise arguments["block"].wrong("a block of a stage", "give a run of blocks F0, B0, F1 ...")
    micro_batch, iteration = (arguments[name].whole(min=0) for name in ("micro_batch", "iteration"))
    time_ms = arguments["measured_ms"].number(min=0)
    start_ms = start_us / 1000
    return Span(rank, int(found[2]), found[1], micro_batch, start_ms, start_ms + time_ms, iteration)


def events(path: Path) -> Iterator[Field]:
    """Yield the events of a file in Chrome's JSON form."""
    data = Field(read_json(path, "the trace.json of schedsearch run", TraceError), "", TraceError)
    listed = data["traceEvents"] if isinstance(data.value, dict) else data.inside("traceEvents", data.value)
    yield from listed.items("a list of events", "give a trace in Chrome's JSON form")
