"""Times of blocks from traces of a run, in Chrome's JSON form, which profilers of torch and Nsight export.

A block is a labelled span of a process: ``PP:3F1``, as torch's pipelines label their actions, a block as
`experiments.run` draws it where it was measured, or a match of the user's pattern. Where kernels were
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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from placements.forms.reading import Field, in_file

TORCH_PATTERN = r"^(?:PP:(?P<stage>\d+)|(?=[FB]\w* ))(?P<kind>[FBIW]|Forward |Backward )(?P<micro_batch>\d+)$"
"""The labels of ``torch.distributed.pipelining``; schedules with one stage a rank do not label the stage."""

_OVERLAPPED = ")OVERLAP_F_B"
_ACTION = re.compile(r"(\d+)([FBIW])\d+")

GROUPS = ("block", "stage", "kind", "micro_batch")
"""Groups that a pattern may name: a block, or its kind and stage; the micro-batch is not read."""

_KINDS = (("input", "I"), ("weight", "W"), ("forward", "F"), ("backward", "B"), ("fwd", "F"), ("bwd", "B"))
_DRAWN = "waiting_ms"
"""Argument of blocks that `experiments.run` draws as they were measured, and of no other span."""

_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_GPU_LABEL = "gpu_user_annotation"
_MAX_NAMED = 5
_LONGEST_US = 1e30


class TraceError(ValueError):
    """A trace cannot be read, or has no blocks; one line that begins with the file."""


class BlockTimes(NamedTuple):
    """Times of the runs of a block in ms, and the number of runs."""

    median_ms: float
    min_ms: float
    max_ms: float
    num_runs: int


def read_traces(path: str | Path, pattern: str | None = None) -> dict[str, BlockTimes]:
    """Read the times of blocks from a trace, or from all traces of a folder (one for each process).

    Args:
        path: A ``.json`` or ``.json.gz`` file, or a folder of them.
        pattern: A regular expression for the labels, with the groups of `GROUPS`; `TORCH_PATTERN` if it is
            None. Without a group ``stage`` the stage is the rank that the trace is of. Kinds are ``F``,
            ``B``, ``I`` and ``W``, or words such as ``forward`` and ``backward_weight``.

    Returns:
        The times by the name of the block, in the order of the first runs.

    Raises:
        TraceError: A file cannot be read, an event of it is wrong, no label is a block's, or a block takes no
            time or has none of its own.
    """
    labels = _compiled(pattern)
    path = Path(path)
    files = sorted([*path.glob("*.json"), *path.glob("*.json.gz")]) if path.is_dir() else [path]
    if not files:
        raise TraceError(f"{path}: has no .json and no .json.gz file; give traces of a run")
    runs: dict[str, list[float]] = defaultdict(list)
    names: dict[str, None] = {}
    for file in files:
        with in_file(file, TraceError):
            data = Field(_plain(file), "", TraceError)
            spans, rank = _spans(data), _mapping(_mapping(data.value).get("distributedInfo")).get("rank")
            drawn = [(span.arguments.get("block"), span.ms) for span in spans if _DRAWN in span.arguments]
            for block, ms in drawn or _labelled(spans, labels, rank):
                runs[str(block)].append(ms)
            names |= {span.name: None for span in spans if not span.is_on_gpu and not span.is_launch}
    for name in names if pattern is None else ():
        for stage, kind in _ACTION.findall(name) if name.endswith(_OVERLAPPED) else ():
            if f"{kind}{stage}" not in runs:
                raise TraceError(
                    f"{path}: {kind}{stage} ran only within {name!r}, which does not tell its blocks' times "
                    "apart; trace another schedule, such as 1F1B"
                )
    if not runs:
        some = ", ".join(repr(name) for name in list(names)[:_MAX_NAMED]) or "no spans at all"
        raise TraceError(
            f"{path}: no label matches {labels.pattern!r}; it has {some}; give a pattern with the groups "
            "stage, kind and micro_batch"
        )
    times = {block: BlockTimes(median(ms), min(ms), max(ms), len(ms)) for block, ms in runs.items()}
    if none := [block for block, each in times.items() if not each.median_ms]:
        raise TraceError(f"{path}: {none[0]} takes 0 ms in most runs; trace it with its kernels")
    return times


def _compiled(pattern: str | None) -> re.Pattern[str]:
    try:
        compiled = re.compile(TORCH_PATTERN if pattern is None else pattern)
    except re.error as error:
        raise TraceError(f"pattern: {pattern!r} is no regular expression ({error}); mend it") from None
    if unknown := [name for name in compiled.groupindex if name not in GROUPS]:
        raise TraceError(f"pattern: has an unknown group {unknown[0]!r}; the groups are {', '.join(GROUPS)}")
    if not {"block", "kind"} & compiled.groupindex.keys():
        raise TraceError("pattern: names no block; add a group (?P<kind>...) or (?P<block>...)")
    return compiled


def _plain(file: Path) -> object:
    """Return the plain data of a JSON file, compressed or not; profilers may give a field twice."""
    try:
        data = file.read_bytes()
        return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (EOFError, zlib.error, gzip.BadGzipFile, ValueError, RecursionError) as cause:
        raise TraceError(f"is not JSON, packed by gzip or not ({cause}); give a trace of a run") from None
    except OSError as cause:
        raise TraceError(f"cannot be read ({cause.strerror}); give a trace of a run") from None


class _Span(NamedTuple):
    """Something that took time in a process."""

    name: str
    category: str
    process: str
    begin_us: float
    end_us: float
    arguments: Mapping[str, Any]

    @property
    def is_on_gpu(self) -> bool:
        return self.category in _ON_GPU

    @property
    def is_launch(self) -> bool:
        """Whether the span launches kernels: kernels on the GPU carry the same correlation number."""
        return self.arguments.get("correlation") is not None and not self.is_on_gpu

    @property
    def ms(self) -> float:
        return (self.end_us - self.begin_us) / 1e3


def _spans(data: Field) -> list[_Span]:
    """Return the complete events."""
    listed = data["traceEvents"] if isinstance(data.value, dict) else data.inside("traceEvents", data.value)
    spans = []
    for event in listed.items("a list of events", "give a trace in Chrome's JSON form"):
        value = event.mapping("an event")
        if value.get("ph") == "X":
            name, category, process = (str(value.get(key, "")) for key in ("name", "cat", "pid"))
            begin_us = _time_us(event["ts"], -_LONGEST_US)
            end_us, arguments = begin_us + _time_us(event["dur"], 0.0), _mapping(value.get("args"))
            spans.append(_Span(name, category.lower(), process, begin_us, end_us, arguments))
    return spans


def _time_us(field: Field, least: float) -> float:
    return field.number("a time", f"give microseconds from {least:g}", min=least, max=_LONGEST_US)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _labelled(spans: Sequence[_Span], pattern: re.Pattern[str], rank: Any) -> Iterator[tuple[str, float]]:
    """Yield each labelled block with its time in ms: its kernels' if they were traced, else the label's."""
    matches = [(span, pattern.search(span.name)) for span in spans if not span.is_on_gpu]
    labels = [(span, match) for span, match in matches if match and span.category != _GPU_LABEL]
    launches = {span.arguments["correlation"]: span for span in spans if span.is_launch}
    processes = np.array([label.process for label, _ in labels])
    begins, ends = np.array([(label.begin_us, label.end_us) for label, _ in labels]).reshape(-1, 2).T
    kernels: dict[int, list[_Span]] = defaultdict(list)
    for kernel in spans:
        launch = launches.get(kernel.arguments.get("correlation")) if kernel.is_on_gpu else None
        if launch is None or kernel.name.startswith("nccl"):
            continue
        within = (begins <= launch.begin_us) & (launch.begin_us <= ends) & (processes == launch.process)
        if within.any():
            kernels[int(np.where(within, begins, -np.inf).argmax())].append(kernel)
    for index, (label, match) in enumerate(labels):
        of_run = kernels[index] or [label]
        time_us = max(each.end_us for each in of_run) - min(each.begin_us for each in of_run)
        yield _block(label.name, match.groupdict(), rank), time_us / 1e3


def _block(label: str, groups: Mapping[str, str | None], rank: Any) -> str:
    """Return the name of the block that a label is of."""
    if block := groups.get("block"):
        return block
    word = (groups.get("kind") or "").lower()
    kinds = (letter for part, letter in _KINDS if part in word)
    kind = word.upper() if word in [*"fbiw"] else next(kinds, None)
    if kind is None:
        raise TraceError(f"label {label!r}: {word!r} is no kind; let the group kind be one of F, B, I and W")
    stage = groups.get("stage") or (rank if type(rank) is int else None)
    if stage is None:
        raise TraceError(f"label {label!r}: says no stage, and the trace no rank; add a group (?P<stage>...)")
    return f"{kind}{stage}"
