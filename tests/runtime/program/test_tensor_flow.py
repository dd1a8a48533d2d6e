"""Pairs of forward and backward blocks, and the tensors between blocks."""

from __future__ import annotations

import pytest
from one_line_errors import raises_line

from placements import Block, Kind, Placement
from placements.shapes import SHAPES, k_shape
from runtime.program.tensor_flow import UnrunnablePlacementError, pair_backward, tensor_inputs

EXPECTED = {
    "v_shape": {"B0": "F0", "B1": "F1", "B2": "F2", "B3": "F3"},
    "x_shape": {f"{b}{i}": f"{f}{i}" for b, f in (("B", "F"), ("C", "G")) for i in range(4)},
    "m_shape": {"EB": "E", "B0": "F0", "B1": "F1", "B2": "F2", "B3": "F3"},
    "nn_shape": {"EB0": "E0", "EB1": "E1", "B0": "F0", "B1": "F1", "B2": "F2", "B3": "F3"},
    "k_shape": {"JB": "J", "B0": "F0", "B1": "F1", "B2": "F2", "B3": "F3"},
    "wave_shape": {f"B{i}": f"F{i}" for i in range(8)},
    "loop_shape": {f"B{i}": f"F{i}" for i in range(8)},
}


def placement(*blocks: Block) -> Placement:
    devices = 1 + max(device for block in blocks for device in block.devices)
    return Placement("example", devices, blocks)


def forward(name: str, device: int, *after: str) -> Block:
    return Block(name, Kind.F, (device,), 1, 0, after)


def backward(name: str, device: int, *after: str, kind: Kind = Kind.B) -> Block:
    return Block(name, kind, (device,), 1, 0, after)


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape: str) -> None:
    assert pair_backward(SHAPES[shape](4)) == EXPECTED[shape]
    assert pair_backward(SHAPES[shape](4, inference=True)) == {}


def test_skip_connection_pairs_by_who_has_all_its_gradients_even_without_numbers() -> None:
    skip = placement(
        forward("read", 0),
        forward("encode", 0, "read"),
        forward("decode", 1, "read", "encode"),
        backward("undecode", 1, "decode"),
        backward("unencode", 0, "undecode"),
        backward("unread", 0, "undecode", "unencode"),
    )
    assert pair_backward(skip) == {"undecode": "decode", "unencode": "encode", "unread": "read"}
    assert tensor_inputs(skip)["unread"] == ("unencode", "undecode")


def test_weight_half_has_the_partner_of_its_input_half() -> None:
    split = placement(
        forward("F0", 0),
        forward("F1", 1, "F0"),
        backward("I1", 1, "F1", kind=Kind.I),
        backward("I0", 0, "I1", kind=Kind.I),
        backward("W1", 1, "I1", kind=Kind.W),
        backward("W0", 0, "I0", kind=Kind.W),
    )
    assert pair_backward(split) == {"I1": "F1", "W1": "F1", "I0": "F0", "W0": "F0"}
    assert tensor_inputs(split) == {"F0": (), "F1": ("F0",), "I1": (), "I0": ("I1",), "W1": (), "W0": ()}


def test_tensors_flow_along_the_chain_rule_only() -> None:
    inputs = tensor_inputs(k_shape(4))
    assert inputs["J"] == ("F1", "F3")
    assert inputs["JB"] == ()
    assert inputs["B1"] == inputs["B3"] == ("JB",)
    assert inputs["B0"] == ("B1",)


def test_blocks_before_those_that_are_trained_may_have_no_backward() -> None:
    shape = placement(forward("F0", 0), forward("F1", 1, "F0"), backward("B1", 1, "F1"))
    assert pair_backward(shape) == {"B1": "F1"}
    assert tensor_inputs(shape) == {"F0": (), "F1": ("F0",), "B1": ()}


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([forward("F0", 0), backward("B0", 1, "F0")], "B0: no forward block on device 1 "),
        (
            [forward("F0", 0), forward("F1", 1, "F0"), backward("B0", 0, "F0")],
            "B0: is the backward of F0 but gets no gradient from the backward of F1, ",
        ),
        ([forward("F0", 0), backward("I0", 0, "F0", kind=Kind.I)], "I0: has no W block, "),
        ([forward("F0", 0), backward("W0", 0, "F0", kind=Kind.W)], "W0: is after no I block on device 0 "),
    ],
)
def test_unrunnable_placements_name_the_block_and_the_remedy(blocks: list[Block], message: str) -> None:
    with raises_line(UnrunnablePlacementError, message):
        pair_backward(placement(*blocks))
