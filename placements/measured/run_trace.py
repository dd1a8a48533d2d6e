"""Times of blocks from traces of a run, in Chrome's JSON form: what profilers of torch and Nsight export.

A block is a labelled span of a process: ``PP:3F1``, as torch's pipelines label their actions, a span of the
``measured`` rows that `experiments.run` draws, or what a pattern of the user's finds. Where kernels were
traced, a run of a block takes from the begin of the first kernel that was launched within the label, by any
thread of its process, to the end of the last; messages of NCCL are not counted. Elsewhere it takes as long
as the label. The module does not know placements.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from placements.forms.reading import Field, in_file

TORCH_PATTERN = r"^(?:PP:(?P<stage>\d+)|(?=[FB]\w* ))(?P<kind>[FBIW]|Forward |Backward )(?P<micro_batch>\d+)$"
"""The labels of ``torch.distributed.pipelining``; those of schedules for one stage a rank say no stage."""

_OVERLAPPED = re.compile(r"PP:\((.*)\)OVERLAP_F_B")
_ACTION = re.compile(r"(\d+)([FBIW])\d+")

GROUPS = ("block", "stage", "kind", "micro_batch")
"""Groups that a pattern may name: a block, or its kind and stage; and the micro-batch."""

_KINDS = (("input", "I"), ("weight", "W"), ("forward", "F"), ("backward", "B"), ("fwd", "F"), ("bwd", "B"))
_LETTERS = dict(_KINDS) | {letter.lower(): letter for letter in "FBIW"}
_MEASURED_ROW = "measured"
_GPU_LABEL = "gpu_user_annotation"
_MAX_NAMED = 5
_LONGEST_US = 1e30
_EVENTS = re.compile(r"\s*(?:(\{.*?\"traceEvents\"\s*:)\s*)?\[\s*", re.DOTALL)


class TraceError(ValueError):
    """A trace cannot be read, or has no blocks; one line that begins with the file."""


class BlockRun(NamedTuple):
    """A block that ran once.

    Attributes:
        block: Its name.
        micro_batch: None if the label does not say it.
        time_ms: How long it ran.
        by_kernels: Whether that is the time of its kernels; else that of its label.
    """

    block: str
    micro_batch: int | None
    time_ms: float
    by_kernels: bool


@dataclass(frozen=True)
class BlockTimes:
    """How long the runs of a block took.

    Attributes:
        median_ms: Median time of all runs.
        low_ms: A tenth of the runs are shorter; the shortest where there are fewer than ten.
        high_ms: A tenth are longer; the longest where there are fewer than ten.
        num_runs: How many there are.
    """

    median_ms: float
    low_ms: float
    high_ms: float
    num_runs: int


def block_times(runs: Iterable[BlockRun]) -> dict[str, BlockTimes]:
    """Return the times of each block, by name in the order of the runs.

    >>> block_times([BlockRun("F0", n, time_ms, False) for n, time_ms in enumerate([4.0, 5.0, 9.0])])
    {'F0': BlockTimes(median_ms=5.0, low_ms=4.0, high_ms=9.0, num_runs=3)}
    """
    times: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        times[run.block].append(run.time_ms)
    found = {}
    for block, each in times.items():
        tenths = quantiles(each, n=10, method="inclusive") if len(each) >= 10 else (min(each), max(each))
        found[block] = BlockTimes(median(each), tenths[0], tenths[-1], len(each))
    return found


def read_traces(path: str | Path, pattern: str | None = None) -> tuple[BlockRun, ...]:
    """Read the runs of blocks from a trace, or from all traces of a folder (one for each process).

    Args:
        path: A ``.json`` or ``.json.gz`` file, or a folder of them.
        pattern: A regular expression for the labels, with the groups of `GROUPS`; `TORCH_PATTERN` if it is
            None. Without a group ``stage`` the stage is the rank that the trace is of. Kinds are ``F``,
            ``B``, ``I`` and ``W``, or words such as ``forward`` and ``backward_weight``.

    Raises:
        TraceError: A file cannot be read, an event of it is wrong, no label is a block's, or a block takes no
            time or has none of its own.
    """
    labels = _compiled(pattern)
    path = Path(path)
    files = sorted([*path.glob("*.json"), *path.glob("*.json.gz")]) if path.is_dir() else [path]
    if not files:
        raise TraceError(f"{path}: has no .json and no .json.gz file; give traces of a run")
    runs: list[BlockRun] = []
    seen: dict[str, None] = {}
    for file in files:
        with in_file(file, TraceError):
            trace = _Trace.read(file)
            runs += trace.drawn_runs() or trace.labelled_runs(labels)
            seen |= dict.fromkeys(trace.labels())
    times = block_times(runs)
    for name in seen if pattern is None else ():
        overlapped = _OVERLAPPED.fullmatch(name)
        for stage, kind in _ACTION.findall(overlapped[1] if overlapped else ""):
            if f"{kind}{stage}" not in times:
                raise TraceError(
                    f"{path}: {kind}{stage} ran only within {name!r}, which does not tell its blocks' times "
                    "apart; trace another schedule, such as 1F1B"
                )
    if not runs:
        some = ", ".join(repr(name) for name in list(seen)[:_MAX_NAMED]) or "no spans at all"
        raise TraceError(
            f"{path}: no label matches {labels.pattern!r}; it has {some}; give a pattern with the groups "
            "stage, kind and micro_batch"
        )
    for name, each in times.items():
        if not each.median_ms:
            raise TraceError(f"{path}: {name} takes 0 ms in most runs; trace it with its kernels")
    return tuple(runs)


def _compiled(pattern: str | None) -> re.Pattern[str]:
    try:
        compiled = re.compile(TORCH_PATTERN if pattern is None else pattern)
    except re.error as error:
        raise TraceError(f"pattern: {pattern!r} is no regular expression ({error}); mend it") from None
    unknown = [name for name in compiled.groupindex if name not in GROUPS]
    if unknown:
        raise TraceError(f"pattern: has an unknown group {unknown[0]!r}; the groups are {', '.join(GROUPS)}")
    if not {"block", "kind"} & compiled.groupindex.keys():
        raise TraceError("pattern: names no block; add a group (?P<kind>...) or (?P<block>...)")
    return compiled


@dataclass(frozen=True)
class _Span:
    """Something that took time, in microseconds.

    Attributes:
        place: Process and thread.
    """

    name: str
    category: str
    place: tuple[Any, Any]
    begin_us: float
    end_us: float
    arguments: Mapping[str, Any]

    @property
    def is_on_gpu(self) -> bool:
        return self.category in ("kernel", "gpu_memcpy", "gpu_memset")

    @property
    def correlation(self) -> Any:
        """Number that a kernel and its launch have in common; None of other spans."""
        return self.arguments.get("correlation")


@dataclass(frozen=True)
class _Trace:
    """The events of one file.

    Attributes:
        spans: Those with a begin and an end, in the order of the file.
        rows: Names of threads.
        rank: Rank of the process that was traced; None if the file does not say it.
    """

    spans: tuple[_Span, ...]
    rows: Mapping[tuple[Any, Any], str]
    rank: int | None

    @classmethod
    def read(cls, file: Path) -> _Trace:
        plain, rank = _plain(file), None
        events_of = Field(plain, "traceEvents", TraceError)
        if isinstance(plain, dict):
            rank = _mapping(plain.get("distributedInfo")).get("rank")
            events_of = Field(plain, "", TraceError)["traceEvents"]
        events = events_of.items("a list of events", "give a trace in Chrome's JSON form")
        rows = {
            _place(event.value): str(_mapping(event.value.get("args")).get("name"))
            for event in events
            if isinstance(event.value, dict) and event.value.get("name") == "thread_name"
        }
        return cls(tuple(_spans(events)), rows, rank if type(rank) is int else None)

    def labels(self) -> Iterator[str]:
        """Yield the names of what may be a label."""
        for span in self.spans:
            if not span.is_on_gpu and span.correlation is None:
                yield span.name

    def drawn_runs(self) -> list[BlockRun]:
        """Return the blocks of the rows that `experiments.run` draws of what was measured."""
        return [
            BlockRun(str(span.arguments["block"]), micro_batch, (span.end_us - span.begin_us) / 1e3, False)
            for span in self.spans
            if self.rows.get(span.place) == _MEASURED_ROW and "block" in span.arguments
            if type(micro_batch := span.arguments.get("micro_batch")) is int
        ]

    def labelled_runs(self, pattern: re.Pattern[str]) -> list[BlockRun]:
        """Return the blocks that labels name, with the times of their kernels where there are some."""
        labels = [
            (span, found)
            for span in self.spans
            if span.category != _GPU_LABEL and not span.is_on_gpu and (found := pattern.search(span.name))
        ]
        kernels = self._kernels_of([span for span, _ in labels])
        runs = []
        for index, (span, found) in enumerate(labels):
            block, micro_batch = _named(span.name, found.groupdict(), self.rank)
            begin_us, end_us = kernels.get(index, (span.begin_us, span.end_us))
            runs.append(BlockRun(block, micro_batch, (end_us - begin_us) / 1e3, index in kernels))
        return runs

    def _kernels_of(self, labels: list[_Span]) -> dict[int, tuple[float, float]]:
        """Return from when to when kernels ran that were launched within labels, by the label's index."""
        launches = {
            span.correlation: span
            for span in self.spans
            if span.correlation is not None and not span.is_on_gpu
        }
        by_process: dict[Any, list[int]] = defaultdict(list)
        for index, label in enumerate(labels):
            by_process[label.place[0]].append(index)
        found: dict[int, tuple[float, float]] = {}
        for kernel in self.spans:
            launch = launches.get(kernel.correlation) if kernel.is_on_gpu else None
            if launch is None or kernel.name.startswith("nccl"):
                continue
            within = [
                index
                for index in by_process[launch.place[0]]
                if labels[index].begin_us <= launch.begin_us <= labels[index].end_us
            ]
            if within:
                index = max(within, key=lambda each: labels[each].begin_us)
                begin_us, end_us = found.get(index, (kernel.begin_us, kernel.end_us))
                found[index] = min(begin_us, kernel.begin_us), max(end_us, kernel.end_us)
        return found


def _plain(file: Path) -> object:
    """Return the plain data of a JSON file, compressed or not; profilers may give a field twice or no end."""
    try:
        data = file.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        text = data.decode("utf-8-sig")
        try:
            return json.loads(text)
        except ValueError:
            if (found := _without_end(text)) is None:
                raise
            return found
    except (gzip.BadGzipFile, EOFError, zlib.error) as cause:
        raise TraceError(f"cannot be unpacked ({cause}); give a trace of a run") from None
    except OSError as cause:
        raise TraceError(f"cannot be read ({cause.strerror}); give a trace of a run") from None
    except (ValueError, RecursionError) as cause:
        raise TraceError(f"is not JSON ({cause}); give a trace of a run") from None


def _without_end(text: str) -> object:
    """Return the whole events of a trace that was cut off and the fields before them; None if it was not."""
    began = _EVENTS.match(text)
    events, at, decoder = list[Any](), began.end() if began else 0, json.JSONDecoder()
    while began and text.startswith("{", at):
        try:
            event, at = decoder.raw_decode(text, at)
        except ValueError:
            break
        events.append(event)
        while text[at : at + 1] in list(", \r\n\t"):
            at += 1
    rest = text[at:].lstrip("]} \n")
    is_cut = not rest or text[at] == "]" or (rest[0] == "{" and rest.count("{") > rest.count("}"))
    if not began or not events or not is_cut:
        return None
    return {**json.loads(f"{began[1]}{{}}}}"), "traceEvents": events} if began[1] else events


def _spans(events: Iterable[Field]) -> Iterator[_Span]:
    """Yield complete events, and begins with their ends; what began or ended outside is left out."""
    open_spans: dict[tuple[Any, Any], list[tuple[Field, float]]] = defaultdict(list)
    for event in events:
        phase = event.mapping("an event").get("ph")
        if phase == "X":
            begin_us = _time_us(event["ts"], -_LONGEST_US)
            time_us = _time_us(event["dur"], 0.0)
            yield _span(event, begin_us, begin_us + time_us)
        elif phase == "B":
            open_spans[_place(event.value)].append((event, _time_us(event["ts"], -_LONGEST_US)))
        elif phase == "E" and open_spans[_place(event.value)]:
            began, begin_us = open_spans[_place(event.value)].pop()
            yield _span(began, begin_us, _time_us(event["ts"], begin_us))


def _time_us(field: Field, least: float) -> float:
    return field.number("a time", f"give microseconds from {least:g}", min=least, max=_LONGEST_US)


def _span(event: Field, begin_us: float, end_us: float) -> _Span:
    value = event.value
    return _Span(
        str(value.get("name", "")),
        str(value.get("cat", "")).lower(),
        _place(value),
        begin_us,
        end_us,
        _mapping(value.get("args")),
    )


def _place(event: Mapping[str, Any]) -> tuple[Any, Any]:
    return str(event.get("pid")), str(event.get("tid"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _named(label: str, groups: Mapping[str, str | None], rank: int | None) -> tuple[str, int | None]:
    """Return the block and micro-batch of a label."""
    number = groups.get("micro_batch")
    micro_batch = int(number) if number is not None and number.isdecimal() else None
    if groups.get("block"):
        return str(groups["block"]), micro_batch
    word = (groups.get("kind") or "").lower()
    kind = _LETTERS.get(word) or next((letter for part, letter in _KINDS if part in word), None)
    if kind is None:
        raise TraceError(f"label {label!r}: {word!r} is no kind; let the group kind be one of F, B, I and W")
    stage = groups.get("stage")
    if stage is None and rank is None:
        raise TraceError(f"label {label!r}: says no stage, and the trace no rank; add a group (?P<stage>...)")
    return f"{kind}{rank if stage is None else stage}", micro_batch
