import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from one_line_errors import raises_line
from strategies import placements as random_placements

from placements import Block, Kind, Placement, PlacementError
from placements.placement_file import (
    placement_from_dict,
    placement_to_dict,
    placement_to_yaml,
    read_placement,
)

GOOD = {
    "name": "two",
    "num_devices": 2,
    "tick_ms": 0.5,
    "memory": [3, 2],
    "blocks": [
        {"name": "F0", "kind": "F", "devices": [0], "time": 2, "memory": 1, "after": []},
        {"name": "F1", "kind": "F", "devices": [1], "time_ms": 1.2, "memory": 1, "after": ["F0"]},
        {"name": "B1", "kind": "B", "devices": [1], "time": 3, "memory": -1, "after": ["F1"]},
        {"name": "B0", "kind": "B", "devices": [0], "time": 3, "memory": -1, "after": ["B1"]},
    ],
    "transfer": [{"from": "F0", "to": "F1", "time": 1}],
}


def changed(path: str, value: object) -> dict:
    """GOOD with one field changed; the path is dotted, with list indices."""
    data = yaml.safe_load(yaml.safe_dump(GOOD))
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    node = data
    for part in parents:
        node = node[part]
    node[last] = value
    return data


def test_reads_every_field() -> None:
    placement = placement_from_dict(GOOD)
    assert placement.tick_ms == 0.05
    assert placement.by_name["F1"].time == 24
    assert placement.memory == (3, 2)
    assert placement.transfer_time("F0", "F1") == 10
    assert placement.transfer_time("F1", "B1") == 0
    assert [block.name for block in placement.on(0)] == ["F0", "B0"]
    assert placement.load(1) == 54


def test_fractions_are_exact_to_a_millionth() -> None:
    data = changed("blocks.0.time", 1 / 3) | {"transfer": [["F0", "F1", 0.25]], "memory": 3.7}
    placement = placement_from_dict(data)
    assert placement.memory == (3, 3)
    first_ms = placement.by_name["F0"].time * placement.tick_ms
    assert first_ms == pytest.approx(0.5 / 3, rel=1e-6)
    assert placement.by_name["B0"].time * placement.tick_ms == pytest.approx(1.5, rel=1e-12)
    assert placement.transfer_time("F0", "F1") * placement.tick_ms == pytest.approx(0.125, rel=1e-12)
    assert placement_from_dict(changed("blocks.1.time_ms", 1.5)).tick_ms == 0.5


def test_static_and_transient_memory_and_an_optimizer_block() -> None:
    data = changed("static_memory", 0.5)
    data["blocks"][0]["transient"] = 2
    data["blocks"].append({"name": "O0", "kind": "O", "devices": [0], "time": 1, "after": ["B0"]})
    placement = placement_from_dict(data)
    assert placement.static_memory == (1, 1)
    assert placement.free_memory == (2, 1)
    assert placement.by_name["F0"].transient == 2
    assert [block.name for block in placement.optimizer_blocks] == ["O0"]
    assert placement_from_dict(GOOD).per_micro_batch == placement_from_dict(GOOD)
    assert [block.name for block in placement.per_micro_batch.blocks] == ["F0", "F1", "B1", "B0"]
    assert placement.load(0) == 50
    assert placement_from_dict(placement_to_dict(placement)) == placement


@pytest.mark.parametrize(
    ("written", "read"), [(4, (4, 4)), ([1, 8], (1, 8)), (1, ()), ([1, 1], ()), (None, ())]
)
def test_gpus_of_each_device(written: object, read: tuple[int, ...]) -> None:
    """One number for all devices or one a device; without the field each device is one GPU."""
    placement = placement_from_dict(changed("num_gpus", written))
    assert (placement.num_gpus, placement.gpus) == (read, read or (1, 1))
    assert ("num_gpus" in placement_to_dict(placement)) == bool(read)
    assert placement_from_dict(placement_to_dict(placement)) == placement


def test_gpus_survive_what_is_made_of_a_placement() -> None:
    blocks = (
        Block("E", Kind.F, (0, 1, 2), 1),
        Block("F", Kind.F, (2,), 1, 0, ("E",)),
        Block("O", Kind.O, (2,), 1, 0, ("F",)),
    )
    placement = Placement("three", 3, blocks, num_gpus=(2, 4, 8))
    assert [placement.gpus_of(block) for block in blocks] == [14, 8, 8]
    assert placement.per_micro_batch.num_gpus == (2, 4, 8)
    assert placement.with_memory(3).num_gpus == (2, 4, 8)
    with pytest.raises(PlacementError, match="num_gpus: has 2 entries for 3 devices"):
        replace(placement, num_gpus=(1, 1))
    with pytest.raises(PlacementError, match=r"num_gpus\[2\]: 0 is not at least 1 and at most 1e\+06"):
        replace(placement, num_gpus=(1, 1, 0))


def test_each_gpu_as_a_device_of_its_own() -> None:
    blocks = (
        Block("E", Kind.F, (0, 1), 2, (3, 1), data_parallel=3),
        Block("F", Kind.F, (1,), 1, 0, ("E",), data_parallel=4),
        Block("B", Kind.B, (0, 1), 5, (-3, -1), ("F",)),
    )
    placement = Placement("two", 2, blocks, memory=(6, 5), static_memory=(0, 2), num_gpus=(2, 4))
    gpus = placement.by_gpu
    assert [block.devices for block in gpus.blocks] == [(0, 1, 2, 3, 4, 5), (2, 3, 4, 5), (0, 1, 2, 3, 4, 5)]
    assert gpus.by_name["E"].memory == (3, 3, 1, 1, 1, 1)
    assert (gpus.memory, gpus.static) == ((6, 6, 5, 5, 5, 5), (0, 0, 2, 2, 2, 2))
    assert [block.data_parallel for block in gpus.blocks] == [3, 4, 1]
    assert gpus.by_gpu is gpus and not gpus.num_gpus
    assert gpus.by_name["E"].groups == ((0, 1), (2, 3), (4, 5))
    assert gpus.by_name["F"].groups == ((2,), (3,), (4,), (5,))
    with pytest.raises(PlacementError, match=r"blocks \(E\).data_parallel: 3 groups are of GPUs, not"):
        placement.by_name["E"].groups  # noqa: B018 - raises
    assert placement_from_dict(placement_to_dict(placement)) == placement


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            "blocks.1.after",
            ["F9"],
            r"blocks\[1\] \(F1\).after: there is no block 'F9'; the blocks are B0, B1, F0, F1",
        ),
        ("blocks.0.after", ["B0"], "wait for each other in a cycle"),
        ("blocks.1.devices", [2], r"blocks\[1\] \(F1\).devices: 2 is out of range; use 0 to 1"),
        ("blocks.1.devices", [1, 1], "names a device twice"),
        ("blocks.0.time_ms", 3, "either 'time' .* or 'time_ms'"),
        ("blocks.3.memory", 0, "holds 1 of memory on device 0 in the end"),
        ("blocks.0.time", 0, r"blocks\[0\].time: 0 is not a number above 0; give it in ticks"),
        ("blocks.0.data_parallel", 0, r"blocks\[0\].data_parallel: 0 is not a whole number of 1 or more"),
        ("blocks.0.data_parallel", 2, r"\(F0\).data_parallel: 2 does not divide its 1 GPUs; give a divisor"),
        ("blocks.1.time_ms", 1e-15, "from the shortest time to the longest is too far"),
        ("blocks.0.memory", 10**16, r"blocks\[0\] \(F0\): has a number above 1e\+15; use a coarser unit"),
        ("blocks.0.memory", {1: 1}, r"blocks\[0\].memory: 1 is not a device of this block; use only"),
        ("blocks.0.memory", {0.0: 1}, r"blocks\[0\].memory: 0.0 is not a whole number; name each by its"),
        ("blocks.0.memory", [1, 0], r"memory: \[1, 0\] is not a whole number or a mapping; give whole"),
        ("blocks.0.kind", "X", "'X' is not known; use one of F, B, I, W, R, O"),
        ("blocks.0.kind", "O", "would be held by an optimizer block"),
        ("blocks.0.time", 10**400, "is not in a possible range; check its unit"),
        ("blocks.0.name", "F1", "is used twice"),
        ("blocks.0.tme", 7, "unknown field 'tme'"),
        ("blocks", [], "is empty"),
        ("tick_ms", 0, "tick_ms: 0 is not a number above 0; give it in ms"),
        ("memory", "2GiB", "memory: '2GiB' is not a number of 0 or more; give whole units, or memory as in"),
        ("schema_version", 2, "schema_version: 2 is not known"),
        ("transfer.0.to", "B0", "'B0' is not after 'F0'"),
        ("num_devices", 10**9, "1000000000 is not a whole number from 1 to 100000; give one"),
        ("nodes", [0], "nodes: has 1 entries for 2 GPUs; give one for each"),
        ("nodes", [1, 1], r"nodes\[0\]: 1 does not follow 0; number the nodes from 0 on"),
        ("nodes", [0, 2], r"nodes\[1\]: 2 does not follow 0; .* the GPUs of each in a row"),
    ],
)
def test_wrong_input_is_one_line_with_file_field_and_remedy(
    path: str, value: object, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(yaml.safe_dump(changed(path, value)))
    with raises_line(PlacementError, f"{file}: ", match=message):
        read_placement(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a mapping"),
        ("name: x", "lacks the field 'num_devices'"),
        ("stages: []", "this is a file of stages and no placement; use placement=stages placement.path=FILE"),
        ("[" * 5000, "nested too deep"),
        ("x: " + "9" * 5000, "a number too long"),
    ],
)
def test_a_file_that_is_no_placement(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    with raises_line(PlacementError, match=message):
        read_placement(file)


@given(random_placements(training=True))
def test_memory_is_the_same_however_it_is_written(placement: Placement) -> None:
    """As one number or one for each device, in any order of the devices, in YAML or in JSON."""
    written = tuple(
        replace(
            block,
            devices=block.devices[::-1],
            memory=tuple(block.memory_on(device) for device in reversed(block.devices)),
        )
        for block in placement.blocks
    )
    assert replace(placement, blocks=written) == placement
    assert hash(replace(placement, blocks=written)) == hash(placement)
    assert placement_from_dict(yaml.safe_load(placement_to_yaml(placement))) == placement
    assert placement_from_dict(json.loads(json.dumps(placement_to_dict(placement)))) == placement


def test_the_nodes_of_gpus_go_with_them() -> None:
    data = GOOD | {"num_gpus": [1, 2], "nodes": [0, 0, 1]}
    placement = placement_from_dict(data)
    assert placement.nodes == placement.by_gpu.nodes == (0, 0, 1)
    assert placement.gpus_of_nodes == (2, 1)
    assert placement_from_dict(yaml.safe_load(placement_to_yaml(placement))) == placement
    assert "nodes" not in placement_to_dict(placement_from_dict(GOOD | {"nodes": [0, 0]}))
    assert placement_from_dict(GOOD).gpus_of_nodes == (2,)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"time": 0}, r"blocks\[1\] \(F1\).time: 0 is not above 0; give it in ticks"),
        ({"memory": (1, 1, 1)}, r"blocks\[1\] \(F1\).memory: \[.*\] has . entries for 1 devices;"),
        ({"after": ("F0", "F0")}, r"after: \['F0', 'F0'\] names a block twice; name each once"),
    ],
)
def test_a_block_that_is_no_file_is_checked_too(wrong: dict, message: str) -> None:
    with pytest.raises(PlacementError, match=message):
        Placement("wrong", 1, (Block("F0", Kind.F, (0,), 1), replace(Block("F1", Kind.F, (0,), 1), **wrong)))
