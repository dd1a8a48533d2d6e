"""Plans made of other plans: two joined in time."""

from __future__ import annotations

import numpy as np
from energy.cases import noisy_profile
from hypothesis import given, settings
from hypothesis import strategies as st

from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.energy.candidates import Envelope
from schedsearch.energy.cost import cost_curves
from schedsearch.energy.graph import InstanceGraph, instance_graph
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
