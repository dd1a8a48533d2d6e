"""Modes, streams and slowdown of a placement: its rules, its file, and what a micro-batch runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml

from placements import Block, Kind, Placement, PlacementError
from placements.models.memory_levers import Offload, Recompute, with_levers
from placements.placement_file import placement_from_dict, placement_to_dict, placement_to_yaml
from placements.shapes import v_shape
from placements.stages.stage_chain import place
from placements.stages.stage_file import stages_of
from placements.streams import SharedStream, Slowdown


def levers() -> Placement:
    """Return two stages, of which one may recompute and both may send activations to the host."""
    return with_levers(
        v_shape(2, forward_time=2, backward_time=4, stage_memory=10).with_memory(30),
        {"F0": [Recompute(1, 2)]},
        {"F0": [Offload(10, 3)], "F1": [Offload(5, 2, "half")]},
        host_memory=40,
    )


def test_a_placement_with_modes_and_streams_is_as_it_was_after_a_file() -> None:
    placement = replace(levers(), slowdown=(Slowdown(("copy_out", "compute"), (1.5, 1.0)),))
    assert placement_from_dict(yaml.safe_load(placement_to_yaml(placement))) == placement


def test_a_mode_leaves_blocks_out_and_what_is_after_them_waits_for_what_they_waited_for() -> None:
    placement = levers()
    keep, offload = placement.as_run((0, 0)), placement.as_run((2, 1))
    assert [block.name for block in keep.topological_order] == ["F0", "F1", "B1", "B0"]
    assert set(keep.by_name["B0"].after) == {"B1", "F0"}
    assert set(offload.by_name["B0"].after) == {"B1", "F0 in"}
    assert offload.by_name["F0 in"].after == ("F0 out",)
    assert (keep.by_name["B0"].transient, offload.by_name["B0"].host_memory) == (10, -10)


def test_computing_again_takes_longer_and_holds_less() -> None:
    run = levers().as_run((1, 0)).by_name
    assert (run["F0"].memory, run["B0"].memory, run["B0"].time, run["B0"].transient) == (1, -1, 6, 10)


def test_lanes_are_the_devices_first() -> None:
    placement = levers()
    assert placement.lanes[:2] == ((0, "compute"), (1, "compute"))
    assert placement.lanes_of(placement.by_name["F1 in"]) == (placement.lanes.index((1, "copy_in")),)
    assert v_shape(3).lanes_of(v_shape(3).by_name["F2"]) == (2,)


def test_devices_that_share_a_stream_have_one_lane_for_it() -> None:
    shared = (SharedStream("copy_out", (0, 1)),)
    placement = replace(levers(), shared_streams=shared)
    lanes = ((0, "compute"), (1, "compute"), (0, "copy_in"), (0, "copy_out"), (1, "copy_in"))
    assert placement.lanes == lanes
    assert placement.lanes_of(placement.by_name["F1 out"]) == (3,)
    assert placement_from_dict(yaml.safe_load(placement_to_yaml(placement))) == placement
    twice = replace(placement, num_gpus=(2, 1)).by_gpu
    assert twice.shared_streams == (SharedStream("copy_out", (0, 1, 2)),)


def test_at_its_best_each_block_takes_its_least_time_and_holds_nothing() -> None:
    best = levers().at_best
    assert {block.name for block in best.blocks} == {"F0", "F1", "B0", "B1"}
    assert (best.by_name["B0"].time, best.by_name["F0"].memory) == (4, 0)


def test_at_its_worst_blocks_are_as_slow_as_others_beside_them_can_make_them() -> None:
    placement = Placement(
        "two streams",
        2,
        (
            Block("F", Kind.F, (0,), 10),
            Block("C", Kind.F, (0,), 7, after=("F",), stream="communication"),
            Block("G", Kind.F, (1,), 10),
        ),
        slowdown=(Slowdown(("compute", "communication"), (1.25, 1.5)),),
    )
    assert [block.time for block in placement.at_worst.blocks] == [13, 11, 10]


def test_stages_in_ms_and_mib_have_modes() -> None:
    chain = stages_of(
        2,
        forward_ms=10,
        backward_ms=20,
        activation_mib=100,
        memory_mib=200,
        recompute_ms=9,
        recompute_mib=4,
        offload_ms=[30, 15],
        host_memory_mib=500,
    )
    placement = place(chain, "v_shape").placement
    assert [each.names for each in placement.decisions] == [("keep", "recompute", "offload")] * 2
    assert placement.host_memory == (500, 500)
    halves = place(chain, "loop_shape", num_chunks=2).placement
    whole, half = placement.as_run((2, 2)), halves.as_run((2, 2, 2, 2))
    assert half.ms(half.by_name["F0 out"].time) == whole.ms(whole.by_name["F0 out"].time) / 2 == 15


def recompute(changes: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """Return what writes other changes of its backward into the mode that recomputes."""

    def write(data: dict[str, Any]) -> None:
        data["modes"][0]["choices"]["recompute"]["B0"] = changes

    return write


def modes(value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: data.__setitem__("modes", value)


def slowdown(entry: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    return lambda data: data.__setitem__("slowdown", [entry])


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (recompute({"time": -1}), "time"),
        (recompute({"time": 0}), "does not run, its time being 0, and cannot hold memory"),
        (recompute({"memory": -2}), "the memory of its blocks sums to -1 on device 0"),
        (recompute({"transient": -3}), "transient"),
        (recompute({"devices": 1}), "devices"),
        (recompute({"time": 3, "time_ms": 3}), "give either 'time' (ticks) or 'time_ms'"),
        (modes([{"choices": {}}]), "modes[0].choices: is empty"),
        (modes([{"choices": {"keep": {"F9": {}}}}]), "there is no block 'F9'"),
        (modes([{"choices": {"a": {"F0": {}, "B0": {}}}}] * 2), "modes[0] decides on it too"),
        (modes([{}]), "choices"),
        (modes(3), "modes"),
        (slowdown({"streams": ["compute"], "factors": [1, 1]}), "has 1 entries; give two"),
        (slowdown({"streams": ["compute", "compute"], "factors": [1, 1]}), "names one stream"),
        (slowdown({"streams": ["compute", "copy_in"], "factors": [0.5, 1]}), "0.5 is not at least 1"),
    ],
)
def test_a_wrong_entry_is_one_line_that_names_it(
    write: Callable[[dict[str, Any]], None], message: str
) -> None:
    data = placement_to_dict(levers())
    write(data)
    with pytest.raises(PlacementError) as caught:
        placement_from_dict(data)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("recompute_of", "offload_of", "message"),
    [
        ({"F7": [Recompute(1, 2)]}, {}, "there is no forward 'F7'"),
        ({"F0": [Recompute(11, 2)]}, {}, "11 is not between 0 and the 10 units"),
        ({}, {"B0": [Offload(1, 2)]}, "there is no forward 'B0'"),
    ],
)
def test_wrong_levers_are_one_line(
    recompute_of: dict[str, Any], offload_of: dict[str, Any], message: str
) -> None:
    with pytest.raises(PlacementError, match=message.replace("(", r"\(")):
        with_levers(v_shape(2, stage_memory=10), recompute_of, offload_of)
