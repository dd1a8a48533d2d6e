"""A probe of a GPU's clock by work: a kernel that spins for a number of its cycles, timed by events."""

from __future__ import annotations

import torch

from runtime.clocks.probe import BLOCK_MS, Probe, ProbeAnswer, now_ms
from runtime.clocks.torch_gpu import gpu_uuid


def cycle_probe_of(uuid: str) -> Probe | None:
    """Return a probe of the GPU that NVML knows by a UUID; None if torch does not see it."""
    found = [index for index in range(torch.cuda.device_count()) if uuid.endswith(_uuid(index))]
    if not found:
        return None
    torch.cuda.set_device(found[0])
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

    def look(slower_mhz: int) -> ProbeAnswer:
        begin_ms, cycles = now_ms(), int(BLOCK_MS * slower_mhz * 1000)
        begin.record()
        # It spins on the SM's own counter of cycles.
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        end.record()
        end.synchronize()
        return ProbeAnswer(begin_ms, cycles / begin.elapsed_time(end) / 1000)

    return Probe(now_ms, look, "the time of a kernel that spins for a number of cycles")


def _uuid(index: int) -> str:
    return gpu_uuid(torch.device("cuda", index))
