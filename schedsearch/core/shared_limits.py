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

    def share(self, side_by_side: int = 1) -> dict[str, Any]:
        """Return the limits of the next search, as options; of each of some that run side by side."""
        parts = max(self.searches, 1) / side_by_side
        return {
            name: None if math.isinf(left) else left / parts if left > 0 else left
            for name, left in (("work_limit", self.work), ("time_limit_s", self.seconds))
        }

    def spend(self, work: float, seconds: float = 0.0, side_by_side: int = 1) -> None:
        """Subtract the work and seconds of a search; seconds beyond its share are numba's compilations.

        Of several side by side these are the mean work, and the seconds of the longest.
        """
        share_s = self.share(side_by_side)["time_limit_s"] or 0.0
        self.work = max(self.work - work, _LEAST)
        self.seconds = max(self.seconds - min(seconds, share_s), _LEAST)
        self.searches -= side_by_side
