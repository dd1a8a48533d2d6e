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
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from placements.plain_data import Field, in_file

TORCH_PATTERN = r"^(?:PP:(?P<stage>\d+)|(?=[FB]\w* ))(?P<kind>[FBIW]|Forward |Backward )(?P<micro_batch>\d+)$"
"""The labels of ``torch.distributed.pipelining``; those of schedules for one stage a rank say no stage."""

_OVERLAPPED = re.compile(r"PP:\((.*)\)OVERLAP_F_B")
_ACTION = re.compile(r"(\d+)([FBIW])\d+")

GROUPS = ("block", "stage", "kind", "micro_batch")
"""Groups that a pattern may name: a block, or its kind and stage; and the micro-batch."""

_KINDS = (("input", "I"), ("weight", "W"), ("forward", "F"), ("backward", "B"), ("fwd", "F"), ("bwd", "B"))
_MEASURED_ROW = "measured"
_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_GPU_LABEL = "gpu_user_annotation"
_MAX_NAMED = 5
_LONGEST_US = 1e30


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


class BlockTimes(NamedTuple):
    """How long the runs of a block took: the median, the shortest and the longest, and how many there are."""

    median_ms: float
    min_ms: float
    max_ms: float
    num_runs: int


def block_times(runs: Iterable[BlockRun]) -> dict[str, BlockTimes]:
    """Return the times of each block, by name in the order of the runs.

    >>> block_times([BlockRun("F0", n, time_ms, False) for n, time_ms in enumerate([4.0, 5.0, 9.0])])
    {'F0': BlockTimes(median_ms=5.0, min_ms=4.0, max_ms=9.0, num_runs=3)}
    """
    times: dict[str, list[float]] = {}
    for run in runs:
        times.setdefault(run.block, []).append(run.time_ms)
    return {name: BlockTimes(median(each), min(each), max(each), len(each)) for name, each in times.items()}


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
            data = Field(_plain(file), "", TraceError)
            spans, rank = _spans(data), _mapping(_mapping(data.value).get("distributedInfo")).get("rank")
            runs += _drawn_runs(spans) or _labelled_runs(spans, labels, rank)
            seen |= {span.name: None for span in spans if not span.is_on_gpu and not span.is_launch}
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


def _plain(file: Path) -> object:
    """Return the plain data of a JSON file, compressed or not; profilers may give a field twice."""
    try:
        data = file.read_bytes()
        return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (gzip.BadGzipFile, EOFError, zlib.error) as cause:
        raise TraceError(f"cannot be unpacked ({cause}); give a trace of a run") from None
    except OSError as cause:
        raise TraceError(f"cannot be read ({cause.strerror}); give a trace of a run") from None
    except (ValueError, RecursionError) as cause:
        raise TraceError(f"is not JSON ({cause}); give a trace of a run") from None


class _Span(NamedTuple):
    """Something that took time on a thread of a process, in microseconds; `row` is the thread's name."""

    name: str
    category: str
    process: str
    row: str
    begin_us: float
    end_us: float
    arguments: Mapping[str, Any]

    @property
    def is_on_gpu(self) -> bool:
        return self.category in _ON_GPU

    @property
    def correlation(self) -> Any:
        """Number that a kernel and its launch have in common; None of other spans."""
        return self.arguments.get("correlation")

    @property
    def is_launch(self) -> bool:
        return self.correlation is not None and not self.is_on_gpu

    def run(self, block: str, micro_batch: int | None) -> BlockRun:
        return BlockRun(block, micro_batch, (self.end_us - self.begin_us) / 1e3, False)


def _spans(data: Field) -> list[_Span]:
    """Return complete events, and begins with their ends; what began or ended outside is left out."""
    listed = data["traceEvents"] if isinstance(data.value, dict) else data.inside("traceEvents", data.value)
    events = listed.items("a list of events", "give a trace in Chrome's JSON form")
    rows: dict[tuple[str, str], str] = {}
    open_spans: dict[tuple[str, str], list[tuple[dict[str, Any], float]]] = defaultdict(list)
    found = []
    for event in events:
        value = event.mapping("an event")
        place, phase = (str(value.get("pid")), str(value.get("tid"))), value.get("ph")
        if value.get("name") == "thread_name":
            rows[place] = str(_mapping(value.get("args")).get("name"))
        if phase == "X":
            begin_us = _time_us(event["ts"], -_LONGEST_US)
            found.append((place, value, begin_us, begin_us + _time_us(event["dur"], 0.0)))
        elif phase == "B":
            open_spans[place].append((value, _time_us(event["ts"], -_LONGEST_US)))
        elif phase == "E" and open_spans[place]:
            began, begin_us = open_spans[place].pop()
            found.append((place, began, begin_us, _time_us(event["ts"], begin_us)))
    return [
        _Span(
            str(value.get("name", "")),
            str(value.get("cat", "")).lower(),
            place[0],
            rows.get(place, ""),
            begin_us,
            end_us,
            _mapping(value.get("args")),
        )
        for place, value, begin_us, end_us in found
    ]


def _time_us(field: Field, least: float) -> float:
    return field.number("a time", f"give microseconds from {least:g}", min=least, max=_LONGEST_US)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _drawn_runs(spans: Iterable[_Span]) -> list[BlockRun]:
    """Return the blocks of the rows that `experiments.run` draws of what was measured."""
    return [
        span.run(str(span.arguments["block"]), micro_batch)
        for span in spans
        if span.row == _MEASURED_ROW and "block" in span.arguments
        if type(micro_batch := span.arguments.get("micro_batch")) is int
    ]


def _labelled_runs(spans: Sequence[_Span], pattern: re.Pattern[str], rank: Any) -> list[BlockRun]:
    """Return the blocks that labels name, with the times of their kernels where there are some."""
    labels = [
        (span, found)
        for span in spans
        if span.category != _GPU_LABEL and not span.is_on_gpu and (found := pattern.search(span.name))
    ]
    launches = {span.correlation: span for span in spans if span.is_launch}
    by_process: dict[str, list[int]] = defaultdict(list)
    for index, (label, _) in enumerate(labels):
        by_process[label.process].append(index)
    kernels: dict[int, list[_Span]] = defaultdict(list)
    for kernel in spans:
        if not kernel.is_on_gpu or kernel.correlation not in launches or kernel.name.startswith("nccl"):
            continue
        launch = launches[kernel.correlation]
        within = [
            index
            for index in by_process[launch.process]
            if labels[index][0].begin_us <= launch.begin_us <= labels[index][0].end_us
        ]
        if within:
            kernels[max(within, key=lambda index: labels[index][0].begin_us)].append(kernel)
    runs = []
    for index, (span, found) in enumerate(labels):
        run = span.run(*_named(span.name, found.groupdict(), rank))
        if of_run := kernels[index]:
            time_us = max(each.end_us for each in of_run) - min(each.begin_us for each in of_run)
            run = run._replace(time_ms=time_us / 1e3, by_kernels=True)
        runs.append(run)
    return runs


def _named(label: str, groups: Mapping[str, str | None], rank: Any) -> tuple[str, int | None]:
    """Return the block and micro-batch of a label."""
    number = groups.get("micro_batch")
    micro_batch = int(number) if number is not None and number.isdecimal() else None
    if groups.get("block"):
        return str(groups["block"]), micro_batch
    word = (groups.get("kind") or "").lower()
    kinds = (letter for part, letter in _KINDS if part in word)
    kind = word.upper() if word in [*"fbiw"] else next(kinds, None)
    if kind is None:
        raise TraceError(f"label {label!r}: {word!r} is no kind; let the group kind be one of F, B, I and W")
    stage = groups.get("stage") or (rank if type(rank) is int else None)
    if stage is None:
        raise TraceError(f"label {label!r}: says no stage, and the trace no rank; add a group (?P<stage>...)")
    return f"{kind}{stage}", micro_batch
