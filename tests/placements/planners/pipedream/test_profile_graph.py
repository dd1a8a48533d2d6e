"""Profiles as files, and where their graphs can be cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_line_errors import raises_line
from places import SHARED_DATA

from placements.forms.tables import keys_of
from placements.planners.pipedream.profile_graph import ProfiledNode, closed_sets, read_profile_graph
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
    assert [node.time_ms for node in graph.nodes] == [3, 7, 0, 0.5, 4]
    head, *rows = BRANCHES.splitlines()
    path.write_text("\n".join([head, *reversed(rows)]), encoding="utf-8")
    backwards = read_profile_graph(path)
    assert {node.name: node for node in backwards.nodes} == {node.name: node for node in graph.nodes}
    place = {node.name: i for i, node in enumerate(backwards.nodes)}
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
    with raises_line(ProfileError, match=f"^{path}: {message}"):
        read_profile_graph(path)


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
    nodes = graph.nodes
    time_ms, num_bytes = sum(node.time_ms for node in nodes), sum(node.parameter_bytes for node in nodes)
    figures = round(time_ms, 1), round(num_bytes / 1e6, 1)
    assert (len(nodes), len(closed_sets(graph).members), *figures) == SIZES[model]
