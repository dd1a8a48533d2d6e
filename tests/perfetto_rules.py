"""Rules of a trace file that Perfetto shows as it is meant; no code is shared with the writer."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

Event = dict[str, Any]

HALF_NS_IN_US = 0.0005


def read_events(path: Path) -> list[Event]:
    data = json.loads(path.read_text())
    assert data["displayTimeUnit"] == "ms"
    events: list[Event] = data["traceEvents"]
    return events


def problems(events: list[Event]) -> list[str]:
    """Return a line for each rule that is broken."""
    return [*_of_events(events), *_of_slices(events), *_of_arrows(events)]


def thread_of(events: list[Event], process: int, name: str) -> list[Event]:
    """Return the slices of a thread of a process, counted from 0, by their begin."""
    tids = [
        event["tid"]
        for event in events
        if event["name"] == "thread_name" and event["pid"] == process + 1 and event["args"]["name"] == name
    ]
    slices = [event for event in events if event["ph"] == "X" and event["tid"] in tids]
    return sorted(slices, key=lambda event: float(event["ts"]))


def counter_of(events: list[Event], process: int, name: str) -> list[tuple[float, float]]:
    """Return times (us) and values of a counter of a process, counted from 0."""
    return [
        (event["ts"], event["args"]["value"])
        for event in events
        if event["ph"] == "C" and event["pid"] == process + 1 and event["name"].startswith(name)
    ]


def _of_events(events: list[Event]) -> Iterator[str]:
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    processes = {event["pid"] for event in events if event["name"] == "process_name"}
    for event in events:
        if event["pid"] not in processes or event["pid"] < 1:
            yield f"{event}: its process has no name or is the kernel"
        if event["ph"] in "Xsf" and (event["pid"], event["tid"]) not in named:
            yield f"{event}: its thread has no name"
        if event["ph"] != "M" and event["ts"] < 0:
            yield f"{event}: begins before 0"
        if event["ph"] == "C" and not isinstance(event["args"]["value"], (int, float)):
            yield f"{event}: counts no number"


def _slices(events: list[Event]) -> dict[int, list[Event]]:
    by_thread = defaultdict(list)
    for event in sorted((e for e in events if e["ph"] == "X"), key=lambda e: float(e["ts"])):
        by_thread[event["tid"]].append(event)
    return by_thread


def _of_slices(events: list[Event]) -> Iterator[str]:
    for slices in _slices(events).values():
        for event in slices:
            if event["dur"] < 0:
                yield f"{event}: ends before it begins"
        for first, second in pairwise(slices):
            if first["ts"] + first["dur"] > second["ts"] + HALF_NS_IN_US:
                yield f"{first}, {second}: overlap"


def _of_arrows(events: list[Event]) -> Iterator[str]:
    slices = _slices(events)
    begins = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    counts = Counter((event["ph"], event["id"]) for event in events if event["ph"] in "sf")
    for (_, number), count in counts.items():
        if count > 1 or number not in begins or number not in ends:
            yield f"arrow {number}: has not one begin and one end"
            continue
        begin, end = begins[number], ends[number]
        if begin["ts"] > end["ts"] + HALF_NS_IN_US:
            yield f"arrow {number}: points back in time"
        if (begin["cat"], begin["name"]) != (end["cat"], end["name"]):
            yield f"arrow {number}: has ends of different names"
        for event in (begin, end):
            if not any(
                span["ts"] - HALF_NS_IN_US <= event["ts"] < span["ts"] + span["dur"]
                for span in slices[event["tid"]]
            ):
                yield f"{event}: is in no slice"
