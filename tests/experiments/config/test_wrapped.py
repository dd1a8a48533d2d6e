"""What the commands print fits the terminal: lines are wrapped at words."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace

import pytest

from experiments.config.wrapped import WrappedFormatter

LONG = "a message of some words and a path /of/many/folders/that/is/never/broken\nshort"


def formatted(text: str) -> str:
    return WrappedFormatter("%(message)s").format(logging.makeLogRecord({"msg": text}))


def test_long_lines_are_wrapped_at_words_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    assert formatted(LONG) == LONG, "no terminal: tools read whole lines"
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: True))
    assert formatted(LONG).split("\n") == [
        "a message of some words and a",
        "  path",
        "  /of/many/folders/that/is/never/broken",
        "short",
    ]
    monkeypatch.setenv("COLUMNS", "80")
    assert formatted(LONG) == LONG
