"""The playground's page in a browser: states by link, moves by key and pointer, a quiet console."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from javascript import PLAYGROUND, browsed, text_of
from places import ROOT

from docs.playground_data import PRESETS
from experiments.config.declaring import tell_hydra
from experiments.search.options import SearchCommandOptions, read_options
from experiments.search.problem import read_problem

PAGE = (PLAYGROUND / "index.html").as_uri()

DRIVE = """
<script>
const box = document.getElementById("scroll"), seen = {};
const text = (id) => document.getElementById(id).textContent;
const press = (key, more) => box.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, ...more}));
const note = (name) => { seen[name] = [text("status").split(".")[0], text("selected").split(",")[0]]; };
note("begin");
press("ArrowDown"); press("End"); note("last of device 1");
press("ArrowLeft", {shiftKey: true}); note("moved before");
seen.link = location.hash;
press("z", {ctrlKey: true}); note("undone");
press("Home"); press("ArrowRight", {shiftKey: true}); note("second first");
document.getElementById("reset").click(); note("reset");
const run = box.querySelector('.run[data-device="0"][data-index="0"]').getBoundingClientRect();
const at = {bubbles: true, button: 0, pointerType: "mouse", clientY: run.y + 5};
box.querySelector('.run[data-device="0"][data-index="0"]')
  .dispatchEvent(new PointerEvent("pointerdown", {...at, clientX: run.x + 2}));
window.dispatchEvent(new PointerEvent("pointermove", {...at, clientX: run.x + 4000}));
window.dispatchEvent(new PointerEvent("pointerup", {...at, clientX: run.x + 4000}));
note("dragged to the end");
document.getElementById("undo").click(); note("back");
const slider = document.getElementById("slide-limit");
slider.value = 1; slider.dispatchEvent(new Event("input", {bubbles: true})); note("little memory");
seen.marked = box.querySelectorAll(".run.wrong").length;
const shown = Object.assign(document.createElement("pre"), {id: "seen", textContent: JSON.stringify(seen)});
document.body.append(shown);
</script>
"""


def driven(folder: Path) -> Any:
    """Return what was seen on a copy of the page while it was used."""
    for file in PLAYGROUND.iterdir():
        text = file.read_text(encoding="utf-8")
        (folder / file.name).write_text(text.replace("</body>", f"{DRIVE}</body>"), encoding="utf-8")
    address = (folder / "index.html").as_uri()
    return json.loads(text_of(browsed(f"{address}#p=v-kept&d=2&n=8&m=2"), "#seen"))


def test_the_page_is_used_by_keys_and_by_pointer(tmp_path: Path) -> None:
    seen = driven(tmp_path)
    assert seen["begin"] == ["Proved shortest", "Chosen: F0 of micro-batch 0 on device 0"]
    assert seen["last of device 1"][1] == "Chosen: B1 of micro-batch 7 on device 1"
    assert seen["moved before"] == ["Deadlock", "Chosen: B1 of micro-batch 7 on device 1"]
    assert "&o=" in seen["link"]
    assert seen["undone"][0] == "Proved shortest"
    assert seen["second first"][0] == "Deadlock"
    assert seen["reset"][0] == "Proved shortest"
    assert seen["dragged to the end"] == ["Deadlock", "Chosen: F0 of micro-batch 0 on device 0"]
    assert seen["back"][0] == "Proved shortest"
    assert seen["little memory"][0] == "Too much memory"
    assert seen["marked"] > 0


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("", "Proved shortest."),
        ("#p=v-kept&d=4&n=8&m=4&s=gpipe", "Too much memory. Device 0 holds 5 of 4"),
        ("#p=m-recomputed&d=4&n=8&m=4&s=one_f_one_b_plus", "The shortest known here takes 600 ms."),
        ("#p=k-kept&d=8&n=16&x=5", "above the bound"),
        ("#p=v-kept&d=4&n=8&m=4&limit=3", "Too much memory."),
    ],
)
def test_a_link_is_a_state(state: str, words: str) -> None:
    assert words in text_of(browsed(PAGE + state), "#status")


def test_it_opens_where_the_search_wins() -> None:
    page = browsed(PAGE)
    words = text_of(page, "#status")
    assert "Proved shortest." in words and "the search saves 15.6 %" in words
    rows = re.findall(r"([\d.]+) ms", text_of(page, "#schedules"))
    searched, *by_hand = (float(each) for each in rows)
    assert by_hand and searched < min(by_hand)


@pytest.mark.parametrize(
    ("state", "named"),
    [("#p=nothing", "p"), ("#d=3&n=7&m=x", "m, d, n"), ("#o=aa", "o"), ("#s=none", "s"), ("#t.F=-1", "t.F")],
)
def test_a_wrong_link_is_told(state: str, named: str) -> None:
    assert f"({named})" in text_of(browsed(PAGE + state), "#notice")


def command_of(state: str) -> list[str]:
    """Return the words of the command that the page shows, behind the module."""
    return shlex.split(text_of(browsed(PAGE + state), "#command"))[3:]


@pytest.mark.parametrize("name", ["v-measured", "m-recomputed", "nn-kept", "k-kept", "loop-kept", "x-split"])
def test_the_command_is_the_problem(name: str) -> None:
    preset = next(each for each in PRESETS if each.name == name)
    memory = preset.capacities(4)[-1]
    overrides = command_of(f"#p={name}&d=4&n=16&m={memory}")
    tell_hydra("search")
    with initialize_config_dir(str(ROOT / "experiments" / "conf"), version_base="1.3"):
        options = read_options(compose("search", overrides), SearchCommandOptions)
    assert read_problem(options).placement == preset.placement(4).with_memory(memory)
    assert options.search.num_micro_batches == 16
    assert options.search.time_limit_s == 4
