from dataclasses import replace
from fractions import Fraction
from unittest import mock

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import placements as random_placements

from placements import Block, Kind, Placement
from placements.shapes import wave_shape
from schedsearch.core.answer import Status
from schedsearch.procedures.search import search
from schedsearch.proof import device_states as states_of_devices
from schedsearch.proof.device_states import Counts, DeviceStates, device_states
from schedsearch.proof.memory_need import minimum_memory
from schedsearch.proof.memory_occupancy import memory_occupancy


def test_what_fits_by_hand() -> None:
    """Two micro-batches of 37 fit memory for 100, and one more that only keeps 16 for its weight gradient."""
    blocks = (
        Block("F", Kind.F, (0,), 1, 37),
        Block("I", Kind.I, (0,), 1, -21, ("F",)),
        Block("W", Kind.W, (0,), 1, -16, ("I",)),
        Block("A", Kind.F, (0,), 1, 0, transient=37),
    )
    (states,) = states_without(Placement("fits", 1, blocks, memory=(100,)), "_walked").values()
    assert states.held.tolist() == [[0, 6], [1, 3], [2, 1]]
    assert states.running["A"].tolist() == [[0, 3], [1, 1]]
    assert states.running["F"].tolist() == [[1, 3], [2, 1]]
    assert states.running["I"].tolist() == [[0, 4], [1, 2]]


def vmin(devices: int, capacity: int) -> Placement:
    """A wave with the sizes of zero bubble's memory model: 21 of 37 units go with the input gradient."""
    wave = wave_shape(devices, 2, 14407, 24056, True, 14380, 9676)
    units = {"F": 37, "I": -21, "W": -16}
    blocks = tuple(replace(block, memory=units[block.name[0]]) for block in wave.blocks)
    hops = [(wave.by_name[name], block) for block in blocks for name in block.after]
    transfer = tuple((a.name, b.name, 1610) for a, b in hops if a.devices != b.devices)
    return replace(wave, blocks=blocks, transfer=transfer).with_memory(capacity)


def test_memory_for_many_micro_batches_by_hand() -> None:
    """Memory for 22.9 stages holds 22 on each of 32 devices, from their forwards to their input gradients."""
    placement = vmin(32, 846)
    proof = memory_occupancy(placement)
    assert proof is not None
    assert proof.value(placement) == Fraction(65 * (14407 + 14380) + 2 * 62 * 1610, 22)
    (claim,) = proof.held
    assert claim.is_shown(placement, 20)
    for wrong in (replace(claim, limit=21), replace(claim, spare={**claim.spare, f"W{claim.device}": 1})):
        assert not wrong.is_shown(placement, 1)


def states_without(placement: Placement, way: str) -> dict[int, DeviceStates]:
    """Return each device's states, found by only one of the two ways."""
    device_states.cache_clear()
    with mock.patch.object(states_of_devices, way, return_value=None):
        found = {each.device: each for each in device_states(placement)}
    device_states.cache_clear()
    return found


def counted(walked: DeviceStates, fitting: DeviceStates, counts: Counts) -> Counts:
    """Return what is between the pairs of each of another's groups."""
    pairs = {pair: i for i, ((pair, _),) in enumerate(walked.groups)}
    groups = [sum(times * counts[:, pairs[pair]] for pair, times in group) for group in fitting.groups]
    return np.stack(groups, axis=1)


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
    fits = states_without(placement, "_walked")
    walks = states_without(placement, "_fitting")
    assume(fits.keys() & walks.keys())
    for device in fits.keys() & walks.keys():
        walked, fitting = walks[device], fits[device]
        parts = [
            (walked.held, fitting.held),
            *((walked.running[b], fitting.running[b]) for b in walked.running),
        ]
        for part, most in parts:
            for state in counted(walked, fitting, part):
                assert (state <= most).all(axis=1).any()


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
