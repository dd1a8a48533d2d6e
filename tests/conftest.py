"""Ctrl-C as usual; golden files: expected text under ``tests/golden``, rewritten with ``--update-golden``."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

GOLDEN = Path(__file__).parent / "golden"

SLOW = (
    *(
        f"tests/schedsearch/{room}/"
        for room in (
            "baselines",
            "certificate",
            "energy",
            "improve",
            "modulo",
            "solver",
            "state_space",
            "tessel",
        )
    ),
    *(f"tests/runtime/{room}/" for room in ("execution", "loops", "models", "verify")),
    *("tests/placements/test_shapes.py", "tests/experiments/config/test_sweeps.py", "/docs/"),
)
"""Parts of paths: what solves or trains much, and so is left out where it shall be fast."""

REFUSED: list[str] = []
"""What the test that runs was not allowed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options: to accept new golden text, to try the tests for GPUs without one, and to be fast."""
    parser.addoption(
        "--update-golden", action="store_true", help="write what golden tests produce to tests/golden"
    )
    parser.addoption("--gpu-on-cpu", action="store_true", help="run the tests of tests/gpu on the CPU")
    parser.addoption("--fast", action="store_true", help="skip what is slow and what starts a process")


def pytest_configure(config: pytest.Config) -> None:
    """Take Ctrl-C as usual, also where the tests were started in the background, which ignores it.

    Commands that the tests start inherit that. Only ``-m gpu`` sees GPUs: beside one none can be forked.
    The log of absl, which OR-tools loads, does not write to the captured standard error: Hydra's set-up of
    logging closes what it writes to, unless that is the standard error of the process.
    """
    if importlib.util.find_spec("absl") is not None:
        from absl import logging

        logging.get_absl_handler().python_handler.stream = sys.__stderr__
    if config.option.markexpr != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is slow, if asked."""
    if config.option.fast:
        slow = [
            item
            for item in items
            if item.get_closest_marker("slow") or any(part in str(item.path) for part in SLOW)
        ]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse processes, if asked."""
    if session.config.option.fast and not getattr(session.config.option, "numprocesses", None):
        sys.addaudithook(_refuse_processes)


def _refuse_processes(event: str, arguments: object) -> None:
    if event in ("os.fork", "os.posix_spawn", "subprocess.Popen"):
        REFUSED.append(event)
        pytest.skip("starts a process")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Skip a test that was refused a process, also if it failed when it cleaned up after that."""
    REFUSED.clear()
    try:
        yield
    except Exception:
        if REFUSED:
            pytest.skip("starts a process")
        raise


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Return a function (file name, text) that compares the text with a golden file, or rewrites the file.

    A missing file is a failure too, so that a renamed test cannot pass by making its own.
    """

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is missing; make it with pytest --update-golden and read it"
        assert text == path.read_text(encoding="utf-8"), f"differs from {path}; accept with --update-golden"

    return compare
