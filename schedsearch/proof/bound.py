"""A bound on the period, as data that proves it: anybody can compute the value by adding up.

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
"""A whole-number price or weight, as in files."""


@dataclass(frozen=True)
class Bound:
    """A lower bound on the period per micro-batch, for any number of micro-batches per repetend.

    Attributes:
        name: Name of its kind in files.
    """

    name: ClassVar[str]

    def value(self, placement: Placement) -> Fraction:
        """Return the ticks per micro-batch that the data prove, if its assumptions hold; see `is_shown`.

        Raises:
            ValueError: It is of another placement, or proves nothing; the message says why.
        """
        raise NotImplementedError

    def is_shown(self, placement: Placement, time_limit_s: float) -> bool | None:
        """Return whether the bound's assumptions hold; None if checking them takes too long.

        Raises:
            ValueError: As of `value`.
        """
        return True

    def __str__(self) -> str:
        return self.name.replace("_", " ")


def repeated(placement: Placement) -> Placement:
    """Return the repeating part of a placement, relaxed to one stream a device and the best modes."""
    return placement.per_micro_batch.relaxed
