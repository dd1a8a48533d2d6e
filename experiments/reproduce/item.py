"""One table or figure of a paper that can be made again: its claim, its cases, and the rows of each case.

Cases are made one after the other, so that an interrupted run goes on at the next one. A row is our value
beside the published one. The module knows no paper and writes no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from experiments.config.options import OptionError, read_fields, require, require_known, require_once
from placements.forms.meaning import Verbatim, option
from placements.forms.reading import Field
from placements.forms.texts import read_yaml


class Claim(StrEnum):
    """Claim of an item or of a row.

    EXACT: every value is the published one, to the digits that are printed. WITHIN: every value is within
    `Item.tolerance` or `Item.margin` of it. TREND: only what `Item.conclude` says must hold.
    """

    EXACT = "exact"
    WITHIN = "within"
    TREND = "trend"


@dataclass(frozen=True)
class Row:
    """One value of a table or figure.

    Label and note are for people, and no code reads them: case, series and place say where a row belongs.

    Attributes:
        label: Which of its case's values, as ``"M-shape, searched"``.
        metric: Quantity with its unit, as ``bubble_rate`` or ``iteration_ms``.
        ours: None where there is none; then `note` says why.
        published: None where the paper has none.
        digits: Digits after the point that are printed; of no use without `published`.
        note: Why the two differ, or what ours is; empty where nothing needs to be said.
        claim: Claim of this row; None for the item's.
        series: The curve or bar of the figure, or the method of the table; empty where the case says it.
        at: Place on the figure's axis, or in the series; None where there is none.
        bound: Lower bound of the value, where `ours` is open or missing; None where it is not.
        case: The item's case that made it; the item fills it in.
    """

    label: str
    metric: str
    ours: float | None = None
    published: float | None = None
    digits: int = 4
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
    """A conclusion of the paper, as ``"the M-shape is faster"``, with the figures that show it or not."""

    conclusion: str
    holds: bool
    shown_by: str


@dataclass(frozen=True)
class CaseOptions:
    """Options of an item that has no others."""

    only: tuple[str, ...] = option((), "cases to make, by name; empty: all")


@dataclass(frozen=True)
class DataOptions(CaseOptions):
    """Options of an item with data that the project does not contain."""

    data: Verbatim | None = option(None, "folder of the item's data, as the command's page says; null: none")

    def file(self, name: str) -> Path:
        """Return the path of a file of the data.

        Raises:
            OptionError: The folder is not given, or has no such file.
        """
        if not self.data:
            raise OptionError(f"data: has no value; give the folder of {name}, as in data=FOLDER")
        path = Path(self.data) / name
        if not path.exists():
            raise OptionError(f"data: {self.data} has no {name}; give the folder that has it")
        return path


Known = Mapping[str, Any] | Sequence[str]
"""Cases: their names, or by name what `Item.make` is given of them."""


@dataclass(frozen=True)
class Item:
    """A table or figure.

    Attributes:
        name: Value of the option ``experiment``, as ``tessel_table2``.
        paper: Paper; its items stand together on the page of results.
        part: Where in it, as ``"Table II"``; empty for all of it.
        title: What it shows, in a few words.
        claim: Claim of its rows.
        known: The cases, or a function that returns those of some options and raises ValueError where an
            input is missing. An option ``only`` chooses among them.
        make: The rows of one case.
        conclude: The paper's conclusions, from the rows of all cases.
        draw: The paper's figure, from all rows; a matplotlib Figure. None of a table.
        small: The options with which it takes seconds. Their type is a frozen dataclass of declared options
            with defaults: those of the whole item.
        data: Folder of the item's data among all data; its path goes into the option ``data``. Empty where
            it needs nothing that the project does not contain.
        needs_data: Whether there are no rows without data; else the item is then made in another way.
        tolerance: Of `Claim.WITHIN`: the largest difference, as a part of the published value.
        margin: The same in the row's unit; a row is within the larger of the two.
        because: Reason where it differs from the paper, or the assumptions behind it, in one line.
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
    data: str = ""
    needs_data: bool = True
    tolerance: float = 0.0
    margin: float = 0.0
    because: str = ""

    @property
    def source(self) -> str:
        """Where it is from, as ``"Tessel, Table II"``."""
        return f"{self.paper}, {self.part}" if self.part else self.paper

    @property
    def origin(self) -> str:
        """Downloads that it needs, in one line; empty where it needs none."""
        return str(_texts()["origins"][self.data]) if self.data else ""

    @property
    def options(self) -> type[Any]:
        """Type of the options."""
        return type(self.small)

    def cases(self, options: Any) -> dict[str, Any]:
        """Return the arguments of `make` by the name of the case, in the item's order.

        Raises:
            ValueError: An option is not as declared, a list names something twice, or an input is missing.
        """
        given = {field.name: getattr(options, field.name) for field in fields(options)}
        read_fields(given, type(options), "")
        for field in fields(options):
            if isinstance(value := given[field.name], tuple):
                require(bool(value) or field.default == (), field.name, [], "a list of at least one")
                require_once(field.name, value)
        known = self.known(options) if callable(self.known) else self.known
        cases = dict(known) if isinstance(known, Mapping) else {name: name for name in known}
        only = getattr(options, "only", ())
        for name in only:
            require_known("only", name, cases)
        return {name: case for name, case in cases.items() if not only or name in only}

    def rows(self, options: Any, *names: str) -> tuple[Row, ...]:
        """Return the rows of some cases, or of all."""
        cases = self.cases(options)
        return tuple(
            replace(row, case=name) for name in names or cases for row in self.make(options, cases[name])
        )

    def trends(self, rows: Sequence[Row]) -> tuple[Trend, ...]:
        """Return the paper's conclusions, and whether they hold."""
        return tuple(self.conclude(rows))

    def claim_of(self, row: Row) -> Claim:
        """Return a row's own claim, or else the item's."""
        return row.claim or self.claim

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

    def as_claimed(self, rows: Iterable[Row]) -> tuple[int, int]:
        """Return how many of the compared rows are as claimed, and how many are compared."""
        compared = self.compared(rows)
        return sum(map(self.is_as_claimed, compared)), len(compared)

    @property
    def claimed(self) -> str:
        """Class of the claim with its limits, as ``within 5 %``."""
        limits = [f"{100 * self.tolerance:.3g} %"] if self.tolerance else []
        limits += [f"{self.margin:.3g} absolute"] if self.margin else []
        return " ".join([self.claim.value, " or ".join(limits)]).strip()


@cache
def _texts() -> Any:
    return read_yaml(Path(__file__).with_name("items.yaml"), ValueError)


def described(
    name: str,
    known: Known | Callable[[Any], Known],
    make: Callable[[Any, Any], Iterable[Row]],
    conclude: Callable[[Sequence[Row]], Iterable[Trend]] = lambda _: (),
    draw: Callable[[Sequence[Row]], Any] | None = None,
    small: Any = CaseOptions(),
) -> Item:
    """Return an item whose source, claim and reasons are in ``items.yaml``, by its name."""
    texts = Field(_texts()[name], name, ValueError)
    return texts.record(Item, name=name, known=known, make=make, conclude=conclude, draw=draw, small=small)
