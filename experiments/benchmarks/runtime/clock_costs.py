"""What requests of clocks cost the thread that launches kernels: themselves, and by the thread beside it.

The clocks are only recorded, so nothing here depends on how long a GPU takes to change them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch

from experiments.benchmarks.results import CaseResult
from runtime.clocks.clock import RecordingClock
from runtime.clocks.stream_clock import GpuEvent, StreamClock
from runtime.clocks.torch_gpu import record_event
from runtime.program.calls import BlockCall


def clocks_of_stream(
    where: str, *, num_blocks: int, launches: int, record: Callable[[], GpuEvent] | None = None
) -> CaseResult:
    """Launch small kernels with and without a clock for each block, after a round of each not counted.

    Each block has another clock than the one before, so that the thread passes each on. ``record`` returns an
    event that was just recorded on the compute stream; without it that is one of the GPU.
    """
    record = record or partial(record_event, sleeps=True)
    device = torch.device(where)
    runs = [BlockCall(f"F{index}", 0, 1000 + index % 2) for index in range(num_blocks)]
    value = torch.zeros(1, device=device)

    def launch() -> float:
        began_s = time.perf_counter()
        for _ in range(launches):
            value.add_(1)
        return time.perf_counter() - began_s

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def alone() -> float:
        wait()
        return sum(launch() for _ in runs)

    def with_clocks() -> tuple[float, float]:
        wait()
        clock = StreamClock(RecordingClock(), runs)
        clock.start(lambda: torch.cuda.set_device(device) if device.type == "cuda" else None)
        requests_s = launches_s = 0.0
        for _ in runs:
            began_s = time.perf_counter()
            clock.before(record())
            requests_s += time.perf_counter() - began_s
            launches_s += launch()
            began_s = time.perf_counter()
            clock.after(record())
            requests_s += time.perf_counter() - began_s
        wait()
        clock.reset()
        return requests_s, launches_s

    for _ in range(2):
        alone_s, (requests_s, launches_s) = alone(), with_clocks()
    number = num_blocks * launches
    note = (
        f"a request takes {requests_s / num_blocks * 1e6:.1f} us of the script; a kernel's launch takes "
        f"{alone_s / number * 1e6:.2f} us, and {(launches_s - alone_s) / number * 1e6:+.2f} us where clocks "
        "are asked for"
    )
    return CaseResult(note=note)
