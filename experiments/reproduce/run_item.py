"""An item made case by case, each kept on the disk: after an interruption the same call goes on at the next.

Rows depend on the item's options, its data and the code of the project. joblib keeps each case by all of
them, so that rows of others are never mixed in.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from joblib import Memory

from experiments.reproduce.item import Item, Row, Trend
from experiments.reproduce.recorded import FOLDER, PROJECT
from placements.forms.reading import plain
from schedsearch.solver.interrupts import INTERRUPTS

LAYERS = ("placements", "schedsearch", "runtime", "experiments")
"""Folders of the code that makes rows."""


@dataclass(frozen=True)
class MadeCase:
    """A case's name, the CPU seconds that it took, and its rows."""

    name: str
    cpu_s: float
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class MadeItem:
    """An item and its cases, all of them or those before an interruption.

    Attributes:
        item: The item.
        of: Options, hashes of inputs and of the code; see `dependences`.
        num_cases: Number of cases of the whole item.
        num_kept: Number of cases that an earlier run made.
        cases: The cases that are made, in their order.
    """

    item: Item
    of: dict[str, Any]
    num_cases: int
    num_kept: int
    cases: tuple[MadeCase, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all cases are made."""
        return len(self.cases) == self.num_cases

    @property
    def rows(self) -> tuple[Row, ...]:
        """Rows of all cases."""
        return tuple(row for case in self.cases for row in case.rows)

    @property
    def trends(self) -> tuple[Trend, ...]:
        """The paper's conclusions; none of an item of which only a part is made."""
        return self.item.trends(self.rows) if self.is_whole and self.rows else ()

    @property
    def not_as_claimed(self) -> tuple[Row, ...]:
        """Rows that are further from the paper than is claimed."""
        return tuple(row for row in self.rows if not self.item.is_as_claimed(row))


def run_item(item: Item, options: Any, folder: Path, report: Callable[[str, int, int], None]) -> MadeItem:
    """Make the missing cases of an item; Ctrl-C ends it after the last finished case.

    The report is told the case that is made now, how many are done, and of how many.

    Raises:
        ValueError: An option or an input is wrong.
    """
    names, of = tuple(item.cases(options)), dependences(item, options)
    made_case = Memory(folder / "cases", verbose=0).cache(_made_case, ignore=["item", "options"])
    num_kept = sum(made_case.check_call_in_cache(item, options, name, of) for name in names)
    cases = list[MadeCase]()
    try:
        for name in names:
            report(name, len(cases), len(names))
            cases.append(made_case(item, options, name, of))
        report("all", len(cases), len(names))
    except KeyboardInterrupt:
        pass  # seen by `MadeItem.is_whole`
    return MadeItem(item, of, len(names), num_kept, tuple(cases))


def _made_case(item: Item, options: Any, name: str, of: dict[str, Any]) -> MadeCase:
    """Make a case, which joblib keeps by its name and `of`.

    Solvers answer a Ctrl-C with the best so far. No row is made of that: the case ends as interrupted.
    """
    began_s = sum(os.times()[:4])  # of this process and of its children that have ended
    with INTERRUPTS.watched():
        rows = item.rows(options, name)
    return MadeCase(name, sum(os.times()[:4]) - began_s, rows)


def dependences(item: Item, options: Any) -> dict[str, Any]:
    """Return options, hashes of inputs and of the code, on which an item's rows depend, as plain data."""
    given = plain(options)
    data = Path(str(given["data"])) if item.data and given.get("data") else None
    inputs = {} if data is None else {"data": _hash_of(data, data.rglob("*") if data.is_dir() else [data])}
    return {"item": item.name, "options": given, "inputs": inputs, "code": code_hash()}


@cache
def code_hash() -> str:
    """Return the SHA-256 of all modules, tables and YAML files of the layers."""
    files = (path for layer in LAYERS for path in (PROJECT / layer).rglob("*.*"))
    return _hash_of(
        PROJECT, (path for path in files if path.suffix in (".py", ".csv", ".yaml") and path.parent != FOLDER)
    )


def _hash_of(root: Path, paths: Iterable[Path]) -> str:
    """Return the SHA-256 of files with their places below a folder."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        if path.is_file():
            digest.update(f"{path.relative_to(root)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
