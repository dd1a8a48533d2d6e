"""The smallest case of every part reaches its value, and measures see worse ones."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.benchmarks.frame import GROUPS, Case, Row, measured, read_cases, write_rows
from experiments.benchmarks.inputs.clock_tasks import made_up, synthetic_profile
from experiments.benchmarks.measures import peers, size
from experiments.benchmarks.measures.frontier import orders, shares_above
from experiments.benchmarks.others.torch_schedules import SHIPPED, torch_schedule
from placements.shapes import v_shape
from schedsearch.validate import validate

TIMES = re.compile(r"\w*_(s|us) |cpu|wall")
"""Conditions on times: they depend on the machine, and on what else it does."""

FEWER = {"rounds": 1}
"""Less of what only makes times more certain."""

QUICK = [case for group in GROUPS for case in read_cases(group) if case.is_quick]


@pytest.mark.parametrize("case", QUICK, ids=lambda case: f"{case.part}-{case.name}")
def test_the_smallest_cases_reach_what_they_must(case: Case) -> None:
    fewer = {name: value for name, value in FEWER.items() if name in case.arguments}
    row = measured(replace(case, arguments={**case.arguments, **fewer}))
    assert all(TIMES.match(condition) for condition in row.missed), row
    if not row.skipped:
        assert row.figures["cpu_s"] >= 0 and len(row.figures) > 1


def test_orders_are_measured() -> None:
    figures = orders(shape="v_shape", num_devices=2, micro_batches=2, slowdown=1.05, seeds=1)
    assert figures["min_gain"] >= 0 and figures["over_deadline"] <= 1 + 1e-9


def test_a_longer_answer_of_ours_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "peak_memory", lambda schedule: [1] * schedule.placement.num_devices)
    figures = peers.torch_schedule(torch_name="GPipe", devices=2, micro_batches=4, rounds=1)
    assert (figures["makespan"], figures["peer_makespan"], figures["over_peer"]) == (24, 15, 1.6)


@pytest.mark.parametrize("name", SHIPPED)
def test_schedules_of_torch_are_valid_and_of_its_own_stages(name: str) -> None:
    schedule = validate(torch_schedule(name, 4, 8))
    assert sum(block.kind.value == "F" for block in schedule.placement.blocks) == 4 * SHIPPED[name]


def test_a_better_plan_of_another_is_seen() -> None:
    """Our own plans with a percent less of the energy stand for the other's."""
    task = made_up(shape="v_shape", num_devices=2, micro_batches=3, clocks=8, seed=1, noise=0.01)
    plans = np.array([(plan.time_ms, plan.energy_mj) for plan in task.frontier(num_plans=5).plans])
    assert shares_above(task, plans)["min_more"] == pytest.approx(0, abs=1e-6)
    assert shares_above(task, plans * (1, 0.99))["min_more"] == pytest.approx(-100 / 99, rel=0.1)


def test_the_made_up_profile_is_the_same_every_time() -> None:
    one, same, other = (synthetic_profile(v_shape(3), 9, seed, noise=0.01) for seed in (4, 4, 5))
    assert one == same
    assert one.points != other.points
    times = [point.time_ms for point in one.points["F0"]]
    assert times[0] > times[-1]


def test_sizes_are_drawn_beside_their_results(tmp_path: Path) -> None:
    figures = {"blocks": 8, "cpu_s": 0.0, "peak_mib": 70}
    write_rows(tmp_path / "size.json", {}, [Row(part, "case", figures) for part in ("by_hand", "search")])
    size.draw(tmp_path / "size.json")
    drawn = (tmp_path / "size.svg").read_text(encoding="utf-8")
    assert "by hand" in drawn and "search" in drawn
