"""Ctrl-C while a command loads: one line, whatever the libraries make of it."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from places import ROOT

from experiments.config.command import run
from experiments.report.result import Result

LINE = "search: interrupted; every file that was written is complete"


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """Restore the log's handlers and level after Hydra changed them."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize("module", ["hydra.version", "schedsearch.searches.search"])
def test_it_ends_in_a_line_while_that_is_loaded(module: str, tmp_path: Path) -> None:
    line = [sys.executable, "-X", "importtime", "-m", "experiments.search"]
    line.append(f"hydra.run.dir={tmp_path / 'out'}")
    process = subprocess.Popen(line, cwd=ROOT, text=True, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        assert any(read.split("|")[-1].strip() == module for read in process.stderr), "it is imported"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 130
    assert errors.splitlines()[-1] == LINE
    assert not (tmp_path / "out/schedule.json").exists()


RAISED = "import signal; signal.raise_signal(signal.SIGINT)"

LIBRARIES = {
    "source text": f"exec({RAISED!r})",
    "loses it": f"try: exec({RAISED!r})\n    except BaseException: pass",
    "another error": f"try: exec({RAISED!r})\n    except BaseException: raise ImportError",
}
"""Libraries that run source text, as dataclasses do, lose a KeyboardInterrupt, or make an error of it."""


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
def test_libraries_do_not_lose_it(library: str, tmp_path: Path) -> None:
    (tmp_path / "interrupted.py").write_text(
        "from experiments.config import command\n"
        f"def imported(module):\n    {library}\n    print('the task runs')\n"
        "command.imported = imported\n"
        "command.run('search')\n"
    )
    line = [sys.executable, "-m", "interrupted", f"hydra.run.dir={tmp_path / 'out'}"]
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    done = subprocess.run(line, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", f"{LINE}\n")


def test_a_task_has_ctrl_c_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = []

    def task(config: object) -> Result:
        handlers.append(signal.getsignal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return Result()

    monkeypatch.setattr("experiments.config.command.imported", lambda module: SimpleNamespace(task=task))
    monkeypatch.setattr(sys, "argv", ["search", "-m", f"hydra.sweep.dir={tmp_path}", "search.memory=3,4"])
    run("search")
    assert handlers == [signal.default_int_handler] * 2


def test_where_it_is_ignored_it_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the background of a shell, after ``nohup`` or ``&``."""
    handlers = []

    def task(config: object) -> Result:
        handlers.append(signal.getsignal(signal.SIGINT))
        return Result()

    monkeypatch.setattr("experiments.config.command.imported", lambda module: SimpleNamespace(task=task))
    monkeypatch.setattr(sys, "argv", ["search", f"hydra.run.dir={tmp_path}"])
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run("search")
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert handlers == [signal.SIG_IGN]
