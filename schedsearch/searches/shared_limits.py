"""The limits of a command that searches several times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from schedsearch.modulo.result import SearchResult
from schedsearch.modulo.search import seconds_of

_LEAST = 1e-3
"""Seconds, or units of work, of a search for which nothing is left."""


@dataclass
class SharedLimits:
    """What is left of a limit of work and of time.

    A search gets an even share of what is left for it and those to come: what it leaves is theirs.

    Attributes:
        work: Units of counted work; infinite without a limit.
        seconds: Likewise.
        searches: Searches to come.
    """

    work: float
    seconds: float
    searches: int = 1

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Return the limits that the options of a search give to all of them."""
        seconds, work = options.get("time_limit_s"), options.get("work_limit")
        return cls(math.inf if work is None else work, seconds_of(seconds, work))

    def share(self) -> dict[str, float | None]:
        """Return the limits of the next search, as options."""
        limits = {"work_limit": self.work, "time_limit_s": self.seconds}
        return {name: None if math.isinf(left) else self._part(left) for name, left in limits.items()}

    def _part(self, left: float) -> float:
        return left / max(self.searches, 1) if left > 0 else left

    def spend(self, result: SearchResult) -> None:
        """Count what a search took; numba's compilations are no part of its seconds."""
        self.work = max(self.work - result.work, _LEAST)
        self.seconds = max(self.seconds - min(result.seconds, self._part(self.seconds)), _LEAST)
        self.searches -= 1
