"""Formulas of the items beside schedules of 2025 and 2026, and the orders that stand for them."""

from __future__ import annotations

from experiments.reproduce.ahead.both_directions import CASES as TWO_WAY
from experiments.reproduce.ahead.braided_exchanges import BraidedCase
from experiments.reproduce.ahead.nested_encoders import CASES as NESTED
from schedsearch.metrics import peak_memory
from schedsearch.proof.makespan import makespan_bound
from schedsearch.validate import validate


def test_stp_has_its_papers_formula() -> None:
    case = BraidedCase(4, 16, 10, 12, 8, 3)
    assert case.formula_ms == 2 * 16 * (10 + 12 + 8) + 3 * (10 + 3 + 12 - 8) + 9 * 3
    assert case.placement().load(0) == 2 * (10 + 12 + 8)
    assert makespan_bound(case.placement(), 16) < case.formula_ms


def test_half_of_dualpipes_bubble_is_what_its_blocks_have_one_after_the_other() -> None:
    case = TWO_WAY["p=8, 20 micro-batches, (1, 1, 1)"]
    assert (case.load_ms, case.bubble_ms) == (60, 6)
    assert makespan_bound(case.placement, case.num_micro_batches) == 63


def test_nested_encoders_take_as_long_as_those_apart_in_memory_that_does_not_grow() -> None:
    for case in NESTED.values():
        nested = validate(case.nested())
        assert nested.makespan == case.unlimited_ms
        assert peak_memory(nested).max() == case.num_devices + 3
