"""A report as one HTML page that needs nothing else: style, pictures and scripts are inside it.

It shows facts, figures and text that it is given, and knows nothing of searches, plans or runs. Everything
given is shown as text, never as markup, and no script runs but those of the page's program.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import quote

from experiments.report.program import PageProgram, style
from placements.forms.texts import write_text


@dataclass(frozen=True)
class Fact:
    """One line of a table, or one tile of the summary.

    Attributes:
        label: What it is.
        value: With its unit, as it is to be read.
        note: How to read it, or where it comes from.
        good: Whether it is as hoped; None where that is not a question. Shown as a mark and a colour.
        link: File that the value leads to, relative to the page.
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
        caption: Shown below it.
    """

    png: bytes
    description: str
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the page under its own heading: a sentence, a panel, a table, pictures, fixed-width text.

    Attributes:
        title: The heading.
        facts: Rows of the table.
        pictures: In order.
        text: Shown line by line as it is, such as `schedsearch.picture.picture`.
        introduction: A sentence below the heading.
        panel: What the page's program shows there, by the name that it knows; empty for nothing.
    """

    title: str
    facts: tuple[Fact, ...] = ()
    pictures: tuple[Picture, ...] = ()
    text: str = ""
    introduction: str = ""
    panel: str = ""


def html_report(
    title: str,
    sections: Sequence[Section],
    *,
    summary: Sequence[Fact] = (),
    introduction: str = "",
    program: PageProgram | None = None,
) -> str:
    """Return the page.

    Args:
        title: Heading of the page.
        sections: In order.
        summary: The headline figures, shown as tiles above all sections.
        introduction: Below the title; lines after the first are in small print.
        program: What fills the panels; None where no section has one.
    """
    policy = f"{_POLICY}; {program.policy}" if program else _POLICY
    head = f'{_HEAD}<meta http-equiv="Content-Security-Policy" content="{policy}">'
    looks = _STYLE + (style() if program else "")
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        f"<head>{head}<title>{escape(title)}</title><style>{looks}</style></head>",
        "<body>",
        f"<header><h1>{escape(title)}</h1>{_introduction(introduction)}</header>",
        f"<main>{_summary(summary)}{_contents(sections)}",
        *(_section(section, number) for number, section in enumerate(sections, start=1)),
        "</main>",
        program.markup if program else "",
        "</body>",
        "</html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def write_report(
    path: str | Path,
    title: str,
    sections: Sequence[Section],
    *,
    summary: Sequence[Fact] = (),
    introduction: str = "",
    program: PageProgram | None = None,
) -> Path:
    """Write the page of `html_report`, whole or not at all; return its path."""
    page = html_report(title, sections, summary=summary, introduction=introduction, program=program)
    return write_text(path, page)


_HEAD = (
    '<meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta name="color-scheme" content="light dark">'
)

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""Only what is in the page itself may be shown, whatever text gets into it."""

_STYLE = """
:root { --page: #ffffff; --ink: #1d2329; --soft: #57606a; --line: #d5dae0; --tile: #f4f6f8;
  --good: #006d4f; --bad: #b03a00; --link: #0062a3; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14181c; --ink: #e6e9ec; --soft: #a3adb8; --line: #38414a; --tile: #1e242a;
    --good: #4fd1a5; --bad: #ff9d66; --link: #74b9f2; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 80rem; padding: 1.5rem; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .6rem; padding-top: .6rem; border-top: 1px solid var(--line); }
p { margin: 0 0 .8rem; max-width: 50rem; }
p.lead { font-size: 1.2rem; line-height: 1.4; }
a { color: var(--link); }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none;
  margin: 1.2rem 0 0; padding: 0; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: .7rem;
  margin: 1.2rem 0 0; }
dl div { background: var(--tile); border: 1px solid var(--line); border-radius: .5rem; padding: .7rem .9rem; }
dt, .note { color: var(--soft); font-size: .875rem; }
dd { margin: 0; overflow-wrap: anywhere; }
dd.value { font-size: 1.3rem; font-weight: 650; line-height: 1.3; }
.good { color: var(--good); }
.bad { color: var(--bad); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .35rem 1.2rem .35rem 0;
  border-bottom: 1px solid var(--line); }
th[scope=row] { font-weight: 500; width: 27%; }
td.value { width: 33%; font-variant-numeric: tabular-nums; font-weight: 600; overflow-wrap: anywhere; }
figure { margin: 1.2rem 0; }
img { display: block; height: auto; background: #ffffff; border: 1px solid var(--line);
  border-radius: .4rem; }
figcaption { color: var(--soft); font-size: .875rem; margin-top: .4rem; }
pre { margin: 1.2rem 0; padding: .9rem; background: var(--tile); border: 1px solid var(--line);
  border-radius: .4rem; font: .75rem/1.45 ui-monospace, monospace; }
@media print { body { max-width: none; padding: 0; } nav { display: none; } }
"""


def _introduction(text: str) -> str:
    first, *others = text.splitlines() or [""]
    notes = [f'<p class="note">{escape(line)}</p>' for line in others]
    return "".join([f'<p class="lead">{escape(first)}</p>', *notes]) if text else ""


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>" if text else ""


def _summary(facts: Iterable[Fact]) -> str:
    tiles = [
        f'<div><dt>{escape(fact.label)}</dt><dd class="value{_mood(fact)}">{_value(fact)}</dd>'
        + (f'<dd class="note">{escape(fact.note)}</dd>' if fact.note else "")
        + "</div>"
        for fact in facts
    ]
    return _joined('<dl aria-label="Summary">', tiles, "</dl>") if tiles else ""


def _contents(sections: Sequence[Section]) -> str:
    items = "".join(
        f'<li><a href="#section-{number}">{escape(section.title)}</a></li>'
        for number, section in enumerate(sections, start=1)
    )
    return f'<nav aria-label="Contents"><ul>{items}</ul></nav>' if len(sections) > 1 else ""


def _section(section: Section, number: int) -> str:
    heading = f'<h2 id="section-{number}">{escape(section.title)}</h2>'
    parts = [
        f'<section aria-labelledby="section-{number}">{heading}{_paragraph(section.introduction)}',
        _panel(section),
        _table(section),
        *(_figure(picture) for picture in section.pictures),
        _fixed_width(section),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _panel(section: Section) -> str:
    if not section.panel:
        return ""
    without = "<noscript>This part needs JavaScript; its pictures are files beside this page.</noscript>"
    return f'<div class="panel" id="panel-{escape(section.panel)}">{without}</div>'


def _table(section: Section) -> str:
    rows = [
        f'<tr><th scope="row">{escape(fact.label)}</th><td class="value{_mood(fact)}">{_value(fact)}</td>'
        f'<td class="note">{escape(fact.note)}</td></tr>'
        for fact in section.facts
    ]
    opening = f'<div class="wide"><table aria-label="{escape(section.title)}">'
    return _joined(opening, rows, "</table></div>") if rows else ""


def _joined(opening: str, lines: Sequence[str], closing: str) -> str:
    return "\n".join([opening, *lines, closing])


def _fixed_width(section: Section) -> str:
    if not section.text:
        return ""
    label = escape(section.title)
    return f'<pre class="wide" tabindex="0" role="region" aria-label="{label}">{escape(section.text)}</pre>'


def _figure(picture: Picture) -> str:
    """Return a picture, 130 of its dots an inch where the page is wide enough.

    On narrow screens it scrolls rather than shrink until nobody can read it.
    """
    width, height = _png_size(picture.png)
    data = base64.b64encode(picture.png).decode("ascii")
    caption = f"<figcaption>{escape(picture.caption)}</figcaption>" if picture.caption else ""
    return (
        f'<figure><div class="wide" tabindex="0" role="region" aria-label="{escape(picture.description)}">'
        f'<img src="data:image/png;base64,{data}" alt="{escape(picture.description)}" '
        f'width="{width}" height="{height}" '
        f'style="width: 100%; max-width: {round(0.74 * width)}px; min-width: {round(0.45 * width)}px">'
        f"</div>{caption}</figure>"
    )


def _png_size(png: bytes) -> tuple[int, int]:
    """Return width and height in pixels from a PNG's first chunk."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n"), "a picture is a PNG file"
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def _mood(fact: Fact) -> str:
    return "" if fact.good is None else (" good" if fact.good else " bad")


def _value(fact: Fact) -> str:
    """Return a fact's value, with its link and with a mark in its colour."""
    text = escape(fact.value)
    if fact.link:
        text = f'<a href="./{escape(quote(fact.link))}">{text}</a>'
    if fact.good is None:
        return text
    mark, meaning = ("✓", "good") if fact.good else ("✗", "not good")
    return f'{text} <span role="img" aria-label="{meaning}">{mark}</span>'
