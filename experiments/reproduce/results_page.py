"""The page of results: tables of every paper's items, values and conclusions, from the kept results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.reproduce.item import Item, Row
from experiments.reproduce.item_result import cells_of
from experiments.reproduce.recorded import FOLDER, PROJECT, Recorded, read_recorded
from placements.forms.texts import markdown_table, write_bytes
from schedsearch.figures.canvas import image

PAGE = PROJECT / "docs" / "results.md"

FIGURES = "made"
"""Folder beside the page, for what `draw_figures` draws; the site is built with it."""

MAX_VALUES = 3
"""Values of an item on the page, besides further ones that are not as claimed."""

NEAR = 0.1
"""Largest difference of a value that is not claimed and counts as near, as a part of the published value."""

COUNTED = ("as claimed", "near", "conclusions that hold")
"""Heads of the counts of an item; see `_counts`."""

INTRODUCTION = Path(__file__).with_suffix(".md")
"""First paragraphs of the page."""


class KeptItem(NamedTuple):
    """An item and its kept result of full size."""

    item: Item
    kept: Recorded


def results_page(items: Iterable[Item], folder: Path = FOLDER) -> str:
    """Return the page in Markdown.

    Raises:
        ValueError: A kept result is wrong.
    """
    by_paper = dict[str, list[KeptItem]]()
    for item in items:
        if (kept := read_recorded(item.name, "full", folder)) is not None:
            by_paper.setdefault(item.paper, []).append(KeptItem(item, kept))
    summary = (_summary(paper, results) for paper, results in by_paper.items())
    parts = [
        INTRODUCTION.read_text(encoding="utf-8"),
        markdown_table(["paper", "items", *COUNTED], summary),
    ]
    for paper, results in by_paper.items():
        parts += [f"## {paper}", *_section(results)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def draw_figures(items: Iterable[Item], target: Path, folder: Path = FOLDER) -> None:
    """Draw the figures of the page from the kept rows, ``NAME.png`` for each."""
    target.mkdir(exist_ok=True)
    for item in items:
        picture, kept = target / f"{item.name}.png", read_recorded(item.name, "full", folder)
        if item.draw is not None and kept is not None and kept.rows:
            write_bytes(picture, image(item.draw(kept.rows), "png"))


def _summary(paper: str, results: Sequence[KeptItem]) -> list[object]:
    """Return the row of a paper: its items, and the sums of their counts."""
    totals = (map(sum, zip(*column, strict=True)) for column in zip(*map(_counts, results), strict=True))
    return [paper, len(results), *(_share(*total) for total in totals)]


def _counts(result: KeptItem) -> list[tuple[int, int]]:
    """Return the values as claimed, the near ones of the others, and the trends that hold, with totals."""
    item, kept = result
    trends, others = kept.manifest["trends"], item.compared(kept.rows, trend=True)
    near = sum(abs(row.difference or 0.0) <= NEAR for row in others if row.published or not row.ours)
    return [item.as_claimed(kept.rows), (near, len(others)), (sum(t["holds"] for t in trends), len(trends))]


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" if whole else ""


def _section(results: Sequence[KeptItem]) -> Iterator[str]:
    """Yield the tables of a paper's items, values and conclusions, and its figures."""
    heads = ("item", "shows", "class", *COUNTED, "why it differs, assumptions")
    yield markdown_table(heads, map(_item_cells, results))
    values = [[item.part, *cells] for item, kept in results for cells in _value_cells(item, kept.rows)]
    if values:
        yield markdown_table(("item", "case", "value", "ours", "printed", "difference"), values)
    trends = [
        (item.part, trend["conclusion"], "yes" if trend["holds"] else "**no**", trend["shown_by"])
        for item, kept in results
        for trend in kept.manifest["trends"]
    ]
    if trends:
        yield markdown_table(("item", "conclusion", "holds", "ours"), trends)
    for item, kept in results:
        if item.draw is not None and kept.rows:
            yield f"![{item.source}]({FIGURES}/{item.name}.png)"


def _item_cells(result: KeptItem) -> list[str]:
    item = result.item
    link = f"[`{item.name}`](../experiments/reproduce/results/{item.name}.csv)"
    shares = (_share(*count) for count in _counts(result))
    return [link, f"{item.part}: {item.title}", item.claimed, *shares, item.because]


def _value_cells(item: Item, rows: Sequence[Row]) -> Iterator[list[str]]:
    """Yield the values that are not as claimed, then the first claimed ones, then the first others."""
    claimed, others = item.compared(rows), item.compared(rows, trend=True)
    wrong = [row for row in claimed if not item.is_as_claimed(row)]
    right = [row for row in claimed if item.is_as_claimed(row)]
    for row in [*wrong, *[*right, *others][: max(0, MAX_VALUES - len(wrong))]]:
        case, label, metric, ours, printed, difference, _ = cells_of(row, 2)
        yield [case, f"{label} `{metric}`", ours, printed, difference]
