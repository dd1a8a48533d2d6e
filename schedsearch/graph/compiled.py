"""The kernel compiled by numba; whoever imports this loads numba, which takes half a second.

Compiled code elsewhere calls `critical_cycle` and what else is decorated with `uncounted`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from numba import njit
from numba.extending import register_jitable

from schedsearch.graph import kernel

_Function = TypeVar("_Function")

uncounted: Callable[[_Function], _Function] = njit(cache=True, nogil=True, _nrt=False)  # type: ignore[call-overload]
"""Compiles without counting references to arrays, which takes longer than most of these functions work:
whoever calls them holds the arrays, and they make none."""

for _part in (kernel.push, kernel.follow, kernel.longest_around):
    register_jitable(_nrt=False)(_part)

critical_cycle = uncounted(kernel.critical_cycle)
push = uncounted(kernel.push)
