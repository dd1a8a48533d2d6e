"""Ctrl-C as usual; golden files: expected text under ``tests/golden``, rewritten with ``--update-golden``."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import cpu_times
import pytest
from hypothesis import settings

settings.register_profile("same cases", deadline=None, derandomize=True, database=None)
settings.register_profile("new cases", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.load_profile("same cases")

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options: to accept new golden text, to try the tests for GPUs without one, and to be fast."""
    parser.addoption(
        "--update-golden", action="store_true", help="write what golden tests produce to tests/golden"
    )
    parser.addoption("--gpu-on-cpu", action="store_true", help="run the tests of tests/gpu on the CPU")
    parser.addoption(
        "--skip-slow", action="store_true", help="leave out what tests/cpu_times.csv says is slow"
    )
    parser.addoption("--write-cpu-times", action="store_true", help="write tests/cpu_times.csv anew")


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
    config.pluginmanager.register(cpu_times.CpuTimes(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the slow tests with ``--skip-slow``."""
    if config.option.skip_slow:
        slow = {test for test, seconds in cpu_times.read().items() if seconds >= cpu_times.SLOW_S}
        left_out = [item for item in items if item.nodeid in slow and not item.get_closest_marker("always")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


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
