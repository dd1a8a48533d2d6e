"""Progress in a terminal of 80 columns, and where standard error is a file."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import struct
import sys
import termios

import pytest

from experiments.config.progress import PlanProgress, StepBar
from schedsearch.modulo.result import Objective, Progress

LONG = "another way of the large neighbourhoods of a schedule, which is long"


def tell(num_events: int = 3) -> None:
    """Tell of a planner and of two searches, in turns."""
    with PlanProgress() as show:
        for number in range(num_events):
            show.planner(number, 9, 40_000.0, 38_555.0)
            for name in ("pp4 tp4, loop_shape", "llama2_13b pp8"):
                event = Progress(Objective.MAKESPAN, 38_574 - number, 38_555, 4, 1.0, found_by=LONG)
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
    assert all("(bound 38,555 ms)" in line for line in lines)


def test_a_file_has_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    tell()
    assert "\x1b" not in file.getvalue() and "\r" not in file.getvalue()
    lines = file.getvalue().splitlines()
    assert len(lines) == 9 and all(
        line.endswith((f"{LONG}, 4 queries", "(bound 38,555 ms)")) for line in lines
    )


def test_a_bar_that_is_told_nothing_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    with StepBar("plan"):
        pass
    assert file.getvalue() == ""
