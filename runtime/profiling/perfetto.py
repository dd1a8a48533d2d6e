"""The JSON trace format of Chrome, which ui.perfetto.dev opens: slices, arrows, spans and counters.

A file has processes, each process threads, each thread slices that do not overlap, and counters beside them.
It does not know what they stand for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from placements.forms.texts import write_text

TraceEvent = dict[str, Any]
"""One object of the format; its times are microseconds, with three decimals."""

_MOST_THREADS = 100
"""Most threads of a process."""


class Slice(NamedTuple):
    """Something that a thread does.

    Attributes:
        process: Number of the process.
        thread: Number of the thread in it.
        begin_ms: Its begin.
        end_ms: Its end.
    """

    process: int
    thread: int
    begin_ms: float
    end_ms: float


@dataclass
class TraceFile:
    """A trace that is being drawn.

    Attributes:
        events: All that was drawn, in order.
    """

    events: list[TraceEvent] = field(default_factory=list)
    _num_ids: int = 0

    def name_process(self, process: int, name: str) -> None:
        """Name a process; processes are shown by their numbers."""
        for what, value in (("name", name), ("sort_index", process)):
            self._add("M", f"process_{what}", {"pid": process + 1}, args={what: value})

    def name_thread(self, process: int, thread: int, name: str) -> None:
        """Name a thread; threads are shown by their numbers."""
        for what, value in (("name", name), ("sort_index", thread)):
            self._add("M", f"thread_{what}", _place(process, thread), args={what: value})

    def slice(self, name: str, at: Slice, color: str, args: Mapping[str, object]) -> None:
        """Draw a slice; the colour is one of Chrome's names."""
        begin_us = _us(at.begin_ms)
        times = {"ts": begin_us, "dur": round(_us(at.end_ms) - begin_us, 3)}
        self._add("X", name, _place(at.process, at.thread), **times, cname=color, args=dict(args))

    def arrow(self, name: str, source: Slice, target: Slice) -> None:
        """Draw an arrow from one slice to another."""
        begin_us, end_us = _us(source.begin_ms), _us(source.end_ms)
        inside_us = max(begin_us, round(end_us - 0.001, 3))  # the end itself is outside
        shared = {"cat": "message", "id": self._new_id()}
        self._add("s", name, _place(source.process, source.thread), ts=inside_us, **shared)
        place = _place(target.process, target.thread)
        self._add("f", name, place, ts=_us(target.begin_ms), **shared, bp="e")

    def span(self, name: str, at: Slice, args: Mapping[str, object]) -> None:
        """Draw something that may overlap with others of its name."""
        place = _place(at.process, at.thread)
        shared = {"cat": "message", "id2": {"local": str(self._new_id())}}
        self._add("b", name, place, ts=_us(at.begin_ms), **shared, args=dict(args))
        self._add("e", name, place, ts=_us(at.end_ms), **shared)

    def count(self, process: int, name: str, ms: float, value: float) -> None:
        """Set a counter of a process from a time on."""
        self._add("C", name, {"pid": process + 1}, ts=_us(ms), args={"value": value})

    def write(self, path: str | Path, facts: Mapping[str, object]) -> Path:
        """Write the file, an event on each line, after facts that viewers pass over; return its path."""
        head = json.dumps({"displayTimeUnit": "ms", **facts}, allow_nan=False)[1:-1]
        lines = ",\n".join(json.dumps(event, allow_nan=False) for event in self.events)
        return write_text(path, f'{{{head}, "traceEvents": [\n{lines}\n]}}\n')

    def _new_id(self) -> int:
        self._num_ids += 1
        return self._num_ids

    def _add(self, kind: str, name: str, place: Mapping[str, int], **rest: object) -> None:
        self.events.append({"ph": kind, **place, "name": name, **rest})


def _place(process: int, thread: int) -> dict[str, int]:
    """Return the ids of a thread: above 0, which stands for the kernel, and of no other process."""
    return {"pid": process + 1, "tid": (process + 1) * _MOST_THREADS + thread}


def _us(ms: float) -> float:
    return round(ms * 1000, 3)
