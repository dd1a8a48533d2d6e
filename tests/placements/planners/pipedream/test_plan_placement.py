"""A plan on devices: its steady state is the plan's, and a search may take it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placements.planners.pipedream.plan_placement import plan_placement
from placements.planners.pipedream.planner import best_plan, data_parallel_plan
from placements.planners.pipedream.profile_graph import ProfiledNode, chain_graph
from placements.planners.pipedream.topology import Level
from schedsearch.baselines import one_f_one_b
from schedsearch.metrics import peak_memory
from schedsearch.modulo.search import search
from schedsearch.validate import validate

MIB = 2**20
EXAMPLE = chain_graph(
    [ProfiledNode("a", "", 2, 4, 2.5e6, 8e6), ProfiledNode("b", "", 1, 2, 3 * MIB, 64 * MIB)]
)


def test_replicas_take_a_share_of_the_time() -> None:
    plan = best_plan(EXAMPLE, [Level(3, 10.0)], memory_mib=70.0)
    placement = plan_placement(plan, memory_mib=70.0)
    times = {block.name: placement.ms(block.time) for block in placement.blocks}
    assert times == {"F0": 1.0, "F1": 1.0, "B1": 2.0, "B0": 2.0}
    assert placement.num_gpus == (2, 1)
    assert placement.static_memory == (16, 64)
    assert [block.memory for block in placement.blocks] == [3, 3, -3, -3]
    assert placement.memory == (70, 70)
    hops = {(a, b): placement.ms(ticks) for a, b, ticks in placement.transfer}
    assert hops == {("F0", "F1"): 0.25, ("B1", "B0"): 0.25}


def test_a_search_reaches_the_time_of_the_plan() -> None:
    plan = best_plan(EXAMPLE, [Level(3, 10.0)])
    placement = plan_placement(plan)
    found = search(placement, 8, work_limit=5)
    assert found.schedule is not None
    validate(found.schedule)
    assert found.repetend is not None
    assert placement.ms(found.repetend.period) / found.repetend.micro_batches == plan.time_ms == 3.0


def test_a_wait_for_gradients_is_in_the_backward() -> None:
    plan = data_parallel_plan(EXAMPLE, [Level(2, 1.0)])
    placement = plan_placement(plan)
    assert plan.bottleneck == "synchronisation"
    assert placement.ms(placement.load(0)) == pytest.approx(plan.time_ms, rel=1e-2)
    assert placement.ms(placement.by_name["F0"].time) == pytest.approx(1.5)


def test_1f1b_holds_what_the_plan_counts() -> None:
    """Four stages of four workers each: as many inputs on a worker as stages from its own on."""
    graph = chain_graph(ProfiledNode(name, "", 1, 2, 6 * MIB, 90 * MIB) for name in "abcd")
    plan = best_plan(graph, [Level(4, 12.0), Level(4, 0.01)])
    assert plan.configuration == "4-4-4-4"
    placement = plan_placement(plan)
    held = peak_memory(one_f_one_b(placement, 12)).tolist()
    assert held == [4 * 96, 3 * 96, 2 * 96, 96] == [stage.memory_mib for stage in plan.stages]


ROWS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=2, max_size=6)


@settings(max_examples=30, deadline=None)
@given(ROWS, st.integers(2, 5))
def test_1f1b_keeps_the_steady_state_of_any_plan(rows: list[tuple[int, int]], workers: int) -> None:
    """Without transfers, and with as many inputs in flight as 1F1B has."""
    graph = chain_graph(ProfiledNode(f"n{i}", "", a, 2 * a, 0, 1e6 * w) for i, (a, w) in enumerate(rows))
    plan = best_plan(graph, [Level(workers, 0.5)])
    placement = plan_placement(plan, tick_ms=1e-3)
    short, long = (one_f_one_b(placement, number).makespan for number in (40, 80))
    least = max(placement.load(device) for device in range(placement.num_devices))
    assert placement.ms(least) == pytest.approx(plan.time_ms, abs=2e-3)
    assert long - short == 40 * least
    names = [block.name for block in placement.blocks]
    assert all(placement.by_name[b].after == (a,) for a, b in pairwise(names))
