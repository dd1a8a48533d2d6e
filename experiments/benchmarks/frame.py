"""Cases from YAML, their rows of named figures, the one table, and its comparison with an earlier one.

A group is a file: parts by name, each with its ``measure`` and its ``cases``, from small to large. What a
part says of ``with`` (arguments), ``reach`` (conditions), ``needs`` and ``name`` is for all of its cases;
``each`` has lists of arguments, of which every combination makes a case of every line.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from operator import eq, ge, gt, le, lt
from pathlib import Path
from statistics import mean
from types import ModuleType
from typing import Any

from experiments.benchmarks.timing import timed
from placements.forms.reading import Field, in_file
from placements.forms.texts import markdown_table, read_json, read_yaml, write_json, write_text

SHARED_DATA = Path(__file__).parents[3] / "shared" / "data"
"""Beside the project: measurements of others, which are no part of it."""

CASES = Path(__file__).parent / "cases"

GROUPS = tuple(sorted(path.stem for path in CASES.glob("*.yaml")))

Figures = Mapping[str, Any]
"""Figures of a measure: numbers and words by name; None for a missing one."""

_SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {"<=": le, ">=": ge, "<": lt, ">": gt, "==": eq}

_OF_PART = ("measure", "cases", "each", "with", "reach", "needs", "name", "quick")
_OF_CASE = ("name", "reach", "needs")

_ALMOST = 1e-9
"""Share by which rounding may make a figure worse."""


class BenchmarkError(ValueError):
    """A file of cases or results is wrong, or nothing is left to measure; the message says which, and how."""


@dataclass(frozen=True)
class Case:
    """A measure with its arguments.

    Attributes:
        part: Part of the group that it is in.
        name: Unique in its part.
        reach: Conditions such as ``period <= 8``, of which all must hold; `holds` reads them.
        needs: Packages and files without which it is skipped; `lacking` reads them.
        is_quick: Whether it is the smallest of its part, which tests run.
    """

    part: str
    name: str
    measure: Callable[..., Figures]
    arguments: Mapping[str, Any]
    reach: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    is_quick: bool = False


@dataclass(frozen=True)
class Row:
    """Result of a case: its figures, the conditions that do not hold, or why it was not measured."""

    part: str
    case: str
    figures: Figures
    reach: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    skipped: str = ""

    @property
    def verdict(self) -> str:
        """Whether all was reached, in words."""
        if self.skipped:
            return f"skipped: {self.skipped}"
        return "NO: " + ", ".join(self.missed) if self.missed else "yes"

    @cached_property
    def numbers(self) -> dict[str, float]:
        """The figures that are numbers."""
        return {
            name: value
            for name, value in self.figures.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        }


def holds(condition: str, figures: Figures) -> bool:
    """Return whether a condition holds; it does not where a figure is missing.

    >>> figures = {"period": 8.0, "load": 8, "status": "OPTIMAL"}
    >>> holds("period <= load", figures), holds("status == FEASIBLE or period < 9", figures)
    (True, True)
    >>> holds("makespan <= 9", figures)
    False
    """
    return any(_holds(part, figures) for part in condition.split(" or "))


def _holds(part: str, figures: Figures) -> bool:
    name, sign, word = part.split()
    value = figures.get(name)
    try:
        wanted = float(word) if word not in figures else figures[word]
    except ValueError:
        return bool(value == word)
    if value is None or wanted is None:
        return False
    room = _ALMOST * abs(wanted) * {"<=": 1, ">=": -1}.get(sign, 0)
    return _SIGNS[sign](value, wanted + room)


def read_cases(group: str, path: Path | None = None) -> list[Case]:
    """Return the cases of a group, from its file in this folder or another one.

    Raises:
        BenchmarkError: There is no such group, or its file is wrong.
    """
    if group not in GROUPS:
        raise BenchmarkError(f"group: {group!r} is not a group; use {', '.join(GROUPS)} or instances")
    measures = measures_of(group)
    path = path or CASES / f"{group}.yaml"
    with in_file(path, BenchmarkError):
        top = Field(read_yaml(path, BenchmarkError), "", BenchmarkError)
        return [case for name in top.mapping() for case in _of_part(name, top[name], measures)]


def measures_of(group: str) -> ModuleType:
    """Return the module with the measures of a group; its import loads their libraries."""
    return importlib.import_module(f"experiments.benchmarks.measures.{group}")


def _of_part(name: str, part: Field, measures: ModuleType) -> Iterator[Case]:
    part.only(("measure",), _OF_PART[1:])
    measure = getattr(measures, part["measure"].text(), None)
    if measure is None:
        raise part["measure"].wrong("a measure of this group")
    common, lists = part.get("with", {}).mapping(), part.get("each", {}).mapping()
    names, is_first = set[str](), part.get("quick", True).value
    for line in part.get("cases", [{}]).items():
        for values in itertools.product(*lists.values()):
            fields = dict(zip(lists, values, strict=True)) | line.mapping()
            arguments = {key: value for key, value in fields.items() if key not in _OF_CASE}
            template = fields.get("name") or part.get("name").value
            title = ", ".join(f"{key} {value}" for key, value in arguments.items())
            title = template.format_map(common | arguments) if template else title
            if title in names:
                raise line.mistake(f"{title!r} is there twice; give another name")
            names.add(title)
            reach, needs = ((*part.get(key, []).value, *fields.get(key, [])) for key in ("reach", "needs"))
            yield Case(name, title, measure, common | arguments, reach, needs, is_first)
            is_first = False


def lacking(need: str) -> str:
    """Return why something is not to be had here; empty where it is.

    It is a file of `SHARED_DATA` by its path there, or a package, with its version after ``==``.
    """
    if "/" in need:
        path = SHARED_DATA / need
        return "" if path.is_file() else f"{path.name} is not there"
    package, _, version = need.partition("==")
    if importlib.util.find_spec(package) is None:
        return f"{package} is not installed; pip install {need}"
    installed = importlib.metadata.version(package) if version else ""
    return "" if installed == version else f"{package} is {installed}; pip install {need}"


def measured(case: Case, **more: Any) -> Row:
    """Run a case, with more arguments than its own; its figures have the CPU seconds of all, or its own."""
    if reason := next(filter(None, map(lacking, case.needs)), ""):
        return Row(case.part, case.name, {}, case.reach, skipped=reason)
    figures, seconds = timed(lambda: case.measure(**case.arguments, **more))
    figures = {"cpu_s": round(seconds, 3), **figures}
    missed = tuple(condition for condition in case.reach if not holds(condition, figures))
    return Row(case.part, case.name, figures, case.reach, missed)


def summary(rows: Sequence[Row]) -> str:
    """Return how many rows reached all, in words."""
    skipped = sum(bool(row.skipped) for row in rows)
    met = sum(row.verdict == "yes" for row in rows)
    return f"{met} of {len(rows)} met" + (f", {skipped} skipped" if skipped else "")


def write_rows(path: Path, about: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Write rows as JSON, and as Markdown beside it: a table for each part, with the means of its figures."""
    write_json(path, {"schema_version": 2, **about, "rows": [asdict(row) for row in rows]})
    head = [summary(rows), "", *(f"{key}: {value}" for key, value in about.items())]
    tables = [f"## {part}\n\n{_table(some)}" for part, some in by_part(rows).items()]
    write_text(path.with_suffix(".md"), "\n".join(head) + "\n\n" + "\n\n".join(tables) + "\n")


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a results file; older files have their figures beside their names.

    Raises:
        BenchmarkError: It is another file.
    """
    top = Field(read_json(path, "a results file", BenchmarkError), "", BenchmarkError, is_open=True)
    with in_file(path, BenchmarkError):
        top.version(2)
        rows = []
        for row in (entry.mapping() for entry in top["rows"].items()):
            old = {k: v for k, v in row.items() if isinstance(v, (int, float))}
            part, case = row.get("part") or row.get("group", ""), row.get("case") or row.get("instance", "")
            reach, missed = (tuple(row.get(key) or ()) for key in ("reach", "missed"))
            rows.append(Row(part, case, row.get("figures", old), reach, missed, row.get("skipped") or ""))
        return rows


def by_part(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return rows by their part, in the order that they have."""
    return {
        part: [row for row in rows if row.part == part] for part in dict.fromkeys(row.part for row in rows)
    }


def beside(rows: Sequence[Row], earlier: Iterable[Row]) -> str:
    """Return how the figures of cases changed, by part: the mean of each over that before, as a table."""
    before = {(row.part, row.case): row.numbers for row in earlier}
    lines = []
    for part, some in (by_part(rows) | {"all": list(rows)}).items():
        pairs = [(row.numbers, before[row.part, row.case]) for row in some if (row.part, row.case) in before]
        for name in dict.fromkeys(name for now, old in pairs for name in now if name in old):
            ratios = [now[name] / old[name] for now, old in pairs if now.get(name) and old.get(name)]
            if ratios:
                lower, higher = sum(r < 1 - _ALMOST for r in ratios), sum(r > 1 + _ALMOST for r in ratios)
                lines.append((part, name, f"{len(ratios)}", f"{mean(ratios):.4f}", f"{lower}", f"{higher}"))
    return markdown_table(("part", "figure", "cases", "mean, now / before", "lower in", "higher in"), lines)


def _table(rows: Sequence[Row]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row.figures))
    lines = [
        (row.case, "; ".join(row.reach), row.verdict, *(_cell(row.figures.get(name)) for name in names))
        for row in rows
    ]
    if len(rows) > 1:
        known = [[row.numbers[name] for row in rows if name in row.numbers] for name in names]
        means = (_cell(mean(values)) if values else "" for values in known)
        lines.append(("mean", "", summary(rows), *means))
    return markdown_table(("case", "must reach", "reached", *names), lines)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    return "" if value is None else str(value)


def line(row: Row) -> str:
    """Return a row as it is printed while a benchmark runs."""
    figures = ", ".join(f"{name} {_cell(value)}" for name, value in row.figures.items() if value is not None)
    return f"{row.part}: {row.case} | {row.verdict} | {figures}"
