"""A plan on devices: its steady state is the plan's, and a search may take it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placements import Placement
from placements.planners.pipedream.plan_placement import plan_placement
from placements.planners.pipedream.planner import best_plan, data_parallel_plan
from placements.planners.pipedream.profile_graph import ProfiledNode, chain_graph
from placements.planners.pipedream.topology import Level
from schedsearch.baselines import pipedream
from schedsearch.metrics import peak_memory
from schedsearch.validate import validate

MIB = 2**20
EXAMPLE = chain_graph(
    [ProfiledNode("a", "", 2, 4, 2.5e6, 8e6), ProfiledNode("b", "", 1, 2, 3 * MIB, 64 * MIB)]
)


def test_the_workers_of_a_stage_are_its_copies() -> None:
    plan = best_plan(EXAMPLE, [Level(3, 10.0)], memory_mib=70.0)
    placement = plan_placement(plan, memory_mib=70.0)
    times = {block.name: placement.ms(block.time) for block in placement.blocks}
    assert times == {"F0@0": 2.0, "F0@1": 2.0, "F1@0": 1.0, "B1@0": 2.0, "B0@0": 4.0, "B0@1": 4.0}
    assert placement.static_memory == (16, 16, 64)
    assert [block.memory for block in placement.blocks] == [3, 3, 3, -3, -3, -3]
    assert placement.memory == (70, 70, 70)
    hops = {(a, b): placement.ms(ticks) for a, b, ticks in placement.transfer}
    assert hops == {
        **{(f"F0@{copy}", "F1@0"): 0.25 for copy in range(2)},
        **{("B1@0", f"B0@{copy}"): 0.25 for copy in range(2)},
    }


def steady_ms(placement: Placement, num_inputs: int) -> float:
    """Return the time from one input to the next in 1F1B-RR, from the end of so many to twice as many."""
    short, long = (validate(pipedream(placement, number)).makespan for number in (num_inputs, 2 * num_inputs))
    return placement.ms(long - short) / num_inputs


def test_1f1b_rr_reaches_the_time_of_the_plan() -> None:
    plan = best_plan(EXAMPLE, [Level(3, 10.0)])
    placement = plan_placement(plan)
    assert steady_ms(placement, 8) == plan.time_ms == 3.0


def test_a_wait_for_gradients_is_in_the_backward() -> None:
    plan = data_parallel_plan(EXAMPLE, [Level(2, 1.0)])
    placement = plan_placement(plan)
    assert plan.bottleneck == "synchronisation"
    assert steady_ms(placement, 8) == pytest.approx(plan.time_ms, rel=1e-2)
    assert placement.ms(placement.by_name["F0@0"].time) == pytest.approx(3)


def test_1f1b_holds_what_the_plan_counts() -> None:
    """Four stages of four workers each: as many inputs on a worker as stages from its own on."""
    graph = chain_graph(ProfiledNode(name, "", 1, 2, 6 * MIB, 90 * MIB) for name in "abcd")
    plan = best_plan(graph, [Level(4, 12.0), Level(4, 0.01)])
    assert plan.configuration == "4-4-4-4"
    placement = plan_placement(plan)
    held = peak_memory(pipedream(placement, 48)).tolist()
    assert held[::4] == [4 * 96, 3 * 96, 2 * 96, 96] == [stage.memory_mib for stage in plan.stages]
    assert all(held[first : first + 4] == [held[first]] * 4 for first in range(0, 16, 4))


ROWS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=2, max_size=6)


@settings(max_examples=30, deadline=None)
@given(ROWS, st.integers(2, 5))
def test_1f1b_rr_is_no_faster_than_a_plan_and_reaches_it(rows: list[tuple[int, int]], workers: int) -> None:
    """Without transfers, with as many inputs in flight as 1F1B has; with copies first it reaches it."""
    graph = chain_graph(ProfiledNode(f"n{i}", "", a, 2 * a, 0, 1e6 * w) for i, (a, w) in enumerate(rows))
    plan = best_plan(graph, [Level(workers, 0.5)])
    placement = plan_placement(plan, tick_ms=1e-3)
    found = steady_ms(placement, 60)
    assert found > plan.time_ms - 2e-3
    copies = [int(each) for each in plan.configuration.split("-")]
    if copies == sorted(copies, reverse=True):
        assert found == pytest.approx(plan.time_ms, abs=2e-3)


def test_copies_behind_a_stage_without_them_may_wait_in_1f1b_rr() -> None:
    rows = [(1, 1), (2, 3), (1, 1)]
    graph = chain_graph(ProfiledNode(f"n{i}", "", a, 2 * a, 0, 1e6 * w) for i, (a, w) in enumerate(rows))
    plan = best_plan(graph, [Level(4, 0.5)])
    assert (plan.configuration, plan.time_ms) == ("1-2-1", 3.0)
    assert steady_ms(plan_placement(plan), 60) == 4.5
