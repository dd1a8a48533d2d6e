"""Plans made of other plans: two joined in time."""

from __future__ import annotations

import numpy as np
from energy.cases import noisy_profile
from hypothesis import given, settings
from hypothesis import strategies as st

from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.energy.generators import Envelope, spliced
from schedsearch.energy.problem import ClockProblem


def problem_of(num_stages: int, number: int, seed: int = 0) -> ClockProblem:
    schedule = one_f_one_b(v_shape(num_stages), number)
    return ClockProblem(schedule, noisy_profile(schedule.placement, 6, seed))


def ends(problem: ClockProblem) -> Envelope:
    """The fastest and the slowest plan."""
    choice = np.column_stack([np.zeros(problem.graph.size, dtype=np.int64), problem.table.last])
    return Envelope(problem.graph.makespan(problem.table.times(choice)), choice)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 5))
def test_joined_plans_are_in_time_and_mostly_of_the_two(seed: int, number: int) -> None:
    problem = problem_of(3, 4 * number, seed)
    table, envelope = problem.table, ends(problem)
    deadlines = np.linspace(envelope.time_ms[0], envelope.time_ms[1], 9)
    for name, choice in spliced(problem, envelope, deadlines):
        assert name == "spliced"
        assert (problem.graph.makespan(table.times(choice)) <= deadlines * (1 + 1e-9)).all()
        energy = table.energy(choice)
        assert energy[-1] == table.energy(envelope.choice)[-1]
        assert (energy <= table.energy(envelope.choice)[0] + 1e-9).all()
        assert energy[4] < 0.9 * energy[0] + 0.1 * energy[-1]


def test_one_plan_alone_is_joined_with_itself() -> None:
    problem = problem_of(2, 2)
    fastest = ends(problem).choice[:, :1]
    time = problem.graph.makespan(problem.table.times(fastest))
    for _, choice in spliced(problem, Envelope(time, fastest), time):
        assert problem.graph.makespan(problem.table.times(choice)) <= time * (1 + 1e-9)
        assert problem.table.energy(choice) <= problem.table.energy(fastest)
