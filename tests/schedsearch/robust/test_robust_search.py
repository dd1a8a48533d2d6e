"""One order for several scenarios, against trying all orders, the simulation and the bound."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest
from one_line_errors import raises_line
from oracles import valid_schedules
from strategies import with_transfer

from placements import Placement, PlacementError
from placements.shapes import v_shape
from schedsearch.baselines import applicable, one_f_one_b
from schedsearch.metrics import peak_memory
from schedsearch.robust.robust_search import ROBUST, robust_search
from schedsearch.robust.scenarios import Scenario, scenarios_from
from schedsearch.schedule import Schedule
from schedsearch.simulation.conditions import Conditions, ConditionsError
from schedsearch.simulation.iterations import simulate

SLOW = (
    Scenario("as planned"),
    Scenario("device 1 is slow", Conditions(slow_devices={1: 1.5}), 2.0),
    Scenario("link 0-1 is slow", Conditions(slow_pairs={(0, 1): 3.0, (1, 0): 3.0})),
)
"""Scenarios in which nothing varies."""


def mean_of(schedule: Schedule, scenarios: tuple[Scenario, ...]) -> float:
    weights = sum(case.weight for case in scenarios)
    return sum(case.weight * simulate(schedule, case.conditions, 1).mean_ms / weights for case in scenarios)


@pytest.mark.parametrize("memory", [2, 3])
def test_the_best_order_is_that_of_trying_all(memory: int) -> None:
    placement = with_transfer(v_shape(2, forward_time=2, backward_time=3), 1).with_memory((memory, 2))
    answer = robust_search({"1F1B": one_f_one_b(placement, 3)}, SLOW, work_limit=0.5)
    least = min(mean_of(schedule, SLOW) for schedule in all_schedules(placement, 3))
    assert answer.mean_ms[ROBUST] == pytest.approx(least)
    assert mean_of(answer.schedule, SLOW) == pytest.approx(least)


def all_schedules(placement: Placement, number: int) -> Iterator[Schedule]:
    """Yield all orders that memory allows; micro-batches are alike, so each block runs them in order."""
    counted: list[list[list[tuple[str, int]]]] = []
    for device in range(placement.num_devices):
        names = [block.name for block in placement.on(device) for _ in range(number)]
        orders = []
        for order in sorted(set(itertools.permutations(names))):
            seen: Counter[str] = Counter()
            orders.append([(name, (seen.update([name]), seen[name])[1] - 1) for name in order])
        counted.append(orders)
    yield from valid_schedules(placement, number, itertools.product(*counted))


def test_it_is_no_worse_than_what_is_given_and_not_below_the_bound() -> None:
    placement = with_transfer(v_shape(4, forward_time=10, backward_time=20), 1).with_memory(4)
    given = applicable(placement, 8)
    answer = robust_search(given, SLOW, work_limit=1)
    assert answer.bound_ms <= answer.mean_ms[ROBUST] < min(answer.mean_ms[name] for name in given)
    assert peak_memory(answer.schedule).max() <= 4
    assert all(row.bound_ms <= row.mean_ms and row.error_ms == 0 for row in answer.rows)
    assert [row.schedule for row in answer.rows[:3]] == [ROBUST] * 3
    again = robust_search(given, SLOW, work_limit=1)
    assert again.schedule == answer.schedule


def test_times_that_vary_are_drawn_anew_for_the_table() -> None:
    """The search has draws of its own; both make the order better."""
    placement = v_shape(4, forward_time=10, backward_time=20).with_memory(4)
    given = {"1F1B": one_f_one_b(placement, 12)}
    jitter = (Scenario("jitter", Conditions(jitter=0.2)),)
    answer = robust_search(given, jitter, work_limit=2)
    ours, theirs = answer.rows
    assert ours.mean_ms < theirs.mean_ms
    assert theirs.mean_ms == simulate(given["1F1B"], jitter[0].conditions, 1000, 1).mean_ms
    assert ours.bound_ms < ours.mean_ms < ours.p95_ms < ours.p99_ms
    late = robust_search(given, jitter, quantile=0.95, work_limit=2)
    assert late.rows[0].p95_ms < late.rows[1].p95_ms


def test_scenarios_are_read_with_names_and_weights() -> None:
    placement = v_shape(4)
    data = [
        {"jitter": 0.1},
        {"slow_devices": {"3": 1.2}, "weight": 2},
        {"name": "net", "slow_pairs": {"2-3": 4}},
        {"measured_ms": {"F0": [1.0, 2.0]}},
    ]
    scenarios = scenarios_from(data, "search.scenarios", placement)
    assert [scenario.name for scenario in scenarios] == [
        "jitter 0.1",
        "device 3 x 1.2",
        "net",
        "measured times of 1 blocks",
    ]
    assert scenarios[1].weight == 2
    assert scenarios[2].conditions.slow_pairs == {(2, 3): 4}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"jitter": 0.1}, "search.scenarios: .* is not a list of scenarios"),
        ([], "search.scenarios: is empty; give at least one scenario"),
        ([{}], r"search.scenarios\[0\]: .* is not a scenario, .* say what differs"),
        ([{"jiter": 0.1}], r"search.scenarios\[0\]: .*jiter"),
        ([{"slow_devices": {9: 1.2}}], r"search.scenarios\[0\].slow_devices: there is no device 9"),
        ([{"slow_pairs": {"3": 2}}], r"search.scenarios\[0\].slow_pairs: '3' is not a pair"),
        ([{"measured_ms": {"F9": [1.0]}}], r"search.scenarios\[0\].measured_ms: there is no block 'F9'"),
        ([{"jitter": 0.1}, {"jitter": 0.1}], "two scenarios are called 'jitter 0.1'"),
    ],
)
def test_wrong_scenarios_are_one_line(data: object, message: str) -> None:
    with raises_line(ConditionsError, match=message):
        scenarios_from(data, "search.scenarios", v_shape(4))


def test_what_cannot_be_searched_is_one_line() -> None:
    schedule = one_f_one_b(v_shape(2), 2)
    with raises_line(ConditionsError, begins="scenarios: is empty"):
        robust_search({"1F1B": schedule}, [])
    with raises_line(ConditionsError, begins="schedules: is empty"):
        robust_search({}, SLOW)
    with raises_line(ConditionsError, begins="work_limit: 0 is not above 0"):
        robust_search({"1F1B": schedule}, SLOW, work_limit=0)
    with pytest.raises(PlacementError, match="cannot take yet"):
        from modes_and_streams import recomputed

        robust_search({"x": recomputed()}, SLOW)
