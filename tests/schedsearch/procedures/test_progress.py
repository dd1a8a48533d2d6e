"""Progress in a terminal of 80 columns, in a notebook, and where standard error is a file."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pickle
import pty
import struct
import sys
import termios
from types import SimpleNamespace
from typing import Any

import pytest

import schedsearch
from schedsearch.core import progress
from schedsearch.core.answer import SearchError, SearchProgress
from schedsearch.core.objective import Objective
from schedsearch.core.problem import Problem
from schedsearch.core.progress import PlanProgress, StepBar
from schedsearch.searches.search import search

LONG = "another way of the large neighbourhoods of a schedule, which is long"


def tell(num_events: int = 3) -> None:
    """Tell of a planner and of two searches, in turns."""
    with PlanProgress() as show:
        for number in range(num_events):
            show.planner(number, 9, 40_000.0, 38_555.0)
            for name in ("pp4 tp4, loop_shape", "llama2_13b pp8"):
                event = SearchProgress(Objective.MAKESPAN, 38_574 - number, 38_555, 4, 1.0, found_by=LONG)
                show.search(name, 1.0, event)


def shown(text: str) -> list[str]:
    """Return the lines of a terminal that has been told this; a line that is drawn over keeps its end."""
    lines = [""]
    for part in text.replace("\r\n", "\n").split("\n"):
        for piece in part.split("\r"):
            lines[-1] = piece + lines[-1][len(piece) :]
        lines.append("")
    return [line.rstrip() for line in lines if line.strip()]


def test_bars_in_turns_keep_to_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search's bar was drawn over the planner's, which left "38,555 ms)ueries, 00:00"."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        tell()
    text = ""
    with contextlib.suppress(OSError), os.fdopen(ours, newline="") as screen:  # it ends with an error
        while piece := screen.read(1):
            text += piece
    assert "\x1b" not in text
    assert max(map(len, text.replace("\r", "\n").split("\n"))) <= 80
    lines = shown(text)
    assert len(lines) == 9
    assert all(line.split(":")[0] in {"plan", "pp4 tp4, loop_shape", "llama2_13b pp8"} for line in lines)
    assert all("(bound 38,555 ms" in line for line in lines)


def test_a_file_has_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    tell()
    assert "\x1b" not in file.getvalue() and "\r" not in file.getvalue()
    lines = file.getvalue().splitlines()
    assert len(lines) == 9 and all(
        line.endswith((f"{LONG}, 4 queries", "(bound 38,555 ms by the formula)")) for line in lines
    )


def test_a_bar_that_is_told_nothing_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    with StepBar("plan"):
        pass
    assert file.getvalue() == ""


class Terminal(io.StringIO):
    """Standard error that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def put_in_place(stderr: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Take it for standard error; not in a fixture, after which pytest puts its own there."""
    monkeypatch.setattr(progress, "_CALL_S", 0.0)
    monkeypatch.setattr(sys, "stderr", stderr)
    return stderr


def compared(stderr: io.StringIO, **options: Any) -> str:
    """Compare; return standard error."""
    stages = schedsearch.stages_of(2, forward_ms=10, backward_ms=20, activation_mib=100, memory_mib=400)
    comparison = schedsearch.compare(stages, ["searched", "gpipe"], 4, **options)
    assert comparison.rows[0].makespan_ms == 130
    return stderr.getvalue()


def test_a_comparison_draws_a_bar_in_a_terminal_and_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was silent for 40 s."""
    lines = compared(put_in_place(Terminal(), monkeypatch)).replace("\r", "\n").splitlines()
    assert all(line.startswith("searched, v_shape: 00:0") for line in lines if line)
    assert "130 ms (bound 130 ms)" in lines[-1]
    shell = SimpleNamespace(kernel=None)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert "searched, v_shape: 00:0" in compared(put_in_place(io.StringIO(), monkeypatch))


def test_a_problem_has_a_bar_too(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = put_in_place(Terminal(), monkeypatch)
    schedsearch.search(Problem(schedsearch.v_shape(2), 2))
    assert "search: 00:0" in terminal.getvalue()


def test_who_is_told_sees_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = put_in_place(Terminal(), monkeypatch)
    events: list[Any] = []
    assert compared(terminal, on_progress=lambda *event: events.append(event)) == ""
    assert [event[0] for event in events] == ["searched"] * len(events) and events


def test_a_pipe_gets_none_and_a_wrong_argument_draws_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for stderr in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", stderr)
        assert schedsearch.search(schedsearch.v_shape(2), 2).makespan_bound == 12
    terminal = put_in_place(Terminal(), monkeypatch)
    with pytest.raises(SearchError, match="placement: a str is not a placement"):
        schedsearch.search("v_shape", 4)
    with pytest.raises(SearchError, match=r"search\.num_micro_batches: None is not a whole number"):
        schedsearch.search(schedsearch.v_shape(2))
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        schedsearch.search()
    assert terminal.getvalue() == ""


def test_an_entry_point_keeps_its_signature_and_can_be_pickled() -> None:
    assert schedsearch.search.__wrapped__ is search and schedsearch.search.__doc__ == search.__doc__
    assert pickle.loads(pickle.dumps(schedsearch.frontier)) is schedsearch.frontier
