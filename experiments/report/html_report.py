"""A report as one HTML page that needs nothing else: style, pictures and scripts are inside it.

It shows facts, figures and text that it is given, and knows nothing of searches, plans or runs. Its form is
the template ``browser/page.html``, which shows everything given as text, never as markup. Only the scripts of
the page's program run; they stand in the page with their data, compressed.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from placements.forms.texts import write_text


@dataclass(frozen=True)
class Fact:
    """One line of a table, or one tile of the summary.

    Attributes:
        label: Name of the figure.
        value: Value with its unit.
        note: Explanation or source of the value.
        good: Whether the value is good, shown as a mark and a colour; None for neither.
        link: Target file of the value's link, relative to the page.
    """

    label: str
    value: str
    note: str = ""
    good: bool | None = None
    link: str = ""


@dataclass(frozen=True)
class Picture:
    """A figure of a section.

    Attributes:
        png: The bytes of a PNG file.
        description: What it shows, for those who do not see it.
    """

    png: bytes
    description: str

    @property
    def base64(self) -> str:
        """The bytes as text."""
        return base64.b64encode(self.png).decode("ascii")


@dataclass(frozen=True)
class Section:
    """A part of the page under its own heading: a sentence, a panel, pictures, tables and notes.

    Attributes:
        title: The heading.
        facts: Rows of a table of facts.
        pictures: In order.
        text: Notes below the tables, a paragraph for each line.
        panel: Panel that the page's program fills, by its name; empty for none.
        rows: Rows of a table with several columns, the heads first.
    """

    title: str
    facts: tuple[Fact, ...] = ()
    pictures: tuple[Picture, ...] = ()
    text: str = ""
    panel: str = ""
    rows: Sequence[Sequence[str]] = ()


FILES = (
    *("data.js", "schedule.js", "colours.js", "timeline.js", "readout.js"),
    *("selection.js", "plans.js", "picture.js", "progress.js", "main.js"),
)
"""Each uses only those above it."""

_LEVEL = 6


class PageProgram(NamedTuple):
    """Scripts of a page and the data that they show.

    Attributes:
        policy: Scripts that the page may run, known by their hashes, whatever text gets into the page.
        markup: Scripts and data as the page's last elements, compressed but for the script that loads them.
    """

    policy: str
    markup: str

    @classmethod
    def of(cls, library: str, data: bytes) -> PageProgram:
        """Return our scripts behind a library, with their data."""
        loader, ours = _script("load.js"), "\n".join(map(_script, FILES))
        code = f'{library}\n(() => {{\n"use strict";\n{ours}}})();\n'
        hashes = (hashlib.sha256(script.encode()).digest() for script in (loader, code))
        policy = " ".join(f"'sha256-{base64.b64encode(digest).decode('ascii')}'" for digest in hashes)
        elements = (
            f'<script type="text/plain" id="page-code">{_compressed(code.encode())}</script>',
            f'<script type="text/plain" id="page-data">{_compressed(data)}</script>',
            f"<script>{loader}</script>",
        )
        return cls(f"script-src {policy}", "\n".join(elements))


def _script(name: str) -> str:
    return (resources.files("experiments.report") / "browser" / name).read_text(encoding="utf-8")


def _compressed(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, _LEVEL, mtime=0)).decode("ascii")


def html_report(
    title: str,
    sections: Sequence[Section],
    *,
    summary: Sequence[Fact] = (),
    introduction: str = "",
    program: PageProgram | None = None,
) -> str:
    """Return the page; its program fills the panels of sections.

    The summary has the headline figures, which are tiles above all sections. Of the introduction, below the
    title, lines after the first are in small print.
    """
    from jinja2 import Environment, PackageLoader  # only where a page is made

    loader = PackageLoader("experiments.report", "browser")
    template = Environment(loader=loader, autoescape=True, trim_blocks=True).get_template("page.html")
    page: str = template.render(
        title=title, sections=sections, summary=summary, introduction=introduction, program=program
    )
    return page


def write_report(path: str | Path, title: str, sections: Sequence[Section], **parts: Any) -> Path:
    """Write the page of `html_report`, with its other parts, whole or not at all; return its path."""
    return write_text(path, html_report(title, sections, **parts))
