"""Forms of others' tables of runs: which of our columns each of theirs is; see `table_forms.yaml`.

The module does not know a run: cells are text until `experiments.predict.run_table` reads them.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from placements.forms.reading import Field, in_file
from placements.forms.tables import read_csv
from placements.forms.texts import read_yaml
from placements.models.zoo.shapes import suggestion

FORMS_FILE = Path(__file__).with_name("table_forms.yaml")

NEAR = 0.7
"""Share of a form's columns from which a table is taken to be of it, with a mistake in the others."""


class RunTableError(ValueError):
    """A table of runs or a run is wrong; the message names the place and the remedy in one line."""


@dataclass(frozen=True)
class Column:
    """The reading of a column of theirs.

    Attributes:
        to: Our column.
        pattern: Regular expression whose first group is the value; a cell that it does not match is empty.
        values: Our values by theirs; None for an empty cell.
        factor: Factor from their unit to ours.
    """

    to: str
    pattern: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    factor: float | None = None

    def read(self, cell: str) -> str:
        """Return our cell; empty where theirs says nothing."""
        if self.pattern:
            match = re.match(self.pattern, cell)
            cell = match[1] if match else ""
        value = self.values.get(cell, cell)
        text = "" if value is None else str(value)
        if self.factor is None:
            return text
        try:
            return f"{self.factor * float(text.replace(',', '')):.12g}" if text else ""
        except ValueError:
            return text


@dataclass(frozen=True)
class Rule:
    """Our cells in the rows whose cells match regular expressions at their beginning.

    A column that a row lacks is empty. Values of ours may have a column of theirs in braces.
    """

    when: Mapping[str, str]
    set: Mapping[str, Any]


@dataclass(frozen=True)
class TableForm:
    """A form of a table: how its columns become ours.

    Attributes:
        source: Tables of this form, and where the constants are from.
        columns_needed: Columns by which it is recognised.
        columns: Columns that are not named as ours, or that mean another thing.
        rules: Cells of ours that several columns say together; the first rule that has one counts.
        constants: Our cells of all rows, where nothing else says them.
        more: Name of a JSON file in the folder with further cells of rows, by `more_by`.
        more_by: Column with the name of a row in that file.
    """

    source: str
    columns_needed: Sequence[str]
    columns: Mapping[str, Column | str] = field(default_factory=dict)
    rules: Sequence[Rule] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    more: str = ""
    more_by: str = ""

    def our_cells(self, cells: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
        """Return a row in our columns, which are the known ones, without empty cells."""
        given, ours = defaultdict(str, cells), {name: str(value) for name, value in self.constants.items()}
        first_last = dict([*self.columns.items()][::-1])
        for theirs, read in ({name: name for name in cells if name in known} | first_last).items():
            column = Column(read) if isinstance(read, str) else read
            if column.to and (text := column.read(given[theirs])):
                ours[column.to] = text
        for rule in reversed(self.rules):
            if all(re.match(pattern, given[name]) for name, pattern in rule.when.items()):
                ours |= {name: str(value).format_map(given) for name, value in rule.set.items()}
        return {name: text for name, text in ours.items() if text}

    def more_cells(self, table: Path) -> dict[str, dict[str, str]]:
        """Return further cells beside a table by the names of rows; empty without their file.

        The file has arguments of a command line, as ``{"--hidden-size": 512}``; cells are by their names with
        underscores.
        """
        path = table.parent / self.more
        if not path.is_file():
            return {}
        with in_file(path, RunTableError):
            try:
                data = Field(json.loads(read_csv(path, RunTableError)), "", RunTableError)
            except json.JSONDecodeError as cause:
                raise RunTableError(f"is not JSON ({cause}); give arguments by the names of rows") from None
            return {
                name: {key.lstrip("-").replace("-", "_"): str(value) for key, value in row.mapping().items()}
                for name, row in ((name, data[name]) for name in data.mapping())
            }


@cache
def table_forms() -> dict[str, TableForm]:
    """Return the known forms by name."""
    data = Field(read_yaml(FORMS_FILE, RunTableError), "", RunTableError)
    return {name: data[name].record(TableForm) for name in data.mapping()}


def table_form(header: Sequence[str]) -> TableForm | None:
    """Return the form of a table with these columns; None for our own, or for no table of runs.

    Raises:
        RunTableError: The table has most columns of a form, but not all.
    """

    def missing(form: TableForm) -> list[str]:
        return [column for column in form.columns_needed if column not in header]

    forms = table_forms()
    if fitting := [form for form in forms.values() if not missing(form)]:
        return max(fitting, key=lambda form: len(form.columns_needed))
    for name, form in forms.items():
        if len(missing(form)) <= (1 - NEAR) * len(form.columns_needed):
            others = [column for column in header if column not in form.columns_needed]
            first = missing(form)[0]
            remedy = suggestion(first, others)
            raise RunTableError(f"line 1: lacks the column {first!r} of the form {name}; {remedy}")
    return None
