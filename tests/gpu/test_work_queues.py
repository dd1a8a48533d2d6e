"""What a GPU does with streams that share work queues, beside `runtime.simulate.streams`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from runtime.simulate.streams import Event, Gpus, Host, Operation

pytestmark = pytest.mark.gpu

LONG_MS, SHORT_MS = 40.0, 2.0

PROGRAM = """
import torch

streams = [torch.cuda.Stream() for _ in range(3)]
torch.cuda._sleep(1000)
torch.cuda.synchronize()
begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
begin.record()
torch.cuda._sleep(100_000_000)
end.record()
torch.cuda.synchronize()
per_ms = 100_000_000 / begin.elapsed_time(end)


def kernel(stream, ms):
    with torch.cuda.stream(stream):
        torch.cuda._sleep(int(ms * per_ms))
        event = torch.cuda.Event(enable_timing=True)
        event.record(stream)
        return event


begin = torch.cuda.Event(enable_timing=True)
begin.record()
for stream in streams:
    stream.wait_event(begin)
ends = [kernel(streams[0], LONG_MS)]
streams[1].wait_event(ends[0])
ends += [kernel(streams[1], SHORT_MS), kernel(streams[2], SHORT_MS)]
torch.cuda.synchronize()
print(*(begin.elapsed_time(end) for end in ends))
"""


def modelled(num_queues: int) -> list[float]:
    """When the three kernels end: a long one, one that waits for it, and one that waits for nothing."""
    gpus = Gpus(num_queues)
    ends: list[Event] = []

    def host() -> Host:
        ends.append(gpus.issue(Operation(0, 0, "the long one", LONG_MS)))
        gpus.wait(0, 1, ends[0])
        ends.extend(gpus.issue(Operation(0, stream, "a short one", SHORT_MS)) for stream in (1, 2))
        yield from ()

    gpus.run([host()])
    return [end.time or 0.0 for end in ends]


@pytest.mark.parametrize("num_queues", [1, 8])
def test_kernels_end_no_later_than_in_the_model(
    num_queues: int, device: str, record_property: Callable[[str, object], None]
) -> None:
    if device == "cpu":
        pytest.skip("the processor has no work queues")
    constants = f"LONG_MS, SHORT_MS = {LONG_MS}, {SHORT_MS}\n"
    environment = os.environ | {"CUDA_DEVICE_MAX_CONNECTIONS": str(num_queues)}
    command = [sys.executable, "-c", constants + PROGRAM]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    found, expected = [float(word) for word in output.split()], modelled(num_queues)
    record_property("ends_ms", found)
    assert all(ours <= 1.1 * theirs + 1.0 for ours, theirs in zip(found, expected, strict=True))
    assert found[:2] == pytest.approx(expected[:2], rel=0.1)
    if num_queues == 8:
        assert found[2] == pytest.approx(expected[2], abs=1.0), "streams with queues of their own"
