"""Clocks of one device: against all choices of small rows of windows, and fixed on measured profiles."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from energy.cases import measured, profiles
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import placements

from placements.shapes import v_shape
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.energy import compute_frontier
from schedsearch.energy.generators import Windows, best_within
from schedsearch.energy.graph import Floats
from schedsearch.energy.problem import ClockProblem


def least_cost(windows: Windows, time_ms: Floats, cost_mj: Floats) -> float:
    """Try all choices for a row of windows."""
    best = np.inf
    for choice in itertools.product(*(np.flatnonzero(np.isfinite(times)) for times in time_ms)):
        end = 0.0
        for k, option in enumerate(choice):
            end = max(end + windows.gap_ms[k], windows.release_ms[k]) + time_ms[k, option]
            if end > windows.due_ms[k]:
                break
        else:
            best = min(best, float(cost_mj[np.arange(len(choice)), list(choice)].sum()))
    return best


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_finds_the_best_choice_for_a_row_of_windows(data: st.DataObject) -> None:
    placement = data.draw(placements())
    schedule = gpipe(placement, 2)
    table = ClockProblem(schedule, data.draw(profiles(placement))).table
    size = data.draw(st.integers(1, min(3, len(table.row))))
    numbers = st.lists(st.integers(0, 60), min_size=3, max_size=3)
    release, length, price, gap = data.draw(st.tuples(numbers, numbers, numbers, numbers))
    release_ms = np.sort(np.array(release[:size], dtype=float))
    windows = Windows(release_ms, release_ms + length[:size], np.array(gap[:size]) / 4)
    time_ms = table.time_ms[table.row[:size]]
    paid_mj = np.where(np.isfinite(time_ms), time_ms, 0.0) * np.array(price[:size])[:, None] / 10
    cost_mj = table.energy_mj[table.row[:size]] + paid_mj
    choice = best_within(windows, time_ms, cost_mj)
    wanted = least_cost(windows, time_ms, cost_mj)
    if choice is None:
        assert wanted == np.inf
    else:
        assert float(cost_mj[np.arange(size), choice].sum()) == pytest.approx(wanted)


def test_a_held_device_saves_at_the_shortest_time() -> None:
    """The last stage is busy all the time, so the one before it has the same time for each micro-batch."""
    profile = measured("gpt3-175b+a100_sxm_bf16", 83.64)
    placement = profile.times_for(v_shape(8))
    for number, at_least in ((48, 0.140), (96, 0.137)):
        frontier = compute_frontier(one_f_one_b(placement, number), profile, 3)
        assert frontier.saving(frontier.shortest) >= at_least
        assert frontier.shortest.time_ms <= frontier.all_maximum.time_ms * (1 + 1e-9)
