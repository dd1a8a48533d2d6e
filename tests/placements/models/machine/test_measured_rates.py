"""Rates that were measured, each by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_machine import MACHINE

from placements.models.machine.measured_rates import CollectiveRate, KernelRate, ShareTable
from placements.models.operators import Core, Kernel, Product

SIZES = st.integers(1, 10_000)


def test_a_shape_has_its_own_share_or_that_of_the_nearest_or_the_mean() -> None:
    table = ShareTable({(100, 100): 0.1, (100, 190): 0.2, (400, 400): 0.4}, 0.5)
    assert table.at(100, 190) == 0.2
    assert table.at(99.6, 100.4) == 0.1, "sizes are rounded"
    assert table.at(110, 120) == 0.1
    assert table.at(110, 180) == 0.2
    assert table.at(200, 100) == 0.1, "a factor of two is near"
    assert table.at(201, 100) == 0.5
    assert table.at(50, 400) == 0.5, "one size is too far, though the other is near"
    assert table.at(200, 200) == 0.2, "2 and 1.05 times, not 2 and 2 times or half and half"
    assert table.at(0, 100) == 0.5


@given(st.dictionaries(st.tuples(SIZES, SIZES), st.floats(0.01, 1), max_size=5), SIZES, SIZES)
def test_the_nearest_share_is_the_one_that_a_search_of_all_finds(
    shares: dict[tuple[int, ...], float], a: int, b: int
) -> None:
    found = ShareTable(shares, 0.5).at(a, b)
    if (a, b) in shares:
        assert found == shares[a, b]
        return
    ratios = {(m, n): (max(a / m, m / a), max(b / n, n / b)) for m, n in shares}
    near = {shape: x * y for shape, (x, y) in ratios.items() if max(x, y) <= 2}
    best = min(near.values(), default=0)
    assert found in ([shares[each] for each in near if near[each] <= best * (1 + 1e-9)] or [0.5])


def test_kernels_and_collectives_by_hand() -> None:
    assert KernelRate(1000.0, 0.5, 30.0).ms(2e9, 3) == 4 + 0.09
    rate = CollectiveRate(100.0, 0.5, 2.0, 10.0, {0: 5.0, 8: 7.0})
    assert rate.ms(1e9, 4, False) == pytest.approx(1e3 * 2 * 0.75 / 50 + (6 * 10 + 5) / 1e3)
    assert rate.ms(1e9, 8, False) == pytest.approx(1e3 * 2 * 0.875 / 50 + (14 * 10 + 7) / 1e3)
    assert replace(rate, volume=1.0, fixed_us={}).ms(1e9, 2, True) == pytest.approx(20 + 0.01)


def test_products_and_cores_on_a_machine_by_hand() -> None:
    """A peak of 1 TFLOP/s is 1e9 operations per millisecond."""
    plain = Product("a", 1000, 2000, 1, "outputs")
    assert MACHINE.product_ms(plain, 500) == pytest.approx((2 / 0.5, 2 / 0.25 + 2 / 0.2))
    assert MACHINE.product_ms(plain._replace(inputs=10), 50) == pytest.approx(
        (0.002 / 0.8, 0.002 / 0.8 + 0.002 / 0.4)
    ), "not near"
    own = Product("b", 100, 200, 1, "outputs", experts=4)
    assert MACHINE.product_ms(own, 400) == pytest.approx((0.016 / 0.3, 0.016 / 0.1 + 0.016 / 0.6))
    # All scores are counted, and in the backward 2.5 times as many operations.
    core = Core(2, 1, 8, 8, 100, 100, 0.5)
    all_ms = 3 * 4 * 100 * 100 * 2 * 8 / 1e9
    assert MACHINE.core_ms(core, 3) == pytest.approx((all_ms / 0.9, 2.5 * all_ms / 0.7))
    kernel = Kernel("c", 1000, 2000, launches=(1, 2))
    each_ms = 2 / (1000 * 1e6 * 0.5)
    assert MACHINE.kernel_ms(kernel, 1.5, 2) == pytest.approx((1500 * each_ms + 0.03, 3000 * each_ms + 0.06))
    assert MACHINE.collective_ms("all_gather", 1e6, 1) == 0
    assert MACHINE.collective_ms("send", 1e6, 2) == pytest.approx(1 / (100 * 0.25) + 0.004)
