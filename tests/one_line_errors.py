"""Assertions on errors for users: each is one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def raises_line(error: type[Exception], begins: str = "", match: str = "", has: str = "") -> Iterator[None]:
    """Expect an error of one line: its begin, a pattern that it matches, a text that it contains."""
    with pytest.raises(error, match=match or None) as caught:
        yield
    line = str(caught.value)
    assert line.startswith(begins) and has in line and "\n" not in line, line
