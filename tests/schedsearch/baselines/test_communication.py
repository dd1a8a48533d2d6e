"""Hand-made schedules where devices communicate beside computing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placements import Block, Kind, Placement
from placements.shapes import v_shape, wave_shape
from schedsearch.baselines import HAND_MADE, zb_h1
from schedsearch.baselines.chosen_modes import with_chosen_modes
from schedsearch.baselines.communication import computing_blocks, with_communication
from schedsearch.metrics import peak_memory
from schedsearch.searches.search import search
from schedsearch.validate import validate


def exchanging(placement: Placement, ticks: int) -> Placement:
    """Return a placement with a block on the stream ``communication`` behind all but weight halves."""
    blocks = []
    for block in placement.blocks:
        is_weight = block.kind is Kind.W
        blocks.append(block if is_weight else replace(block, after=tuple(f"{n}x" for n in block.after)))
        if not is_weight:
            exchange = Block(f"{block.name}x", block.kind, block.devices, ticks, after=(block.name,))
            blocks.append(replace(exchange, stream="communication"))
    return replace(placement, blocks=tuple(blocks))


def wave(num_devices: int, input_release: int, chunks: int) -> Placement:
    """Return a wave of two chunks whose passes take 2 ticks and exchanges 1, with memory for some chunks."""
    plain = wave_shape(num_devices, 2, 2, 4, True, 2, 2, input_release=input_release)
    return exchanging(plain, 1).with_memory(chunks)


def test_blocks_of_other_streams_are_the_transfers_of_those_that_compute() -> None:
    plain = v_shape(3, 2, 4, True, 2, 2)
    placement = exchanging(plain, 2)
    computing = computing_blocks(placement)
    assert computing is not None and {b.name for b in computing.blocks} == {b.name for b in plain.blocks}
    waiting = [block for block in plain.blocks if block.kind is not Kind.W]
    assert set(computing.transfer) == {(name, block.name, 2) for block in waiting for name in block.after}
    base = zb_h1(computing, 6)
    made = validate(with_communication(placement, 6, base))
    assert base.start_of.items() <= made.start_of.items()


def test_copies_that_hold_memory_are_no_communication() -> None:
    blocks = (
        Block("F", Kind.F, (0,), 1, memory=1),
        Block("out", Kind.F, (0,), 1, memory=-1, host_memory=1, after=("F",), stream="copy_out"),
        Block("B", Kind.B, (0,), 1, host_memory=-1, after=("out",)),
    )
    assert computing_blocks(Placement("copies", 1, blocks)) is None


@pytest.mark.parametrize("num_devices", [2, 4, 6])
def test_stp_holds_three_chunks_a_device_until_input_halves_end(num_devices: int) -> None:
    number, room = 4 * num_devices, 3 * num_devices
    for input_release in (1, 0):  # released by the weight half, these run earlier
        made = dict(with_chosen_modes(wave(num_devices, input_release, room), number, HAND_MADE))["stp"]
        assert peak_memory(made).tolist() == [room] * num_devices
        bubbles = (num_devices - 1) * 3 + 2 * num_devices + 1  # the closed forms of the paper
        assert made.makespan <= 2 * number * 6 + bubbles


def test_a_search_is_never_longer_than_the_best_made_by_hand() -> None:
    placement = wave(3, 0, 9)
    made = min(schedule.makespan for _, schedule in with_chosen_modes(placement, 9, HAND_MADE))
    answer = search(placement, 9, work_limit=0.01)
    assert answer.schedule is not None and answer.schedule.makespan <= made
