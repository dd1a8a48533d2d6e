"""From labels, launches and kernels to operations: the step that traces of all profilers share.

Where kernels were traced, a block takes from the begin of the first kernel that was launched within its
label, by any thread of its process, to the end of the last. Kernels of NCCL are no part of a block: they are
operations of their own. Elsewhere a block takes as long as its label, without the wait for its input and what
follows from its first send, where the trace shows them. Recomputation within a backward is a part of it.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placements.forms.reading import in_file
from schedsearch.traces.labels import Label, label_reader, step_number
from schedsearch.traces.table import Span, TraceError, TraceTable

OnProgress = Callable[[str, int, int], object]
"""Called now and then with the name of a part, the part that is read, and all of it."""

Source = str | Path | Sequence[str | Path]
"""A file, a folder, or files."""

_RANK = re.compile(r"rank[_-]?(\d+)|_(\d{1,3})\.", re.IGNORECASE)
"""Rank in a file's name; longer numbers are dates, or processes as torch's own handler names its files."""

_ACTION = re.compile(r"(\d+)([FBIW])\d+")
_NCCL = (Label("", "message"), Label("", "collective"))


_Run = tuple[Label, int, float, float, int | None]
"""A run of a label, or of a kernel of NCCL: its process, begin and end in ms, and its iteration."""


class TracedFile:
    """Events of one file in columns; all times are of one clock, of which `per_ms` are 1 ms.

    Attributes:
        launches: Key, time and process of each launch, one after the other; a kernel has the launch's key.
        kernels: Key, begin, end and `traffic` of each kernel.
        received: Time and process of the end of each wait for a message on a CPU.
        sent: Time and process of each begin of a message on a CPU.
        labels: All labels of the file.
        ranks: Runs of each process with blocks, once the file is read.
        texts: The first texts of ranges, for an error.
        base_ns: Time at which the clock is 0.
        rank: Number of the process, by the file or its name; None if neither says it.
        pipeline: Ranks of its pipeline in the order of their stages; empty where the file does not say.
    """

    def __init__(self, path: Path, per_ms: float, read: Callable[[str], Label | None]) -> None:
        self.path, self.per_ms, self._read = path, per_ms, read
        self.labels, self.ranks = list[Label](), list[list[_Run]]()
        self._ranges, self._steps = array("d"), array("d")
        self.launches, self.kernels = array("d"), array("d")
        self.received, self.sent = array("d"), array("d")
        self.texts: dict[str, None] = {}
        named = _RANK.search(path.name)
        self.rank = int(named[1] or named[2]) if named else None
        self.base_ns, self.world, self.pipeline = 0, 1, tuple[int, ...]()

    def add(self, text: str, *times: float, drawn: Label | None = None) -> None:
        """Add a range with its text, begin, end and process, if the text is a label or one is given."""
        if len(self.texts) < 5:
            self.texts[text] = None
        if (number := step_number(text)) is not None:
            self._steps.extend((*times, number))
        elif label := drawn or self._read(text):
            self.labels.append(label)
            self._ranges.extend(times)

    def close(self) -> None:
        """Keep the runs of processes with blocks in `ranks`, in the order of their first stages, alone."""
        runs = defaultdict[int, list[_Run]](list)
        for run in self._runs():
            runs[run[1]].append(run)
        stages = {key: [label.stage or 0 for label, *_ in runs[key] if label.is_block] for key in runs}
        order = sorted((min(numbers), key) for key, numbers in stages.items() if numbers)
        self.ranks = [runs[key] for _, key in order]
        self._ranges = self._steps = self.launches = self.kernels = array("d")

    def _runs(self) -> Iterator[_Run]:
        ranges, steps, kernels = _rows(self._ranges, 3), _rows(self._steps, 4), _rows(self.kernels, 4)
        launches = np.vstack([_rows(self.launches, 3), [[np.inf, 0, -1]]])
        launches = launches[np.argsort(launches[:, 0], kind="stable")]
        launches = launches[np.searchsorted(launches[:, 0], kernels[:, 0])]
        launches[launches[:, 0] != kernels[:, 0], 2] = -1  # of no process
        owners = _innermost(ranges, launches[:, 1:])  # the label around each kernel's launch
        is_block = np.array([*(label.is_block for label in self.labels), True])
        is_part = (owners >= 0) & ((kernels[:, 3] == 0) | ~is_block[owners])

        times = np.tile([[np.inf], [-np.inf]], len(ranges))
        np.minimum.at(times[0], owners[is_part], kernels[is_part, 1])
        np.maximum.at(times[1], owners[is_part], kernels[is_part, 2])
        for column, points, narrowed in ((0, self.received, np.maximum), (1, self.sent, np.minimum)):
            messages = _rows(points, 2)
            rows = _innermost(ranges, messages)
            is_within = (rows >= 0) & is_block[rows]
            narrowed.at(ranges[:, column], rows[is_within], messages[is_within, 0])
        times = np.where(np.isfinite(times), times, ranges[:, :2].T)

        alone = np.flatnonzero((kernels[:, 3] > 0) & ~is_part)
        labels = [
            *self.labels,
            *(self._of_nccl(*pair) for pair in zip(kernels[alone, 3], owners[alone], strict=True)),
        ]
        begun = np.concatenate([ranges[:, [0, 2]], launches[alone, 1:]])
        numbers = [int(steps[step, 3]) if step >= 0 else None for step in _innermost(steps, begun)]
        starts, ends = np.concatenate([times, kernels[alone, 1:3].T], axis=1) / self.per_ms
        processes = begun[:, 1].astype(int).tolist()
        return zip(labels, processes, starts.tolist(), ends.tolist(), numbers, strict=True)

    def _of_nccl(self, number: float, owner: int) -> Label:
        """Return the label of a kernel of NCCL by its `traffic`: with the stage of the block around it."""
        label = _NCCL[int(number) - 1]
        return self.labels[owner]._replace(kind=label.kind, block=None) if owner >= 0 else label


def _rows(column: array[float], width: int) -> NDArray[np.float64]:
    return np.array(column).reshape(-1, width)


def _innermost(ranges: NDArray[np.float64], points: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the row of the innermost range around each (time, process); -1 without one."""
    innermost, opened = np.full(len(points), -1), defaultdict[float, list[int]](list)
    times = np.concatenate([ranges[:, 0], points[:, 0]])
    for row in np.argsort(times, kind="stable").tolist():  # at equal times ranges come first
        if row < len(ranges):
            opened[ranges[row, 2]].append(row)
        else:
            holding = opened[points[row - len(ranges), 1]]
            while holding and ranges[holding[-1], 1] < times[row]:
                holding.pop()
            innermost[row - len(ranges)] = holding[-1] if holding else -1
    return innermost


def traffic(kernel: str | None) -> int:
    """Return 1 for sends and receives of NCCL, 2 for its collectives, and 0 for other kernels."""
    name = kernel or ""
    return (1 if "SendRecv" in name else 2) if name.startswith("nccl") else 0


class Form(NamedTuple):
    """A form of traces: endings of its files, its units of time in 1 ms, and the reader of a file."""

    endings: tuple[str, ...]
    per_ms: float
    read: Callable[[TracedFile, OnProgress], None]


def read_files(
    form: Form, source: Source, pattern: str | None = None, on_progress: OnProgress | None = None
) -> list[TracedFile]:
    """Return the events of each file of a trace; of a folder, of all files with the form's endings.

    Raises:
        TraceError: A folder has no such file, or a file is wrong.
    """
    label, files = label_reader(pattern), []
    for path in [Path(source)] if isinstance(source, str | Path) else map(Path, source):
        paths = sorted(file for end in form.endings for file in path.glob(f"*{end}"))
        if path.is_dir() and not paths:
            raise TraceError(f"{path}: has no {' and no '.join(form.endings)} file; give traces of a run")
        files += [TracedFile(file, form.per_ms, label) for file in (paths if path.is_dir() else [path])]
    for file in files:
        with in_file(file.path, TraceError):
            form.read(file, on_progress or (lambda *_: None))
            file.close()
    return files


def operations(files: Sequence[TracedFile]) -> Iterator[tuple[str | None, Span]]:
    """Yield the spans of all ranks, each with the name of its block, on the clock of the first file.

    A process with blocks is a rank. Its number is the file's, or the number in the file's name, or else the
    place in the order of the files, and within a file in the order of the first stages.

    Raises:
        TraceError: No label is of a block, or a block has no label of its own; or a label says no stage, and
            nothing tells the rank.
    """
    ranked = [(file, runs) for file in files for runs in file.ranks]
    _refuse_overlapped(files)
    if not ranked:
        texts = ", ".join(map(repr, [*dict.fromkeys(chain(*(file.texts for file in files)))][:5]))
        raise TraceError(
            f"{files[0].path}: no label is a block's; it has {texts or 'no spans at all'}; give a "
            "pattern with the groups stage, kind and micro_batch (torch labels no block of Schedule1F1B)"
        )
    ranks: Sequence[int | None] = [file.rank for file, _ in ranked]
    if len(ranked) > 1 and (None in ranks or len(ranked) > len(files)):
        ranks = range(len(ranked))
    pipelines = sorted({file.pipeline for file in files if file.pipeline})
    for (file, runs), rank in zip(ranked, ranks, strict=True):
        line, offset_ms = file.pipeline, (file.base_ns - files[0].base_ns) / 1e6
        place, size = (line.index(rank), len(line)) if rank in line else (rank, len({*ranks}))
        replica = pipelines.index(line) if line else None
        for label, _, start_ms, end_ms, iteration in runs:
            stage, times = label.stage, (start_ms + offset_ms, end_ms + offset_ms)
            if stage is None and label.text and label.kind not in ("", "optimizer", "data"):
                if not line and size < file.world:
                    raise TraceError(
                        f"{file.path}: is of a job of {file.world} ranks, and its labels say no stage; give "
                        f"the traces of all ranks, not of {size}"
                    )
                if place is None:
                    raise TraceError(
                        f"{file.path}: label {label.text!r}: says no stage, and the trace no rank; add a "
                        "group (?P<stage>...)"
                    )
                stage = place + size * (label.chunk or 0)
            span = Span(rank or 0, stage, label.kind, label.micro_batch, *times, iteration, replica)
            yield label.block or f"{label.kind}{stage}" if label.is_block else None, span


def _refuse_overlapped(files: Sequence[TracedFile]) -> None:
    """Refuse a trace with a block that ran only within labels of two blocks at once."""
    labels = [(file, label) for file in files for label in file.labels]
    named = {f"{label.kind}{label.stage}" for _, label in labels}
    for file, label in labels:
        for stage, kind in () if label.kind else _ACTION.findall(label.text):
            if f"{kind}{stage}" not in named:
                raise TraceError(
                    f"{file.path}: {kind}{stage} ran only within {label.text!r}, which does not tell its "
                    "blocks' times apart; trace another schedule, such as 1F1B"
                )


def table_of(files: Sequence[TracedFile]) -> TraceTable:
    """Return the table of a trace, with a line for labels that were left out."""
    spans = [span for _, span in operations(files) if span.kind]
    unknown = [(file.path, [label.text for label in file.labels if not label.kind]) for file in files]
    lines = tuple(
        f"{path}: {len(texts)} labels such as {texts[0]!r} were left out, which name no one block of a stage"
        for path, texts in unknown
        if texts
    )
    sizes = [len(file.pipeline) for file in files if file.pipeline]
    job = files[0].path.parent.name if len(files) > 1 else files[0].path.name.partition(".")[0]
    return TraceTable(job, spans, lines, None, max(sizes, default=None), is_one_clock=len(files) == 1)
