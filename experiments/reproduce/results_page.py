"""The page of results: every item by paper, with its claim and what was found, from the kept results."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from experiments.reproduce.item import Claim, Item, Row
from experiments.reproduce.kept_cases import PROJECT
from experiments.reproduce.recorded import FOLDER, Recorded, read_recorded
from placements.files import write_bytes
from schedsearch.figures.canvas import image

PAGE = PROJECT / "docs" / "results.md"

FIGURES = "made"
"""Folder beside the page, for what `draw_figures` draws; the site is built with it."""

MOST_ROWS = 60
"""Most rows of a table on the page; a longer one is a file."""

CLAIMS = {
    Claim.EXACT: "every value as printed",
    Claim.WITHIN: "every value within a tolerance",
    Claim.TREND: "what the paper concludes",
}
"""Claims in words."""

_INTRODUCTION = """# Results

Tables and figures of papers, made again by [`schedsearch reproduce`](commands/reproduce.md) and compared with the printed values. A test holds this page and the kept results together.

Each item has one claim. **Exact**: every value is as printed. **Within**: every value is within a tolerance. **Trend**: what the paper concludes is so here too. What [is not made](commands/reproduce.md#what-is-not-made) has a table. What does not hold stays in the tables.
"""  # noqa: E501 - a paragraph is a line


def results_page(items: Iterable[Item], folder: Path = FOLDER) -> str:
    """Return the page in Markdown.

    Args:
        items: In their order; those of a paper follow one another.
        folder: Folder of the kept results.

    Raises:
        RecordedError: A kept result is wrong.
    """
    kept = [(item, read_recorded(item.name, "full", folder)) for item in items]
    parts = [_INTRODUCTION, "\n".join(_summary(kept)), "## All items", "\n".join(_overview(kept))]
    for paper, group in itertools.groupby(kept, key=lambda each: each[0].paper):
        parts.append(f"## {paper}")
        parts += ["\n\n".join(_section(item, found)) for item, found in group]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def draw_figures(items: Iterable[Item], target: Path, folder: Path = FOLDER) -> None:
    """Draw the figures of the page from the kept rows.

    Args:
        items: Items whose figures are drawn.
        target: Gets ``NAME.png`` for each.
        folder: Folder of the kept results.
    """
    target.mkdir(exist_ok=True)
    for item in items:
        picture, found = target / f"{item.name}.png", read_recorded(item.name, "full", folder)
        if item.draw is not None and found is not None and found.rows:
            write_bytes(picture, image(item.draw(found.rows), "png"))


def _summary(kept: Iterable[tuple[Item, Recorded | None]]) -> Iterator[str]:
    """Yield a row for each paper: how much of it is as claimed, and which items are not."""
    yield "| paper | items | rows as claimed | trends that hold | where it differs |"
    yield "|---|---|---|---|---|"
    for paper, group in itertools.groupby(kept, key=lambda each: each[0].paper):
        items = [(item, found.manifest if found else {}) for item, found in group]
        rows = [(each.get("rows_as_claimed", 0), each.get("rows_compared", 0)) for _, each in items]
        trends = [[trend["holds"] for trend in each.get("trends", [])] for _, each in items]
        differing = [
            f"`{item.name}`"
            for (item, _), (good, compared), holds in zip(items, rows, trends, strict=True)
            if good < compared or not all(holds)
        ]
        cells = (
            paper,
            len(items),
            _share(sum(good for good, _ in rows), sum(compared for _, compared in rows)),
            _share(sum(sum(holds) for holds in trends), sum(len(holds) for holds in trends)),
            ", ".join(differing),
        )
        yield _line(*cells)


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" if whole else ""


def _overview(kept: Iterable[tuple[Item, Recorded | None]]) -> Iterator[str]:
    yield "| item | source | claimed | rows as claimed | trends that hold | CPU time |"
    yield "|---|---|---|---|---|---|"
    for item, found in kept:
        manifest = found.manifest if found else {}
        compared = manifest.get("rows_compared", 0)
        trends = manifest.get("trends", [])
        cells = (
            f"`{item.name}`",
            item.source,
            _claim(item),
            _share(manifest.get("rows_as_claimed", 0), compared),
            _share(sum(each["holds"] for each in trends), len(trends)),
            _duration(manifest["cpu_s"]) if manifest.get("rows") else "",
        )
        yield _line(*cells)


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
    if found is None:
        yield "No results are kept."
        return
    if "time_limit_s" in found.manifest["options"].keys() - item.options.__dataclass_fields__.keys():
        yield "Kept from a run whose searches ended by the clock (`time_limit_s`); now they count work."
    if item.draw is not None and found.rows:
        yield f"![{item.source}: {item.title}]({FIGURES}/{item.name}.png)"
    if found.manifest["trends"]:
        yield "\n".join(_trends(found.manifest["trends"]))
    if found.rows:
        yield "\n".join(_rows(item, found.rows))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _trends(trends: Iterable[dict[str, Any]]) -> Iterator[str]:
    yield "| the paper concludes | holds | shown by |"
    yield "|---|---|---|"
    for trend in trends:
        holds = "yes" if trend["holds"] else "**no**"
        yield _line(trend["says"], holds, trend["shown_by"])


def _rows(item: Item, rows: tuple[Row, ...]) -> Iterator[str]:
    compared = [row for row in rows if row.published is not None]
    shown = compared if len(compared) <= MOST_ROWS else [row for row in rows if not item.is_as_claimed(row)]
    path = f"experiments/reproduce/results/{item.name}.csv"
    if len(shown) < len(rows):
        yield f"All {len(rows)} rows are in `{path}`" + (
            ", those with a published value here:" if shown else "."
        )
        yield ""
    if shown:
        yield "| case | value | metric | ours | paper | difference | note |"
        yield "|---|---|---|---|---|---|---|"
    for row in shown:
        ours = "" if row.ours is None else f"{row.ours:.{max(row.digits, 2)}f}"
        paper = "" if row.published is None else f"{row.published:.{row.digits}f}"
        cells = (
            row.case,
            row.label,
            f"`{row.metric}`",
            ours,
            f"{paper} (read off)" if row.read_off else paper,
            "" if row.difference is None else f"{row.difference:+.1%}",
            row.note,
        )
        yield _line(*cells)


def _line(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
