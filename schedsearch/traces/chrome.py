"""Traces in Chrome's JSON form, as torch's profiler exports them, a file for each rank.

Events are read one by one, and only columns of labels, launches and kernels are kept: a file of gigabytes
needs memory for these alone.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TypeGuard

from placements.forms.reading import Field
from schedsearch.traces.labelled import Form, OnProgress, Source, TracedFile, read_files, table_of, traffic
from schedsearch.traces.labels import block_label
from schedsearch.traces.table import TraceError, TraceTable

_ON_GPU = {"kernel", "gpu_memcpy", "gpu_memset"}
_GPU_LABEL = "gpu_user_annotation"
_DRAWN = "waiting_ms"
"""Argument of blocks that `experiments.run` draws as they were measured, and of no other span."""

_RECEIVED, _SENT = "gloo:recv", "c10d::send"
"""Messages on a CPU, within torch's labels of blocks: a receive ends when the wait for it has ended."""

_PIPELINE = re.compile(r"(mesh_)?pp|PIPELINE_MODEL_PARALLEL_GROUP")
"""Process group of a pipeline: in meshes of torch, and in Megatron-LM."""

_LONGEST_US = 1e30
_CHUNK = 2**22
_MAX_EVENT = 2**28
_MAX_CUT = 16
"""Characters before the end of a chunk within which JSON that seems broken may only be cut off."""

_BEGIN = re.compile(r'\s*\[|.*?"traceEvents"\s*:\s*\[', re.DOTALL)
_BETWEEN = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder()


def read_chrome(
    source: Source, pattern: str | None = None, on_progress: OnProgress | None = None
) -> TraceTable:
    """Read traces in Chrome's JSON form.

    Args:
        source: A ``.json`` or ``.json.gz`` file, a folder of them (one for each rank), or files.
        pattern: Pattern of the labels; see `schedsearch.traces.labels.label_reader`.
        on_progress: Called with a name, MiB read, and MiB in all, for files of some MiB.

    Raises:
        TraceError: A file cannot be read, an event of it is wrong, or no label is a block's; one line.
    """
    return table_of(read_files(CHROME, source, pattern, on_progress))


def _read(file: TracedFile, on_progress: OnProgress) -> None:
    head: dict[str, Any] = {}
    processes: dict[str, int] = {}
    for index, event in enumerate(_events(file.path, head, on_progress)):
        if isinstance(event, dict) and event.get("ph") != "X":
            continue
        begin, end = _times_us(index, event)
        text, category = str(event.get("name", "")), str(event.get("cat", "")).lower()
        arguments = _mapping(event.get("args"))
        process = processes.setdefault(str(event.get("pid", "")), len(processes))
        key = arguments.get("correlation")
        if category in _ON_GPU:
            if _is_whole(key):
                file.kernels.extend((key, begin, end, traffic(text)))
        elif _is_whole(key):
            file.launches.extend((key, begin, process))
        elif text == _RECEIVED:
            file.received.extend((end, process))
        elif text == _SENT:
            file.sent.extend((begin, process))
        elif category != _GPU_LABEL:
            block, number = str(arguments.get("block")), arguments.get("micro_batch")
            number = number if _is_whole(number) else None
            label = block_label(text, block, number) if _DRAWN in arguments else None
            file.add(text, begin, end, process, drawn=label)
    base_ns, info = head.get("baseTimeNanoseconds"), _mapping(head.get("distributedInfo"))
    file.base_ns = base_ns if _is_whole(base_ns) else 0
    file.rank = info["rank"] if _is_whole(info.get("rank")) else file.rank
    file.world = info["world_size"] if _is_whole(info.get("world_size")) else 1
    groups = info.get("pg_config")
    for group in map(_mapping, groups if isinstance(groups, list) else ()):
        ranks, is_pipeline = group.get("ranks"), _PIPELINE.fullmatch(str(group.get("pg_desc")))
        if is_pipeline and isinstance(ranks, list) and all(map(_is_whole, ranks)) and file.rank in ranks:
            file.pipeline = tuple(ranks)


CHROME = Form((".json", ".json.gz"), 1e3, _read)


def _mapping(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _is_whole(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 2**63


def _times_us(index: int, event: Any) -> tuple[float, float]:
    """Return the begin and the end of an event; there are millions, so a right one is found quickly."""
    begin: Any = _mapping(event).get("ts")
    took: Any = _mapping(event).get("dur")
    are_numbers = type(begin) in (float, int) and type(took) in (float, int)
    if are_numbers and -_LONGEST_US <= begin <= _LONGEST_US and 0 <= took <= _LONGEST_US:
        return begin, begin + took
    field = Field(event, f"traceEvents[{index}]", TraceError)
    field.mapping("an event")
    begin, took = (
        field[name].number("a time", f"give microseconds from {least:g}", min=least, max=_LONGEST_US)
        for name, least in (("ts", -_LONGEST_US), ("dur", 0.0))
    )
    return begin, begin + took


def _events(path: Path, head: dict[str, Any], on_progress: OnProgress) -> Iterator[Any]:
    """Yield the events of a trace one by one, and put the other fields of the file into `head`."""
    lines = 1
    try:
        with path.open("rb") as raw:
            is_packed = raw.peek(2)[:2] == b"\x1f\x8b"
            stream = TextIOWrapper(gzip.GzipFile(fileobj=raw) if is_packed else raw, "utf-8-sig", "replace")
            text, size = stream.read(_CHUNK), path.stat().st_size >> 20
            begin = _BEGIN.match(text)
            around, at = (text[: begin.end()], begin.end()) if begin else (text, len(text))
            while begin:
                at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
                if text.startswith("]", at):
                    break
                try:
                    event, at = _DECODER.raw_decode(text, at)
                    yield event
                except json.JSONDecodeError as cause:
                    is_cut = cause.msg.startswith("Untermin") or cause.pos > len(text) - _MAX_CUT
                    is_cut &= len(text) < _MAX_EVENT
                    if not (is_cut and (more := stream.read(max(_CHUNK, len(text) - at)))):
                        raise
                    on_progress(f"MiB of {path.name}", raw.tell() >> 20, size)
                    lines += text.count("\n", 0, at)
                    text, at = text[at:] + more, 0
            lines += text.count("\n", 0, at) - around.count("\n")
            around += text[at:] + stream.read(_MAX_EVENT)
            head |= _mapping(json.loads(around))
    except (EOFError, gzip.BadGzipFile, zlib.error, ValueError, RecursionError) as cause:
        if isinstance(cause, json.JSONDecodeError):
            reason = f"{cause.msg} in line {lines + cause.lineno - 1}"
        else:
            reason = str(cause)
        raise TraceError(f"is not JSON, packed by gzip or not ({reason}); give a whole trace") from None
    except OSError as cause:
        raise TraceError(f"cannot be read ({cause.strerror}); give a trace of a run") from None
