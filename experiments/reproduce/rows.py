"""Rows looked up, compared and drawn by case, series and place, never by the words of a label.

The module knows no item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from experiments.reproduce.item import Row, Trend
from placements.forms.tables import csv_records
from schedsearch.figures.bars import BarPanel, draw_bars
from schedsearch.figures.panels import CurvePoint, Panel, draw_panels
from schedsearch.solver.interrupts import INTERRUPTS

Key = Callable[[Row], str]
"""Name of a row's group, panel, curve or bar."""

by_case: Key = attrgetter("case")
by_label: Key = attrgetter("label")
by_series: Key = attrgetter("series")


def rows_with(rows: Iterable[Row], **fields: Any) -> list[Row]:
    """Return the rows of which some fields have these values, as ``rows_with(rows, metric="batch")``."""
    return [row for row in rows if all(getattr(row, name) == value for name, value in fields.items())]


def numbers(rows: Iterable[Row]) -> list[float]:
    """Return our values of rows that have one."""
    return [row.ours for row in rows if row.ours is not None]


def value_of(rows: Iterable[Row], *fields: str) -> dict[Any, float]:
    """Return our values by one field or by several.

    >>> value_of([Row("ours", "batch", 8.0, case="BERT")], "case", "label")
    {('BERT', 'ours'): 8.0}
    """
    key = attrgetter(*fields)
    return {key(row): row.ours for row in rows if row.ours is not None}


def grouped(rows: Iterable[Row], key: Key = by_case) -> dict[str, list[Row]]:
    """Return rows by the name of their group, in their order."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def curves(rows: Iterable[Row], key: Key = by_series) -> dict[str, list[CurvePoint]]:
    """Return the points of each curve by increasing place, for `schedsearch.figures.panels.Panel`."""
    return {
        name: sorted(
            (
                CurvePoint(row.at, row.ours, row.bound)
                for row in group
                if row.at is not None and row.ours is not None
            ),
            key=attrgetter("place"),
        )
        for name, group in grouped(rows, key).items()
    }


def draw_curves(
    rows: Iterable[Row], x_label: str, y_label: str, title: str = "", panel: Key = by_case, **look: Any
) -> Any:
    """Draw a panel for each case, or each name of `panel`, with a curve for each series."""
    panels = [Panel(name, curves(group)) for name, group in grouped(rows, panel).items()]
    return draw_panels(panels, x_label, y_label, title, **look)


def draw_metric(
    rows: Sequence[Row], metric: str, y_label: str, group: Key = by_case, bar: Key = by_label, **look: Any
) -> Any:
    """Draw the bars of a metric."""
    groups = {
        name: {bar(row): row.ours for row in bars}
        for name, bars in grouped(rows_with(rows, metric=metric), group).items()
    }
    return draw_bars([BarPanel("", groups)], y_label, **look)


def falls(values: Sequence[float]) -> bool:
    """Return whether no value is above the one before."""
    return all(after <= before for before, after in pairwise(values))


def in_all(conclusion: str, holds: Sequence[bool], of: str) -> Trend:
    """Return a trend that must hold everywhere, shown by how often it does, as ``3 of 4 cases``.

    >>> in_all("it grows", [True, False], "curves")
    Trend(conclusion='it grows', holds=False, shown_by='1 of 2 curves')
    """
    return Trend(conclusion, bool(holds) and all(holds), f"{sum(holds)} of {len(holds)} {of}")


def span(values: Iterable[float], form: str = ".2f", unit: str = " times") -> str:
    """Return the least and the most of values in words; 0 where there are none.

    >>> span([2.0, 1.5])
    '1.50 to 2.00 times'
    """
    known = list(values)
    return f"{min(known, default=0.0):{form}} to {max(known, default=0.0):{form}}{unit}"


def listed(factors: Mapping[str, float]) -> str:
    """Return factors with their names in words.

    >>> listed({"vgg16": 1.5, "alexnet": 2.0})
    'vgg16 1.50, alexnet 2.00'
    """
    return ", ".join(f"{name} {factor:.2f}" for name, factor in factors.items())


Answered = TypeVar("Answered")
Record = TypeVar("Record")


def uninterrupted(answer: Answered) -> Answered:
    """Return the result of a search; raise KeyboardInterrupt where a Ctrl-C ended it."""
    INTERRUPTS.raise_if_seen()
    return answer


def published_table(module: str, name: str, kind: type[Record]) -> list[Record]:
    """Return the rows of a CSV file beside a module, which is given by its ``__file__``."""
    return [row for _, row in csv_records(Path(module).with_name(name), "row", ValueError, kind)]
