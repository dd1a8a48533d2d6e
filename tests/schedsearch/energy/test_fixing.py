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
from schedsearch.energy.generators import best_within
from schedsearch.energy.graph import Floats
from schedsearch.energy.problem import ClockProblem


def least_cost(release_ms: Floats, due_ms: Floats, time_ms: Floats, cost_mj: Floats) -> float:
    """Try all choices for a row of windows."""
    best = np.inf
    for choice in itertools.product(*(np.flatnonzero(np.isfinite(times)) for times in time_ms)):
        end, cost = 0.0, 0.0
        for k, option in enumerate(choice):
            end = max(end, release_ms[k]) + time_ms[k, option]
            cost += cost_mj[k, option] if end <= due_ms[k] else np.inf
        best = min(best, cost)
    return best


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_finds_the_best_choice_for_a_row_of_windows(data: st.DataObject) -> None:
    placement = data.draw(placements())
    table = ClockProblem(gpipe(placement, 2), data.draw(profiles(placement))).table
    size = data.draw(st.integers(1, min(3, len(table.row))))
    numbers = st.lists(st.integers(0, 60), min_size=3, max_size=3)
    release, length, price = data.draw(st.tuples(numbers, numbers, numbers))
    release_ms = np.sort(np.array(release[:size], dtype=float))
    time_ms = table.time_ms[table.row[:size]]
    paid_mj = np.where(np.isfinite(time_ms), time_ms, 0.0) * np.array(price[:size])[:, None] / 10
    row = release_ms, release_ms + length[:size], time_ms, table.energy_mj[table.row[:size]] + paid_mj
    choice = best_within(*row)
    found = np.inf if choice is None else float(row[-1][np.arange(size), choice].sum())
    assert found == pytest.approx(least_cost(*row))


def test_a_held_device_saves_at_the_shortest_time() -> None:
    """The last stage is busy all the time, so the one before it has the same time for each micro-batch."""
    profile = measured("gpt3-175b+a100_sxm_bf16", 83.64)
    placement = profile.times_for(v_shape(8))
    for number, at_least in ((48, 0.140), (96, 0.137)):
        frontier = compute_frontier(one_f_one_b(placement, number), profile, 3)
        assert frontier.saving(frontier.shortest) >= at_least
        assert frontier.shortest.time_ms <= frontier.all_maximum.time_ms * (1 + 1e-9)
