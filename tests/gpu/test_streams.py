"""A real stream: clocks and positions that follow it."""

from __future__ import annotations

import time

import pytest
import torch
from gpu.streams import Stream, stream_of

from runtime.clocks.clock import RecordingClock
from runtime.clocks.stream_clock import StreamClock
from runtime.execution.place import StreamPlace
from runtime.execution.results import Position
from runtime.program.calls import Message, Transfer
from runtime.program.instructions import Run

pytestmark = pytest.mark.gpu

RUNS = [Run(f"F{i}", 0, clock_mhz=mhz) for i, mhz in enumerate((1410, 900, 1200))]
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
    """Return the requests passed on, once there are `count`; give up after 300 s."""
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
    lengths_s = [follower._length_s[run.block, run.clock_mhz] for run in RUNS]
    assert lengths_s[0] > lengths_s[2] > lengths_s[1] > 0
    for length_s, asked_s in zip(lengths_s, LENGTHS_S, strict=True):
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
