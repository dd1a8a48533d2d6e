"""Modes, streams, hosts and slowdown in the file of a placement: what is wrong is told in one line."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml
from modes_and_streams import communicating, offloading, recomputing

from placements import Placement, PlacementError
from placements.placement_file import placement_from_dict, placement_to_dict, placement_to_yaml

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


def choice_error(changes: str) -> str:
    return error_of(f"modes: [{{choices: {{keep: {changes}}}}}]").removeprefix("modes[0].choices.keep")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("modes: 3", "modes: 3 is not a list; give one in brackets"),
        ("modes: [3]", "modes[0]: 3 is not a mapping of choices; give one"),
        ("modes: [{}]", "modes[0]: lacks the field 'choices'; add it"),
        ("modes: [{choices: [keep]}]", "give modes by name, as in {keep: {}}"),
        ("modes: [{choices: {}}]", "modes[0].choices: is empty; give at least one"),
        ("modes: [{choices: {'': {}}}]", "modes[0].choices: '' is not a name of a mode; give text"),
        ("modes: [{choices: {1: {}, '1': {}}}]", "a name is used twice; rename one of the choices"),
        (
            "modes: [{choices: {a: {G0: {time: 3}}}}, {choices: {b: {G0: {time: 4}}}}]",
            "modes[1].choices.b.G0: modes[0] decides on it too; make one decision of both",
        ),
        ("G0: {stream: 3}", "blocks[1] (G0).stream: 3 is not a name"),
        ("G0: {stream: ''}", "blocks[1] (G0).stream: '' is not a name"),
        ("G0: {stream: [a]}", "blocks[1] (G0).stream: ['a'] is not a name"),
        ("G0: {host_memory: x}", "blocks[1] (G0).host_memory: 'x' is not a number"),
        ("host_memory: -1", "host_memory: -1 is negative; give 0 or more"),
        ("host_memory: [1, 2]", "host_memory: has 2 entries for 1 devices"),
        ("slowdown: 3", "slowdown: 3 is not a list; give one in brackets"),
        ("slowdown: [{streams: [compute, communication]}]", "slowdown[0]: lacks the field 'factors'"),
        ("slowdown: [{streams: [compute], factors: [1, 1]}]", "slowdown[0].streams: has 1 entries; give two"),
        ("shared_streams: 3", "shared_streams: 3 is not a list; give one in brackets"),
        ("shared_streams: [{stream: communication}]", "shared_streams[0]: lacks the field 'devices'"),
        (
            "shared_streams: [{stream: copy_in, devices: [0, 1]}]",
            "shared_streams[0].stream: no block runs on a stream 'copy_in'",
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
    ],
)
def test_a_wrong_entry_is_one_line(changes: str, message: str) -> None:
    assert message in error_of(changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("", ": None is not a mapping; give what differs by block, or {} where nothing does"),
        ("{F0: 3}", ".F0: 3 is not a mapping of time, time_ms, memory, transient, host_memory; give one"),
        ("{F9: {}}", ".F9: there is no block 'F9'; the blocks are B0, F0, G0, S"),
        ("{F0: {tim: 3}}", ".F0: has an unknown field 'tim'"),
        ("{F0: {time: 3, time_ms: 3}}", ".F0: give either 'time' (ticks) or 'time_ms'"),
        ("{F0: {time: -1}}", ".F0.time: -1 is not a time above 0; give one"),
        ("{F0: {memory: 1}}", ": the memory of its blocks sums to 1 on device 0; let them release what they"),
        ("{G0: {host_memory: 2}}", ": the host_memory of its blocks sums to 2 on device 0"),
        ("{F0: {transient: -1}}", ".F0.transient: -1 is negative; give 0 or more"),
        ("{F0: {time: 0}}", ".F0: does not run, its time being 0, and cannot hold memory; give 0 for it"),
        ("{S: {time: 2}}", ".S: is an optimizer block, which runs once; give modes of others only"),
        ("{F0: {memory: {3: 4}}}", ".F0.memory: 3 is not a device of this block; use only its 'devices'"),
    ],
)
def test_a_wrong_change_is_one_line(changes: str, message: str) -> None:
    assert choice_error(changes).startswith(message)


@pytest.mark.parametrize(
    ("streams", "factors", "message"),
    [
        ("[compute, compute]", "[2, 1]", "names one stream; give two"),
        (
            "[compute, comm]",
            "[2, 1]",
            "[1]: no block runs on a stream 'comm'; the streams are",
        ),
        ("[compute, communication]", "[2]", "has 1 entries; give two"),
        ("[compute, communication]", "[0.5, 1]", "0.5 is not at least 1 and below 1000"),
        ("[compute, communication]", "[5000, 1]", "5000 is not at least 1 and below 1000"),
        ("[compute, communication]", "[x, 1]", "factors[0]: 'x' is not a number"),
    ],
)
def test_a_wrong_slowdown_is_one_line(streams: str, factors: str, message: str) -> None:
    error = error_of(f"slowdown: [{{streams: {streams}, factors: {factors}}}]")
    assert error.startswith("slowdown[0].") and message in error


def test_streams_slow_each_other_down_once() -> None:
    pair = "{streams: [compute, communication], factors: [2, 1]}"
    assert "are there twice; give one" in error_of(f"slowdown: [{pair}, {pair}]")


@pytest.mark.parametrize(
    "placement", [recomputing(), offloading(1.5), communicating()], ids=lambda placement: placement.name
)
def test_what_is_written_is_read_again(placement: Placement) -> None:
    assert placement_from_dict(placement_to_dict(placement)) == placement
    assert placement_from_dict(yaml.safe_load(placement_to_yaml(placement))) == placement
