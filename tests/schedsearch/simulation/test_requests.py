"""Requests of an inference: hand-made cases, the queue at a rate, and what is refused."""

import numpy as np
import pytest

from placements.shapes import k_shape, v_shape
from schedsearch.baselines import gpipe
from schedsearch.searches.search import search
from schedsearch.simulation.conditions import ConditionsError, Link
from schedsearch.simulation.requests import Arrivals, Conditions, max_rate_per_s, serve

CHAIN = gpipe(v_shape(3, 10, inference=True), 4)


def test_slow_requests_find_an_empty_pipeline() -> None:
    served = serve(CHAIN, Arrivals(rate_per_s=20, spacing="fixed"))
    assert served.arrived_ms.tolist() == [[0, 50, 100, 150]]
    assert served.latency_ms.tolist() == [[30] * 4] and served.waited_ms == 0
    assert served.throughput_per_s == pytest.approx(4 / 0.180)


def test_fast_requests_queue_before_the_first_device() -> None:
    served = serve(CHAIN, Arrivals(rate_per_s=200, spacing="fixed"))
    assert served.latency_ms.tolist() == [[30, 35, 40, 45]]
    assert (served.began_ms - served.arrived_ms).tolist() == [[0, 5, 10, 15]]


def test_all_at_once_takes_the_makespan() -> None:
    assert serve(CHAIN).ended_ms[0, -1] == CHAIN.makespan
    assert serve(CHAIN).throughput_per_s == pytest.approx(4e3 / CHAIN.makespan)


def test_the_queue_is_that_of_a_single_server_with_fixed_service() -> None:
    """Waits are Lindley's recursion where one device is the bottleneck of a chain."""
    schedule = gpipe(v_shape(2, 10, inference=True), 2000)
    arrivals = Arrivals(rate_per_s=80, seed=3)
    gaps, waits = np.diff(arrivals.ms(2000)), [0.0]
    for gap in gaps:
        waits.append(max(0.0, waits[-1] + 10 - gap))
    served = serve(schedule, arrivals)
    assert (served.began_ms - served.arrived_ms)[0] == pytest.approx(waits, abs=1e-6)
    assert served.waited_ms == pytest.approx(0.8 * 10 / (2 * 0.2), rel=0.25)  # M/D/1


def test_above_the_rate_of_the_period_the_queue_grows() -> None:
    found = search(k_shape(4, inference=True), 60, work_limit=2)
    rate = max_rate_per_s(found.repetend)
    kept, lost = (
        serve(found.schedule, Arrivals(factor * rate, "fixed")).latency_ms[0] for factor in (0.99, 1.25)
    )
    assert kept[40:].max() <= kept[:20].max() + 1e-9
    assert lost[-1] > lost[0] + 60 * 0.15 * 1e3 / rate


def test_iterations_have_arrivals_of_their_own_and_a_seed_repeats_them() -> None:
    served, again = (serve(CHAIN, Arrivals(20, seed=5), iterations=2) for _ in range(2))
    assert (served.arrived_ms == again.arrived_ms).all()
    assert (served.arrived_ms[0, 1:] != served.arrived_ms[1, 1:]).all()
    later = serve(CHAIN, Arrivals(20, seed=5), first=1)
    assert (later.arrived_ms == served.arrived_ms[1:]).all()


def test_wrong_requests_are_one_line() -> None:
    with pytest.raises(ConditionsError, match="placement: v_shape trains .*placement.inference=true"):
        serve(gpipe(v_shape(2), 2))
    with pytest.raises(ConditionsError, match="rate_per_s: 0 is not above 0"):
        Arrivals(0)
    with pytest.raises(ConditionsError, match="spacing: 'even' is not known; use poisson or fixed"):
        Arrivals(1, "even")
    shared = Conditions(links=(Link(((0, 1), (1, 2))),))
    with pytest.raises(ConditionsError, match="links of several devices .* are not known here"):
        serve(CHAIN, conditions=shared)
