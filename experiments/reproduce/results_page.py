"""The page of results: every item by paper, with its claim, rows and trends, from the kept results."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from experiments.reproduce.catalogue import origin_of
from experiments.reproduce.item import Basis, Claim, Item, Row
from experiments.reproduce.item_files import cells_of, counts_by_basis
from experiments.reproduce.recorded import FOLDER, Recorded, read_recorded
from experiments.reproduce.run_item import PROJECT
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

_INTRODUCTION = """# Results

Tables and figures of papers, made again by [`schedsearch reproduce`](commands/reproduce.md) and compared with the printed values. A test holds this page and the kept results together.

What an item claims has one of three classes, and each class its count:

- **Printed value**: the paper prints it, and ours does not begin with it. It is as printed to the last digit, or within the tolerance that the item names.
- **Formula of the paper**: the figure prints no value, and ours is held against the paper's formula. Or ours is that formula of other printed values, which only holds the paper against itself.
- **Trend**: what the paper concludes. Where it gives a factor, ours is within the band that the item names. Values that the paper prints beside a trend are shown and not claimed; the last column counts those within a tenth.

What [is not made](commands/reproduce.md#what-is-not-made) has a table. What does not hold stays in the tables, with a reason that a test supports, or the sentence "Not understood".
"""  # noqa: E501 - a paragraph is a line


def results_page(items: Iterable[Item], folder: Path = FOLDER) -> str:
    """Return the page in Markdown; items of a paper follow one another.

    Raises:
        RecordedError: A kept result is wrong.
    """
    kept = [(item, read_recorded(item.name, "full", folder)) for item in items]
    parts = [_INTRODUCTION, _summary(kept), "## All items", _overview(kept)]
    for paper, group in itertools.groupby(kept, key=lambda each: each[0].paper):
        parts.append(f"## {paper}")
        parts += ["\n\n".join(_section(item, found)) for item, found in group]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def draw_figures(items: Iterable[Item], target: Path, folder: Path = FOLDER) -> None:
    """Draw the figures of the page from the kept rows, ``NAME.png`` for each."""
    target.mkdir(exist_ok=True)
    for item in items:
        picture, found = target / f"{item.name}.png", read_recorded(item.name, "full", folder)
        if item.draw is not None and found is not None and found.rows:
            write_bytes(picture, image(item.draw(found.rows), "png"))


def _summary(kept: Iterable[tuple[Item, Recorded | None]]) -> str:
    """Return a row for each paper: how much of each class is as claimed, and which items are not."""
    heads = ["paper", "items", *(basis.value for basis in Basis)]
    rows = []
    for paper, group in itertools.groupby(kept, key=lambda each: each[0].paper):
        items = [(item, found) for item, found in group if found]
        counts = [_counts(item, found) for item, found in items]
        totals = [tuple(map(sum, zip(*column, strict=True))) for column in zip(*counts, strict=True)]
        differing = [f"`{item.name}`" for item, found in items if _differs(item, found)]
        rows.append([paper, len(items), *(_share(*total) for total in totals), ", ".join(differing)])
    return markdown_table([*heads, "trend", "shown beside trends", "where it differs"], rows)


def _counts(item: Item, found: Recorded) -> list[tuple[int, int]]:
    """Return how many are as claimed, and of how many: of each basis, of trends, of values beside them."""
    trends, beside = found.manifest["trends"], item.compared(found.rows, trend=True)
    held = sum(trend["holds"] for trend in trends)
    near = sum(abs(row.difference or 0.0) <= NEAR for row in beside if row.published or not row.ours)
    return [*item.as_claimed(found.rows).values(), (held, len(trends)), (near, len(beside))]


def _differs(item: Item, found: Recorded) -> bool:
    """Return whether something is not as claimed, or a value shown beside a trend is not near."""
    return any(good < whole for good, whole in _counts(item, found))


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" if whole else ""


def _overview(kept: Iterable[tuple[Item, Recorded | None]]) -> str:
    heads = ("item", "source", "claimed", "as claimed", "trends that hold", "shown beside trends", "CPU time")
    return markdown_table(
        heads, ([f"`{item.name}`", item.source, _claim(item), *_found(item, found)] for item, found in kept)
    )


def _found(item: Item, found: Recorded | None) -> list[str]:
    if found is None:
        return [""] * 4
    *_, trends, beside = _counts(item, found)
    took = _duration(found.manifest["cpu_s"]) if found.rows else ""
    return [counts_by_basis(item, found.rows), _share(*trends), _share(*beside), took]


def _claim(item: Item) -> str:
    within = f" ({item.limits})" if item.claim is Claim.WITHIN else ""
    return f"{CLAIMS[item.claim]}{within}"


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _section(item: Item, found: Recorded | None) -> Iterator[str]:
    yield f"### {item.source}: {item.title}"
    yield f"`experiment={item.name}`. Claimed: {_claim(item)}." + (
        f" {_sentence(item.because)}" * bool(item.because)
    )
    if found is not None and _differs(item, found):
        yield f"Supported by `{item.supported_by}`." if item.supported_by else NOT_UNDERSTOOD
    if origin := origin_of(item):
        yield f"Data: {origin}."
    if found is None:
        yield "No results are kept."
        return
    if "time_limit_s" in found.manifest["options"].keys() - item.options.__dataclass_fields__.keys():
        yield "Kept from a run whose searches ended by the clock (`time_limit_s`); now they count work."
    if item.draw is not None and found.rows:
        yield f"![{item.source}: {item.title}]({FIGURES}/{item.name}.png)"
    if found.manifest["trends"]:
        yield _trends(found.manifest["trends"])
    if found.rows:
        yield "\n".join(_rows(item, found.rows))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _trends(trends: Iterable[dict[str, Any]]) -> str:
    rows = ((each["says"], "yes" if each["holds"] else "**no**", each["shown_by"]) for each in trends)
    return markdown_table(("the paper concludes", "holds", "shown by"), rows)


def _rows(item: Item, rows: tuple[Row, ...]) -> Iterator[str]:
    compared = [row for row in rows if row.published is not None]
    shown = compared if len(compared) <= MOST_ROWS else [row for row in rows if not item.is_as_claimed(row)]
    path = f"experiments/reproduce/results/{item.name}.csv"
    if len(shown) < len(rows):
        yield f"All {len(rows)} rows are in `{path}`" + (
            ", those with a published value here:" if shown else "."
        )
        yield ""
    heads = ("case", "value", "metric", "ours", "paper", "difference", "note")
    if shown:
        cells = (cells_of(row, 2) for row in shown)
        yield markdown_table(heads, ((*each[:2], f"`{each[2]}`", *each[3:]) for each in cells))
