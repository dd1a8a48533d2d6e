"""A script that feeds a stream stays a few blocks ahead; marks reached by hand stand for CUDA's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runtime.execution import place
from runtime.execution.place import StreamPlace, StreamTimeoutError
from runtime.execution.results import Position
from runtime.program.calls import BlockCall, Message, Transfer

RUN = BlockCall("F0", 0, None)
MESSAGE = Message(Transfer("F0", "F1", 0), 0, 1)


class Stream:
    """A stream whose marks are reached one by one, each time the script sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ahead: int = 2, timeout_s: float = 20.0) -> None:
        self.position = Position(None, 0)
        self.given = self.reached = 0
        self.seen: list[str] = []
        self.script = StreamPlace(self.position, self.mark, timeout_s, ahead)
        monkeypatch.setattr(place.time, "sleep", self.go_on)

    def mark(self) -> Stream._Mark:
        self.given += 1
        return Stream._Mark(self, self.given)

    def go_on(self, seconds: float) -> None:
        self.seen.append(self.position.text)
        self.reached += 1

    class _Mark:
        def __init__(self, stream: Stream, number: int) -> None:
            self.query: Callable[[], bool] = lambda: stream.reached >= number


def test_the_script_stays_so_many_blocks_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(monkeypatch, ahead=2)
    found = []
    for _ in range(6):
        stream.script.reach(RUN)
        stream.script.stop(RUN, [])
        found.append((stream.given, stream.reached))
    assert found == [(1, 0), (2, 0), (3, 0), (4, 1), (5, 2), (6, 3)]
    stream.script.drain()
    assert stream.reached == stream.given == 7


def test_the_position_is_that_of_the_stream_while_the_script_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(monkeypatch)
    for text in ("call 2, waits for F0", "call 5, waits for B1"):
        stream.position.move(text)
        stream.script.waited(MESSAGE)
        stream.script.stop(RUN, [])
    stream.position.move("call 9 of 9")
    stream.script.drain()
    first, second = "call 2, waits for F0", "call 5, waits for B1"
    assert stream.seen == [first, second, second, "call 9 of 9", "call 9 of 9"]
    assert stream.position.text == "call 9 of 9", "the script's own again"


def test_a_stream_that_stands_is_given_up_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(monkeypatch, timeout_s=0.01)
    monkeypatch.setattr(place.time, "sleep", lambda seconds: None)
    stream.position.move("call 2, waits for F0")
    stream.script.waited(MESSAGE)
    stream.position.move("call 9 of 9")
    with pytest.raises(StreamTimeoutError, match="the GPU did not go on within 0.01 s"):
        stream.script.drain()
    assert stream.position.text == "call 2, waits for F0"
