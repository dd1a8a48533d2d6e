"""A real stream: clocks and positions that follow it, and streams that share work queues beside the model."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
import torch
from gpu.streams import Stream, stream_of

from runtime.clocks.clock import RecordingClock
from runtime.clocks.stream_clock import StreamClock
from runtime.execution.place import StreamPlace
from runtime.execution.results import Position
from runtime.program.calls import BlockCall, Message, Transfer
from runtime.virtual.streams import Event, VirtualMachine

pytestmark = pytest.mark.gpu

RUNS = [BlockCall("F0", 0, 1410), BlockCall("F1", 0, 900), BlockCall("F2", 0, 1200)]
LENGTHS_S = (0.08, 0.02, 0.05)
MESSAGE = Message(Transfer("F0", "F1", 0), 1, 0)


@pytest.fixture
def stream(device: str) -> Stream:
    return stream_of(device)


def hand_over(stream: Stream, follower: StreamClock) -> None:
    """Give the stream an iteration, without waiting for it."""
    follower.begin_iteration()
    for length_s in LENGTHS_S:
        follower.before(stream.event())
        stream.sleep(length_s)
        follower.after(stream.event())


def await_requests(clock: RecordingClock, count: int) -> list[int]:
    """Return what was passed on, as soon as it is so much; give up after a long while."""
    deadline = time.monotonic() + 300
    while len(clock.requests) < count and time.monotonic() < deadline:
        time.sleep(0.001)
    return clock.requests


def test_clocks_are_passed_on_in_the_order_of_the_plan_when_the_stream_is_there(
    stream: Stream, device: str
) -> None:
    clock = RecordingClock()
    follower = StreamClock(clock, RUNS)
    follower.start(lambda: torch.cuda.set_device(0) if device == "cuda" else None)
    stream.sleep(1.0)
    gate = stream.event()
    hand_over(stream, follower)
    assert follower.requests == [1410, 900, 1200], "the script is ahead"
    time.sleep(0.2)
    seen = list(clock.requests)
    assert not gate.query(), "this machine is too busy for the test"
    assert seen == [], "the stream has not begun"
    stream.synchronize()
    assert await_requests(clock, 3) == [1410, 900, 1200]
    follower.reset()
    assert clock.requests == [1410, 900, 1200]


def test_lengths_are_those_of_the_blocks(stream: Stream) -> None:
    clock = RecordingClock()
    follower = StreamClock(clock, RUNS)
    hand_over(stream, follower)
    stream.synchronize()
    follower.step()
    found = [follower._length_s[run.block, run.clock_mhz] for run in RUNS]
    assert found[0] > found[2] > found[1] > 0
    for length_s, asked_s in zip(found, LENGTHS_S, strict=True):
        assert asked_s / 4 < length_s < asked_s * 4, "the unit is the second"


def test_the_script_stays_a_block_ahead_and_knows_where_the_stream_stands(stream: Stream) -> None:
    position = Position(None, 0)
    script = StreamPlace(position, stream.event, ahead=1)
    marks = []
    for _ in range(4):
        script.reach(RUNS[0])
        assert all(mark.query() for mark in marks[:-1])
        stream.sleep(0.02)
        script.waited(MESSAGE)
        script.stop(RUNS[0], [])
        marks.append(stream.event())
    script.drain()
    assert all(mark.query() for mark in marks)


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
    events: list[Event] = []
    for step in steps:
        verb, number, *length = step.split()
        stream = int(number)
        if verb == "kernel":
            machine.issue(0, stream, Event(step, duration=LONG_MS if length == ["long"] else SHORT_MS))
        elif verb == "wait":
            machine.wait(0, stream, events[0])
        else:
            events.append(machine.record(0, stream))
    machine.run()
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
