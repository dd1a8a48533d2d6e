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
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from schedsearch.core.answer import SearchError, SearchProgress, SearchResult
from schedsearch.core.objective import Objective
from schedsearch.core.problem import Problem
from schedsearch.core.progress import PlanProgress, StepBar
from schedsearch.procedures.search import search

import schedsearch
from placements.gpus import A100_SXM_80GB
from placements.hardware import modelled_profile
from schedsearch.comparison.compare import compare
from schedsearch.energy import compute_frontier
from schedsearch.modulo import progress
from schedsearch.planning.planner import plan
from schedsearch.searches.methods import find

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


def compared(stderr: io.StringIO, **options: Any) -> str:
    """Compare with a search that takes until its text is seen, if it is to be; return standard error."""

    def answer(request: Problem, report: Callable[[SearchProgress], None]) -> SearchResult:
        result = find(request, report)
        while not options and "searched, v_shape: " not in stderr.getvalue():
            time.sleep(0.001)
        return result

    stages = schedsearch.stages_of(2, forward_ms=10, backward_ms=20, activation_mib=100, memory_mib=400)
    found = schedsearch.compare(stages, ["searched", "gpipe"], 4, answer=answer, **options)
    assert found.rows[0].makespan_ms == 130
    return stderr.getvalue()


def put_in_place(stderr: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Take it for standard error; not in a fixture, after which pytest puts its own there."""
    monkeypatch.setattr(progress, "_TICK_S", 0.001)
    monkeypatch.setattr(sys, "stderr", stderr)
    return stderr


def test_a_comparison_draws_one_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was silent for 40 s."""
    lines = compared(put_in_place(Terminal(), monkeypatch)).replace("\r", "\n").splitlines()
    assert all(line.startswith("compare: 00:0") for line in lines if line)
    assert "searched, v_shape: " in lines[-1] and "130 ms (bound 130 ms)" in lines[-1]


def test_and_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace(kernel=None)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert "\rcompare: 00:0" in compared(put_in_place(io.StringIO(), monkeypatch))


def test_who_is_told_sees_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = put_in_place(Terminal(), monkeypatch)
    told: list[Any] = []
    assert compared(terminal, on_progress=lambda *event: told.append(event)) == ""
    assert [event[0] for event in told] == ["searched"] * len(told) and told
    assert compared(terminal, on_progress=lambda *_: None) == ""


def test_a_pipe_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_Bar", None)
    for stderr in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", stderr)
        assert schedsearch.search(schedsearch.v_shape(2), 2).makespan_bound == 12


def test_a_wrong_argument_draws_none(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = put_in_place(Terminal(), monkeypatch)
    monkeypatch.setattr(progress, "_TICK_S", 60.0)
    with pytest.raises(SearchError, match="placement: a str is not a placement"):
        schedsearch.search("v_shape", 4)
    with pytest.raises(TypeError, match="missing 2 required positional arguments"):
        schedsearch.search()
    assert terminal.getvalue() == ""


V_SHAPE = schedsearch.v_shape(2, forward_ms=10, backward_ms=20)
PROFILE = modelled_profile(V_SHAPE, A100_SXM_80GB)
STAGES = schedsearch.stages_of(2, forward_ms=10, backward_ms=20)


@pytest.mark.parametrize(
    ("call", "given", "text"),
    [
        (search, (V_SHAPE, 2), "makespan 90 ms (bound 90 ms)"),
        (compare, (STAGES, ["searched"], 2), "searched, v_shape: makespan 70 ms (bound 70 ms)"),
        (compute_frontier, (schedsearch.gpipe(V_SHAPE, 2), PROFILE, 3), "rounding 2/2"),
        (plan, ("gpt3_1.3b", "a100_8", 8), "(bound "),
    ],
)
def test_each_event_has_a_text(call: Callable[..., Any], given: tuple[Any, ...], text: str) -> None:
    """Also those of plans' searches, which `on_search` is told."""
    name = call.__name__.removeprefix("compute_")
    texts: list[str] = []

    def told(hook: str) -> Callable[..., None]:
        return lambda *event: texts.append(progress._TEXTS[name][hook](given[0], *event))

    call(*given, **{hook: told(hook) for hook in progress._TEXTS[name]})
    assert any(text in each for each in texts[-2:])


def test_an_entry_point_keeps_its_signature_and_can_be_pickled() -> None:
    assert schedsearch.search.__wrapped__ is search and schedsearch.search.__doc__ == search.__doc__
    assert pickle.loads(pickle.dumps(schedsearch.frontier)) is schedsearch.frontier
