"""The tables, files and lines of a frontier, by hand from a case in which no two units are alike."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from quarter_ms import CHOSEN, COSTS, FAST, FOUND, FRONTIER, LATE, RESULT, SCHEDULE, TUNED

from experiments.frontier.constrained_plans import capped_form, switched_form
from experiments.frontier.frontier_files import (
    baseline_facts,
    baseline_rows,
    baselines_to_dict,
    describe,
    frontier_to_dict,
    plan_to_dict,
    savings_rows,
    savings_table,
)
from experiments.frontier.schedule_selection import describe_selection, selection_to_dict
from experiments.search.results import SelectionResult
from placements.models.training_figures import IterationWork
from schedsearch.energy import LimitedPlan, SwitchingLimits
from schedsearch.energy.frontier import LowerBound
from schedsearch.energy.interchange import frontier_csv
from schedsearch.energy.limits.power_cap import AveragePower, PowerCap
from schedsearch.energy.limits.switching import ClockChanges
from schedsearch.energy.orders.ordering import OrderChoice, RatedOrder

WAITING_W = 3 * 50.0
"""Of three GPUs: mJ in each ms."""

RELAXED = LowerBound(np.array([20.0, 40.0]), np.array([5000.0, 2000.0]), WAITING_W)


def test_the_table_of_savings_is_until_the_stragglers_end() -> None:
    rows = savings_rows(replace(TUNED, frontier=replace(FRONTIER, relaxed=RELAXED)))
    assert [row["slowdown"] for row in rows] == [1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5]
    assert {row["saved_against"] for row in rows} == {"all_maximum"}
    plans = {
        "frontier": CHOSEN,
        "envpipe": TUNED.baselines["envpipe"][0],
        "perseus": TUNED.baselines["perseus"][1],
    }
    row, end_ms = rows[-1], 1.5 * 24.5
    highest_mj = 9000 + WAITING_W * (end_ms - 24.5)
    assert row["deadline_ms"] == end_ms and row["saved_against_mj"] == highest_mj
    for name, plan in plans.items():
        needed_mj = plan.energy_mj + WAITING_W * (end_ms - plan.time_ms)
        assert row[name] == pytest.approx(1 - needed_mj / highest_mj), name
    relaxed_mj = 5000 - 3000 * (end_ms - 20) / 20 + WAITING_W * end_ms
    assert row["at_most"] == pytest.approx(1 - relaxed_mj / highest_mj)
    first = rows[0]
    assert first["frontier"] == pytest.approx(1 - FAST.energy_mj / 9000)
    assert (first["all_maximum"], first["envpipe"], first["perseus"]) == (0.0, None, None)


def test_the_printed_savings_are_in_percent() -> None:
    *head, names, first, _, _, _, _, _, _, last = savings_table(savings_rows(TUNED))
    assert "(%)" in " ".join(head)
    assert names.split() == ["slowdown", "at_most", "frontier", "all_maximum", "envpipe", "perseus"]
    assert first.split() == ["1.00", "-", "10.00", "0.00", "-", "-"]
    assert last.split() == ["1.50", "-", "17.76", "0.00", "10.15", "14.30"]


def test_the_table_of_baselines_has_each_plan_in_its_columns() -> None:
    found = list(baseline_rows(SCHEDULE, TUNED))
    rows = [row for row, _ in found]
    assert [row["name"] for row in rows] == ["all_maximum", "envpipe", "perseus", "perseus"]
    assert rows[1] == {
        "name": "envpipe",
        "time_ms": 30.5,
        "energy_mj": 8800.0,
        "saving": pytest.approx(1 - 8800 / (9000 + 6 * WAITING_W)),
        "gap": pytest.approx(0.1),
        "clock_changes": 1,  # B0 on device 0: down once, and up for the next iteration
        "changes_per_iteration": 2,
        "saving_until_ms": 30.5,
    }
    assert [row["saving_until_ms"] for row in rows] == [28.0, 30.5, 28.0, 28.0]
    plans = baselines_to_dict(TUNED, found)["plans"]
    assert [row["saving"] for row in rows] == [plan["saving"] for plan in plans]
    assert plans[1]["lower_bound_mj"] == 8000.0 and plans[1]["clock_mhz"]["B0"] == [700, 700]


def test_the_lines_of_baselines_tell_ms_and_joules() -> None:
    facts = list(baseline_facts(SCHEDULE, TUNED))
    assert [fact.value for fact in facts] == ["24.5 ms, 9 J", "30.5 ms, 8.8 J", "27.5 ms, 7.9 J"]
    told = "16.27% saved (12.22% without waiting), 1.28% above the lower bound, 1 clock changes"
    assert facts[2].note == told
    assert ["misses the deadline" in fact.note for fact in facts] == [False, True, False]


def test_the_lines_of_a_frontier_tell_its_ends_and_the_chosen_plan() -> None:
    text = describe(TUNED)
    for part in (
        "2 plans, from 24.5 ms to 28 ms; 1 slower plans",
        "28 ms, 7.6 J, 1.33% above the lower bound",
        "20.21% saved (15.56% without waiting)",
        "until 28 ms (14.3% later)",
    ):
        assert part in text
    assert "it saves energy only next to a straggler" not in text
    late = describe(replace(TUNED, plan=LATE, deadline_ms=40.0))
    saved = f"{1 - 8600 / (9000 + 15.5 * WAITING_W):.2%} saved ({1 - 8600 / 9000:.2%} without waiting)"
    assert "40 ms, 8.6 J" in late and "it saves energy only next to a straggler" in late and saved in late


def test_the_file_of_the_plan_has_each_figure_under_its_name() -> None:
    """At the mixed clocks F0 takes 2 and 3 ms, F1 4 and 3; messages 1 and 1.5 ms."""
    data = plan_to_dict(SCHEDULE, replace(TUNED, deadline_ms=30.0))
    assert {name: data[name] for name in ("deadline_ms", "time_ms", "energy_mj", "lower_bound_mj")} == {
        "deadline_ms": 30.0,
        "time_ms": 28.0,
        "energy_mj": 7600.0,
        "lower_bound_mj": 7500.0,
    }
    assert data["energy_until_deadline_mj"] == 7600 + 2 * WAITING_W
    assert data["saving"] == pytest.approx(1 - 7900 / (9000 + 5.5 * WAITING_W))
    assert data["start_ms"] == {"F0": [0, 2], "F1": [3, 7], "B1": [10, 15], "B0": [16.5, 21.5]}
    assert (data["clock_changes"], data["changes_per_iteration"]) == ([3, 1], [4, 2])
    assert replace(TUNED, deadline_ms=30.0).figures == {"deadline_ms": 30.0, "time_ms": 28.0, "energy_j": 7.9}
    straggler = frontier_to_dict(FOUND, FRONTIER)["straggler_plans"]
    assert isinstance(straggler, list)
    assert [plan["time_ms"] for plan in straggler] == [40.0]
    assert [plan["changes_per_iteration"] for plan in straggler] == [[0, 0]]


def test_plans_tell_the_energy_of_a_token_where_tokens_are_known() -> None:
    """Of 100 tokens on three GPUs the plan takes 7.6 J and 28 ms; without tokens there are no columns."""
    known = replace(TUNED, frontier=replace(FRONTIER, work=IterationWork(100, 3)))
    figures = {"tokens_per_s_per_gpu": 1e5 / 28 / 3, "j_per_token": 0.076, "tokens_per_kwh": 3.6e6 / 0.076}
    plan = frontier_to_dict(FOUND, known.frontier)["plans"][1]
    for data in (plan, plan_to_dict(SCHEDULE, known), known.figures):
        assert {name: data[name] for name in figures} == pytest.approx(figures)
    said = "chosen plan: 1,190.5 tokens/s/GPU, 0.076 J/token, 47,368,421 tokens/kWh"
    assert (known.training_lines[0], TUNED.training_lines) == (said, [])
    assert frontier_csv(SCHEDULE, known.frontier).splitlines()[0].endswith(",".join(figures))


SWITCHED = LimitedPlan(
    replace(CHOSEN, time_ms=27.5, energy_mj=7800.0),
    SwitchingLimits(2.5, 0.75),
    ClockChanges(TUNED.simulation, (3, 1), (4, 2)),
    CHOSEN,
    28.0,
    7700.0 * 1.0225,
    7700.0,
)

PLANS = (
    switched_form(FRONTIER, SWITCHED, 28.0),
    capped_form(
        LimitedPlan(CHOSEN, PowerCap(400.0, 320.0), AveragePower(26.5, (310.0, 250.5)), FAST, min_ms=25.25)
    ),
)


def test_plans_of_a_real_job_are_told_with_their_units() -> None:
    """The free plan for 28 ms needs 7600 mJ; the switched one 7800 and 0.5 ms of waiting."""
    facts = {each.title: (each.fact.value, each.note) for each in PLANS}
    value, note = facts["Few changes of clock"]
    assert value == "27.5 ms, 7.8 J"
    assert f"{(7800 + 0.5 * WAITING_W) / 7600 - 1:.2%} more energy than the plan without limits" in note
    assert "4 clock changes, 6 with" in note
    assert "at most 4 on one device; at most 2.25% above" in note
    value, note = facts["Under the power cap"]
    assert value == "28 ms, 7.6 J"
    assert f"{7600 / 28:.6g} W, at most 310 W on a GPU" in note and "shorter than 25.25 ms" in note


def test_the_files_of_plans_of_a_real_job_have_each_figure_under_its_name() -> None:
    files = {each.name: each.to_dict(COSTS) for each in PLANS}
    switched, capped = files["switched"], files["capped"]
    assert (switched["dwell_ms"], switched["switch_ms"], switched["deadline_ms"]) == (2.5, 0.75, 28.0)
    assert (switched["gap"], switched["lower_bound_mj"]) == (pytest.approx(0.0225), 7700.0)
    assert (switched["clock_changes"], switched["changes_per_iteration"]) == ([3, 1], [4, 2])
    assert (capped["power_cap_w"], capped["device_power_cap_w"]) == (400.0, 320.0)
    assert (capped["least_time_ms"], capped["running_ms"]) == (25.25, 26.5)
    assert (capped["plan"]["time_ms"], capped["plan"]["energy_mj"]) == (28.0, 7600.0)
    assert capped["cost_source"]["times"] == COSTS.times


def test_the_choice_of_an_order_is_told_in_joules_and_shares() -> None:
    """Of three orders one cannot keep the deadline; the chosen one needs 1/19 less than the search's."""
    own = RatedOrder(SCHEDULE, 0, False, 7000.0, CHOSEN, 7600.0)
    late = RatedOrder(SCHEDULE, 1, False, math.inf)
    best = RatedOrder(SCHEDULE, 2, True, 6800.0, FAST, 7200.0)
    chosen = OrderChoice(best, 28.5, (own, late, best), 6300.0)
    selection = SelectionResult(chosen, ("the search", "a rule", "1F1B"), 3.25, RESULT)
    text = describe_selection(selection)
    assert (
        "3 compared, chosen: 1F1B with neighboring blocks swapped; 7.2 J until 28.5 ms, 5.26% less than"
        in text
    )
    assert "no order needs over 12.50% less" in text and text.endswith("3.2 s")
    data = selection_to_dict(selection)
    assert (data["deadline_ms"], data["chosen"], data["lower_bound_mj"]) == (28.5, 2, 6300.0)
    assert data["gain"] == pytest.approx(1 / 19)
    judged = data["judged"]
    assert isinstance(judged, list)
    assert [each["energy_mj"] for each in judged] == [7600.0, None, 7200.0]
    assert [each["lower_bound_mj"] for each in judged] == [7000.0, None, 6800.0]
    assert [each["swapped"] for each in judged] == [False, False, True]
