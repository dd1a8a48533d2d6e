"""One table or figure of a paper that can be made again: what is claimed of it, and how it is made.

An item is a list of cases, made one after the other, so that a run that is interrupted goes on at the next
case. Each case gives rows: our value beside the published one. The module knows no paper and writes no file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from placements.meaning import option


class Claim(StrEnum):
    """What is claimed of a reproduced item.

    EXACT: every value is the published one, to the digits that are printed. WITHIN: every value is within
    `Item.tolerance` or `Item.margin` of it. TREND: only what `Item.trends` says must hold.
    """

    EXACT = "exact"
    WITHIN = "within"
    TREND = "trend"


@dataclass(frozen=True)
class Row:
    """One value of a table or figure.

    Attributes:
        case: The item's case that made it.
        label: Which of its values, as ``"M-shape, searched"``.
        metric: What is given, with its unit, as ``bubble_rate`` or ``iteration_ms``.
        ours: None where there is none; then `note` says why.
        published: None where the paper has none.
        digits: Digits after the point that are printed; of no use without `published`.
        read_off: Whether the published value was read off a figure, and is only as exact as that.
        note: Why the two differ, or what ours is; empty where nothing needs to be said.
        claim: What is claimed of this row, where it is not the item's claim; None for that.
    """

    case: str
    label: str
    metric: str
    ours: float | None
    published: float | None = None
    digits: int = 4
    read_off: bool = False
    note: str = ""
    claim: Claim | None = None

    @property
    def difference(self) -> float | None:
        """Ours less the published value, as a part of the published value; None where one is missing or 0."""
        if self.ours is None or not self.published:
            return None
        return self.ours / self.published - 1


@dataclass(frozen=True)
class Trend:
    """Something the paper concludes, and whether it is so here.

    Attributes:
        says: As ``"the M-shape is faster than the V-shape for every model"``.
        holds: Whether the rows show it.
        shown_by: With which figures, as ``"1.9 to 3.1 times"``.
    """

    says: str
    holds: bool
    shown_by: str


@dataclass(frozen=True)
class Item:
    """A table or figure.

    Attributes:
        name: Of the option ``experiment``, as ``tessel_table2``.
        source: As ``"Tessel, Table II"``.
        title: What it shows, in a few words.
        claim: What is claimed of its rows.
        options: Type of its options, a frozen dataclass of which every field has a default: those of the
            whole item.
        small: The options with which it takes seconds; its rows are among those of the whole item.
        cases: Names of what is made one after the other; raises ValueError, in one line, where an option is
            wrong or an input is missing.
        make: The rows of one case.
        trends: What the paper concludes, from the rows of all cases.
        draw: The paper's figure, from all rows; a matplotlib Figure. None of a table.
        files: Other files of all rows, by name: their text. ``NAME_rows.csv`` with the rows comes besides.
        inputs: The options that are paths of data which the project does not contain; where each is in the
            folder that ``experiment=all`` is given.
        optional_inputs: Likewise, of data without which the item is made in another way.
        tolerance: Of `Claim.WITHIN`: the largest difference, as a part of the published value.
        margin: Likewise, in the row's unit; a row is within the larger of the two.
        because: Why no more is claimed, and what differs from the paper; empty where all is as in the paper.
    """

    name: str
    source: str
    title: str
    claim: Claim
    options: type[Any]
    small: Any
    cases: Callable[[Any], Sequence[str]]
    make: Callable[[Any, str], Sequence[Row]]
    trends: Callable[[Sequence[Row]], Sequence[Trend]] = lambda _: ()
    draw: Callable[[Sequence[Row]], Any] | None = None
    files: Callable[[Sequence[Row]], Mapping[str, str]] = lambda _: {}
    inputs: Mapping[str, str] = field(default_factory=dict)
    optional_inputs: Mapping[str, str] = field(default_factory=dict)
    tolerance: float = 0.0
    margin: float = 0.0
    because: str = ""

    def claim_of(self, row: Row) -> Claim:
        """Return what is claimed of a row: its own claim, or else the item's."""
        return row.claim or self.claim

    def is_as_claimed(self, row: Row) -> bool:
        """Return whether a row is as near to the paper as is claimed; true of a row that lacks a value."""
        claim = self.claim_of(row)
        if row.ours is None or row.published is None or claim in (Claim.TREND):
            return True
        if claim is Claim.EXACT:
            return round(row.ours, row.digits) == round(row.published, row.digits)
        return abs(row.ours - row.published) <= max(self.tolerance * abs(row.published), self.margin)


@dataclass(frozen=True)
class CaseOptions:
    """Options of an item that has no others."""

    only: tuple[str, ...] = option((), "cases to make, by name; empty: all")


def cases_in(rows: Sequence[Row]) -> list[str]:
    """Return the cases of rows, in their order."""
    return list(dict.fromkeys(row.case for row in rows))


def chosen_cases(known: Sequence[str], only: Sequence[str]) -> list[str]:
    """Return the cases that an option ``only`` names, in the item's order; all of them where it names none.

    Raises:
        ValueError: It names one that there is not.
    """
    for name in only:
        if name not in known:
            raise ValueError(f"only: {name!r} is not a case; the cases are {', '.join(known)}")
    return [name for name in known if not only or name in only]
