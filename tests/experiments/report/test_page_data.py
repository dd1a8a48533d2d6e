"""What a page holds is what was found: every block where it is, every plan as it is simulated."""

from __future__ import annotations

import base64
import gzip
import json
import re
from typing import Any

import numpy as np
import pytest
from four_clocks import four_clocks
from modes_and_streams import offloaded, recomputed

from experiments.report.drawings import page_program
from experiments.report.html_report import Section, html_report
from experiments.report.page_data import PageData, PagePlans, packed, progress_tree
from placements import Placement
from placements.shapes import m_shape, v_shape, x_shape
from schedsearch.baselines import HAND_MADE, gpipe
from schedsearch.core.answer import SearchProgress
from schedsearch.energy import compute_frontier, simulate_at_clocks
from schedsearch.metrics import memory_over_time, peak_memory
from schedsearch.schedule import Schedule, dependencies

HOSTILE = "</script><script>alert(1)</script>$$x$$"


def unpacked(data: bytes) -> Any:
    """Read the data as the page's script does."""

    def arrays(value: dict[str, Any]) -> Any:
        if isinstance(value.get("array"), list):
            dtype, text = value["array"]
            return np.frombuffer(base64.b64decode(text), np.dtype(dtype).newbyteorder("<"))
        return value

    return json.loads(data, object_hook=arrays)


def held_by(page: str, name: str) -> bytes:
    match = re.search(f'<script type="text/plain" id="page-{name}">([^<]*)</script>', page)
    return gzip.decompress(base64.b64decode(match[1]))


def page_of(data: PageData) -> str:
    return html_report("A page", [Section("Timeline", panel="timeline")], program=page_program(data))


@pytest.mark.parametrize("placement", [m_shape(4), x_shape(4)], ids=lambda p: p.name)
def test_every_block_is_on_the_page_as_it_is_in_the_schedule(placement: Placement) -> None:
    schedule = gpipe(placement.with_memory(100), 5) if placement.name != "x_shape" else chimera_of(placement)
    tree = unpacked(held_by(page_of(PageData({HOSTILE: schedule})), "data"))["schedules"][0]
    tick_ms = placement.tick_ms
    names = [block["name"] for block in tree["blocks"]]
    blocks = {
        (names[block], n): (start, end)
        for block, n, start, end in zip(
            tree["block"], tree["micro_batch"], tree["start_ms"], tree["end_ms"], strict=True
        )
    }
    assert blocks == {
        (name, n): (ticks * tick_ms, (ticks + placement.by_name[name].time) * tick_ms)
        for (name, n), ticks in schedule.start_of.items()
    }
    instances = [(names[block], n) for block, n in zip(tree["block"], tree["micro_batch"], strict=True)]
    for device in range(placement.num_devices):
        row = slice(tree["row_first"][device], tree["row_first"][device + 1])
        assert [instances[i] for i in tree["rows"][row]] == list(schedule.order(device))
        assert tree["held"][row].tolist() == memory_over_time(schedule, device)[1].tolist()
    assert tree["peak"] == peak_memory(schedule).tolist()
    waits = {
        (instances[earlier], instances[later])
        for later in range(len(instances))
        for earlier in tree["before"][tree["before_first"][later] : tree["before_first"][later + 1]]
    }
    assert {(a, b) for a, b, _ in dependencies(schedule.placement, 5)} <= waits
    assert tree["title"] == HOSTILE


def chimera_of(placement: Placement) -> Schedule:
    return HAND_MADE["chimera"](placement.with_memory(100), 5)


def test_every_plan_has_its_clocks_and_runs_as_it_is_simulated() -> None:
    schedule = gpipe(v_shape(3), 4)
    profile = four_clocks(schedule.placement)
    frontier = compute_frontier(schedule, profile, num_plans=6)
    chosen = frontier.plans[len(frontier.plans) // 2]
    plans = PagePlans(profile, frontier, chosen)
    tree = unpacked(packed(PageData({"a": schedule}, plans=plans).tree()))
    on, data = tree["schedules"][0], tree["plans"]
    shown = [*frontier.plans, frontier.all_maximum]
    assert data["time_ms"] == [plan.time_ms for plan in shown]
    assert shown[data["chosen"]] == chosen
    names = [block["name"] for block in on["blocks"]]
    for plan, choice in zip(shown, data["choice"].reshape(len(shown), -1), strict=True):
        done = simulate_at_clocks(schedule, profile, plan.clock_mhz)
        end: list[float] = []
        for i, (block, n) in enumerate(zip(on["block"], on["micro_batch"], strict=True)):
            point = data["point_first"][data["run"][i]] + choice[i]
            assert data["clock_mhz"][point] == plan.clock_mhz[names[block]][n]
            before = range(on["before_first"][i], on["before_first"][i + 1])
            start = max((end[on["before"][k]] + on["delay_ms"][k] for k in before), default=0.0)
            assert start == pytest.approx(done.start_ms[names[block], int(n)], abs=1e-9)
            end.append(start + data["time_of_point_ms"][point])
        assert max(end) == pytest.approx(plan.time_ms)


def test_too_many_plans_are_thinned_and_the_chosen_one_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = gpipe(v_shape(2), 4)
    profile = four_clocks(schedule.placement)
    frontier = compute_frontier(schedule, profile, num_plans=20)
    chosen = frontier.plans[-2]
    monkeypatch.setattr("experiments.report.page_data.MOST_CLOCKS", 3 * 16)
    shown = PagePlans(profile, frontier, chosen).shown(16)
    assert len(shown) <= 5
    assert shown[0] is frontier.plans[0] and shown[-1] is frontier.all_maximum and chosen in shown
    assert [plan.time_ms for plan in shown[:-1]] == sorted(plan.time_ms for plan in shown[:-1])


def test_the_page_is_one_file_and_asks_for_nothing() -> None:
    page = page_of(PageData({HOSTILE: gpipe(v_shape(2), 3)}, "MiB"))
    outside = re.sub(r"[\w+/=]{200,}", "", page)
    assert not re.search(r"https?:|@import|url\(|<link|<iframe|src=", outside)
    assert "alert(1)" not in outside
    assert "default-src 'none'" in page
    assert "unsafe-eval" not in page and "script-src 'sha256-" in page
    ours = held_by(page, "code").decode().partition('(() => {\n"use strict";')[2]
    assert ours and not re.search(r"https?://|innerHTML|fetch\(|XMLHttpRequest", ours)


def test_progress_tells_what_is_new_in_ms_of_one_micro_batch() -> None:
    events = [
        SearchProgress("period", None, 4, 0, 0.1),
        SearchProgress("period", 6, 2, 1, 0.2),
        SearchProgress("period", 6, 2, 2, 0.3),
        SearchProgress("memory", 7, 7, 3, 0.4),
        SearchProgress("makespan", 40, 39, 4, 0.5),
    ]
    period, memory, makespan = progress_tree(events, 0.5)
    assert (period["elapsed_s"], period["best"], period["bound"]) == ([0.1, 0.2], [None, 3.0], [2.0, 1.0])
    assert period["end_s"] == 0.3
    assert (memory["best"], memory["is_memory"]) == ([7.0], True)
    assert (makespan["best"], makespan["bound"]) == ([20.0], [19.5])


def test_a_device_with_streams_has_a_row_for_each_and_one_memory() -> None:
    schedule = offloaded(1.5)
    tree = unpacked(packed(PageData({"a": schedule}).tree()))["schedules"][0]
    assert tree["row_names"] == ["0", "0 copy_in", "0 copy_out"] and tree["row_device"] == [0, 0, 0]
    names = [block["name"] for block in tree["blocks"]]
    instances = [(names[block], n) for block, n in zip(tree["block"], tree["micro_batch"], strict=True)]
    rows = np.split(tree["rows"], tree["row_first"][1:-1])
    assert [[instances[i] for i in row] for row in rows] == [*map(list, schedule.lane_orders)]
    assert [instances[i] for i in tree["held_rows"]] == list(schedule.order(0))
    assert tree["held"].tolist() == memory_over_time(schedule, 0)[1].tolist()
    assert tree["held_first"].tolist() == [0, len(instances)]
    assert [block["rows"] for block in tree["blocks"]] == [[0], [2], [1], [0]]


def test_a_block_has_its_mode_and_the_time_that_it_then_takes() -> None:
    tree = unpacked(packed(PageData({"a": recomputed()}).tree()))["schedules"][0]
    assert tree["modes"] == ["", "recompute"]
    of = {
        (tree["blocks"][block]["name"], int(n)): (tree["modes"][mode], float(end - start))
        for block, n, mode, start, end in zip(
            tree["block"], tree["micro_batch"], tree["mode"], tree["start_ms"], tree["end_ms"], strict=True
        )
    }
    assert of["B0", 0] == ("", 4.0) and of["B0", 1] == ("recompute", 6.0) and of["B1", 1] == ("", 4.0)
