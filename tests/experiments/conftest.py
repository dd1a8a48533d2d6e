from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forking import ForkServer
from places import ROOT

from experiments.config.command import run as run_command


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    server = ForkServer(ROOT)
    yield server
    server.stop()


@pytest.fixture
def command(tmp_path: Path, fork_server: ForkServer) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``python -m experiments.NAME`` with overrides; its output goes to ``tmp_path / "out"``.

    Its pictures are images only where a test asks for that with ``draws=True``.
    """

    def run(
        name: str, *overrides: str, timeout_s: float = 300, draws: bool = False, is_quick: bool = True
    ) -> subprocess.CompletedProcess[str]:
        is_new = not any(override.startswith("runtime.resume=") for override in overrides)
        is_quick = is_quick and is_new and name in ("frontier", "run")
        quick = ["energy.orders=1"] if is_quick else []  # to compare others takes seconds
        arguments = [f"hydra.run.dir={tmp_path / 'out'}", *quick, *overrides]
        return fork_server.run("experiments", [name, *arguments], ROOT, timeout_s, draws)

    return run


@pytest.fixture
def ran(
    command: Callable[..., subprocess.CompletedProcess[str]],
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Do as `command` does; it has to end well."""

    def run(*line: str, **options: Any) -> subprocess.CompletedProcess[str]:
        done = command(*line, **options)
        assert done.returncode == 0, done.stderr
        return done

    return run


@pytest.fixture
def fresh_command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Do the same in a process that has imported nothing before, as a user does."""

    def run(name: str, *overrides: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", f"experiments.{name}", f"hydra.run.dir={tmp_path / 'out'}", *overrides]
        return subprocess.run(line, cwd=ROOT, text=True, capture_output=True, timeout=timeout_s, check=False)

    return run


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., str]]:
    """Run a command in this process, with overrides that it refuses; return the one line that it prints."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level

    def line(name: str, *overrides: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, f"hydra.run.dir={tmp_path / 'out'}", *overrides])
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            run_command(name)
        printed = capfd.readouterr()
        assert (end.value.code, printed.out, printed.err.count("\n")) == (2, "", 1), printed
        return printed.err.strip()

    yield line
    root.handlers[:] = handlers
    root.setLevel(level)
