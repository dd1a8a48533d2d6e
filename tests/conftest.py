"""Ctrl-C as usual; golden files: expected text under ``tests/golden``, rewritten with ``--update-golden``."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that accepts new golden text, and the one that tries the tests for GPUs without one."""
    parser.addoption(
        "--update-golden", action="store_true", help="write what golden tests produce to tests/golden"
    )
    parser.addoption("--gpu-on-cpu", action="store_true", help="run the tests of tests/gpu on the CPU")


def pytest_configure(config: pytest.Config) -> None:
    """Take Ctrl-C as usual, also where the tests were started in the background, which ignores it.

    Commands that the tests start inherit that. Only ``-m gpu`` sees GPUs: beside one none can be forked.
    """
    if config.option.markexpr != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
