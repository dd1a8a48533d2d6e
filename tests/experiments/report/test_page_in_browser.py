"""The page in a browser: it opens without an error, and does what a reader asks of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import Page, chromium, needs_chromium
from four_clocks import four_clocks
from matplotlib.image import imread
from quarter_ms import COSTS, FOUND, RESULT, TUNED

from experiments.compare.report import comparison_page
from experiments.frontier.frontier_files import write_page
from experiments.report.drawings import page_program
from experiments.report.html_report import Section, write_report
from experiments.report.page_data import PageData, PagePlans
from placements.shapes import v_shape
from placements.stages.stage_file import read_stages
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.comparison.compare import compare
from schedsearch.core.answer import SearchProgress
from schedsearch.energy import compute_frontier, simulate_at_clocks

pytestmark = needs_chromium

SCHEDULE = gpipe(v_shape(3).with_memory(9), 4)
PROFILE = four_clocks(SCHEDULE.placement)
FRONTIER = compute_frontier(SCHEDULE, PROFILE, num_plans=8)
CHOSEN = FRONTIER.plans[3]
NAME = "<b>&one</b>"

PAINTED = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
FIGURE = "Bokeh.documents[0].get_model_by_name"
TITLES_FIT = f"""(() => {{
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = "bold 12px system-ui, sans-serif";
  const {{ width }} = Bokeh.index.find_one({FIGURE}("blocks")).frame.bbox;
  return {FIGURE}("titles").data.text.every((text) => pen.measureText(text).width <= width && width < 320);
}})()"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("page")
    events = [SearchProgress("period", None, 3, 0, 0.1), SearchProgress("period", 5, 4, 1, 0.2)]
    data = PageData(
        {NAME: SCHEDULE, "other": one_f_one_b(v_shape(3), 4)},
        "MiB",
        PagePlans(PROFILE, FRONTIER, CHOSEN),
        events,
    )
    sections = [Section("Timeline", panel="timeline"), Section("Search", panel="progress")]
    path = write_report(folder / "report.html", "A page", sections, program=page_program(data))
    with chromium() as opened:
        opened.open(path)
        opened.save_into(folder / "saved")
        until(opened, "document.body.dataset.shown !== undefined")
        yield opened
        assert not opened.complaints
        assert {address.partition(":")[0] for address in opened.asked_for} <= {"file", "data", "blob"}


def until(page: Page, condition: str) -> None:
    end = time.monotonic() + 60
    while not page.evaluate(condition):
        assert time.monotonic() < end, f"{condition} did not become true"
        time.sleep(0.05)


def place_of(page: Page, ms: float, row: int) -> tuple[float, float]:
    """Return where a time and a row of the timeline are in the window."""
    x, y = page.evaluate(
        f"""(() => {{
          const model = {FIGURE}("blocks");
          const view = Bokeh.index.find_one(model);
          view.el.scrollIntoView();
          const box = view.el.getBoundingClientRect();
          const {{ x_scale, y_scale, bbox }} = view.frame;
          return [box.left + x_scale.compute({ms}), box.top + y_scale.compute({row})];
        }})()"""
    )
    return float(x), float(y)


def near(page: Page) -> list[tuple[float, float, float]]:
    """Return start, end and row of every rectangle of a block."""
    page.evaluate(PAINTED)
    data = page.evaluate(f"(({{left, right, top}}) => ({{left, right, top}}))({FIGURE}('near').data)")
    return [
        (start, end, round(top + 0.43))
        for start, end, top in zip(data["left"], data["right"], data["top"], strict=True)
    ]


def press(page: Page, text: str) -> None:
    buttons = "[...document.querySelectorAll('.controls button')]"
    page.evaluate(f"{buttons}.find((button) => button.innerText === '{text}').click()")


def slide(page: Page, plan: int) -> None:
    slider = "document.querySelector('input[type=range]')"
    page.evaluate(f"{slider}.value = {plan}; {slider}.dispatchEvent(new Event('input'))")


def test_it_opens_and_shows_every_block(page: Page) -> None:
    assert page.evaluate("document.body.dataset.shown") == "yes"
    assert not page.complaints
    assert len(near(page)) == 2 * len(SCHEDULE.blocks)
    assert page.evaluate("document.querySelectorAll('.panel b').length") == 0
    assert page.evaluate(f"{FIGURE}('titles').data.text[0]").startswith(NAME)


def test_the_slider_moves_the_blocks_the_point_and_the_figures(page: Page) -> None:
    for number in (0, len(FRONTIER.plans) - 1, 3):
        plan = FRONTIER.plans[number]
        slide(page, number)
        starts = sorted(start for start, _, row in near(page) if row <= 3)
        done = simulate_at_clocks(SCHEDULE, PROFILE, plan.clock_mhz)
        assert starts == pytest.approx(sorted(done.start_ms.values()), abs=1e-9)
        here = page.evaluate("Bokeh.documents[1].get_model_by_name('here').data")
        assert (here["x"], here["y"]) == ([plan.time_ms], [pytest.approx(plan.energy_mj / 1e3)])
        figures = page.evaluate("document.querySelector('dl.figures').textContent")
        assert f"{number + 1} of {len(FRONTIER.plans)}" in figures


def test_the_cursor_tells_the_block_its_clock_and_the_memory(page: Page) -> None:
    slide(page, 3)
    start, end, row = next(row_near for row_near in near(page) if row_near[2] == 1)
    page.mouse("mouseMoved", *place_of(page, (start + end) / 2, row))
    tip = page.evaluate("document.querySelector('.tip').textContent")
    clock = CHOSEN.clock_mhz["F0"][0]
    assert tip.startswith("F0 of micro-batch 0")
    assert f"clock{clock:,} MHz" in tip and "memory held1 MiB of 9" in tip
    readings = page.evaluate(
        "[...document.querySelectorAll('.reading:not(.time)')].map((r) => r.textContent)"
    )
    assert [text.split()[0] for text in readings] == ["1", "0", "0", "1", "0", "0"]


def test_a_click_marks_what_a_block_waits_for_and_what_waits_for_it(page: Page) -> None:
    slide(page, 3)
    done = simulate_at_clocks(SCHEDULE, PROFILE, CHOSEN.clock_mhz)
    page.click(*place_of(page, done.start_ms["F1", 1] + 0.1, 2))
    details = page.evaluate("document.querySelector('.details').innerText")
    first, before, after = details.strip().splitlines()
    assert first.startswith("F1 of micro-batch 1")
    assert "F0 of micro-batch 1" in before and "F1 of micro-batch 0" in before
    assert "F2 of micro-batch 1" in after and "F1 of micro-batch 2" in after
    assert page.evaluate(f"{FIGURE}('marks').data.left.length") == 5
    assert page.evaluate(f"{FIGURE}('waits').data.x0.length") == 4
    page.click(*place_of(page, 0.1, 0))
    assert page.evaluate(f"{FIGURE}('marks').data.left.length") == 0


def test_colours_follow_the_control(page: Page) -> None:
    seen: dict[str, Any] = {}
    for meaning in ("kind", "micro_batch", "clock", "power"):
        page.evaluate(f"document.querySelector('[data-value={meaning}]').click()")
        seen[meaning] = tuple(page.evaluate(f"{FIGURE}('near').data.color"))
        assert page.evaluate("document.querySelector('.legend svg') !== null")
    assert len(set(seen.values())) == 4
    page.evaluate("document.querySelector('[data-value=kind]').click()")


def test_the_wheel_zooms_and_everything_comes_back(page: Page) -> None:
    x, y = place_of(page, 3.0, 2)
    before = page.evaluate(f"{FIGURE}('times').end - {FIGURE}('times').start")
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300)
    until(page, f"{FIGURE}('times').end - {FIGURE}('times').start < {0.95 * before}")
    press(page, "all")
    assert page.evaluate(f"{FIGURE}('times').end - {FIGURE}('times').start") == pytest.approx(before)


def test_pictures_are_saved(page: Page) -> None:
    for form in ("SVG", "PNG"):
        press(page, form)
    svg, png = page.saved_file("timeline.svg"), page.saved_file("timeline.png")
    text = svg.read_text()
    assert text.count("<path") >= 2 * len(SCHEDULE.blocks) and "forward" in text and "device" in text
    assert imread(png).std() > 0.05


@pytest.mark.parametrize("kind", ["run", "compare"])
def test_a_report_is_whole_at_390_px(tmp_path: Path, kind: str) -> None:
    """Titles were cut and lost their figures; notes of tables stood in columns of one letter."""
    path = tmp_path / "report.html"
    if kind == "run":
        write_page(replace(FOUND, result=RESULT), TUNED, path)
        titles = ["quarters: planned clocks, 28 ms, 7.6 J"]
    else:
        compared = compare(read_stages("examples/stages.yaml"), ["one_f_one_b", "interleaved_one_f_one_b"], 8)
        path.write_text(comparison_page(compared, Path("stages.yaml"), COSTS))
        titles = list(compared.by_title)
    with chromium() as opened:
        opened.open(path, 390, 844)
        until(opened, "document.body.dataset.shown !== undefined")
        until(opened, f"{FIGURE}('titles').data.text.join(' ') === {json.dumps(' '.join(titles))}")
        until(opened, TITLES_FIT)
        assert opened.evaluate("document.documentElement.scrollWidth") <= 390
        texts = "[...document.querySelectorAll('h1, h2, p, dd, th, td')]"
        assert not opened.evaluate(f"{texts}.filter((e) => e.scrollWidth > e.clientWidth + 1).length")
        notes = f"{texts}.filter((e) => e.className === 'note' && e.innerText)"
        assert not opened.evaluate(f"{notes}.filter((e) => e.clientWidth < 250).length")
        assert not opened.complaints


def test_five_schedules_have_titles_of_their_own_and_a_strip_of_memory_each(tmp_path: Path) -> None:
    """At 11 pixels a row, titles lay over the rows, and 40 strips of memory were lines."""
    data = PageData(
        {
            f"schedule {n} (of eight devices in a v_shape): 1 ms": gpipe(v_shape(8).with_memory(9), 4)
            for n in range(5)
        }
    )
    sections = [Section("Timeline", panel="timeline")]
    path = write_report(tmp_path / "report.html", "A page", sections, program=page_program(data))
    with chromium() as opened:
        opened.open(path)
        until(opened, "document.body.dataset.shown !== undefined")
        until(opened, f"{FIGURE}('held-titles').data.text.length === 5")
        row_px = opened.evaluate(f"Bokeh.index.find_one({FIGURE}('blocks')).frame.bbox.height / 45")
        assert row_px >= 16
        title = "schedule 1 (of eight devices in a v_shape): 1 ms"
        assert opened.evaluate(f"{FIGURE}('titles').data.text")[1] == title
        assert opened.evaluate(f"{FIGURE}('held-titles').data.text")[1] == (
            "schedule 1 (of eight devices in a v_shape): 4 of 9 units on device 0, the fullest"
        )
        assert opened.evaluate(f"{FIGURE}('held-areas').data.xs.length") == 5
        press(opened, "all devices")
        assert opened.evaluate(f"{FIGURE}('held-areas').data.xs.length") == 40
        assert not opened.complaints
