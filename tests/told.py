"""Errors that a user is told of: one line each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def told(error: type[Exception], begins: str = "", match: str = "", has: str = "") -> Iterator[None]:
    """Expect an error of one line, which begins so, matches a pattern and has a text."""
    with pytest.raises(error, match=match or None) as caught:
        yield
    line = str(caught.value)
    assert line.startswith(begins) and has in line and "\n" not in line, line
