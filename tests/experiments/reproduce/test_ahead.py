"""Formulas of the items beside schedules of 2025 and 2026, and the orders that stand for them."""

from __future__ import annotations

from experiments.reproduce.ahead.closed_forms import braided, stp_ms
from experiments.reproduce.ahead.nested_encoders import CASES, nested, unlimited_ms
from schedsearch.metrics import peak_memory
from schedsearch.proof.makespan import makespan_bound
from schedsearch.validate import validate


def test_stp_has_its_papers_formula() -> None:
    case = 4, 16, (10, 12, 8, 3)
    assert stp_ms(case) == 2 * 16 * (10 + 12 + 8) + 3 * (10 + 3 + 12 - 8) + 9 * 3
    assert braided(case).load(0) == 2 * (10 + 12 + 8)
    assert makespan_bound(braided(case), 16) < stp_ms(case)


def test_nested_encoders_take_as_long_as_those_apart_in_memory_that_does_not_grow() -> None:
    for case in CASES.values():
        order = validate(nested(case))
        assert order.makespan == unlimited_ms(case)
        assert peak_memory(order).max() == case[0] + 3
