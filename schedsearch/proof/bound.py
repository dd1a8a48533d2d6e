"""A bound on the period: the data that proves it, of which anybody computes its value by adding up.

A kind of bound is a frozen dataclass of plain data and a function that finds the data. The data may come from
any source, so `Bound.value` and `Bound.is_shown` share nothing with what finds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, ClassVar

from placements import Placement
from placements.forms.meaning import Meaning

Amount = Annotated[int, Meaning("amount", min=0)]
"""A price or a weight in whole numbers, as files have it."""


@dataclass(frozen=True)
class Bound:
    """No period per micro-batch is below a value, for any number of micro-batches per repetend.

    Attributes:
        name: Name of its kind in files.
    """

    name: ClassVar[str]

    def value(self, placement: Placement) -> Fraction:
        """Return the ticks per micro-batch that it proves, if what it relies on is true.

        Raises:
            ValueError: It is of another placement, or proves nothing; the message says why.
        """
        raise NotImplementedError

    def is_shown(self, placement: Placement, time_limit_s: float) -> bool | None:
        """Return whether what it relies on besides adding up is true; None if it takes too long to see.

        Raises:
            ValueError: As of `value`.
        """
        return True

    def __str__(self) -> str:
        return self.name.replace("_", " ")


def repeated(placement: Placement) -> Placement:
    """Return what repeats of a placement, with one stream a device and nothing to decide on; never worse."""
    return placement.per_micro_batch.relaxed
