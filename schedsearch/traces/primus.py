"""Pipeline data of Primus (``--dump_pp_data``): ``config.json``, and ``pp_rank_N.json`` for each rank.

A rank's file has lists of begin and end times (ms) of forwards, backwards and weight gradients by iteration,
from the begin of the rank's own schedule on, and the time of the schedule. Data-parallel rank 0 alone writes.
Megatron-LM's own schedules do not say the micro-batches and chunks, which follow from their order; those of
Primus do. After its last block a schedule synchronises gradients.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from placements.forms.reading import Field, in_file
from placements.forms.texts import read_json
from schedsearch.traces.table import Span, TraceError, TraceTable

_BACKWARD_SHARE = 2 / 3
"""Share of the backward in a pair whose blocks are measured together; a backward costs two forwards."""


class _Block(NamedTuple):
    """A block of a rank, with times from the begin of the iteration."""

    kind: str
    micro_batch: int
    chunk: int
    start_ms: float
    end_ms: float


_Run = dict[int, tuple[list[_Block], float]]
"""A rank's blocks, and the time of its schedule (ms), by iteration."""


def read_primus(folder: str | Path) -> TraceTable:
    """Read the pipeline data of a run.

    Iterations follow each other at once: the time between two schedules is not in the files.

    Raises:
        TraceError: A file is missing or wrong; one line with its path, the place and the remedy.
    """
    folder = Path(folder).resolve()
    config = folder / "config.json"
    if not config.is_file():
        raise TraceError(f"{folder}: has no config.json beside pp_rank_0.json; copy it from the run's folder")
    with in_file(config, TraceError):
        data = Field(read_json(config, "Primus' config.json", TraceError), "", TraceError, is_open=True)
        names = ("dp_size", "pp_size", "vp_size", "num_mbs")
        replicas, ranks, chunks, number = (data[name].whole(min=1) for name in names)
    runs = [_read_rank(folder / f"pp_rank_{rank}.json", ranks, chunks, number) for rank in range(ranks)]
    shared = [iteration for iteration in runs[0] if all(iteration in run for run in runs)]
    if not shared:
        raise TraceError(f"{folder}: no iteration is in the files of all ranks; give the files of one run")
    lines, turned, pairs = list[str](), _turned(runs, shared, chunks), 0
    spans, iteration_ms, now_ms = list[Span](), dict[int, float](), 0.0
    for iteration in shared:
        for rank, run in enumerate(runs):
            blocks, total_ms = run[iteration]
            num_runs = Counter(block[3:] for block in blocks)
            for kind, micro_batch, chunk, start_ms, end_ms in blocks:
                if num_runs[start_ms, end_ms] > 1:
                    pairs += kind == "F"
                    middle_ms = end_ms - (end_ms - start_ms) * _BACKWARD_SHARE
                    start_ms, end_ms = (start_ms, middle_ms) if kind == "F" else (middle_ms, end_ms)
                stage = chunk * ranks + (ranks - 1 - rank if chunk in turned else rank)
                times = now_ms + start_ms, now_ms + end_ms
                spans.append(Span(rank, stage, kind, micro_batch, *times, iteration, 0))
            if (last_ms := max(block.end_ms for block in blocks)) < total_ms:
                times = now_ms + last_ms, now_ms + total_ms
                spans.append(Span(rank, None, "collective", None, *times, iteration, 0))
        iteration_ms[iteration] = max(run[iteration][1] for run in runs)
        now_ms += iteration_ms[iteration]
    if pairs:
        lines.append(
            f"{pairs} pairs of a forward and a backward are measured together; of their time a third is "
            "taken for the forward"
        )
    lines = [f"{folder.name}: {line}" for line in lines]
    return TraceTable(folder.name, spans, tuple(lines), replicas, ranks, chunks, iteration_ms=iteration_ms)


def _read_rank(path: Path, ranks: int, chunks: int, number: int) -> _Run:
    """Return the blocks of a rank and the time of its schedule, by iteration."""
    if not path.is_file():
        raise TraceError(f"{path}: is missing, where config.json says pp_size {ranks}; copy it from its node")
    groups = [range(first, min(first + ranks, number)) for first in range(0, number, ranks)]
    forward = [(n, chunk) for group in groups for chunk in range(chunks) for n in group]
    backward = [(n, chunks - 1 - chunk) for n, chunk in forward]
    iterations: _Run = {}
    with in_file(path, TraceError):
        data = Field(read_json(path, "a rank's pipeline data", TraceError), "", TraceError, is_open=True)
        for iteration, fields in data.typed(Mapping[int, Field]).items():
            weights = _blocks(fields, "wgrad", "W", backward)
            split = {(block.micro_batch, block.chunk) for block in weights}
            backwards = [
                block._replace(kind="I") if (block.micro_batch, block.chunk) in split else block
                for block in _blocks(fields, "bwd", "B", backward)
            ]
            if forwards := _blocks(fields, "fwd", "F", forward):
                iterations[iteration] = [*forwards, *backwards, *weights], fields["total"].number(min=0)
    return iterations


def _blocks(fields: Field, name: str, kind: str, order: Sequence[tuple[int, int]]) -> list[_Block]:
    """Return an iteration's blocks of a kind; `order` names them where the trace does not."""
    starts, ends = (
        [cell.number() for cell in fields.get(f"{name}_{column}", []).items()] for column in ("start", "end")
    )
    numbers, chunks = (
        [cell.whole(min=0) for cell in fields.get(f"{name}_{column}", []).items()]
        for column in ("minibatch", "chunk")
    )
    order = [*zip(numbers, chunks, strict=False)] or order
    if not starts and not ends:
        return []
    if {len(starts), len(ends)} != {len(order)}:
        raise fields.mistake(
            f"has {len(starts)} times in {name}_start and {len(ends)} in {name}_end, where {len(order)} "
            "blocks ran; give the file as it was written"
        )
    return [_Block(kind, *block, *times) for block, *times in zip(order, starts, ends, strict=True)]


def _turned(runs: Sequence[_Run], iterations: Sequence[int], chunks: int) -> set[int]:
    """Return the chunks that begin on the last rank, as the second one of a V-shape does.

    The files do not say the shape: a chunk is turned if its forwards begin on the last rank before the first.
    """

    def begin_ms(run: _Run, chunk: int) -> float:
        return fmean(
            min((b.start_ms for b in run[i][0] if b.kind == "F" and b.chunk == chunk), default=0.0)
            for i in iterations
        )

    return {chunk for chunk in range(1, chunks) if begin_ms(runs[-1], chunk) < begin_ms(runs[0], chunk)}
