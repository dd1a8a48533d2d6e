"""An item made case by case; the cases stand in a file, so that an interrupted run goes on at the next one.

Rows of other options, other inputs or another version of the project are never mixed with new ones: all cases
are then made anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from experiments.reproduce.item import Basis, Claim, Item, Row, Trend
from experiments.reproduce.processes import in_any_order
from experiments.reproduce.recorded import FOLDER, rows_to_csv
from placements.forms.texts import write_json, write_text

Report = Callable[[str, int, int], None]
"""Told the case that is made now, how many are done, and of how many."""

LONG_S = 2.0
"""CPU seconds of a case after which other processes make the next ones too; to start these takes as long."""

PROJECT = Path(__file__).parents[2]

LAYERS = ("placements", "schedsearch", "runtime", "experiments")
"""Folders of the code that makes rows."""

_SCHEMA_VERSION = 3
"""Version of the file of cases."""


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
        num_cases: Number of cases of the whole run.
        cases: The cases that are made, in their order.
        kept: How many of them an earlier run made.
        is_anew: Whether there were cases of other options, inputs or code, which are gone.
    """

    item: Item
    of: dict[str, Any]
    num_cases: int
    cases: tuple[MadeCase, ...]
    kept: int
    is_anew: bool

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of all cases."""
        return tuple(row for case in self.cases for row in case.rows)

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all cases, an earlier run's too."""
        return sum(case.cpu_s for case in self.cases)

    @property
    def trends(self) -> tuple[Trend, ...]:
        """The paper's conclusions; none of an item of which only a part is made."""
        return self.item.trends(self.rows) if len(self.cases) == self.num_cases and self.rows else ()

    @property
    def not_as_claimed(self) -> tuple[Row, ...]:
        """The rows that are further from the paper than is claimed."""
        return tuple(row for row in self.rows if not self.item.is_as_claimed(row))


def run_item(
    item: Item, options: Any, folder: Path, report: Report, num_processes: int | None = 1
) -> MadeItem:
    """Make the cases of an item that are not in its folder yet.

    After each case ``NAME_cases.json`` and ``NAME_rows.csv`` have all that are made. Once a case took long,
    several processes make the next ones: so many, or one for each processor.

    Raises:
        ValueError: An option or an input is wrong.
        KeyboardInterrupt: From the keyboard; what was made is kept.
    """
    names, of = tuple(item.cases(options)), dependences(item, options)
    path = folder / f"{item.name}_cases.json"
    found = _read_cases(path, of) if path.exists() else {}
    cases, before, is_anew = found or {}, len(found or ()), found is None

    def made() -> MadeItem:
        in_order = tuple(cases[name] for name in names if name in cases)
        return MadeItem(item, of, len(names), in_order, before, is_anew)

    missing = [name for name in names if name not in cases]
    with contextlib.closing(_made_cases(item, options, tuple(missing), num_processes)) as new_cases:
        while missing:
            report(missing[0], len(names) - len(missing), len(names))
            case = next(new_cases)
            cases[case.name] = case
            data = [asdict(each) for each in cases.values()]
            write_json(path, {"schema_version": _SCHEMA_VERSION, "of": of, "cases": data})
            write_text(folder / f"{item.name}_rows.csv", rows_to_csv(made().rows))
            missing.remove(case.name)
    if names:
        report("all", len(names), len(names))
    return made()


def _read_cases(path: Path, of: dict[str, Any]) -> dict[str, MadeCase] | None:
    """Return the cases of a file by name; None where it is broken, or they depend on something else."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if (data["schema_version"], data["of"]) != (_SCHEMA_VERSION, of):
            return None
        return {
            case["name"]: MadeCase(case["name"], case["cpu_s"], tuple(_row(**row) for row in case["rows"]))
            for case in data["cases"]
        }
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _row(claim: str | None, basis: str | None, **others: Any) -> Row:
    return Row(claim=Claim(claim) if claim else None, basis=Basis(basis) if basis else None, **others)


def _made_cases(
    item: Item, options: Any, names: Sequence[str], num_processes: int | None
) -> Generator[MadeCase, None, None]:
    """Yield the cases as they end: one after the other until one takes long, then from several processes."""
    for done, name in enumerate(names, 1):
        case = _made_case(item, options, name)
        yield case
        if case.cpu_s > LONG_S:
            others = [partial(_made_case, item, options, each) for each in names[done:]]
            yield from in_any_order(others, num_processes)
            return


def _made_case(item: Item, options: Any, name: str) -> MadeCase:
    began = _cpu_s()
    rows = item.rows(options, name)
    return MadeCase(name, _cpu_s() - began, rows)


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


def dependences(item: Item, options: Any) -> dict[str, Any]:
    """Return options, hashes of inputs and of the code, on which an item's rows depend, as plain data."""
    given = {
        name: list(value) if isinstance(value, tuple) else value for name, value in asdict(options).items()
    }
    path = given.get("data") if item.data else None
    inputs = {"data": _hash_of(Path(str(path)))} if path else {}
    return {"item": item.name, "options": given, "inputs": inputs, "code": code_hash()}


@cache
def code_hash() -> str:
    """Return the SHA-256 of all modules and tables of the layers."""
    files = [path for layer in LAYERS for path in (PROJECT / layer).rglob("*.*")]
    return _hash_of(
        PROJECT, [path for path in files if path.suffix in (".py", ".csv") and path.parent != FOLDER]
    )


def _hash_of(root: Path, paths: Sequence[Path] = ()) -> str:
    """Return the SHA-256 of some files of a folder, or of all; or of a file."""
    found = hashlib.sha256()
    for path in sorted(paths or [root, *root.rglob("*")]):
        if path.is_file():
            found.update(f"{path.relative_to(root)}\0".encode())
            found.update(path.read_bytes())
    return found.hexdigest()
