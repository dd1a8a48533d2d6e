"""A trace of a job as its training would write it: 1F1B and interleaved schedules with times of one's own."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path

from schedsearch.traces.table import Span, TraceTable

HEADER = "dp_rank,stage,rank,step,optype,start_ts,duration,seq_id,mc,mb_id,gmc"

Time = Callable[[int, int, str, int, int], float]
"""Seconds of a block, by step, replica, kind, number of the block in its chain, and micro-batch."""


def order_of(stage: int, stages: int, chunks: int, number: int) -> list[tuple[str, int, int]]:
    """Return a device's order: 1F1B, or with several chunks all forwards and then all backwards."""
    blocks = [stage + chunk * stages for chunk in range(chunks)]
    if chunks > 1:
        forwards = [("F", c, n) for c in blocks for n in range(number)]
        return forwards + [("B", c, n) for c in blocks[::-1] for n in range(number)]
    ahead = min(stages - stage, number)
    order = [("F", stage, n) for n in range(ahead)]
    for n in range(number):
        order.append(("B", stage, n))
        if n + ahead < number:
            order.append(("F", stage, n + ahead))
    return order


def table(
    time: Time,
    *,
    stages: int = 2,
    replicas: int = 1,
    chunks: int = 1,
    steps: Sequence[int] = (0, 1, 2),
    number: int = 4,
    message: float = 0.0,
    offset_ms: Sequence[float] = (),
    is_numbered: bool = True,
) -> TraceTable:
    """Return the table of a job's trace; each rank's clock has an offset in ms.

    Numbers of iterations, replicas and micro-batches are in it only if it is numbered.
    """
    spans = []
    for step in steps:
        for replica in range(replicas):
            for (kind, block, n), (start, end) in _run(
                step, replica, time, stages, chunks, number, message
            ).items():
                rank = (block % stages) * replicas + replica
                at_ms = 1000 * 10 * step + (offset_ms[rank] if offset_ms else 0.0)
                known = (n, step, replica) if is_numbered else (None, None, None)
                times = (at_ms + 1000 * start, at_ms + 1000 * end)
                spans.append(Span(rank, block, kind, known[0], *times, known[1], known[2]))
    return TraceTable("job", spans, (), replicas, stages, chunks, not offset_ms)


def write_trace(
    folder: Path,
    time: Time,
    *,
    name: str = "job",
    stages: int = 2,
    replicas: int = 2,
    chunks: int = 1,
    tensor: int = 1,
    steps: Sequence[int] = (3, 4),
    number: int = 4,
    message: float = 0.0,
) -> Path:
    """Write a job's trace and meta file, and return the trace's path; ``message`` is in seconds."""
    lines = [HEADER]
    for step in steps:
        for replica in range(replicas):
            ran = _run(step, replica, time, stages, chunks, number, message)
            for (kind, block, n), (start, end) in ran.items():
                stage, chunk = block % stages, block // stages
                optype = {"F": "forward-compute", "B": "backward-compute"}[kind]
                for rank in range(tensor):
                    global_rank = (stage * replicas + replica) * tensor + rank
                    lines.append(
                        f"{replica},{stage},{global_rank},{step},{optype},{start:.9f},{end - start:.9f},"
                        f"{n},{chunk},{n},{block}"
                    )
            lines.append(f"{replica},0,{replica * tensor},{step},optimizer,9.0,0.1,0,-1,-1,-1")
    path = folder / f"trace-{name}.csv.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    (folder / f"meta-{name}.yaml").write_text(
        f"trial_name: {name}\ndp_size: {replicas}\npp_size: {stages}\ntp_size: {tensor}\n"
        f"vpp_size: {chunks}\nworld_size: {stages * replicas * tensor}\n"
    )
    return path


def _run(
    step: int, replica: int, time: Time, stages: int, chunks: int, number: int, message: float
) -> dict[tuple[str, int, int], tuple[float, float]]:
    last = stages * chunks - 1
    orders = [order_of(stage, stages, chunks, number) for stage in range(stages)]
    ran: dict[tuple[str, int, int], tuple[float, float]] = {}
    idle = [1.0] * stages
    while any(orders):
        for stage, order in enumerate(orders):
            while order:
                kind, block, n = order[0]
                before = ("F", block - 1, n) if kind == "F" else ("B", block + 1, n)
                before = ("F", last, n) if (kind, block) == ("B", last) else before
                start = idle[stage]
                if (kind, block) != ("F", 0):
                    if before not in ran:
                        break
                    hop = message if before[1] % stages != stage else 0.0
                    start = max(start, ran[before][1] + hop)
                idle[stage] = start + time(step, replica, kind, block, n)
                ran[order.pop(0)] = start, idle[stage]
    return ran
