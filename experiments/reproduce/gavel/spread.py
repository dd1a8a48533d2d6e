"""A factor over several seeds: its geometric mean, and the interval in which that is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""Quantiles of Student's t for a two-sided interval of 95 %, by degrees of freedom."""

_MANY = 1.96


@dataclass(frozen=True)
class FactorSpread:
    """A factor that was found several times.

    Attributes:
        mean: Geometric.
        low: Where the 95 % interval of the mean begins, by Student's t of the logarithms; 0 for one value.
        high: Where it ends; infinite for one value.
        count: Values.

    >>> print(FactorSpread.of([2.0, 2.0, 2.0]))
    2.00 (95 % interval 2.00 to 2.00, 3 seeds)
    >>> print(FactorSpread.of([1.0, 4.0]))
    2.00 (95 % interval 0.00 to 13363.40, 2 seeds)
    """

    mean: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> FactorSpread:
        """Return the spread of values above 0."""
        logarithms = [math.log(value) for value in values]
        mean, count = statistics.fmean(logarithms), len(values)
        if count == 1:
            return cls(values[0], 0.0, math.inf, 1)
        half = _STUDENT.get(count - 1, _MANY) * statistics.stdev(logarithms) / math.sqrt(count)
        return cls(math.exp(mean), math.exp(mean - half), math.exp(mean + half), count)

    def __str__(self) -> str:
        """Return mean and interval in words."""
        if self.count == 1:
            return f"{self.mean:.2f} (1 seed)"
        return f"{self.mean:.2f} (95 % interval {self.low:.2f} to {self.high:.2f}, {self.count} seeds)"
