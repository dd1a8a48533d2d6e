"""Loops found in programs unroll to the same programs, and cover what they can."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from placements.shapes import v_shape
from runtime.program import Instruction, Run, lower
from runtime.roll import roll
from schedsearch.baselines import gpipe, one_f_one_b

RUNS: st.SearchStrategy[Instruction] = st.builds(Run, st.sampled_from("FB"), st.integers(0, 6))


@given(st.lists(RUNS, max_size=30), st.integers(1, 3))
def test_unrolls_to_the_same_program(program: list[Instruction], shift: int) -> None:
    rolled = roll(program, shift)
    assert rolled.unroll() == tuple(program)
    assert rolled.rounds != 1
    assert bool(rolled.body) == (rolled.rounds > 0)
    if not rolled.rounds:
        assert rolled.warmup == tuple(program)


@given(st.lists(RUNS, max_size=14), st.integers(1, 2))
def test_no_loop_covers_more(program: list[Instruction], shift: int) -> None:
    """Compare with every period at every place."""
    rolled = roll(program, shift)
    best = max(
        (covered(program, begin, period, shift) for begin in range(14) for period in range(1, 8)), default=0
    )
    assert rolled.rounds * len(rolled.body) == best


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


@given(st.lists(st.tuples(st.sampled_from("FBW"), st.integers(0, 3)), min_size=1, max_size=6, unique=True))
def test_a_repeated_body_is_found(body: list[tuple[str, int]]) -> None:
    program = [Run(block, micro_batch + 4 * n) for n in range(5) for block, micro_batch in body]
    rolled = roll(program, shift=4)
    assert rolled.rounds * len(rolled.body) == len(program)


def test_1f1b_is_nearly_all_loop() -> None:
    for program in lower(one_f_one_b(v_shape(4), 16)).instructions:
        rolled = roll(program)
        assert len(rolled.body) <= 6
        assert len(rolled.warmup) + len(rolled.cooldown) <= 24


def test_gpipe_rolls_one_of_its_halves() -> None:
    rolled = roll(lower(gpipe(v_shape(2), 8)).instructions[0])
    assert [str(instruction) for instruction in rolled.body] == ["run F0 #0", "send F0 -> F1 #0 to 1"]
    assert (rolled.rounds, len(rolled.warmup), len(rolled.cooldown)) == (8, 0, 16)


def test_two_micro_batches_a_round() -> None:
    program = [Run(block, n + lane) for n in range(0, 8, 2) for block in ("F0", "B0") for lane in (0, 1)]
    rolled = roll(program, shift=2)
    assert (len(rolled.body), rolled.rounds, rolled.first_micro_batch) == (4, 4, 0)


def test_nothing_to_repeat() -> None:
    program = (Run("F0", 0), Run("B0", 0))
    rolled = roll(program)
    assert (rolled.warmup, rolled.rounds, rolled.cooldown) == (program, 0, ())
    assert roll(()).warmup == ()
