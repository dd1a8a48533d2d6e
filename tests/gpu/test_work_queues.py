"""What a GPU does with streams that share work queues, beside the virtual machine."""

from __future__ import annotations

import operator
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import pytest

from runtime.virtual.streams import Host, Operation, VirtualEvent, VirtualMachine

pytestmark = pytest.mark.gpu

LONG_MS, SHORT_MS = 40.0, 2.0

CASES = {
    "a record between": ["kernel 0 long", "record 0", "kernel 1 short", "record 1"],
    "no record between": ["kernel 0 long", "kernel 1 short", "record 1", "record 0"],
    "a wait between": ["kernel 0 long", "record 0", "wait 1", "kernel 1 short", "kernel 2 short", "record 2"],
    "records of three": [
        "kernel 0 long",
        "record 0",
        "kernel 1 short",
        "record 1",
        "kernel 2 short",
        "record 2",
    ],
    "four streams": [
        *("kernel 0 long", "record 0", "wait 1", "kernel 1 short", "record 1"),
        *("kernel 2 short", "record 2", "kernel 3 short", "record 3"),
    ],
}
"""What is issued, in order; a wait is for the first event. When each event is reached is compared."""

PROGRAM = """
import torch

streams = [torch.cuda.Stream() for _ in range(4)]
torch.cuda._sleep(1000)
torch.cuda.synchronize()
begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
begin.record()
torch.cuda._sleep(100_000_000)
end.record()
torch.cuda.synchronize()
per_ms = 100_000_000 / begin.elapsed_time(end)
for name, steps in [*CASES.items(), *CASES.items()]:  # what a process issues first is late by milliseconds
    begin, events = torch.cuda.Event(enable_timing=True), []
    begin.record()
    for stream in streams:
        stream.wait_event(begin)
    for step in steps:
        verb, number, *length = step.split()
        stream = streams[int(number)]
        with torch.cuda.stream(stream):
            if verb == "kernel":
                torch.cuda._sleep(int(per_ms * (LONG_MS if length == ["long"] else SHORT_MS)))
            elif verb == "wait":
                stream.wait_event(events[0])
            else:
                events.append(torch.cuda.Event(enable_timing=True))
                events[-1].record(stream)
    torch.cuda.synchronize()
    print(name, *(begin.elapsed_time(event) for event in events), sep=";")
"""


def modelled(steps: list[str], num_queues: int) -> list[float]:
    """Return when each event is reached."""
    machine = VirtualMachine(num_queues)
    events: list[VirtualEvent] = []

    def host() -> Host:
        for step in steps:
            verb, number, *length = step.split()
            stream = int(number)
            if verb == "kernel":
                duration = LONG_MS if length == ["long"] else SHORT_MS
                machine.issue(Operation(0, stream, step, partial(operator.add, duration)))
            elif verb == "wait":
                machine.wait(0, stream, events[0])
            else:
                events.append(machine.record(0, stream))
        yield from ()

    machine.run([host()])
    return [event.time or 0.0 for event in events]


@pytest.mark.parametrize("num_queues", [1, 2, 8])
def test_events_are_reached_when_the_model_says(
    num_queues: int, device: str, record_property: Callable[[str, object], None]
) -> None:
    if device == "cpu":
        pytest.skip("the processor has no work queues")
    constants = f"CASES = {CASES!r}\nLONG_MS, SHORT_MS = {LONG_MS}, {SHORT_MS}\n"
    environment = os.environ | {"CUDA_DEVICE_MAX_CONNECTIONS": str(num_queues)}
    command = [sys.executable, "-c", constants + PROGRAM]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    found = {  # of the second time
        name: [float(ms) for ms in times]
        for name, *times in (row.split(";") for row in output.split("\n")[:-1])
    }
    record_property("reached_ms", found)
    expected = {name: modelled(steps, num_queues) for name, steps in CASES.items()}
    assert found.keys() == expected.keys()
    for name, times in expected.items():
        assert found[name] == pytest.approx(times, abs=1.5), name
