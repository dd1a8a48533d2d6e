"""Plans made of other plans: two joined in time, and one that is late made to hurry."""

from __future__ import annotations

import numpy as np
import pytest
from energy.cases import all_plans, noisy_profile, profile_of
from hypothesis import given, settings
from hypothesis import strategies as st

from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.energy.candidates import Envelope
from schedsearch.energy.cost import cost_curves
from schedsearch.energy.graph import InstanceGraph, instance_graph
from schedsearch.energy.hurrying import hurried
from schedsearch.energy.rounding import OptionTable, option_table
from schedsearch.energy.splicing import spliced
from schedsearch.schedule import Schedule


def tables(schedule: Schedule, seed: int = 0) -> tuple[InstanceGraph, OptionTable]:
    graph = instance_graph(schedule)
    profile = noisy_profile(schedule.placement, 6, seed)
    return graph, option_table(graph, cost_curves(schedule.placement, profile))


def ends(graph: InstanceGraph, table: OptionTable) -> Envelope:
    """The fastest and the slowest plan."""
    last = np.isfinite(table.time_ms).sum(axis=1)[table.row] - 1
    choice = np.column_stack([np.zeros(graph.size, dtype=np.int64), last])
    return Envelope(graph.makespan(table.times(choice)), choice)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 5))
def test_joined_plans_are_in_time_and_mostly_of_the_two(seed: int, number: int) -> None:
    graph, table = tables(one_f_one_b(v_shape(3), 4 * number), seed)
    envelope = ends(graph, table)
    deadlines = np.linspace(envelope.time_ms[0], envelope.time_ms[1], 9)
    for choice in spliced(graph, table, envelope, deadlines):
        assert (graph.makespan(table.times(choice)) <= deadlines * (1 + 1e-9)).all()
        energy = table.energy(choice)
        assert energy[-1] == table.energy(envelope.choice)[-1]
        assert (energy <= table.energy(envelope.choice)[0] + 1e-9).all()
        assert energy[4] < 0.9 * energy[0] + 0.1 * energy[-1]


def test_one_plan_alone_is_joined_with_itself() -> None:
    graph, table = tables(one_f_one_b(v_shape(2), 2))
    fastest = ends(graph, table).choice[:, :1]
    time = graph.makespan(table.times(fastest))
    for choice in spliced(graph, table, Envelope(time, fastest), time):
        assert graph.makespan(table.times(choice)) <= time * (1 + 1e-9)
        assert table.energy(choice) <= table.energy(fastest)


@pytest.mark.parametrize("deadline", [35.0, 45.0, 50.0, 55.0])
def test_a_late_plan_hurries_at_the_least_price(deadline: float) -> None:
    """One wide step at a better price, or small ones elsewhere: what is left of it decides."""
    wide, fine = [(1, 30.0, 0.0), (2, 9.0, 100.0)], [(1, 10.0, 0.0), (2, 5.0, 25.5)]
    profile = profile_of(F0=fine, F1=wide, B1=fine, B0=fine)
    schedule = one_f_one_b(v_shape(2), 1)
    graph = instance_graph(schedule)
    table = option_table(graph, cost_curves(schedule.placement, profile))
    envelope = ends(graph, table)
    best = min(energy for time, energy in all_plans(schedule, profile) if time <= deadline)
    found = [
        float(table.energy(choice)[0])
        for choice in hurried(graph, table, envelope, np.array([deadline]))
        if graph.makespan(table.times(choice))[0] <= deadline * (1 + 1e-9)
    ]
    assert min(found) == pytest.approx(best)


@pytest.mark.parametrize(("deadline", "used"), [(20.0, [2]), (14.0, [1]), (11.0, [0])])
def test_hurrying_also_takes_options_off_the_hull(deadline: float, used: list[int]) -> None:
    """As much faster as needed is cheaper than the next option on the hull."""
    options = [(1, 10.0, 0.0), (2, 4.0, 95.0), (3, 1.0, 100.0)]
    profile = profile_of(F0=options, B0=[(1, 10.0, 0.0)])
    schedule = one_f_one_b(v_shape(1), 1)
    graph = instance_graph(schedule)
    table = option_table(graph, cost_curves(schedule.placement, profile))
    found = list(hurried(graph, table, ends(graph, table), np.array([deadline])))
    in_time = [c for c in found if graph.makespan(table.times(c))[0] <= deadline * (1 + 1e-9)]
    best = min(in_time, key=lambda choice: float(table.energy(choice)[0]))
    assert best[0].tolist() == used


def test_hurrying_leaves_the_envelope_as_it_is() -> None:
    graph, table = tables(one_f_one_b(v_shape(2), 3))
    envelope = ends(graph, table)
    before = envelope.choice.copy()
    list(hurried(graph, table, envelope, np.linspace(*envelope.time_ms, 5)))
    assert (envelope.choice == before).all()
