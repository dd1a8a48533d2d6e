"""Clocks follow the stream: events that a test reaches by hand stand for CUDA's."""

from __future__ import annotations

import threading

import pytest
from fake_event import FakeEvent

from runtime.clocks import stream_clock
from runtime.clocks.clock import ClockError, RecordingClock
from runtime.clocks.stream_clock import StreamClock
from runtime.program.instructions import Run


class Stream:
    """A stream clock with the events of its blocks, and a time that a test sets."""

    def __init__(self, *clocks_mhz: int, lead_s: float = 0.0) -> None:
        self.now_s = 0.0
        self.clock = RecordingClock()
        runs = [Run(f"F{i}", 0, clock_mhz=clock_mhz) for i, clock_mhz in enumerate(clocks_mhz)]
        self.follower = StreamClock(self.clock, runs, lambda clock_mhz: lead_s, lambda: self.now_s)
        self.begins: list[FakeEvent] = []
        self.ends: list[FakeEvent] = []

    def hand_over(self, number: int) -> None:
        """Let the script run ahead by `number` blocks."""
        for _ in range(number):
            self.begins.append(FakeEvent())
            self.ends.append(FakeEvent())
            self.follower.before(self.begins[-1])
            self.follower.after(self.ends[-1])

    def reach(self, event: FakeEvent, at_s: float) -> list[int]:
        """Let the stream come to an event; return the clocks set by then."""
        event.at_s = at_s
        return self.see(at_s)

    def see(self, at_s: float) -> list[int]:
        self.now_s = at_s
        self.follower.step()
        return self.clock.requests


def test_a_clock_is_passed_on_when_the_stream_comes_to_its_block() -> None:
    stream = Stream(1410, 900, 1200)
    stream.hand_over(3)
    assert stream.see(0.0) == [], "the script is ahead, the GPU has not begun"
    assert stream.follower.requests == [1410, 900, 1200]
    assert stream.reach(stream.begins[0], 1.0) == [1410]
    assert stream.see(1.5) == [1410], "no repeats"
    assert stream.reach(stream.ends[0], 2.0) == [1410, 900], "the device waits, so the clock changes now"
    assert stream.reach(stream.begins[1], 3.0) == [1410, 900]
    stream.ends[1].at_s = 3.5
    assert stream.reach(stream.begins[2], 3.5) == [1410, 900, 1200]
    assert stream.reach(stream.ends[2], 4.0) == [1410, 900, 1200]


def test_of_several_that_are_due_only_the_latest_is_passed_on() -> None:
    stream = Stream(1410, 900, 1200)
    stream.hand_over(3)
    for event in (*stream.begins, *stream.ends[:2]):
        event.at_s = 1.0
    assert stream.see(1.0) == [1200]


def test_the_next_clock_is_asked_for_ahead_once_the_length_is_known() -> None:
    stream = Stream(1410, 900, lead_s=0.01)
    stream.hand_over(2)
    stream.reach(stream.begins[0], 0.0)
    assert stream.see(0.099) == [1410], "nobody knows yet that F0 takes 100 ms"
    stream.reach(stream.ends[0], 0.1)
    stream.reach(stream.begins[1], 0.1)
    stream.reach(stream.ends[1], 0.2)
    stream.follower.begin_iteration()
    stream.hand_over(2)
    stream.reach(stream.begins[2], 1.0)
    assert stream.see(1.089) == [1410, 900, 1410]
    assert stream.see(1.091) == [1410, 900, 1410, 900], "10 ms before its end"
    assert stream.reach(stream.ends[2], 1.12) == [1410, 900, 1410, 900]
    assert stream.reach(stream.begins[3], 1.2) == [1410, 900, 1410, 900], "and not once more"


def test_a_new_plan_is_followed_from_its_first_block_on() -> None:
    """Also by a script without clocks of its own; the clock after a block comes from the new plan."""
    for clocks in ((1410, 900), ()):
        stream = Stream(*clocks)
        runs = [Run(f"F{i}", 0, clock_mhz=mhz) for i, mhz in enumerate((800, 700, None))]
        stream.follower.follow(runs)
        stream.hand_over(2)
        assert stream.reach(stream.begins[0], 1.0) == [800]
        assert stream.reach(stream.ends[0], 2.0) == [800, 700]
        assert stream.follower.requests == [800, 700]


class Telling(RecordingClock):
    """Tells whoever waits for its next request."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = threading.Semaphore(0)

    def set(self, clock_mhz: int) -> None:
        super().set(clock_mhz)
        self.arrived.release()

    def wait(self) -> list[int]:
        assert self.arrived.acquire(timeout=300)
        return self.requests


def test_a_thread_waits_for_the_events() -> None:
    stream = Stream(1410, 900)
    stream.follower._clock = clock = Telling()
    stream.follower.start()
    stream.hand_over(2)
    assert clock.requests == []
    stream.begins[0].at_s = 0.0
    assert clock.wait() == [1410]
    stream.ends[0].at_s = 1.0
    assert clock.wait() == [1410, 900]
    stream.begins[1].at_s = stream.ends[1].at_s = 2.0
    stream.follower.reset()
    assert not any(thread.name == "clock" for thread in threading.enumerate())


def test_after_a_reset_nothing_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_clock, "JOIN_S", 0.01)
    stream = Stream(1410, 900)
    stream.follower._clock = clock = Telling()
    stream.follower.start()
    stream.hand_over(2)
    stream.begins[0].at_s = 0.0
    assert clock.wait() == [1410]
    stream.follower.reset()  # the thread waits for the stream, which nobody can end
    stream.begins[1].at_s = stream.ends[0].at_s = stream.ends[1].at_s = 1.0
    stream.follower._thread.join(20)
    assert not stream.follower._thread.is_alive()
    assert clock.requests == [1410]


def test_the_script_learns_that_the_clock_is_gone() -> None:
    class Gone(RecordingClock):
        def set(self, clock_mhz: int) -> None:
            raise ClockError("the clock controller has ended")

    stream = Stream(1410, 900)
    stream.follower._clock = Gone()
    stream.follower.start()
    stream.hand_over(1)
    stream.begins[0].at_s = 0.0
    stream.follower._thread.join(20)
    with pytest.raises(ClockError, match="has ended"):
        stream.hand_over(1)
