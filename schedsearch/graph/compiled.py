"""The kernel compiled by numba; whoever imports this loads numba, which takes half a second.

Compiled code elsewhere calls `critical_cycle`, and is compiled by `compiled` or `uncounted`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from numba import njit
from numba.core import event
from numba.extending import register_jitable

from schedsearch.graph import kernel

_Function = TypeVar("_Function")

compiled = njit(cache=True, nogil=True)
"""Compiles functions that make arrays."""

uncounted: Callable[[_Function], _Function] = njit(cache=True, nogil=True, _nrt=False)  # type: ignore[call-overload]
"""Compiles without counting references to arrays, which takes longer than most of these functions work:
whoever calls them holds the arrays, and they make none."""

for _part in (kernel.push, kernel.follow, kernel.longest_around):
    register_jitable(_nrt=False)(_part)

critical_cycle = uncounted(kernel.critical_cycle)


class _Compilations(event.Listener):
    """Counts the seconds of compilations; a compilation that another one starts is part of that one."""

    def __init__(self) -> None:
        self._begins: list[float] = []

    def on_start(self, event: event.Event) -> None:
        self._begins.append(time.monotonic())

    def on_end(self, event: event.Event) -> None:
        began = self._begins.pop()
        if not self._begins:
            kernel.COMPILED_S[0] += time.monotonic() - began


# a function read from its cache makes no such event
event.register("numba:compile", _Compilations())  # type: ignore[no-untyped-call]
