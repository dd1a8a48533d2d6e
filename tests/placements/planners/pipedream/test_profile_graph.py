"""Profiles as files, and where their graphs can be cut."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import SHARED_DATA
from told import told

from placements.forms.tables import keys_of
from placements.planners.pipedream import closed_sets as closed_sets_module
from placements.planners.pipedream.closed_sets import closed_sets
from placements.planners.pipedream.profile_graph import (
    ProfiledNode,
    ProfileGraph,
    profile_graph,
    read_profile_graph,
)
from placements.profiles.operating_point import ProfileError

HEADER = ",".join(keys_of(ProfiledNode))
BRANCHES = f"""{HEADER}
a,Input,500,0,64,0,
b,"Conv(3, 4)",1,2,8,16,a
c,LSTM,3,4,32,64,b
d,__getitem__(0),0,0,16,0,c
e,__getitem__(1),0,0,16,0,c
f,__getitem__(0),0,0,8,0,e
g,Add,0.5,0,16,0,b|d
h,hidden,0,0,0,0,
i,Linear,2,2,4,8,g|h
"""


def test_what_the_planner_does_not_count_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "model.csv"
    path.write_text(BRANCHES, encoding="utf-8")
    graph = read_profile_graph(path)
    assert [node.name for node in graph.nodes] == ["b", "c", "d", "g", "i"]
    assert graph.nodes[0].inputs == ()
    assert graph.nodes[-1].inputs == ("g",)
    assert (graph.time_ms, graph.parameter_bytes) == (14.5, 88)
    whole = profile_graph(BRANCHES)
    assert (len(whole.nodes), whole.time_ms) == (9, 514.5)


def test_rows_may_stand_in_any_order() -> None:
    head, *rows = BRANCHES.splitlines()
    graph = profile_graph("\n".join([head, *reversed(rows)]))
    place = {node.name: i for i, node in enumerate(graph.nodes)}
    assert all(place[name] < place[node.name] for node in graph.nodes for name in node.inputs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEADER}\na,x,1,2,3,4,b\n", "node 'a', column inputs: there is no node 'b'; add it, or remove"),
        (f"{HEADER}\na,x,1,2,3,4,\nb,x,1,2,3,4,a|a\n", "node 'b', column inputs: names a node twice"),
        (f"{HEADER}\na,x,1,2,3,4,\na,x,1,2,3,4,\n", "node 'a': is given twice; rename one"),
        (
            f"{HEADER}\na,x,1,2,3,4,b\nb,x,1,2,3,4,a\n",
            "column inputs: [ab], [ab] read each other in a circle; remove one",
        ),
        (f"{HEADER}\na,Input,1,2,3,4,\n", "forward_ms: is 0 in all nodes that compute; give the time of"),
    ],
)
def test_wrong_files_are_named_with_line_and_remedy(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "model.csv"
    path.write_text(text, encoding="utf-8")
    with told(ProfileError, match=f"^{path}: {message}"):
        read_profile_graph(path)


@st.composite
def graphs(draw: st.DrawFn) -> ProfileGraph:
    nodes = []
    for i in range(draw(st.integers(1, 7))):
        read = sorted(draw(st.sets(st.integers(0, i - 1)))) if i else []
        forward, activation, parameters = draw(st.tuples(*[st.integers(0, 9)] * 3))
        nodes.append(ProfiledNode(f"{i}", "", forward, 1, activation, parameters, tuple(map(str, read))))
    return ProfileGraph(tuple(nodes))


@given(graphs())
def test_sets_are_all_that_are_closed_and_their_stages_cost_what_is_in_them(graph: ProfileGraph) -> None:
    nodes = {node.name: node for node in graph.nodes}
    subsets = [set(each) for n in range(len(nodes) + 1) for each in itertools.combinations(nodes, n)]
    closed = [each for each in subsets if all(set(nodes[name].inputs) <= each for name in each)]
    sets = closed_sets(graph)
    found = [{name for name, is_in in zip(nodes, row, strict=True) if is_in} for row in sets.members]
    assert sorted(map(sorted, found)) == sorted(map(sorted, closed))
    assert (found[0], found[-1], sets.is_complete) == (set(), set(nodes), True)
    for (i, first), (j, end) in itertools.product(enumerate(found), repeat=2):
        assert sets.is_stage[i, j] == (first < end)
        if first < end:
            stage = [nodes[name] for name in end - first]
            assert sets.time_ms[i, j] == sum(node.time_ms for node in stage)
            assert sets.parameter_bytes[i, j] == sum(node.parameter_bytes for node in stage)
            assert sets.activation_bytes[i, j] == sum(node.activation_bytes for node in stage)
            assert {node.name for node in sets.between(i, j)} == end - first
    for i, inside in enumerate(found):
        read = {name for node in graph.nodes if node.name not in inside for name in node.inputs} & inside
        assert sets.cut_bytes[i] == sum(nodes[name].activation_bytes for name in read)


def test_of_many_branches_those_sets_are_kept_that_hand_on_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four branches of two nodes, of which the second hands on less: whole branches are kept together."""
    monkeypatch.setattr(closed_sets_module, "MAX_SETS", 30)
    firsts = [ProfiledNode(f"{i}", "", 1, 1, 9, 1) for i in range(4)]
    seconds = [ProfiledNode(f"{i}b", "", 1, 1, 1, 1, (f"{i}",)) for i in range(4)]
    last = ProfiledNode("last", "", 1, 1, 1, 1, tuple(node.name for node in seconds))
    sets = closed_sets(ProfileGraph((*firsts, *seconds, last)))
    assert not sets.is_complete
    assert len(sets) <= 30
    rows = {tuple(row) for row in sets.members.tolist()}
    orders = np.tri(10, 9, -1, dtype=bool)
    assert {tuple(row) for row in orders.tolist()} <= rows, "one order of the nodes is there"
    assert [min(sets.cut_bytes[sets.members.sum(axis=1) == size]) for size in (2, 4, 6)] == [1, 2, 3]


SIZES = {  # nodes and closed sets, forward and backward in ms, parameters in MB
    "vgg16": (40, 41, 672.5, 553.4),
    "alexnet": (22, 23, 85.3, 244.4),
    "resnet50": (176, 241, 443.4, 102.2),
    "gnmt": (32, 48, 89.4, 775.1),
}


@pytest.mark.parametrize("model", SIZES)
def test_measured_profiles(model: str) -> None:
    path = SHARED_DATA / "pipedream" / f"{model}.csv"
    if not path.exists():
        pytest.skip(f"{path.name} is not there")
    graph = read_profile_graph(path)
    figures = (round(graph.time_ms, 1), round(graph.parameter_bytes / 1e6, 1))
    assert (len(graph.nodes), len(closed_sets(graph)), *figures) == SIZES[model]
