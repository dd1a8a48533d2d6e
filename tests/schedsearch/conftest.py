"""Searches that a test gives no limit end by their proof: a slow machine does not end them before."""

from __future__ import annotations

import pytest

from schedsearch.core import problem


@pytest.fixture(autouse=True)
def ample_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a search without a limit ten minutes instead of some seconds."""
    monkeypatch.setattr(problem, "TIME_LIMIT_S", 600.0)
