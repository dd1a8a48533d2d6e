"""Figures of speed in README and docs are the figures in the files of measurements."""

from __future__ import annotations

import itertools
import json
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
    derived = DERIVED.get(page, frozenset())
    for figure in NUMBER.findall(line):
        assert figure in derived or any(is_in(figure, name) for name in files), figure


DERIVED = {"measuring.md": frozenset({"0.1", "0.02", "15", "6", "22", "1.0"})}
"""Rounded or computed from the file's; `test_what_is_said_of_peers_is_what_was_measured` has them."""


def test_what_is_met_is_what_the_files_say() -> None:
    page = (ROOT / "docs" / "concepts" / "measuring.md").read_text(encoding="utf-8")
    said = re.findall(r"^\| \[`(\w+)\.md`\][^|]*\| (\d+ of \d+)", page, re.MULTILINE)
    assert {name for name, _ in said} >= {path.stem for path in MEASURED.glob("*.md")} - {"instances"}
    for name, met in said:
        assert (MEASURED / f"{name}.md").read_text(encoding="utf-8").startswith(f"{met} met"), name


@cache
def peers() -> dict[str, list[dict[str, float]]]:
    """Return the seconds and answers of each task by size."""
    rows_of: dict[str, list[dict[str, float]]] = {}
    for row in json.loads((MEASURED / "peers.json").read_text(encoding="utf-8"))["rows"]:
        compared, over = row["comparison"], row["ours_over_theirs"]
        ours, theirs = (sorted(compared[name])[len(compared[name]) // 2] for name in ("ours_s", "peer_s"))
        values = {"ours_s": ours, "peer_s": theirs, "cost": over["cost"]["median"], "answer": over["answer"]}
        rows_of.setdefault(compared["task"], []).append(values | {"size": compared["size"]})
    return rows_of


def growth(task: str) -> list[float]:
    rows = peers()[task]
    return [after["peer_s"] / before["peer_s"] for before, after in itertools.pairwise(rows)]


def test_what_is_said_of_peers_is_what_was_measured() -> None:
    tessel = [task for task in peers() if task.startswith("Tessel")]
    factors = [factor for task in tessel for factor in growth(task)]
    assert round(min(factors)) == 4 and round(max(factors)) == 15
    answers = [row["answer"] for task in tessel for row in peers()[task]]
    assert max(answers) == 1 and round(100 * (1 - min(answers))) == 6
    assert all(round(factor) in range(3, 7) for factor in growth("lowtime, 4 stages"))
    last = peers()["lowtime, 4 stages"][-1]
    assert last["size"] == 32 and round(100 * (1 / last["answer"] - 1), 1) == 1.0
    searches = [row for task, rows in peers().items() if task.startswith("torch's ") for row in rows]
    shipped = [row for row in searches if row["cost"] > 10]
    assert len(shipped) == 6 and {row["answer"] for row in shipped} == {1.0}
    assert all(0.09 < row["ours_s"] < 1 for row in shipped)
    galvatron = peers()["Galvatron-BMW"]
    assert all(2 < 1 / row["cost"] < 4 for row in galvatron)
    assert sorted(round(100 * (1 - row["answer"]), 2) for row in galvatron) == [0, 0, 0, 0.02]
    pipedream = peers()["PipeDream"]
    assert pipedream[0]["cost"] > 1 and round(1 / pipedream[-1]["cost"]) == 22


def test_each_picture_of_the_page_is_there() -> None:
    page = (ROOT / "docs" / "concepts" / "measuring.md").read_text(encoding="utf-8")
    drawn = {Path(path).name for path in re.findall(r"!\[[^\]]*\]\(([^)]*)\)", page)}
    assert drawn == {path.name for path in MEASURED.glob("peers_*.svg")}
