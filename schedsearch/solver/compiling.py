"""Time that numba compiles: once after an installation, some ten seconds that are not the search's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from numba.core import event

from schedsearch.solver.effort import Effort

_KIND = "numba:compile"
"""Numba's name of the event; a function read from its cache makes none."""


class _Compilations(event.Listener):
    """Moves a deadline by the seconds of each compilation; one may begin others, which are part of it."""

    def __init__(self, effort: Effort) -> None:
        self._effort = effort
        self._begins: list[float] = []

    def on_start(self, event: event.Event) -> None:
        self._begins.append(time.monotonic())

    def on_end(self, event: event.Event) -> None:
        began = self._begins.pop()
        if not self._begins:
            self._effort.deadline += time.monotonic() - began


@contextmanager
def without_compilation(effort: Effort) -> Iterator[None]:
    """Move the deadline of an effort by the time that numba compiles in the block."""
    with event.install_listener(_KIND, _Compilations(effort)):
        yield
