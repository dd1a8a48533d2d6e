"""Receives posted early: safe as before, within their bounds, and changing no result."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import comparison_of, trained
from strategies import any_schedules

from placements.shapes import SHAPES, v_shape
from runtime.program.deadlock import UnsafeProgramsError, check
from runtime.program.instructions import Programs, Receive, Run
from runtime.program.lower import lower
from runtime.program.prefetch import peak_posted, prefetch_receives
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.schedule import Schedule

MODEL = {"name": "synthetic", "hidden_size": 4, "sequence_length": 3, "micro_batch_size": 1}


def runs_ahead(programs: Programs) -> dict[tuple[int, Receive], int]:
    """Return for each receive how many blocks of its device it comes before the one that takes it."""
    ahead = {}
    for device, program in enumerate(programs.instructions):
        for place, instruction in enumerate(program):
            if isinstance(instruction, Receive):
                taken = program.index(Run(instruction.consumer, instruction.micro_batch))
                ahead[device, instruction] = sum(isinstance(other, Run) for other in program[place:taken])
    return ahead


def channels_of(programs: Programs) -> dict[tuple[int, int], list[Receive]]:
    channels: dict[tuple[int, int], list[Receive]] = {}
    for device, program in enumerate(programs.instructions):
        for instruction in program:
            if isinstance(instruction, Receive):
                channels.setdefault((instruction.source, device), []).append(instruction)
    return channels


@settings(max_examples=80, deadline=None)
@given(any_schedules(), st.integers(0, 3), st.integers(1, 2) | st.none())
def test_early_receives_are_safe_and_within_their_bounds(
    schedule: Schedule, blocks_ahead: int, most: int | None
) -> None:
    before = check(lower(schedule))
    after = check(prefetch_receives(before, blocks_ahead, most))
    assert channels_of(after) == channels_of(before)
    for program, other in zip(before.instructions, after.instructions, strict=True):
        assert sorted(map(str, program)) == sorted(map(str, other))
        assert [instruction for instruction in program if not isinstance(instruction, Receive)] == [
            instruction for instruction in other if not isinstance(instruction, Receive)
        ]
    moved, stood = runs_ahead(after), runs_ahead(before)
    assert all(0 <= moved[key] - stood[key] <= blocks_ahead for key in moved)
    if most is not None:
        for peak, old in zip(peak_posted(after), peak_posted(before), strict=True):
            assert peak <= max(most, old)
    if blocks_ahead == 0:
        assert runs_ahead(after) == runs_ahead(before)


def test_a_transfer_overlaps_with_the_block_before_it() -> None:
    """1F1B: device 1 posts the receive of its second input before it runs the first, not after."""
    programs = lower(one_f_one_b(v_shape(2), 4))
    assert peak_posted(programs) == (1, 1)
    early = check(prefetch_receives(programs, 1))
    assert peak_posted(early) == (2, 2)
    second = 1, Receive("F0", "F1", 1, 0)
    assert (runs_ahead(programs)[second], runs_ahead(early)[second]) == (1, 2)


def test_moving_further_than_that_would_be_a_deadlock() -> None:
    """A receive stays behind the blocks that its message needs: a bound of 1000 blocks is safe too."""
    programs = lower(one_f_one_b(v_shape(4), 8))
    early = check(prefetch_receives(programs, 1000))
    reckless = tuple(
        tuple(sorted(program, key=lambda instruction: not isinstance(instruction, Receive)))
        for program in programs.instructions
    )
    with pytest.raises(UnsafeProgramsError):
        check(Programs(programs.placement, programs.num_micro_batches, reckless))
    assert sum(peak_posted(early)) > sum(peak_posted(programs))


@pytest.mark.parametrize(("shape", "blocking"), [("v_shape", True), ("m_shape", False), ("k_shape", True)])
def test_early_receives_change_no_bit(shape: str, blocking: bool) -> None:
    programs = prefetch_receives(lower(gpipe(SHAPES[shape](), 3)), 2)
    result = trained(programs, MODEL, iterations=1, blocking=blocking)
    assert comparison_of(result).bitwise_equal
    assert result.peak_posted_bytes == peak_posted(programs, lambda producer, consumer: 1 * 3 * 4 * 8)
