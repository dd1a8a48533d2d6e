"""The kernel, as plain lists and compiled, against Bellman and Ford's algorithm in its shortest form."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedsearch.graph import DifferenceSystem, Edge

Edges = list[Edge[int]]

NODES = 6

edges_of_orders = st.lists(
    st.builds(
        Edge, st.integers(0, NODES - 1), st.integers(0, NODES - 1), st.integers(0, 9), st.integers(-1, 3)
    ),
    max_size=14,
)


def earliest(edges: Edges, period: int) -> list[int] | None:
    """Return the earliest starts from 0 on, or None where starts grow without end."""
    starts = [0] * NODES
    for _ in range(NODES + 1):
        before = list(starts)
        for source, target, ticks, rounds in edges:
            starts[target] = max(starts[target], starts[source] + ticks - rounds * period)
        if starts == before:
            return starts
    return None


both_ways = pytest.mark.parametrize("is_compiled", [False, True], ids=["lists", "compiled"])


def system_of(edges: Edges, is_compiled: bool) -> DifferenceSystem:
    system = DifferenceSystem(NODES, *([edge[i] for edge in edges] for i in range(4)))
    system.is_compiled = is_compiled
    return system


@both_ways
@settings(deadline=None)  # numba compiles
@given(edges=edges_of_orders, shortest=st.integers(0, 8))
def test_the_least_period_and_its_starts(is_compiled: bool, edges: Edges, shortest: int) -> None:
    """All periods up to the ticks of all edges are tried."""
    longest = max(shortest, sum(edge.ticks for edge in edges))
    tried = ((period, earliest(edges, period)) for period in range(shortest, longest + 1))
    expected = next((attempt for attempt in tried if attempt[1] is not None), None)
    assert system_of(edges, is_compiled).min_period(shortest, longest) == expected


@both_ways
@settings(deadline=None)  # numba compiles
@given(edges=edges_of_orders, period=st.integers(0, 12))
def test_what_forbids_a_period_is_a_longer_cycle(is_compiled: bool, edges: Edges, period: int) -> None:
    cycle = system_of(edges, is_compiled).forbidding(period)
    assert bool(cycle) == (earliest(edges, period) is None)
    for edge, before in zip(cycle, [*cycle[1:], *cycle[:1]], strict=True):
        assert edges[edge].source == edges[before].target
    if cycle:
        assert sum(edges[edge].ticks - edges[edge].rounds * period for edge in cycle) > 0
