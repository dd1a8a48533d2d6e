"""The HTML page: well-formed, complete, on its own, and safe against hostile names."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from experiments.report.html_report import Fact, Picture, Section, html_report, write_report
from schedsearch.figures.canvas import image
from schedsearch.figures.frontier import draw_frontier

VOID = {"meta", "img"}
HOSTILE = "<script>alert('x')</script>\" onload=\"y & z"
PICTURE = Picture(
    image(draw_frontier([(10.0, 5.0), (12.0, 4.0)], (10.0, 6.0)).figure, "png"), "energy against time"
)

SECTIONS = (
    Section(
        "Schedule",
        (Fact("period", "6", "ticks"), Fact("status", "OPTIMAL", good=True)),
        (PICTURE,),
        "What was found.\nNote below.",
        rows=(("schedule", "makespan"), ("1F1B", "15 ms")),
    ),
    Section("Run", (Fact("losses equal to the reference", "no", "by 1e-3", good=False),)),
    Section("Files", (Fact("schedule", "schedule.json", "all starts", link="out/schedule 1.json"),)),
)
SUMMARY = (Fact("energy saving", "12.3 %", "at no loss of time"), Fact("bubble rate", "0 %"))


class Page(HTMLParser):
    """Checks that every element is closed in order, and collects what is on the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.shown: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, f"{self.open} are not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"{tag} has an attribute twice"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.shown.append(data)

    def values(self, attribute: str) -> list[str]:
        return [value for _, attributes in self.elements if (value := attributes.get(attribute)) is not None]

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)


@pytest.fixture
def page() -> Page:
    return Page(html_report("The report", SECTIONS, summary=SUMMARY, introduction="One run."))


def test_everything_given_is_on_the_page(page: Page) -> None:
    text = "".join(page.shown)
    for expected in ("The report", "One run.", "What was found.", "period", "ticks", "12.3 %"):
        assert expected in text
    assert {"Note below.", "makespan", "1F1B", "15 ms"} <= set(page.shown)
    assert [page.count(tag) for tag in ("h1", "h2", "table", "img", "dl")] == [1, 3, 4, 1, 1]


def test_the_page_needs_nothing_else(page: Page) -> None:
    text = re.sub(r"base64,[\w+/=]+", "", html_report("The report", SECTIONS, summary=SUMMARY))
    assert not re.search(r"https?:|//|@import|url\(", text)
    assert page.count("script") == page.count("link") == page.count("iframe") == 0
    assert all(source.startswith("data:image/png;base64,") for source in page.values("src"))
    assert all(link.startswith(("#section-", "./")) for link in page.values("href"))
    assert "default-src 'none'" in " ".join(page.values("content"))


def test_pictures_are_the_bytes_given_and_are_described(page: Page) -> None:
    (image,) = [attributes for tag, attributes in page.elements if tag == "img"]
    assert image["alt"] == "energy against time"
    assert image["src"] is not None
    assert base64.b64decode(image["src"].partition(",")[2]) == PICTURE.png


def test_links_lead_to_their_targets(page: Page) -> None:
    identifiers = page.values("id")
    assert len(identifiers) == len(set(identifiers)) == len(SECTIONS)
    inside = [link[1:] for link in page.values("href") if link.startswith("#")]
    assert inside == identifiers
    assert "./out/schedule%201.json" in page.values("href")
    assert set(page.values("aria-labelledby")) == set(identifiers)


def test_good_and_bad_are_told_without_colour(page: Page) -> None:
    text = "".join(page.shown)
    assert "OPTIMAL ✓" in text
    assert "no ✗" in text
    assert [label for label in page.values("aria-label") if "good" in label] == ["good", "not good"]


def test_hostile_text_is_only_text() -> None:
    fact = Fact(HOSTILE, HOSTILE, HOSTILE, link='javascript:alert("x")')
    section = Section(HOSTILE, (fact,), (Picture(PICTURE.png, HOSTILE),), HOSTILE, rows=[[HOSTILE]] * 2)
    hostile = Page(html_report(HOSTILE, [section, section], summary=[fact], introduction=HOSTILE))
    assert hostile.count("script") == 0
    assert hostile.values("onload") == []
    assert HOSTILE in "".join(hostile.shown)
    assert HOSTILE in hostile.values("alt")
    assert not any(link.startswith("javascript") for link in hostile.values("href"))


def test_empty_parts_leave_nothing_behind() -> None:
    bare = Page(html_report("Nothing", [Section("Empty")]))
    assert [bare.count(tag) for tag in ("dl", "nav", "table", "p", "figure")] == [0] * 5


def test_an_interrupted_write_keeps_the_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_report(tmp_path / "report.html", "old", [])

    def fail(source: str, target: str) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_report(path, "new", [])
    assert "old" in path.read_text(encoding="utf-8")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
