from dataclasses import replace
from fractions import Fraction
from unittest import mock

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import placements as random_placements
from strategies import with_transfer

from placements import Block, Kind, Placement
from placements.shapes import wave_shape
from schedsearch.core.answer import Status
from schedsearch.proof import device_states as states_of_devices
from schedsearch.proof.device_states import DeviceStates, device_states
from schedsearch.proof.memory_need import minimum_memory
from schedsearch.proof.memory_occupancy import memory_occupancy
from schedsearch.searches.search import search


def vmin(devices: int, capacity: int) -> Placement:
    """A wave with the sizes of zero bubble's memory model: 21 of 37 units go with the input gradient."""
    wave = wave_shape(devices, 2, 14407, 24056, True, 14380, 9676)
    units = {"F": 37, "I": -21, "W": -16}
    blocks = tuple(replace(block, memory=units[block.name[0]]) for block in wave.blocks)
    return with_transfer(replace(wave, blocks=blocks), 1610).with_memory(capacity)


def test_memory_for_many_micro_batches_by_hand() -> None:
    """Memory for 22.9 stages holds two of each of 11 micro-batches on the device where the wave turns.

    It holds both from F32 to I32, so that F32 and its whole way back take no less than an eleventh of that.
    """
    placement = vmin(32, 846)
    proof = memory_occupancy(placement)
    assert proof.value(placement) == Fraction(33 * (14407 + 14380) + 62 * 1610, 11)
    (claim,) = proof.held
    assert claim.is_shown(placement, 20)
    for wrong in (replace(claim, limit=10), replace(claim, spare={**claim.spare, "W31": 1})):
        assert not wrong.is_shown(placement, 1)


def states_without(placement: Placement, way: str, nothing: object) -> tuple[DeviceStates, ...]:
    """Return each device's states, found by only one of the two ways."""
    device_states.cache_clear()
    with mock.patch.object(states_of_devices, way, return_value=nothing):
        states = device_states(placement)
    device_states.cache_clear()
    return states


@settings(max_examples=40, deadline=None)
@given(random_placements(max_devices=2, max_forward=3, training=True), st.data())
def test_no_state_has_more_than_fits(placement: Placement, data: st.DataObject) -> None:
    """Of the states of a device that can be reached and left, gone through one by one."""
    units = data.draw(st.integers(2, 4))
    blocks = tuple(
        replace(b, memory=tuple(units * b.memory_on(d) for d in b.devices)) for b in placement.blocks
    )
    placement = replace(placement, blocks=blocks)
    needed = [minimum_memory(placement, device) for device in range(placement.num_devices)]
    placement = placement.with_memory(need + data.draw(st.integers(0, 9)) for need in needed)
    walks = {walk.device: walk for walk in states_without(placement, "_rounded", ())}
    fits = [fit for fit in states_without(placement, "_walked", None) if fit.device in walks]
    assume(fits)
    for fitting in fits:
        walked, (group,) = walks[fitting.device], fitting.groups
        counts = {pair[:2]: pair[2] for pair in group}
        weights = [counts[pair[:2]] for (pair,) in walked.groups]
        assert (walked.held @ weights).max() <= fitting.held
        for name, counts_then in walked.running.items():
            assert (counts_then @ weights).max() <= fitting.running[name]


def test_memory_in_which_some_blocks_never_run_bounds_nothing() -> None:
    """B1 and B3 keep a unit each until B0 runs; the other group of blocks needs one only."""

    def block(name: str, memory: int, *after: str) -> Block:
        return Block(name, Kind.B if name.startswith("B") else Kind.F, (0,), 1, memory, after)

    placement = Placement(
        "groups",
        1,
        (block("F2", 1), block("B2", -1, "F2"), block("B1", 1), block("B3", 1), block("B0", -2, "B1", "B3")),
    )
    assert len(device_states(placement.with_memory(2))) == 1
    assert device_states(placement.with_memory(1)) == ()
    assert search(placement.with_memory(2), 3).status is Status.OPTIMAL
    assert search(placement.with_memory(1), 3).status is Status.INFEASIBLE
