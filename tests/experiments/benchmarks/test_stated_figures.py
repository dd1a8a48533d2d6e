"""Figures of speed in README and docs are the figures in the files of measurements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from places import ROOT

MEASURED = ROOT / "experiments" / "benchmarks" / "measured"

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

LINK = re.compile(r"\]\(([^)]*experiments/benchmarks/measured/)(\w+)\.md\)")

NUMBER = re.compile(r"(?<![\w.])\d+\.\d+|(?<![\w./])1/\d+(?![\w/])|(?<![\w.,/])\d+(?= times)")
"""Decimals, parts, and whole numbers of times; other whole numbers are mostly sizes."""


def stated() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield a page, a line that states figures, and the files that it names; a section on peers is of one."""
    for page in PAGES:
        peers = False
        for line in page.read_text(encoding="utf-8").splitlines():
            peers = line == "### Beside peers" if line.startswith("#") else peers
            files = tuple(name for _, name in LINK.findall(line)) or (("peers",) if peers else ())
            text = re.sub(r"\[[^\]]*\]\([^)]*\)|`[^`]*`", "", line)
            if files and NUMBER.search(text):
                yield page.name, text, files


STATED = list(stated())


@cache
def numbers(name: str) -> tuple[frozenset[str], tuple[float, ...]]:
    """Return the texts and the values of a file's numbers."""
    text = (MEASURED / f"{name}.md").read_text(encoding="utf-8")
    texts = frozenset(re.findall(r"\d+(?:\.\d+)?", text))
    return texts, tuple(map(float, texts))


def is_in(figure: str, name: str) -> bool:
    texts, values = numbers(name)
    if figure.startswith("1/"):
        return figure[2:] in texts
    digits = len(figure.partition(".")[2])
    return any(f"{value:.{digits}f}" == figure for value in values)


def test_there_are_figures_of_each_kind() -> None:
    assert {file for _, _, files in STATED for file in files} >= {"frontier", "runtime", "peers", "search"}


@pytest.mark.parametrize(("page", "line", "files"), STATED, ids=lambda value: str(value)[:60])
def test_stated_figures_are_in_the_files(page: str, line: str, files: tuple[str, ...]) -> None:
    for figure in NUMBER.findall(line):
        assert any(is_in(figure, name) for name in files), f"{page}: {figure}"


def test_what_is_met_is_what_the_files_say() -> None:
    page = (ROOT / "docs" / "concepts" / "measuring.md").read_text(encoding="utf-8")
    said = re.findall(r"^\| \[`(\w+)\.md`\][^|]*\| (\d+ of \d+)", page, re.MULTILINE)
    assert {name for name, _ in said} >= {path.stem for path in MEASURED.glob("*.md")} - {"instances"}
    for name, met in said:
        assert (MEASURED / f"{name}.md").read_text(encoding="utf-8").startswith(f"{met} met"), name


def test_each_picture_of_the_page_is_there() -> None:
    page = (ROOT / "docs" / "concepts" / "measuring.md").read_text(encoding="utf-8")
    drawn = {Path(path).name for path in re.findall(r"!\[[^\]]*\]\(([^)]*)\)", page)}
    assert drawn == {path.name for path in MEASURED.glob("peers_*.svg")}
