"""The tables, files and lines of a frontier, by hand from a case in which no two units are alike."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from quarter_ms import CHOSEN, FAST, FOUND, FRONTIER, LATE, RESULT, SCHEDULE, TUNED

from experiments.frontier.frontier_files import (
    BASELINE_COLUMNS,
    baseline_rows,
    describe,
    frontier_to_dict,
    plan_to_dict,
    savings_rows,
    savings_table,
)
from experiments.frontier.schedule_selection import describe_selection, selection_to_dict
from experiments.search.results import SelectionResult
from placements.models.training_figures import IterationWork
from schedsearch.energy.frontier import LowerBound
from schedsearch.energy.interchange import frontier_csv
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
    rows = list(baseline_rows(SCHEDULE, TUNED))
    assert [row["name"] for row in rows] == ["all_maximum", "envpipe", "perseus", "perseus"]
    assert {name: rows[1][name] for name in BASELINE_COLUMNS} == {
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
    assert rows[1]["lower_bound_mj"] == 8000.0 and rows[1]["clock_mhz"]["B0"] == [700, 700]


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


def test_the_choice_of_an_order_is_told_in_joules_and_shares() -> None:
    """Of three orders one cannot keep the deadline; the chosen one needs 1/19 less than the search's."""
    searched = RatedOrder(SCHEDULE, 0, False, 7000.0, CHOSEN, 7600.0)
    late = RatedOrder(SCHEDULE, 1, False, math.inf)
    best = RatedOrder(SCHEDULE, 2, True, 6800.0, FAST, 7200.0)
    chosen = OrderChoice(best, 28.5, (searched, late, best), 6300.0)
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
    assert [row["energy_mj"] for row in judged] == [7600.0, None, 7200.0]
    assert [row["lower_bound_mj"] for row in judged] == [7000.0, None, 6800.0]
    assert [row["swapped"] for row in judged] == [False, False, True]
