"""Loops found in programs unroll to the same programs, and cover every repetition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placements.shapes import loop_shape, v_shape, x_shape
from runtime.program.instructions import Instruction, Run
from runtime.program.loops import best_loops, find_loops, kind
from runtime.program.lower import lower
from schedsearch.baselines import chimera, gpipe, interleaved_one_f_one_b, one_f_one_b
from schedsearch.schedule import Schedule

RUNS: st.SearchStrategy[Instruction] = st.builds(Run, st.sampled_from("FB"), st.integers(0, 6))


@given(st.lists(RUNS, max_size=30), st.integers(1, 3))
def test_unrolls_to_the_same_program(program: list[Instruction], shift: int) -> None:
    looped = find_loops(program, shift)
    assert looped.unroll() == tuple(program)
    assert all(loop.rounds > 1 and loop.body for loop in looped.loops)
    assert looped.covered + len(looped.straight) == len(program)
    kinds = [{kind(instruction) for instruction in loop.body} for loop in looped.loops]
    assert len(set().union(*kinds)) == sum(map(len, kinds)), "no block is in two loops"


def covered(program: list[Instruction], begin: int, period: int, shift: int) -> int:
    """Return how many instructions a loop covers that begins there, or 0 if it has one round only."""
    rounds = 1
    while all(
        begin + rounds * period + i < len(program)
        and program[begin + rounds * period + i]
        == Run(program[begin + i].block, program[begin + i].micro_batch + rounds * shift)  # type: ignore[union-attr]
        for i in range(period)
    ):
        rounds += 1
    return rounds * period if rounds > 1 else 0


def test_gpipe_loops_over_both_of_its_halves() -> None:
    looped = find_loops(lower(gpipe(v_shape(2), 8)).instructions[0])
    assert [[str(instruction) for instruction in loop.body] for loop in looped.loops] == [
        ["run F0 #0", "send F0 -> F1 #0 to 1"],
        ["receive B1 -> B0 #0 from 1", "run B0 #0"],
    ]
    assert [loop.rounds for loop in looped.loops] == [8, 8]
    assert looped.straight == ()


@pytest.mark.parametrize(
    ("schedule", "shift"),
    [
        (one_f_one_b(v_shape(4), 8), 1),
        (chimera(x_shape(4), 8), 2),
        (interleaved_one_f_one_b(loop_shape(3), 15), 3),
    ],
    ids=["1f1b", "chimera", "interleaved"],
)
def test_the_micro_batches_of_a_round_are_found(schedule: Schedule, shift: int) -> None:
    programs = lower(schedule)
    assert best_loops(programs) == (
        shift,
        tuple(find_loops(program, shift) for program in programs.instructions),
    )


def test_nothing_to_repeat() -> None:
    program = (Run("F0", 0), Run("B0", 0))
    assert find_loops(program).sections == (program,)
    assert find_loops(()).sections == ()
