"""The limits of a command that searches several times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from schedsearch.core.problem import seconds_of

_LEAST = 1e-3
"""Seconds, or units of work, of a search for which nothing is left."""


@dataclass
class SharedLimits:
    """Work and seconds that are left, infinite without a limit; each search to come gets an even share."""

    work: float = math.inf
    seconds: float = math.inf
    searches: int = 1

    @classmethod
    def of(cls, options: Mapping[str, Any], searches: int = 1) -> Self:
        """Return the work and time limits in a search's options, for all searches together."""
        seconds, work = options.get("time_limit_s"), options.get("work_limit")
        return cls(math.inf if work is None else work, seconds_of(seconds, work), searches)

    def share(self) -> dict[str, Any]:
        """Return the limits of the next search, as options."""
        return {
            name: None if math.isinf(left) else left / max(self.searches, 1) if left > 0 else left
            for name, left in (("work_limit", self.work), ("time_limit_s", self.seconds))
        }

    def spend(self, work: float, seconds: float = 0.0) -> None:
        """Subtract the work and seconds of a search; seconds beyond its share are numba's compilations."""
        share_s = self.share()["time_limit_s"] or 0.0
        self.work = max(self.work - work, _LEAST)
        self.seconds = max(self.seconds - min(seconds, share_s), _LEAST)
        self.searches -= 1
