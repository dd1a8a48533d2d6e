"""A benchmark's cases and rows, and the results file: JSON, and the same as a Markdown table beside it.

Knows nothing of what is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from experiments.benchmarks.comparison import Comparison
from placements.files import write_json, write_text


@dataclass(frozen=True)
class CaseResult:
    """What one case reached.

    Attributes:
        cpu_s: CPU seconds of what the case measures.
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

    cpu_s: float
    missed: tuple[str, ...] = ()
    status: str = ""
    period: float | None = None
    period_bound: float | None = None
    makespan: int | None = None
    makespan_bound: int | None = None
    note: str = ""
    skipped: str = ""
    comparison: Comparison | None = None

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
class Case:
    """One row before it is measured.

    Attributes:
        group: Which cases it belongs to.
        name: Unique within the group.
        must: What must be reached, in words.
        measure: Measures it.
        is_quick: Whether it is part of the smoke test.
    """

    group: str
    name: str
    must: str
    measure: Callable[[], CaseResult]
    is_quick: bool = False


@dataclass(frozen=True)
class Row:
    """One measured case."""

    case: Case
    result: CaseResult

    @property
    def cells(self) -> tuple[str, ...]:
        """What a table shows of it; one text for each of `COLUMNS`."""
        result = self.result
        return (
            *_compared(result.comparison),
            self.case.group,
            self.case.name,
            self.case.must,
            result.status,
            _with_bound(result.period, result.period_bound),
            _with_bound(result.makespan, result.makespan_bound),
            f"{result.cpu_s:.2f}",
            result.verdict,
            result.note,
        )


COMPARED = ("CPU time, ours / theirs", "answer, ours / theirs")
"""Heads of the first columns, of a benchmark beside peers; others leave them empty."""

COLUMNS = (*COMPARED, "group", "case", "must reach", "status", "period", "makespan", "CPU s", "met", "note")
"""Heads of the table; a value with a bound that it does not meet is written ``value (bound)``."""


def _compared(comparison: Comparison | None) -> tuple[str, str]:
    if comparison is None:
        return "", ""
    return str(comparison.cost), f"{comparison.answer} {comparison.answer_ratio:.4f}"


def _with_bound(value: float | None, bound: float | None) -> str:
    if value is None:
        return ""
    is_proved = bound is None or value <= bound
    return f"{value:g}" if is_proved else f"{value:g} ({bound:.4g})"


def write_results(path: Path, on: dict[str, object], rows: Sequence[Row]) -> None:
    """Write the rows measured so far as JSON, and as a Markdown table beside it.

    Args:
        path: Of the JSON file; the table has the same name and ends in ``.md``.
        on: What `machine` returned.
        rows: In the order in which they were measured.
    """
    write_json(path, {"schema_version": 1, "machine": on, "rows": [_plain(row) for row in rows]})
    write_text(path.with_suffix(".md"), _markdown(on, rows))


def _plain(row: Row) -> dict[str, object]:
    names = {"group": row.case.group, "case": row.case.name, "must": row.case.must}
    compared = row.result.comparison
    ratios = {} if compared is None else {"cost": asdict(compared.cost), "answer": compared.answer_ratio}
    return names | asdict(row.result) | {"ours_over_theirs": ratios, "met": row.result.is_met}


def summary(rows: Sequence[Row]) -> str:
    """Return how many rows are met, in words."""
    met = sum(row.result.is_met for row in rows)
    skipped = sum(bool(row.result.skipped) for row in rows)
    return f"{met} of {len(rows)} met" + (f", {skipped} skipped" if skipped else "")


def _markdown(on: dict[str, object], rows: Sequence[Row]) -> str:
    """Return the table, without the columns that are empty in every row."""
    cells = [row.cells for row in rows]
    kept = [i for i in range(len(COLUMNS)) if not cells or any(row[i] for row in cells)]
    about = [f"{key}: {value}" for key, value in on.items()]
    table = [COLUMNS, ("---",) * len(COLUMNS), *cells]
    lines = [_markdown_row(row[i] for i in kept) for row in table]
    return "\n".join([summary(rows), "", *about, "", *lines]) + "\n"


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
