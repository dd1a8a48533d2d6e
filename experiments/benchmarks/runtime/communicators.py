"""How long processes take until all their communicators are there, warmed up; over gloo, on one machine."""

from __future__ import annotations

import time
from functools import partial

from experiments.benchmarks.results import CaseResult
from experiments.benchmarks.runtime.processes import on_devices
from placements import Placement
from runtime.program.lower import messages
from runtime.transport.communicators import DIRECTED, PAIR, Channel, communicators
from runtime.transport.process_groups import connect

_TIMEOUT_S = 300.0


def connecting(placement: Placement, *, max_s: float) -> CaseResult:
    """Connect as many forked processes as a placement has devices, by directions and by pairs.

    Every message of the placement has a channel. The slowest process may take ``max_s`` seconds.
    """
    channels = sorted({(message.source, message.target) for message in messages(placement)})
    texts, missed = [], []
    for sharing in (DIRECTED, PAIR):
        count = len(communicators(placement, channels, sharing))
        times_s = on_devices(placement.num_devices, partial(_connect_s, placement, channels, sharing))
        slowest_s = max(wall_s for wall_s, _ in times_s)
        processors_s = sum(processor_s for _, processor_s in times_s)
        texts.append(f"{sharing}: {count} in {slowest_s:.2f} s, {processors_s:.2f} s of the processors")
        if slowest_s > max_s:
            missed.append(f"{sharing}: {slowest_s:.2f} s is more than {max_s:g}")
    return CaseResult(missed=tuple(missed), note="; ".join(texts))


def _connect_s(
    placement: Placement, channels: list[Channel], sharing: str, device: int
) -> tuple[float, float]:
    """Return what a process's communicators took, in seconds of the clock and of the processor."""
    start_s, processor_s = time.perf_counter(), time.process_time()
    connect(placement, channels, device, _TIMEOUT_S, sharing).barrier()
    return time.perf_counter() - start_s, time.process_time() - processor_s
