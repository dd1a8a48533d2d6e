"""The table that every reader of traces returns: an operation of a rank a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

BLOCK_KINDS = ("F", "B", "I", "W")
"""Kinds of blocks: forward, backward, and the two halves of a split backward."""

OTHER_KINDS = ("message", "collective", "data", "optimizer")
"""Kinds of other operations: between stages, between the copies of a stage, reading data, and the update."""


class TraceError(ValueError):
    """A trace cannot be read; one line that names the file, the place and the remedy."""


class Span(NamedTuple):
    """An operation of a rank.

    Attributes:
        rank: Number of the process.
        stage: Stage of the model, from 0 in the model's order (chunk times ranks plus rank where stages are
            interleaved); None for operations that belong to no stage.
        kind: One of `BLOCK_KINDS` or of `OTHER_KINDS`.
        micro_batch: Number of the micro-batch; None where the trace does not say, or where there is none.
        start_ms: Begin on the rank's clock.
        end_ms: End on the rank's clock.
        iteration: Number of the iteration; None where the trace does not say.
        replica: Number of the data-parallel copy; None where the trace does not say.
    """

    rank: int
    stage: int | None
    kind: str
    micro_batch: int | None
    start_ms: float
    end_ms: float
    iteration: int | None = None
    replica: int | None = None


class TraceTable(NamedTuple):
    """The operations of one job.

    Attributes:
        job: Name of the job.
        spans: Its operations, in any order.
        lines: Findings for the user, a line each that names the job: rows that were left out, and why.
        num_replicas: Data-parallel copies that the job has, of which the trace may hold some; None if the
            trace does not say.
        num_stages: Ranks of a pipeline; None if the trace does not say.
        num_chunks: Stages of each rank; None if the trace does not say.
        is_one_clock: Whether all ranks' times are of one clock, so that none has to be aligned.
        iteration_ms: Measured time of whole iterations by number, where the trace has it beside the spans.
    """

    job: str
    spans: list[Span]
    lines: tuple[str, ...] = ()
    num_replicas: int | None = None
    num_stages: int | None = None
    num_chunks: int | None = None
    is_one_clock: bool = False
    iteration_ms: Mapping[int, float] = {}
