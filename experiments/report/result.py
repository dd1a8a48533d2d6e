"""Results of commands, written and printed in one way: figures, tables, facts, pictures and files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import getitem
from pathlib import Path
from typing import Any

from experiments.report.html_report import Fact
from placements.forms.meaning import declared_fields, without_none
from placements.forms.texts import csv_text, write_json, write_text

log = logging.getLogger(__name__)

_PLAIN = (str, int, float, bool)


@dataclass(frozen=True)
class Table:
    """Rows of a table: its CSV file has a column for each field that is text or a number.

    Attributes:
        kind: Dataclass or named tuple of each row; or dict for mappings, by the names of columns.
        rows: Rows in order; None in one leaves a cell empty.
        columns: Names of its columns; empty for all. A property of the rows may be one.
    """

    kind: type
    rows: Sequence[Any]
    columns: tuple[str, ...] = ()

    @property
    def heads(self) -> tuple[str, ...]:
        """Names of the columns, the first row of the file."""
        if self.columns or self.kind is dict:
            return self.columns or tuple(self.rows[0])
        members = (member for member in declared_fields(self.kind) if without_none(member.kind)[0] in _PLAIN)
        return tuple(member.name for member in members)

    @property
    def text(self) -> str:
        """Text of the CSV file."""
        return csv_text(self.heads, (row.values() for row in self.data))

    @property
    def data(self) -> list[dict[str, Any]]:
        """Rows as plain data, for a JSON file."""
        get = getitem if self.kind is dict else getattr
        return [{name: get(row, name) for name in self.heads} for row in self.rows]


@dataclass(frozen=True, kw_only=True)
class Result:
    """Results of a command; the frame writes its files and prints its lines.

    Attributes:
        figures: Figures of ``result.json`` by names with their units; a status is text.
        tables: Tables by name; ``replay`` is written as ``replay.csv``.
        files: Text of files by name, plain data for JSON, or functions that write at a path, in this order.
        pictures: Functions that draw into a path without its ending, by name.
        facts: Facts that are printed one below another.
        sentences: Lines that are printed after the facts.
        interrupted: Words before the directory in the message of a Ctrl-C that ended the work early.
        failed: Message of a failure through no fault of the input, of which the files and lines are written.
    """

    figures: Mapping[str, float | str] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    files: Mapping[str, object] = field(default_factory=dict)
    pictures: Mapping[str, Callable[[Path], object]] = field(default_factory=dict)
    facts: Sequence[Fact] = ()
    sentences: Sequence[str] = ()
    interrupted: str = ""
    failed: str = ""

    def write(self, directory: Path) -> None:
        """Write the files, each of them whole or not at all."""
        for name, table in self.tables.items():
            write_text(directory / f"{name}.csv", table.text)
        for name, content in self.files.items():
            if callable(content):
                content(directory / name)
            elif isinstance(content, str):
                write_text(directory / name, content)
            else:
                write_json(directory / name, content)
        for name, draw in self.pictures.items():
            draw(directory / name)

    def show(self, directory: Path) -> None:
        """Print the facts, the lines, and the names of the files."""
        for line in (*fact_lines(self.facts), *self.sentences):
            log.info("%s", line)
        tables, pictures = (f"{name}.csv" for name in self.tables), (f"{name}.png" for name in self.pictures)
        if names := [*tables, *self.files, *pictures]:
            log.info("%s in %s", ", ".join(names), directory)


def fact_lines(facts: Iterable[Fact]) -> list[str]:
    """Return facts as lines whose values stand below each other."""
    facts = list(facts)
    width = max((len(fact.label) for fact in facts), default=0)
    return [
        f"{fact.label:<{width}}  {fact.value}" + (f" ({fact.note})" if fact.note else "") for fact in facts
    ]
