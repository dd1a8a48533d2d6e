"""The playground's page in a browser: files opened, blocks moved, links, wrong files, both widths."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import Page, chromium, needs_chromium
from javascript import PLAYGROUND, simulated
from places import ROOT

from placements.placement_file import read_placement
from placements.stages.layout_stages import place_layout
from placements.stages.stage_chain import place
from placements.stages.stage_file import read_stages
from placements.trainers.megatron_layout import read_notation
from runtime.torch_pipelining.csv import from_torch, torch_order
from schedsearch.baselines import dual_pipe_v, interleaved_one_f_one_b, one_f_one_b, zb_h1
from schedsearch.core.problem import Problem
from schedsearch.figures.perfetto import write_perfetto
from schedsearch.metrics import bubble_rate, peak_memory
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import read_schedule, schedule_to_dict
from schedsearch.searches.search import find
from schedsearch.traces.measured_layers import read_measured

pytestmark = needs_chromium

INDEX = PLAYGROUND / "index.html"
STAGES, LAYERS = ROOT / "examples" / "stages.yaml", ROOT / "examples" / "layers.csv"
LAYOUT = "Et*4|(t*4|)*6,t*4L"

OPEN = """(async (files) => {
  const data = new DataTransfer(), before = location.hash;
  for (const [name, text] of files) data.items.add(new File([text], name));
  if (%s) {
    window.dispatchEvent(new DragEvent("drop", {dataTransfer: data}));
  } else {
    document.getElementById("files").files = data.files;
    document.getElementById("files").dispatchEvent(new Event("change"));
  }
  const notice = document.getElementById("notice");
  for (let i = 0; i < 500 && location.hash === before && notice.hidden; i++) {
    await new Promise((done) => setTimeout(done, 20));
  }
  return notice.hidden ? "" : notice.textContent;
})(%s)"""

FIGURES = """Object.fromEntries([...document.querySelectorAll("#figures div")].map(
  (box) => [box.querySelector("dt").textContent, box.querySelector("dd").firstChild.data]))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    with chromium() as page:
        yield page


@pytest.fixture
def page(browser: Page) -> Page:
    browser.open(INDEX)
    return browser


def opened(page: Page, *files: Path, drop: bool = False) -> str:
    """Open files on the page; return its notice, which is empty unless they are refused."""
    texts = [[file.name, file.read_text(encoding="utf-8")] for file in files]
    return str(page.evaluate(OPEN % (json.dumps(drop), json.dumps(texts))))


def text(page: Page, name: str) -> str:
    return str(page.evaluate(f"document.getElementById({name!r}).textContent"))


def shown(ms: float) -> str:
    return f"{ms:.2f}".rstrip("0").rstrip(".")


def is_ours(page: Page, schedule: Schedule) -> None:
    """Check iteration, bubble and peak memory on the page against ours."""
    figures, placement = page.evaluate(FIGURES), schedule.placement
    assert figures["Iteration"] == f"{shown(placement.ms(schedule.makespan))} ms"
    assert figures["Bubble"] == f"{100 * bubble_rate(schedule):.1f} %"
    most = int(peak_memory(schedule).max())
    mib = placement.mib(most) if placement.memory_unit_mib else 0
    words = f"{shown(round(mib / 1024, 1))} GiB" if mib else f"{most} units"
    assert figures["Peak memory"] in (words, "not known")


def torch_csv(folder: Path) -> tuple[list[Path], Schedule]:
    schedule = from_torch(torch_order(zb_h1(place(read_stages(STAGES), "v_shape", True).placement, 12)))
    (folder / "schedule.csv").write_text(str(torch_order(schedule)), encoding="utf-8")
    return [folder / "schedule.csv"], schedule


def torch_csv_with_stages(folder: Path) -> tuple[list[Path], Schedule]:
    files, _ = torch_csv(folder)
    return [*files, STAGES], zb_h1(place(read_stages(STAGES), "v_shape", True).placement, 12)


def stages(folder: Path) -> tuple[list[Path], Schedule]:
    return [STAGES], one_f_one_b(place(read_stages(STAGES), "v_shape").placement, 16)


def layout(folder: Path) -> tuple[list[Path], Schedule]:
    words = f"--pipeline-model-parallel-size 4\n--pipeline-model-parallel-layout '{LAYOUT}'\n"
    (folder / "megatron.txt").write_text(words, encoding="utf-8")
    placed = place_layout(read_notation(LAYOUT, 4), read_measured(LAYERS))
    return [folder / "megatron.txt", LAYERS], interleaved_one_f_one_b(placed.placement, 16)


def schedule_json(folder: Path) -> tuple[list[Path], Schedule]:
    schedule = dual_pipe_v(place(read_stages(STAGES), "wave_shape", True).placement, 16)
    return [written(folder, schedule)], schedule


def modes(folder: Path) -> tuple[list[Path], Schedule]:
    schedule = searched("recompute")
    assert {choice for chosen in schedule.chosen for choice in chosen} == {0, 1}
    return [written(folder, schedule)], schedule


def streams(folder: Path) -> tuple[list[Path], Schedule]:
    schedule = searched("communication")
    assert schedule.placement.has_streams
    return [written(folder, schedule)], schedule


def searched(example: str) -> Schedule:
    placement = replace(read_placement(ROOT / "examples" / f"{example}.yaml"), slowdown=())
    schedule = find(Problem(placement, 6, work_limit=2)).schedule
    assert schedule is not None
    return schedule


def perfetto(folder: Path) -> tuple[list[Path], Schedule]:
    """Return a trace of two schedules; the page opens on the first."""
    chain = read_stages(STAGES)
    first = dual_pipe_v(place(chain, "wave_shape", True).placement, 16)
    rows = {"dual_pipe_v": first, "one_f_one_b": one_f_one_b(place(chain, "v_shape").placement, 16)}
    return [write_perfetto(folder / "trace.json", rows)], first


def written(folder: Path, schedule: Schedule) -> Path:
    path = folder / "schedule.json"
    path.write_text(json.dumps(schedule_to_dict(schedule)), encoding="utf-8")
    return path


FORMS = [torch_csv, torch_csv_with_stages, stages, layout, schedule_json, modes, streams, perfetto]


@pytest.mark.parametrize("make", FORMS)
def test_each_form_opens_with_our_figures(
    make: Callable[[Path], tuple[list[Path], Schedule]], page: Page, tmp_path: Path
) -> None:
    files, schedule = make(tmp_path)
    assert opened(page, *files, drop=make is layout) == ""
    is_ours(page, schedule)
    assert page.complaints == []


def test_the_other_schedule_of_a_trace_is_chosen(page: Page, tmp_path: Path) -> None:
    opened(page, *perfetto(tmp_path)[0])
    choose = (
        "const s = document.getElementById('schedule'); s.value = 1; s.dispatchEvent(new Event('change'))"
    )
    page.evaluate(choose)
    is_ours(page, stages(tmp_path)[1])


def test_dependencies_and_transfers_of_a_trace_are_those_of_its_placement(tmp_path: Path) -> None:
    (file,), schedule = perfetto(tmp_path)
    (plan, _) = simulated("return Readers.read('trace.json', data).plans", file.read_text(), tmp_path)
    after = {block["name"]: set(block["after"]) for block in plan["blocks"]}
    assert all({*block.after} <= after[block.name] for block in schedule.placement.blocks)
    ms = {(source, target): ticks * plan["tickMs"] for source, target, ticks in plan["transfer"]}
    assert ms == {
        (source, target): pytest.approx(schedule.placement.ms(ticks))
        for source, target, ticks in schedule.placement.transfer
    }


def test_a_block_is_moved_and_the_link_says_so_on_another_page(page: Page, tmp_path: Path) -> None:
    opened(page, *stages(tmp_path)[0])
    start = text(page, "figures")
    (x, y), (end, _) = page.evaluate(MIDDLES)
    page.mouse("mousePressed", x, y, button="left", clickCount=1)
    page.mouse("mouseMoved", end + 3, y, button="left", buttons=1)
    moved = [text(page, name) for name in ("figures", "parts")]
    assert moved[0] != start, "figures follow the pointer"
    page.mouse("mouseReleased", end + 3, y, button="left", clickCount=1)
    assert moved[0].startswith("Iteration") and "ms against the file's order" in moved[0]
    assert "B7 of micro-batch 0 on device 7" in text(page, "selected")
    page.save_into(tmp_path / "saved")
    page.evaluate("document.getElementById('save').click()")
    is_ours(page, read_schedule(page.saved_file("schedule.json")))
    fragment = page.evaluate(WAIT_FOR_LINK)
    with chromium() as other:
        other.open(INDEX, fragment=fragment)
        assert other.evaluate(WAIT_FOR_FIGURES)
        assert [text(other, name) for name in ("figures", "parts")] == moved
    page.evaluate("document.getElementById('undo').click()")
    assert text(page, "figures") == start


MIDDLES = """[1, 2].map((index) => document.querySelector(
  `.run[data-lane="7"][data-index="${index}"]`).getBoundingClientRect()).map(
  ({x, y, width, height}) => [x + width / 2, y + height / 2])"""
WAIT_FOR_LINK = "new Promise((done) => setTimeout(() => done(location.hash), 500))"
WAIT_FOR_FIGURES = """(async () => {
  for (let i = 0; i < 500 && !document.querySelector("#figures div"); i++) {
    await new Promise((done) => setTimeout(done, 20));
  }
  return true;
})()"""


def test_keys_times_and_memory(page: Page, tmp_path: Path) -> None:
    opened(page, *torch_csv(tmp_path)[0])
    before = page.evaluate(FIGURES)["Iteration"]
    key = "new KeyboardEvent('keydown', {key: 'ArrowRight', shiftKey: true})"
    page.evaluate(f"document.getElementById('scroll').dispatchEvent({key})")
    assert page.evaluate("document.querySelectorAll('#undo:enabled').length") == 1
    change = (
        "(at => { at.value = '%s'; at.dispatchEvent(new Event('change')); })(document.querySelector('%s'))"
    )
    page.evaluate(change % ("1.5", '[aria-label="all F (ms)"]'))
    assert page.evaluate(FIGURES)["Iteration"] != before
    page.evaluate(change % ("2", "#limit"))
    assert text(page, "status").startswith("schedule.csv. Too much memory. Device 0 holds 3 units of 2 units")
    assert page.evaluate("document.querySelectorAll('.run.wrong').length") > 0


WRONG: dict[str, tuple[str, str]] = {
    "schedule.csv": ("0F0,0B0\n1F0,1X0\n", "row 2 (rank 1), cell 2: '1X0' is no action; write such as 0F3"),
    "hang.csv": (
        "0F0,0F1,0B0\n1F0,1B0\n",
        "stage 0: the backward of micro-batch 1 is not there once; write 0B1",
    ),
    "stages.yaml": (
        "stages:\n- {forward_ms: 1x, backward_ms: 2}\n",
        "stages[0].forward_ms: '1x' is no number",
    ),
    "layers.csv": ("layer,kind,forward_ms,backward_ms\na,embed,1,2\n", "line 2, kind: 'embed' is none of"),
    "layout.txt": ("--pipeline-model-parallel-layout Et|tx|L", "layout: 'x' is no part of a model; use E, t"),
    "schedule.json": ('{"placement": {}}', "num_micro_batches: is no whole number above 0; give a schedule"),
    "trace.json": (
        '{"traceEvents": []}',
        "traceEvents: no slice has a block and a micro_batch; give a trace",
    ),
    "notes.md": ("# notes", 'line 1: "# notes" is of no form that this page reads; give a torch CSV'),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_one_clear_line_and_changes_nothing(name: str, page: Page, tmp_path: Path) -> None:
    before = text(page, "figures")
    (tmp_path / name).write_text(WRONG[name][0], encoding="utf-8")
    notice = opened(page, tmp_path / name)
    assert notice.startswith(f"{name}: {WRONG[name][1]}") and "\n" not in notice
    assert text(page, "figures") == before


def test_a_damaged_link_is_told_and_a_long_one_is_not_made(page: Page, tmp_path: Path) -> None:
    with chromium() as other:
        other.open(INDEX, fragment="#s=nothing")
        assert other.evaluate(WAIT_FOR_FIGURES) and "damaged or cut off" in text(other, "notice")
    large: Any = schedule_to_dict(one_f_one_b(place(read_stages(STAGES), "v_shape").placement, 1000))
    (tmp_path / "schedule.json").write_text(json.dumps(large), encoding="utf-8")
    opened(page, tmp_path / "schedule.json")
    page.evaluate("document.getElementById('share').click()")
    page.evaluate(WAIT_FOR_LINK)
    assert "Save the file instead" in text(page, "done") and not page.evaluate("location.hash")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("make", [None, stages, streams])
def test_nothing_is_cut_at_either_width(make: Any, width: int, page: Page, tmp_path: Path) -> None:
    page.open(INDEX, width)
    if make:
        opened(page, *make(tmp_path)[0])
    assert page.evaluate("document.documentElement.scrollWidth") == width
    boxes = (
        "[...document.querySelectorAll('button, .button, h1, dd, small')].filter((box) => box.clientWidth)"
    )
    assert page.evaluate(f"{boxes}.filter((box) => box.scrollWidth > box.clientWidth + 1).length") == 0
    assert (
        page.evaluate("Math.min(...[...document.querySelectorAll('button')].map((b) => b.offsetHeight))")
        >= 36
    )
