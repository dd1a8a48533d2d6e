"""PipeDream's planner against every plan that there is, written down from the paper without tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import SHARED_DATA

from placements import Placement
from placements.models.zoo import MODELS
from placements.planners.hybrid.plan import PlanError
from placements.planners.pipedream.plan import Level, plan_placement
from placements.planners.pipedream.planner import Sync, best_plan
from placements.planners.pipedream.profile_graph import (
    ProfiledNode,
    ProfileGraph,
    chain_graph,
    computed_profile,
    read_profile_graph,
)
from schedsearch.baselines import pipedream
from schedsearch.metrics import peak_memory
from schedsearch.validate import validate

PROFILES = SHARED_DATA / "pipedream"
FLAT = [Level(16, 1.25)]
TWO_LEVELS = [Level(4, 12.0), Level(4, 1.25)]

Nodes = frozenset[str]


class Group(NamedTuple):
    begin: Nodes
    end: Nodes
    copies: int
    inner: tuple[Group, ...]


class EveryPlan:
    """All plans of a graph, with the cost of each."""

    def __init__(self, graph: ProfileGraph, levels: Sequence[Level], sync: Sync) -> None:
        self.nodes = {node.name: node for node in graph.nodes}
        self.levels, self.sync = levels, sync
        names = list(self.nodes)
        subsets = (
            frozenset(subset) for n in range(len(names) + 1) for subset in itertools.combinations(names, n)
        )
        self.closed = [nodes for nodes in subsets if all(set(self.nodes[n].inputs) <= nodes for n in nodes)]

    def plans(self, level: int, begin: Nodes, end: Nodes, components: int) -> Iterator[tuple[Group, ...]]:
        for copies in range(1, components + 1):
            for middle in self.closed:
                is_last = copies == components
                if (middle == begin) != is_last or not begin <= middle < end:
                    continue
                before = [()] if is_last else self.plans(level, begin, middle, components - copies)
                for rest in before:
                    for inner in self.component(level - 1, middle, end):
                        yield (*rest, Group(middle, end, copies, inner))

    def component(self, level: int, begin: Nodes, end: Nodes) -> Iterator[tuple[Group, ...]]:
        if level == 0:
            yield ()
        else:
            yield from self.plans(level, begin, end, self.levels[level - 1].count)

    def time_ms(self, level: int, plan: Sequence[Group]) -> float:
        per_ms = self.levels[level - 1].gb_per_s * 1e6
        terms = [2 * self.cut_bytes(group.end) / per_ms for group in plan[:-1]]
        for group in plan:
            parts = [self.nodes[name] for name in group.end - group.begin]
            alone = sum(part.forward_ms + part.backward_ms for part in parts)
            if group.inner:
                alone = self.time_ms(level - 1, group.inner)
            sync_ms = 2 * (group.copies - 1) * sum(part.parameter_bytes for part in parts) / per_ms
            if self.sync == "per_worker":
                sync_ms /= group.copies
            terms.append(max(alone, sync_ms) / group.copies)
        return max(terms)

    def cut_bytes(self, inside: Nodes) -> float:
        outside = [node for name, node in self.nodes.items() if name not in inside]
        read = {name for node in outside for name in node.inputs} & inside
        return sum(self.nodes[name].activation_bytes for name in read)

    def memory_mib(self, plan: Sequence[Group]) -> float:
        workers, most = 0, 0.0
        for begin, end, copies in reversed(list(self.leaves(plan, 1))):
            workers += copies
            parts = [self.nodes[name] for name in end - begin]
            held = sum(part.parameter_bytes + part.activation_bytes for part in parts)
            most = max(most, math.ceil(workers / copies) * held / 2**20)
        return most

    def leaves(self, plan: Sequence[Group], copies: int) -> Iterator[tuple[Nodes, Nodes, int]]:
        for group in plan:
            if group.inner:
                yield from self.leaves(group.inner, copies * group.copies)
            else:
                yield group.begin, group.end, copies * group.copies

    def all(self) -> list[tuple[float, float, int]]:
        """The time of each plan, its memory and its stages."""
        top = len(self.levels)
        whole = self.component(top, frozenset(), frozenset(self.nodes))
        return [
            (self.time_ms(top, plan), self.memory_mib(plan), len(list(self.leaves(plan, 1))))
            for plan in whole
        ]


FIGURES = st.tuples(st.integers(0, 20), st.integers(1, 20), st.integers(0, 9), st.integers(0, 9))
LEVELS = st.lists(
    st.builds(Level, st.integers(1, 4), st.sampled_from([0.5, 1.0, 4.0])), min_size=1, max_size=1
)
HIERARCHY = st.lists(
    st.builds(Level, st.integers(1, 2), st.sampled_from([0.5, 1.0, 4.0])), min_size=2, max_size=3
)


def node(number: int, figures: tuple[int, int, int, int], inputs: Sequence[str] = ()) -> ProfiledNode:
    forward, backward, activation, parameters = figures
    return ProfiledNode(
        f"n{number}", "op", forward, backward, activation * 1e6, parameters * 1e6, tuple(inputs)
    )


@st.composite
def graphs(draw: st.DrawFn, most: int = 5) -> ProfileGraph:
    count = draw(st.integers(1, most))
    nodes = []
    for i in range(count):
        read = draw(st.sets(st.integers(0, i - 1))) if i else set()
        nodes.append(node(i, draw(FIGURES), [f"n{number}" for number in sorted(read)]))
    return ProfileGraph(tuple(nodes))


def chains(most: int) -> st.SearchStrategy[ProfileGraph]:
    rows = st.lists(FIGURES, min_size=1, max_size=most)
    return rows.map(lambda chain: chain_graph(node(i, figures) for i, figures in enumerate(chain)))


@given(chains(6) | graphs(), LEVELS | HIERARCHY, st.sampled_from(get_args(Sync)))
def test_no_plan_is_better(graph: ProfileGraph, levels: list[Level], sync: Sync) -> None:
    """Of a chain or a graph with branches, on one level or several, with limits of memory and without."""
    every = EveryPlan(graph, levels, sync).all()
    plan = best_plan(graph, levels, sync)
    least = min(time for time, *_ in every)
    assert plan.is_exact
    assert plan.time_ms == pytest.approx(least, rel=1e-12)
    assert len(plan.stages) == min(stages for time, _, stages in every if time <= least * (1 + 1e-12))
    memories = sorted({memory for _, memory, _ in every})
    for limit in memories[:: 1 + len(memories) // 6]:
        limited = best_plan(graph, levels, sync, memory_mib=limit * (1 + 1e-9) + 1e-9)
        fitting = [time for time, memory, _ in every if memory <= limit * (1 + 1e-9)]
        assert limited.time_ms == pytest.approx(min(fitting), rel=1e-12)
        assert limited.memory_mib <= limit * (1 + 1e-9) + 1e-9
    if memories[0] > 1:
        with pytest.raises(PlanError, match="^memory_mib: .* is too little for any plan"):
            best_plan(graph, levels, sync, memory_mib=memories[0] * 0.99)


@given(graphs(8), LEVELS | HIERARCHY, st.sampled_from(get_args(Sync)))
def test_a_plan_keeps_the_rules(graph: ProfileGraph, levels: list[Level], sync: Sync) -> None:
    plan = best_plan(graph, levels, sync)
    assert sorted(name for stage in plan.stages for name in stage.nodes) == sorted(
        n.name for n in graph.nodes
    )
    done: set[str] = set()
    for stage in plan.stages:
        done |= set(stage.nodes)
        assert all(set(n.inputs) <= done for n in graph.nodes if n.name in done)
    assert plan.num_workers == math.prod(level.count for level in levels)
    times_ms = [stage.forward_ms + stage.backward_ms for stage in plan.stages]
    assert math.fsum(times_ms) == pytest.approx(math.fsum(n.time_ms for n in graph.nodes))
    assert plan.stages[-1].transfer_ms == 0
    assert plan.time_ms <= best_plan(graph, levels, sync, is_cut=False).time_ms * (1 + 1e-12)
    if plan.num_workers <= len(graph.nodes):
        straight = best_plan(graph, levels, sync, is_replicated=False)
        assert set(straight.configuration.split("-")) == {"1"}
        assert plan.time_ms <= straight.time_ms * (1 + 1e-12)


def test_a_straight_plan_is_the_best_without_replicas() -> None:
    graph = chain_graph(node(i, (1, time, 1, 1)) for i, time in enumerate([3, 7, 2, 9, 4, 4]))
    every = EveryPlan(graph, [Level(2, 1.0), Level(2, 1.0)], "per_worker")
    straight = [
        every.time_ms(2, plan)
        for plan in every.component(2, frozenset(), frozenset(every.nodes))
        if all(copies == 1 for *_, copies in every.leaves(plan, 1))
    ]
    assert best_plan(graph, every.levels, is_replicated=False).time_ms == min(straight) == 11
    with pytest.raises(PlanError, match="^levels: have 8 workers for 6 nodes; give at most one"):
        best_plan(graph, [Level(8, 1.0)], is_replicated=False)
    with pytest.raises(PlanError, match=r"^memory_mib: 1 is too little for any plan"):
        best_plan(graph, every.levels, memory_mib=1.0, is_replicated=False)


def test_what_holds_up_a_plan() -> None:
    slow = chain_graph([ProfiledNode("a", "", 1, 1, 6e6, 1e9), ProfiledNode("b", "", 1, 1, 0, 1e9)])
    plan = best_plan(slow, [Level(2, 1.0)])
    assert (plan.configuration, plan.bottleneck) == ("1-1", (12.0, "transfer", 0))
    plan = best_plan(slow, [Level(2, 1.0)], sync="printed", is_cut=False)
    assert (plan.configuration, plan.bottleneck) == ("2", (2000.0, "synchronisation", 0))
    assert best_plan(slow, [Level(2, 1.0)], is_cut=False).time_ms == 1000.0


def test_a_graph_of_many_branches_is_cut_in_fewer_places() -> None:
    graph = ProfileGraph(tuple(node(i, (1, 1, 0, 1)) for i in range(12)))
    plan = best_plan(graph, [Level(3, 1.0)])
    assert not plan.is_exact
    assert plan.time_ms == 8.0


def test_too_many_workers_are_named() -> None:
    with pytest.raises(PlanError, match="^levels: have 4096 workers; give at most 1024"):
        best_plan(chain_graph([node(0, (1, 1, 1, 1))]), [Level(64, 1.0), Level(64, 1.0)])


def measured(model: str) -> ProfileGraph:
    path = PROFILES / f"{model}.csv"
    if not path.exists():
        pytest.skip(f"{path.name} is not there")
    return read_profile_graph(path)


MEASURED = {  # flat: configuration, ms of an input; data parallel and straight beside; what takes it
    "vgg16": ("15-1", 44.159, 51.884, 381.063, "compute"),
    "alexnet": ("15-1", 15.099, 22.913, 76.441, "transfer"),
    "resnet50": ("16", 27.714, 27.714, 249.765, "compute"),
}


@pytest.mark.parametrize("model", MEASURED)
def test_measured_profiles_give_the_papers_configurations(model: str) -> None:
    graph = measured(model)
    plan = best_plan(graph, FLAT)
    others = best_plan(graph, FLAT, is_cut=False).time_ms, best_plan(graph, FLAT, is_replicated=False).time_ms
    time_ms, cause, _ = plan.bottleneck
    assert (plan.configuration, *(round(ms, 3) for ms in (time_ms, *others)), cause) == MEASURED[model]
    assert plan.is_exact


def test_the_measured_translation_model_has_branches() -> None:
    graph = measured("gnmt")
    plan = best_plan(graph, [Level(4, 1.25)])
    assert plan.configuration == "1-1-1-1", "straight, as in the paper"
    flat, nested = best_plan(graph, FLAT), best_plan(graph, TWO_LEVELS)
    assert (round(flat.time_ms, 3), round(nested.time_ms, 3)) == (14.074, 10.066)


BATCH_SIZES = {"vgg16": 64, "alexnet": 256, "resnet50": 128}

PUBLISHED = {  # by what each worker sends, and by the printed formula
    "vgg16": ("15-1", "12-3-1"),
    "alexnet": ("15-1", "15-1"),
    "resnet50": ("16", "8-8"),
}


@pytest.mark.parametrize("model", PUBLISHED)
def test_shapes_give_the_configurations_of_the_paper(model: str) -> None:
    graph = computed_profile(MODELS[model].layers, BATCH_SIZES[model], tflops=10.0)
    configurations = tuple(best_plan(graph, FLAT, sync).configuration for sync in ("per_worker", "printed"))
    assert configurations == PUBLISHED[model]
    for tflops in (8.0, 20.0):
        graph = computed_profile(MODELS[model].layers, BATCH_SIZES[model], tflops)
        assert best_plan(graph, FLAT).configuration == PUBLISHED[model][0], "whatever the rate"


def test_what_a_layer_takes() -> None:
    node = computed_profile(MODELS["vgg16"].layers, 2, 10.0).nodes[0]
    flops = 2 * 2 * 64 * 27 * 224**2
    assert (node.forward_ms, node.backward_ms) == (flops / 1e10, 2 * flops / 1e10)
    assert (node.activation_bytes, node.parameter_bytes) == (4 * 2 * 64 * 224**2, 4 * 1792)


MIB = 2**20
EXAMPLE = chain_graph(
    [ProfiledNode("a", "", 2, 4, 2.5e6, 8e6), ProfiledNode("b", "", 1, 2, 3 * MIB, 64 * MIB)]
)


def test_the_workers_of_a_stage_are_its_copies() -> None:
    """PipeDream's example: a stage of 2 + 4 on two workers and one of 1 + 2 on one make an input every 3."""
    plan = best_plan(EXAMPLE, [Level(3, 10.0)], memory_mib=70.0)
    assert (plan.configuration, plan.stages[0].in_flight) == ("2-1", 2)
    assert plan.bottleneck == (3.0, "compute", 0)
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
    """Return the steady period of 1F1B-RR, measured between `num_inputs` inputs and twice as many."""
    short, long = (validate(pipedream(placement, number)).makespan for number in (num_inputs, 2 * num_inputs))
    return placement.ms(long - short) / num_inputs


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
    placement = plan_placement(plan)
    period_ms = steady_ms(placement, 60)
    assert period_ms > plan.time_ms - 2e-3
    copies = [int(count) for count in plan.configuration.split("-")]
    if copies == sorted(copies, reverse=True):
        assert period_ms == pytest.approx(plan.time_ms, abs=2e-3)
