"""Modes, streams and slowdown of a placement: its rules, its file, and a micro-batch's blocks."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import yaml
from modes_and_streams import communicating, offloading, recomputing

from placements import OperatingPoint, Placement, PlacementError, Profile, ProfileError
from placements.models.memory_levers import Offload, Recompute, with_levers
from placements.modes import Choice, Decision
from placements.placement_file import placement_from_dict, placement_to_yaml
from placements.profiles.mode_costs import with_modes
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


def test_a_mode_leaves_blocks_out_and_what_is_after_them_waits_for_what_they_waited_for() -> None:
    placement = levers()
    keep, offload = placement.as_run((0, 0)), placement.as_run((2, 1))
    assert [block.name for block in keep.topological_order] == ["F0", "F1", "B1", "B0"]
    assert set(keep.by_name["B0"].after) == {"B1", "F0"}
    assert set(offload.by_name["B0"].after) == {"B1", "F0 in"}
    assert offload.by_name["F0 in"].after == ("F0 out",)
    assert (keep.by_name["B0"].transient, offload.by_name["B0"].host_memory) == (10, -10)
    run = levers().as_run((1, 0)).by_name
    assert (run["F0"].memory, run["B0"].memory, run["B0"].time, run["B0"].transient) == (1, -1, 6, 10)


def test_devices_that_share_a_stream_have_one_lane_for_it() -> None:
    shared = (SharedStream("copy_out", (0, 1)),)
    slowdown = (Slowdown(("copy_out", "compute"), (1.5, 1.0)),)
    placement = replace(levers(), shared_streams=shared, slowdown=slowdown)
    lanes = ((0, "compute"), (1, "compute"), (0, "copy_in"), (0, "copy_out"), (1, "copy_in"))
    assert placement.lanes == lanes
    assert placement.lanes_of(placement.by_name["F1 out"]) == (3,)
    assert v_shape(3).lanes_of(v_shape(3).by_name["F2"]) == (2,)
    assert placement_from_dict(yaml.safe_load(placement_to_yaml(placement))) == placement
    twice = replace(placement, num_gpus=(2, 1)).by_gpu
    assert twice.shared_streams == (SharedStream("copy_out", (0, 1, 2)),)


def test_at_its_best_each_block_takes_its_least_time_and_holds_nothing() -> None:
    best = levers().at_best
    assert {block.name for block in best.blocks} == {"F0", "F1", "B0", "B1"}
    assert (best.by_name["B0"].time, best.by_name["F0"].memory) == (4, 0)


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
    assert [decision.names for decision in placement.decisions] == [("keep", "recompute", "offload")] * 2
    assert placement.host_memory == (500, 500)
    halves = place(chain, "loop_shape", num_chunks=2).placement
    whole, half = placement.as_run((2, 2)), halves.as_run((2, 2, 2, 2))
    assert half.ms(half.by_name["F0 out"].time) == whole.ms(whole.by_name["F0 out"].time) / 2 == 15


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


FILE = """
name: small
num_devices: 1
tick_ms: 1
memory: 8
blocks:
  - {name: F0, kind: F, devices: [0], time: 2, memory: 4}
  - {name: G0, kind: F, devices: [0], time: 3, after: [F0], stream: communication}
  - {name: B0, kind: B, devices: [0], time: 4, memory: -4, after: [G0]}
  - {name: S, kind: O, devices: [0], time: 1, after: [B0]}
"""


def error_of(changes: str) -> str:
    """The error of the file with some top-level fields changed, or fields of its block G0."""
    data: dict[str, Any] = yaml.safe_load(FILE)
    changed = yaml.safe_load(changes)
    if block := changed.pop("G0", None):
        data["blocks"] = copy.deepcopy(data["blocks"])
        data["blocks"][1] |= block
    with pytest.raises(PlacementError) as error:
        placement_from_dict(data | changed)
    assert "\n" not in str(error.value)
    return str(error.value)


def change(changes: str) -> str:
    """Modes of which one changes some blocks."""
    return f"modes: [{{choices: {{keep: {changes}}}}}]"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("modes: [{}]", "modes[0]: lacks the field 'choices'; add it"),
        ("modes: [{choices: [keep]}]", "modes[0].choices: ['keep'] is not a mapping; give one"),
        ("modes: [{choices: {}}]", "modes[0].choices: is empty; give at least one"),
        ("modes: [{choices: {1: {}, '1': {}}}]", "modes[0].choices: '1' is given twice; give it once"),
        (
            "modes: [{choices: {a: {G0: {time: 3}}}}, {choices: {b: {G0: {time: 4}}}}]",
            "modes[1].choices: modes[0] decides on G0 too; make one decision of both",
        ),
        ("host_memory: -1", "host_memory: -1 is not a number of 0 or more; give whole units"),
        (
            "slowdown: [{streams: [compute, compute], factors: [2, 1]}]",
            "slowdown[0].streams: ['compute', 'compute'] names one stream; give two",
        ),
        (
            "slowdown: [{streams: [compute, comm], factors: [2, 1]}]",
            "slowdown[0]: no block runs on a stream 'comm'; the streams are",
        ),
        (
            "slowdown: [{streams: [compute, communication], factors: [0.5, 1]}]",
            "slowdown[0].factors[0]: 0.5 is not a number of 1 or more",
        ),
        (
            "slowdown: [&pair {streams: [compute, communication], factors: [2, 1]}, *pair]",
            "slowdown[1].streams: ['compute', 'communication'] are there twice; give one",
        ),
        (
            "shared_streams: [{stream: copy_in, devices: [0, 1]}]",
            "shared_streams[0]: no block runs on a stream 'copy_in'",
        ),
        (
            "shared_streams: [{stream: communication, devices: [0]}]",
            "shared_streams[0].devices: [0] are not two or more; give all",
        ),
        (
            "shared_streams: [{stream: communication, devices: [0, 1]}]",
            "shared_streams[0].devices: 1 is out of range; use 0 to 0",
        ),
        (
            "shared_streams: [{stream: compute, devices: [0, 1]}]",
            "shared_streams[0].stream: 'compute' is each device's own; name another stream",
        ),
        (
            "{num_devices: 2, shared_streams: [{stream: communication, devices: [0, 0]}]}",
            "shared_streams[0].devices: 0 shares its stream communication twice; name it once",
        ),
        (change(""), "modes[0].choices.keep: None is not a mapping; give one"),
        (change("{F0: 3}"), "keep.F0: 3 is not a mapping;"),
        (change("{F0: {time: -1}}"), "keep.F0.time: -1 is not a number of 0 or more; give it in ticks"),
        (
            change("{F0: {memory: 1}}"),
            "keep: the memory of its blocks sums to 1 on device 0; let them release",
        ),
        (change("{G0: {host_memory: 2}}"), "keep: the host_memory of its blocks sums to 2 on device 0"),
        (
            change("{F0: {time: 0}}"),
            "keep.F0: does not run, its time being 0, and cannot hold memory; give 0",
        ),
        (
            change("{S: {time: 2}}"),
            "keep.S: is an optimizer block, which runs once; give modes of others only",
        ),
    ],
)
def test_a_wrong_entry_is_one_line(changes: str, message: str) -> None:
    assert message in error_of(changes)


def profile_of(*names: str) -> Profile:
    """Backwards take twice as long as forwards and draw half as much again, at two clocks."""
    points = {
        name: (OperatingPoint(600, 4.0 * k, 400.0 * k * k), OperatingPoint(1200, 2.0 * k, 500.0 * k * k))
        for name in names
        for k in [2 if name.startswith("B") else 1]
    }
    return Profile("made up", points, 50.0)


def in_mode(placement: Placement, name: str, **changes: int) -> Placement:
    """Return a placement in which each decision has one more choice, which changes a backward's times."""
    backward = placement.by_name["B0"]
    choice = Choice(name, (replace(backward, **changes),))
    first, *others = placement.decisions
    return replace(placement, decisions=(Decision((*first.choices, choice)), *others))


def test_a_backward_that_computes_again_costs_what_both_cost_at_the_clock() -> None:
    whole = with_modes(profile_of("F0", "F1", "B0", "B1"), recomputing())
    assert whole.points["B0@recompute"] == (
        OperatingPoint(600, 4.0 + 8.0, 400.0 + 1600.0),
        OperatingPoint(1200, 2.0 + 4.0, 500.0 + 2000.0),
    )
    assert whole.points["F0@recompute"] == whole.points["F0"], "it differs in memory alone"
    assert with_modes(whole, recomputing()) is whole


@pytest.mark.parametrize(
    ("name", "time", "slow", "fast"),
    [
        ("selective", 5, (8.0 + 4.0 / 2, 1600.0 + 400.0 / 2), (4.0 + 2.0 / 2, 2000.0 + 500.0 / 2)),
        ("fused", 3, (8.0 * 3 / 4, 1600.0 * 3 / 4), (4.0 * 3 / 4, 2000.0 * 3 / 4)),
        ("offload", 7, (8.0 + 3.0, 1600.0 + 3.0 * 50), (4.0 + 3.0, 2000.0 + 3.0 * 50)),
    ],
)
def test_a_mode_costs_what_its_time_says(
    name: str, time: int, slow: tuple[float, float], fast: tuple[float, float]
) -> None:
    """Half of a forward again costs half of it; a fused backward is less work at the same power; copies take
    as long at every clock, and wait."""
    whole = with_modes(profile_of("F0", "F1", "B0", "B1"), in_mode(recomputing(), name, time=time))
    assert whole.points[f"B0@{name}"] == (OperatingPoint(600, *slow), OperatingPoint(1200, *fast))


def test_rows_of_a_mode_come_before_what_follows_from_others() -> None:
    profile = profile_of("F0", "F1", "B0", "B1")
    points = (OperatingPoint(1200, 5.5, 2400.0),)
    whole = with_modes(replace(profile, points=profile.points | {"B0@recompute": points}), recomputing())
    assert whole.points["B0@recompute"] == points and len(whole.points["B1@recompute"]) == 2


def test_other_streams_take_their_time_and_use_what_waiting_does_unless_it_is_said() -> None:
    whole = with_modes(profile_of("attention", "mlp"), communicating())
    assert whole.points["dispatch"] == (OperatingPoint(1200, 6.0, 6.0 * 50),)
    measured = (OperatingPoint(1200, 6.0, 900.0),)
    profile = profile_of("F0", "B0")
    whole = with_modes(replace(profile, points=profile.points | {"O0": measured}), offloading())
    assert whole.points["O0"] == measured and whole.points["I0"] == (OperatingPoint(1200, 3.0, 150.0),)


def test_forward_and_backward_without_a_common_clock_are_refused_in_one_line() -> None:
    profile = profile_of("F0", "F1", "B0", "B1")
    forward = (OperatingPoint(900, 3.0, 450.0),)
    with pytest.raises(ProfileError, match="no clock in common; give rows of the block B0@recompute"):
        with_modes(replace(profile, points=profile.points | {"F0": forward}), recomputing())


def test_a_profile_without_its_modes_says_what_to_do() -> None:
    with pytest.raises(ProfileError, match="lacks F0@recompute, .*B0@recompute .*and `with_modes`$"):
        profile_of("F0", "F1", "B0", "B1").times_for(recomputing())
    with pytest.raises(ProfileError, match="lacks F1, F1@recompute, B1"):
        with_modes(profile_of("F0", "B0"), recomputing()).require(recomputing())


def test_a_placement_takes_the_times_of_its_modes_from_a_profile() -> None:
    profile = with_modes(profile_of("F0", "F1", "B0", "B1"), recomputing())
    timed = profile.times_for(recomputing())
    times = [timed.runs[name].time for name in ("F0", "B0", "B0@recompute", "F0@recompute")]
    assert [timed.ms(ticks) for ticks in times] == [2, 4, 6, 2]
    assert timed.runs["F0@recompute"].memory == 1
    with_copies = with_modes(profile_of("F0", "B0"), offloading()).times_for(offloading())
    keep, _ = with_copies.decisions[0].choices
    assert [block.time for block in keep.blocks] == [0, 0]
    assert with_copies.ms(with_copies.by_name["O0"].time) == 3
