"""Sequence slices: their times, memory and dependencies."""

import pytest

from placements import Block, Kind, Placement, PlacementError
from placements.placement_file import placement_from_dict, placement_to_dict
from placements.shapes import m_shape, v_shape
from placements.slices.slices import EQUAL_TIME, slice_ends, sliced
from runtime.program.tensor_flow import forward_inputs


@pytest.mark.parametrize("partition", ["even", EQUAL_TIME])
@pytest.mark.parametrize("split", [False, True])
def test_slices_take_and_hold_together_what_the_whole_does(partition, split):
    whole = v_shape(3, 20, 40, split, 20, 20, 60, 0)
    cut = sliced(whole, 3, attention_share=0.4, kv_share=0.5, partition=partition)
    for block in whole.blocks:
        slices = [cut.by_name[f"{block.name}s{i}"] for i in range(3)]
        ms = sum(cut.ms(block.time) for block in slices)
        assert ms == pytest.approx(whole.ms(block.time), rel=1e-3)
        assert [block.sequence_slice for block in slices] == [0, 1, 2]
    held = sum(cut.by_name[f"F0s{i}"].memory for i in range(3))
    assert held % 60 == 0, "the unit of memory is a part of the old one"


def test_a_slice_waits_for_the_stage_before_and_for_the_slice_before():
    cut = sliced(v_shape(2, split_backward=True), 3)
    after = {block.name: block.after for block in cut.blocks}
    assert after["F1s1"] == ("F0s1", "F1s0")
    assert after["I0s1"] == ("I1s1", "I0s2"), "backwards come in reverse"
    assert after["I1s2"] == ("F1s2",)
    assert after["W0s1"] == ("I0s1",), "nothing else waits for gradients of weights"
    assert forward_inputs(cut, "F1s1") == ("F0s1",), "keys and values are not handed over"


def test_slices_of_equal_time_are_shorter_later():
    ends = slice_ends(v_shape(2, 10, 20), 4, 0.6, EQUAL_TIME)
    lengths = [b - a for a, b in zip((0, *ends), ends, strict=False)]
    assert lengths == sorted(lengths, reverse=True) and ends[-1] == 1
    cut = sliced(v_shape(2, 1000, 2000), 4, attention_share=0.6, partition=EQUAL_TIME)
    times = [cut.by_name[f"F1s{i}"].time for i in range(4)]
    assert max(times) - min(times) <= 2


def test_only_the_gradient_of_inputs_knows_attention():
    cut = sliced(v_shape(1, 16, 32, True, 16, 16), 2, attention_share=0.5)
    assert [cut.by_name[f"I0s{i}"].time for i in range(2)] == [4, 12]
    assert [cut.by_name[f"W0s{i}"].time for i in range(2)] == [8, 8]


def test_gradients_of_keys_and_values_are_held_from_the_first_backward_to_the_own():
    whole = v_shape(1, stage_memory=8)
    cut = sliced(whole, 4, kv_share=0.5)
    assert [cut.by_name[f"F0s{i}"].memory for i in range(4)] == [2, 2, 2, 2]
    assert [cut.by_name[f"B0s{i}"].memory for i in (3, 2, 1, 0)] == [-2 + 3, -3, -3, -3]


def test_capacity_and_weights_keep_their_bytes():
    whole = v_shape(2, forward_ms=10, backward_ms=20, activation_mib=100, weight_mib=50, memory_mib=300)
    cut = sliced(whole, 3)
    assert cut.mib(cut.memory[0]) == pytest.approx(300) and cut.mib(cut.static_memory[0]) == pytest.approx(50)


def test_the_file_form_keeps_slices():
    cut = sliced(v_shape(2, 4, 8), 2, attention_share=0.5)
    assert placement_from_dict(placement_to_dict(cut)) == cut


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_slices": 0}, "num_slices: 0 is not a whole number of at least 1"),
        ({"attention_share": 1.5}, "attention_share: 1.5 is not at least 0"),
        ({"kv_share": -1}, "kv_share: -1 is not at least 0"),
        ({"partition": "halves"}, "partition: 'halves' is not known; use even or equal_time"),
    ],
)
def test_wrong_numbers_are_refused(options, message):
    with pytest.raises(PlacementError, match=message):
        sliced(v_shape(2), **({"num_slices": 2} | options))


def test_what_cannot_be_cut_is_refused():
    with pytest.raises(PlacementError, match="is cut already"):
        sliced(sliced(v_shape(2), 2), 2)
    strange = Placement(
        "strange", 1, (Block("A", Kind.F, (0,), 1, 1), Block("Z", Kind.B, (0,), 1, -1, ("A",)))
    )
    with pytest.raises(PlacementError, match="kv_share: the forward of Z is not known"):
        sliced(strange, 2, kv_share=0.5)


def test_blocks_on_several_devices_are_cut_on_all():
    cut = sliced(m_shape(2), 2)
    assert cut.by_name["Es1"].devices == (0, 1)
    assert sum(block.memory_on(0) for block in cut.blocks) == 0
