"""The page of results: every item by paper, with its claim, rows and trends, from the kept results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from experiments.reproduce.item import Claim, Item, Row
from experiments.reproduce.item_result import COLUMNS, cells_of
from experiments.reproduce.recorded import FOLDER, PROJECT, Recorded, read_recorded
from placements.forms.texts import markdown_table, write_bytes
from schedsearch.figures.canvas import image

PAGE = PROJECT / "docs" / "results.md"

FIGURES = "made"
"""Folder beside the page, for what `draw_figures` draws; the site is built with it."""

MOST_ROWS = 60
"""Most rows of a table on the page; a longer one is a file."""

NEAR = 0.1
"""Largest difference that counts as near, of a value shown beside a trend, as a part of the published."""

NOT_UNDERSTOOD = "Not understood: no test shows how much of what differs this explains."

CLAIMS = {
    Claim.EXACT: "every value to the last digit",
    Claim.WITHIN: "every value within a tolerance",
    Claim.TREND: "what the paper concludes",
}
"""Claims in words."""

COUNTED = ("as claimed", "trends that hold", "shown beside trends")
"""Heads of the counts of an item; see `_counts`."""

INTRODUCTION = Path(__file__).with_suffix(".md")
"""First paragraphs of the page."""


def results_page(items: Iterable[Item], folder: Path = FOLDER) -> str:
    """Return the page in Markdown.

    Raises:
        ValueError: A kept result is wrong.
    """
    by_paper = dict[str, list[tuple[Item, Recorded | None]]]()
    for item in items:
        by_paper.setdefault(item.paper, []).append((item, read_recorded(item.name, "full", folder)))
    summary = (_summary(paper, kept) for paper, kept in by_paper.items())
    parts = [
        INTRODUCTION.read_text(encoding="utf-8"),
        markdown_table(["paper", "items", *COUNTED, "where it differs"], summary),
    ]
    for paper, kept in by_paper.items():
        parts += [f"## {paper}", *(part for item, found in kept for part in _section(item, found))]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def draw_figures(items: Iterable[Item], target: Path, folder: Path = FOLDER) -> None:
    """Draw the figures of the page from the kept rows, ``NAME.png`` for each."""
    target.mkdir(exist_ok=True)
    for item in items:
        picture, found = target / f"{item.name}.png", read_recorded(item.name, "full", folder)
        if item.draw is not None and found is not None and found.rows:
            write_bytes(picture, image(item.draw(found.rows), "png"))


def _summary(paper: str, kept: Iterable[tuple[Item, Recorded | None]]) -> list[object]:
    """Return the row of a paper: how much is as claimed, and which items are not."""
    counts = {item.name: _counts(item, found) for item, found in kept if found}
    totals = [tuple(map(sum, zip(*column, strict=True))) for column in zip(*counts.values(), strict=True)]
    differing = [f"`{name}`" for name, own in counts.items() if _differs(own)]
    return [paper, len(counts), *(_share(*total) for total in totals), ", ".join(differing)]


def _counts(item: Item, found: Recorded) -> list[tuple[int, int]]:
    """Return how many values, trends and values beside these are as claimed or near, each of how many."""
    trends, beside = found.manifest["trends"], item.compared(found.rows, trend=True)
    near = sum(abs(row.difference or 0.0) <= NEAR for row in beside if row.published or not row.ours)
    held = sum(trend["holds"] for trend in trends)
    return [item.as_claimed(found.rows), (held, len(trends)), (near, len(beside))]


def _differs(counts: Iterable[tuple[int, int]]) -> bool:
    return any(good < whole for good, whole in counts)


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" if whole else ""


def _section(item: Item, found: Recorded | None) -> Iterator[str]:
    yield f"### {item.source}: {item.title}"
    within = f" ({item.limits})" if item.claim is Claim.WITHIN else ""
    because = item.because[:1].upper() + item.because[1:].rstrip(".") + "." if item.because else ""
    yield f"`experiment={item.name}`. Claimed: {CLAIMS[item.claim]}{within}. {because}"
    if found is None:
        yield "No results are kept."
        return
    counts, trends, cpu_s = _counts(item, found), found.manifest["trends"], found.manifest["cpu_s"]
    shares = [f"{name} {_share(*each)}" for name, each in zip(COUNTED, counts, strict=True) if each[1]]
    yield f"Found: {'; '.join([*shares, f'CPU time {cpu_s:.0f} s'])}."
    if _differs(counts):
        yield f"Supported by `{item.supported_by}`." if item.supported_by else NOT_UNDERSTOOD
    if item.origin:
        yield f"Data: {item.origin}."
    if "time_limit_s" in found.manifest["options"].keys() - item.options.__dataclass_fields__.keys():
        yield "Kept from a run whose searches ended by the clock (`time_limit_s`); now they count work."
    if item.draw is not None and found.rows:
        yield f"![{item.source}: {item.title}]({FIGURES}/{item.name}.png)"
    if trends:
        rows = ((each["says"], "yes" if each["holds"] else "**no**", each["shown_by"]) for each in trends)
        yield markdown_table(("the paper concludes", "holds", "shown by"), rows)
    yield from _tables(item, found.rows)


def _tables(item: Item, rows: Sequence[Row]) -> Iterator[str]:
    compared = [row for row in rows if row.published is not None]
    shown = compared if len(compared) <= MOST_ROWS else [row for row in rows if not item.is_as_claimed(row)]
    if len(shown) < len(rows):
        path, here = f"experiments/reproduce/results/{item.name}.csv", ", those with a published value here:"
        yield f"All {len(rows)} rows are in `{path}`" + (here if shown else ".")
    if shown:
        cells = (cells_of(row, 2) for row in shown)
        yield markdown_table(COLUMNS, ((*each[:2], f"`{each[2]}`", *each[3:]) for each in cells))
