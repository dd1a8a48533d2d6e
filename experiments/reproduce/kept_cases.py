"""The rows of an item's cases in a file, so that a run that was interrupted goes on at the next case.

Rows of other options, other inputs or another version of the project are never mixed with new ones: the file
is then written anew. The module makes no rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from experiments.reproduce.item import Basis, Claim, Item, Row
from placements.forms.texts import write_json

SCHEMA_VERSION = 3
"""Version of the file's form."""

PROJECT = Path(__file__).parents[2]
"""Where the layers are."""

LAYERS = ("placements", "schedsearch", "runtime", "experiments")
"""What rows are made by."""


@dataclass(frozen=True)
class MadeCase:
    """A case and what it gave.

    Attributes:
        name: One of `Item.cases`.
        cpu_s: CPU seconds that it took.
        rows: In their order.
    """

    name: str
    cpu_s: float
    rows: tuple[Row, ...]


@dataclass
class KeptCases:
    """The cases of one run of an item, as they are in a file.

    Attributes:
        path: Path of the file.
        of: What the rows depend on; see `dependences`.
        cases: Cases by name.
    """

    path: Path
    of: dict[str, Any]
    cases: dict[str, MadeCase] = field(default_factory=dict)

    def read(self) -> bool:
        """Read the file's cases if they depend on the same; return whether there was a file of others."""
        if not self.path.exists():
            return False
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
            cases = [
                MadeCase(each["name"], each["cpu_s"], tuple(_row(**row) for row in each["rows"]))
                for each in data["cases"]
            ]
        except (OSError, ValueError, KeyError, TypeError):
            return True
        if (data["schema_version"], data["of"]) != (SCHEMA_VERSION, self.of):
            return True
        self.cases = {case.name: case for case in cases}
        return False

    def add(self, case: MadeCase) -> None:
        """Keep one more case; the file is whole at any time."""
        self.cases[case.name] = case
        data = [asdict(each) for each in self.cases.values()]
        write_json(self.path, {"schema_version": SCHEMA_VERSION, "of": self.of, "cases": data})


def dependences(item: Item, options: Any) -> dict[str, Any]:
    """Return what the rows of an item depend on, as plain data: options, inputs and the project's code."""
    return {
        "item": item.name,
        "options": plain_options(options),
        "inputs": input_hashes(item, options),
        "code": code_hash(),
    }


def plain_options(options: Any) -> dict[str, Any]:
    """Return options as JSON has them."""
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in asdict(options).items()
    }


def input_hashes(item: Item, options: Any) -> dict[str, str]:
    """Return the SHA-256 of each input that is given, by option; of a folder that of all its files."""
    paths = {name: getattr(options, name) for name in (*item.inputs, *item.optional_inputs)}
    return {name: _hash_of(Path(path)) for name, path in paths.items() if path is not None}


@cache
def code_hash() -> str:
    """Return the SHA-256 of all modules and tables of the layers."""
    kinds = (".py", ".csv")
    files = (path for layer in LAYERS for path in (PROJECT / layer).rglob("*") if path.suffix in kinds)
    return _hash_of_files(sorted(path for path in files if "results" not in path.parts), PROJECT)


def _hash_of(path: Path) -> str:
    if path.is_dir():
        return _hash_of_files(sorted(each for each in path.rglob("*") if each.is_file()), path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _hash_of_files(paths: Sequence[Path], folder: Path) -> str:
    found = hashlib.sha256()
    for path in paths:
        found.update(f"{path.relative_to(folder)}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def _row(claim: str | None, basis: str | None, **others: Any) -> Row:
    return Row(claim=Claim(claim) if claim else None, basis=Basis(basis) if basis else None, **others)
