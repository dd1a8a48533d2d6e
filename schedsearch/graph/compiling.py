"""Time that numba compiles: once after an installation, some ten seconds that are not the search's.

Does not load numba; whatever is compiled imports `schedsearch.graph.compiled`, which tells of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

TOLD: list[Callable[[float], None]] = []
"""Called with the seconds of each compilation."""


@contextmanager
def told_of_compilations(tell: Callable[[float], None]) -> Iterator[None]:
    """Call something with the seconds of each compilation in the block."""
    TOLD.append(tell)
    try:
        yield
    finally:
        TOLD.remove(tell)
