"""Workers in levels: a level's component holds several of the level below, with links between them.

The module does not know what the workers do (PipeDream, Sec. 2.4.1, Fig. 2.6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from placements.planners.hybrid.plan import PlanError

MAX_WORKERS = 1024


@dataclass(frozen=True)
class Level:
    """Components of the level below, or workers, that are joined by links.

    Attributes:
        count: How many; at least 1.
        gb_per_s: Bandwidth of each one's link to the others, in 1e9 bytes each second; above 0.
    """

    count: int
    gb_per_s: float

    def ms(self, num_bytes: float) -> float:
        """Return the time that bytes take on a link."""
        return num_bytes / (self.gb_per_s * 1e6)


def check_levels(levels: Sequence[Level]) -> None:
    """Check levels from the innermost to the outermost.

    Raises:
        PlanError: There is none, or there are too many workers.
    """
    if not levels:
        raise PlanError("levels: is empty; give at least one, as (count, gb_per_s)")
    if num_workers(levels) > MAX_WORKERS:
        raise PlanError(
            f"levels: have {num_workers(levels)} workers; give at most {MAX_WORKERS} in all levels together"
        )


def num_workers(levels: Sequence[Level]) -> int:
    """Return how many workers all levels have together."""
    return math.prod(level.count for level in levels)
