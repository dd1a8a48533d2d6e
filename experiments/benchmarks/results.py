"""A benchmark's cases, rows and results files: JSON, and a Markdown table beside it.

Knows nothing of what is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from experiments.benchmarks.comparison import PeerComparison
from placements.files import read_json, write_json, write_text
from placements.plain_data import Field, in_file

AnyRow = TypeVar("AnyRow")


class ResultsError(ValueError):
    """A results file is not one, or is of another run; the message names it and the remedy in one line."""


@dataclass(frozen=True)
class CaseResult:
    """What one case reached.

    Attributes:
        cpu_s: CPU seconds of what the case measures; None for those of the whole case.
        missed: What was to be reached and was not, in words; empty when all was.
        status: Of the period; empty where there is none.
        period: Ticks per micro-batch; None where there is none or there are several.
        period_bound: Ticks per micro-batch that no period beats.
        makespan: Ticks; None where it is not looked at.
        makespan_bound: Ticks that no makespan beats.
        note: What else there is to say.
        skipped: Why nothing was measured; empty when it was.
        comparison: Ours beside a peer; None where there is none.
    """

    cpu_s: float | None = None
    missed: tuple[str, ...] = ()
    status: str = ""
    period: float | None = None
    period_bound: float | None = None
    makespan: int | None = None
    makespan_bound: int | None = None
    note: str = ""
    skipped: str = ""
    comparison: PeerComparison | None = None

    @property
    def is_met(self) -> bool:
        """Whether all that was to be reached was."""
        return not self.missed and not self.skipped

    @property
    def verdict(self) -> str:
        """Whether all was reached, in words."""
        if self.skipped:
            return f"skipped: {self.skipped}"
        return "yes" if self.is_met else "NO: " + "; ".join(self.missed)


def true_of(wrong: Mapping[str, bool]) -> tuple[str, ...]:
    """Return what is wrong, of texts and whether each is true."""
    return tuple(text for text, is_wrong in wrong.items() if is_wrong)


@dataclass(frozen=True)
class BenchmarkCase:
    """One row before it is measured.

    Attributes:
        name: Unique within its group.
        must: What must be reached, in words.
        measure: Measures it.
        is_quick: Whether it is part of the smoke test.
        lacks: Returns why it cannot be measured here, as data or a package is missing; empty if it can.
    """

    name: str
    must: str
    measure: Callable[[], CaseResult]
    is_quick: bool = False
    lacks: Callable[[], str] = str


@dataclass(frozen=True)
class BenchmarkRow:
    """One measured case of a group."""

    group: str
    case: BenchmarkCase
    result: CaseResult

    @property
    def cells(self) -> tuple[str, ...]:
        """What a table shows of it; one text for each of `COLUMNS`."""
        result, compared = self.result, self.result.comparison
        return (
            str(compared.cost) if compared else "",
            f"{compared.answer} {compared.answer_ratio:.4f}" if compared else "",
            self.group,
            self.case.name,
            self.case.must,
            result.status,
            _with_bound(result.period, result.period_bound),
            _with_bound(result.makespan, result.makespan_bound),
            f"{result.cpu_s or 0:.2f}",
            result.verdict,
            result.note,
        )

    @property
    def plain(self) -> dict[str, object]:
        """The row as it stands in the JSON file."""
        names = {"group": self.group, "case": self.case.name, "must": self.case.must}
        compared = self.result.comparison
        ratios = {} if compared is None else {"cost": asdict(compared.cost), "answer": compared.answer_ratio}
        return names | asdict(self.result) | {"ours_over_theirs": ratios, "met": self.result.is_met}


COMPARED = ("CPU time, ours / theirs", "answer, ours / theirs")
"""Heads of the first columns, of a benchmark beside peers; others leave them empty."""

COLUMNS = (*COMPARED, "group", "case", "must reach", "status", "period", "makespan", "CPU s", "met", "note")
"""Heads of the table; a value with a bound that it does not meet is written ``value (bound)``."""


def _with_bound(value: float | None, bound: float | None) -> str:
    if value is None:
        return ""
    is_proved = bound is None or value <= bound
    return f"{value:g}" if is_proved else f"{value:g} ({bound:.4g})"


def summary(rows: Sequence[BenchmarkRow]) -> str:
    """Return how many rows are met, in words."""
    met = sum(row.result.is_met for row in rows)
    skipped = sum(bool(row.result.skipped) for row in rows)
    return f"{met} of {len(rows)} met" + (f", {skipped} skipped" if skipped else "")


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""Return a table in Markdown; its last line has no end.

    >>> print(markdown_table(["name", "value"], [["a|b", "1"]]))
    | name | value |
    | --- | --- |
    | a\|b | 1 |
    """
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def write_results(path: Path, on: dict[str, object], rows: Sequence[BenchmarkRow]) -> None:
    """Write the rows measured so far as JSON, and as a table without empty columns beside it.

    The table has the same name and ends in ``.md``; both begin with what `machine` returned.
    """
    write_json(path, {"schema_version": 1, "machine": on, "rows": [row.plain for row in rows]})
    cells = [row.cells for row in rows]
    kept = [i for i in range(len(COLUMNS)) if not cells or any(row[i] for row in cells)]
    table = markdown_table([COLUMNS[i] for i in kept], [[row[i] for i in kept] for row in cells])
    about = [f"{key}: {value}" for key, value in on.items()]
    write_text(path.with_suffix(".md"), "\n".join([summary(rows), "", *about, "", table]) + "\n")


def read_rows(path: Path, kind: type[AnyRow]) -> tuple[dict[str, Any], list[AnyRow]]:
    """Return what a results file says of its run, and its rows, which are of one dataclass.

    Raises:
        ResultsError: It is another file.
    """
    top = Field(read_json(path, "a results file", ResultsError), "", ResultsError)
    with in_file(path, ResultsError):
        top.version(1)
        names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
        return top.mapping(), [kind(**each.only(names).value) for each in top["rows"].items()]


def resumed(path: Path, run: dict[str, Any], kind: type[AnyRow]) -> tuple[dict[str, Any], list[AnyRow]]:
    """Return what a run says of itself, and its rows; those that a results file has already.

    All but the machine must be the same in the file.

    Raises:
        ResultsError: The file is of another run.
    """
    if not path.exists():
        return run, []
    before, rows = read_rows(path, kind)
    for name, value in run.items():
        if name != "machine" and before.get(name) != value:
            raise ResultsError(
                f"{path}: is of {name} {before.get(name)}, not of {value}; give another --output"
            )
    return {name: before.get(name) for name in run}, rows
