"""One table or figure of a paper that can be made again: what is claimed of it, and how it is made.

An item is a list of cases, made one after the other, so that a run that is interrupted goes on at the next
case. Each case gives rows: our value beside the published one. The module knows no paper and writes no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from placements.forms.meaning import option


class Claim(StrEnum):
    """What is claimed of a reproduced item.

    EXACT: every value is the published one, to the digits that are printed. WITHIN: every value is within
    `Item.tolerance` or `Item.margin` of it. TREND: only what `Item.conclude` says must hold.
    """

    EXACT = "exact"
    WITHIN = "within"
    TREND = "trend"


class Basis(StrEnum):
    """The kind of value that one of ours is compared with.

    PRINTED: a value that the paper prints, which ours does not begin with. FORMULA: a formula of the paper,
    by which either the published value is computed, or ours from other printed values.
    """

    PRINTED = "printed value"
    FORMULA = "formula of the paper"


@dataclass(frozen=True)
class Row:
    """One value of a table or figure.

    Label and note are text for people, which no code reads. What a row belongs to is said by its case, its
    series and its place.

    Attributes:
        label: Which of its case's values, as ``"M-shape, searched"``.
        metric: What is given, with its unit, as ``bubble_rate`` or ``iteration_ms``.
        ours: None where there is none; then `note` says why.
        published: None where the paper has none.
        digits: Digits after the point that are printed; of no use without `published`.
        basis: Kind of the published value; None for the kind of its item.
        note: Why the two differ, or what ours is; empty where nothing needs to be said.
        claim: What is claimed of this row, where it is not the item's claim; None for that.
        series: The curve or bar of the figure, or the method of the table; empty where the case says it.
        at: Place of the value on the figure's axis, or in its series; None where there is none.
        bound: What the value is at least, where `ours` is open or missing; None where it is not.
        case: The item's case that made it; the item fills it in.
    """

    label: str
    metric: str
    ours: float | None
    published: float | None = None
    digits: int = 4
    basis: Basis | None = None
    note: str = ""
    claim: Claim | None = None
    series: str = ""
    at: float | None = None
    bound: float | None = None
    case: str = ""

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
class CaseOptions:
    """Options of an item that has no others."""

    only: tuple[str, ...] = option((), "cases to make, by name; empty: all")


Known = Mapping[str, Any] | Sequence[str]
"""Cases: their names, or by name what `Item.make` is given of them."""


@dataclass(frozen=True)
class Item:
    """A table or figure.

    Attributes:
        name: Value of the option ``experiment``, as ``tessel_table2``.
        paper: Where it is from, as ``"Tessel"``; those of one stand together on the page of results.
        part: Where in it, as ``"Table II"``; empty for all of it.
        title: What it shows, in a few words.
        claim: What is claimed of its rows.
        known: The cases, or a function that returns those of some options. It raises ValueError, in one line,
            where an option is wrong or an input is missing. An option ``only`` chooses among them.
        make: The rows of one case.
        conclude: What the paper concludes, from the rows of all cases.
        draw: The paper's figure, from all rows; a matplotlib Figure. None of a table.
        small: The options with which it takes seconds; its rows are among those of the whole item. Their type
            is a frozen dataclass of which every field has a default: those of the whole item.
        files: Other files of all rows, by name: their text. ``NAME_rows.csv`` with the rows comes besides.
        inputs: The options that are paths of data which the project does not contain; where each is in the
            folder that ``experiment=all`` is given.
        optional_inputs: The same for data without which the item is made in another way.
        basis: Kind of the published values.
        tolerance: Of `Claim.WITHIN`: the largest difference, as a part of the published value.
        margin: The same in the row's unit; a row is within the larger of the two.
        because: Why no more is claimed, and what differs from the paper; empty where all is as in the paper.
        supported_by: Test that supports `because`; where there is none, the page of results says that what
            differs is not understood.
    """

    name: str
    paper: str
    part: str
    title: str
    claim: Claim
    known: Known | Callable[[Any], Known]
    make: Callable[[Any, Any], Iterable[Row]]
    conclude: Callable[[Sequence[Row]], Iterable[Trend]] = lambda _: ()
    draw: Callable[[Sequence[Row]], Any] | None = None
    small: Any = CaseOptions()
    files: Callable[[Sequence[Row]], Mapping[str, str]] = lambda _: {}
    inputs: Mapping[str, str] = field(default_factory=dict)
    optional_inputs: Mapping[str, str] = field(default_factory=dict)
    basis: Basis = Basis.PRINTED
    tolerance: float = 0.0
    margin: float = 0.0
    because: str = ""
    supported_by: str = ""

    @property
    def source(self) -> str:
        """Where it is from, as ``"Tessel, Table II"``."""
        return f"{self.paper}, {self.part}" if self.part else self.paper

    @property
    def options(self) -> type[Any]:
        """Type of the options."""
        return type(self.small)

    def cases(self, options: Any) -> dict[str, Any]:
        """Return what `make` is given of each case, by its name and in the item's order.

        Raises:
            ValueError: An option is wrong, or an input is missing.
        """
        known = self.known(options) if callable(self.known) else self.known
        cases = dict(known) if isinstance(known, Mapping) else dict(zip(known, known, strict=True))
        only = options.only if isinstance(options, CaseOptions) else ()
        for name in only:
            if name not in cases:
                raise ValueError(f"only: {name!r} is not a case; the cases are {', '.join(cases)}")
        return {name: case for name, case in cases.items() if not only or name in only}

    def rows(self, options: Any, *names: str) -> tuple[Row, ...]:
        """Return the rows of some cases, or of all."""
        cases = self.cases(options)
        return tuple(
            replace(row, case=name) for name in names or cases for row in self.make(options, cases[name])
        )

    def trends(self, rows: Sequence[Row]) -> tuple[Trend, ...]:
        """Return what the paper concludes, and whether it is so."""
        return tuple(self.conclude(rows))

    def claim_of(self, row: Row) -> Claim:
        """Return what is claimed of a row: its own claim, or else the item's."""
        return row.claim or self.claim

    def basis_of(self, row: Row) -> Basis:
        """Return what a row's published value is: the row's basis, or else the item's."""
        return row.basis or self.basis

    def compared(self, rows: Iterable[Row], *, trend: bool = False) -> tuple[Row, ...]:
        """Return the rows with both values of which the values are claimed, or with `trend` only a trend."""
        both = (row for row in rows if row.ours is not None and row.published is not None)
        return tuple(row for row in both if (self.claim_of(row) is Claim.TREND) is trend)

    def is_as_claimed(self, row: Row) -> bool:
        """Return whether a row is as near to the paper as is claimed; true of a row that lacks a value."""
        claim = self.claim_of(row)
        if row.ours is None or row.published is None or claim is Claim.TREND:
            return True
        if claim is Claim.EXACT:
            return round(row.ours, row.digits) == round(row.published, row.digits)
        return abs(row.ours - row.published) <= max(self.tolerance * abs(row.published), self.margin)

    @property
    def limits(self) -> str:
        """How far a row may be from the paper, in words; empty where no limit is claimed."""
        limits = [f"{self.tolerance:.3g} of the paper's value"] if self.tolerance else []
        limits += [f"{self.margin:.3g} in the row's unit"] if self.margin else []
        return " or ".join(limits)
