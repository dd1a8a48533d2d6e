"""Ticks fine enough that each time of a file is whole."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from placements.block import PlacementError
from placements.placement_file.fields import LARGEST


@dataclass(frozen=True)
class Ticks:
    """Ticks made finer than the file's, so that its times are whole numbers of them.

    Attributes:
        tick_ms: Length of one in milliseconds.
        finer: How many make a tick of the file.
    """

    tick_ms: float
    finer: int

    @classmethod
    def fine_enough(cls, tick_ms: float, times: list[Fraction]) -> Ticks:
        """Return the coarsest ticks in which each time is whole to a millionth of itself.

        Raises:
            PlacementError: The longest time would be too many of them.
        """
        longest = max(times, default=Fraction(0))
        for power in range(_FINEST_POWER + 1):
            finer = 10**power
            if longest * finer > LARGEST:
                break
            if all(
                abs(round(time * finer) - time * finer) <= abs(time) * finer / 1_000_000 for time in times
            ):
                return cls(float(Fraction(str(tick_ms)) / finer) if power else tick_ms, finer)
        raise PlacementError(
            f"tick_ms: from the shortest time to the longest is too far for ticks of {tick_ms} ms or finer; "
            f"give times of up to {LARGEST:g} whole ticks"
        )

    def whole(self, time: Fraction) -> int:
        """Return the whole number of these ticks nearest to a time in ticks of the file."""
        return round(time * self.finer)


_FINEST_POWER = 15
"""Ticks are made at most ten to this power finer."""
