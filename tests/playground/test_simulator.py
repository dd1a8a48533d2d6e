"""The simulator of the playground's page: the same starts, figures, deadlocks and files as ours."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from javascript import simulated
from strategies import with_transfer

from docs.playground_data import EXAMPLES
from placements import Placement
from placements.placement_file import placement_from_dict
from schedsearch.baselines import gpipe
from schedsearch.device_span import device_spans
from schedsearch.metrics import bubble_rate, peak_memory
from schedsearch.proof.makespan import makespan_bound
from schedsearch.schedule import (
    CyclicOrderError,
    Instance,
    Schedule,
    as_soon_as_possible,
    memory_needed,
    waits_in_order,
)
from schedsearch.schedule_file import schedule_from_dict, schedule_to_dict

MEMORY = 4
MOST_SWAPS = 12

SIMULATE = """
return data.map(({file, orders, limits}) => {
  const [plan] = Readers.read("schedule.json", JSON.stringify(file)).plans;
  const problem = Simulator.prepare(plan), found = Simulator.simulate(problem, orders, limits);
  const isWhole = !found.cycle.length, edits = {times: {}, transfer: null};
  return {
    ...found, starts: [...found.starts], bound: Simulator.loadBound(problem),
    path: isWhole && Simulator.criticalPath(problem, found),
    file: isWhole && Simulator.scheduleToFile(problem, edits, found, limits),
    again: isWhole && Simulator.ordersOf(problem, found.starts),
  };
});
"""


def orders_at_random(choose: random.Random, placement: Placement, number: int) -> list[list[Instance]]:
    """Return orders that once were valid, with a few swaps of neighbours, on one device or on all."""
    schedule = gpipe(placement, number)
    orders = [list(schedule.order(device)) for device in range(placement.num_devices)]
    for _ in range(choose.randrange(MOST_SWAPS)):
        order = choose.choice(orders)
        i = choose.randrange(len(order) - 1)
        order[i : i + 2] = order[i + 1], order[i]
    return orders


def indexed(placement: Placement, orders: list[list[Instance]]) -> list[list[list[int]]]:
    index = {block.name: i for i, block in enumerate(placement.blocks)}
    return [[[index[name], n] for name, n in order] for order in orders]


def cases() -> list[tuple[Placement, int, list[list[Instance]]]]:
    choose = random.Random(7)
    cases_made = []
    for example in EXAMPLES:
        for _ in range(20):
            number, transfer = choose.randint(1, 6), choose.choice([0, 0, 1, 3])
            placement = replace(example, num_devices=choose.choice([2, 4])).placement().with_memory(None)
            placement = with_transfer(placement, transfer) if transfer else placement
            cases_made.append((placement, number, orders_at_random(choose, placement, number)))
    return cases_made


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, Any]]:
    """Each case with what the page's simulator makes of it."""
    given = cases()
    data = []
    for placement, number, orders in given:
        limits, file = [MEMORY] * placement.num_devices, schedule_to_dict(gpipe(placement, number))
        data.append({"file": file, "orders": indexed(placement, orders), "limits": limits})
    results = simulated(SIMULATE, data, tmp_path_factory.mktemp("page"))
    assert all(row["again"] in (False, case["orders"]) for case, row in zip(data, results, strict=True))
    return list(zip(given, results, strict=True))


def key(placement: Placement, text: str) -> Instance:
    block, n = map(int, text.split(":"))
    return placement.blocks[block].name, n


def ours(case: Any) -> Schedule | None:
    """Return the schedule of a case; None where it is a deadlock."""
    try:
        return as_soon_as_possible(*case)
    except CyclicOrderError:
        return None


def test_starts_and_figures_are_ours(answers: list[tuple[Any, Any]]) -> None:
    valid = [(schedule, result) for case, result in answers if (schedule := ours(case))]
    assert len(valid) > 50
    for schedule, result in valid:
        placement = schedule.placement
        assert {key(placement, text): start for text, start in result["starts"]} == schedule.start_of
        assert result["makespan"] == schedule.makespan
        assert result["bubbleRate"] == pytest.approx(bubble_rate(schedule), abs=1e-12)
        assert result["peaks"] == peak_memory(schedule).tolist()
        assert result["spans"] == device_spans(schedule).tolist()


def test_deadlocks_are_ours_and_name_a_circle(answers: list[tuple[Any, Any]]) -> None:
    stuck = [(case, result) for case, result in answers if ours(case) is None]
    assert len(stuck) > 30
    for (placement, number, orders), result in stuck:
        assert result["makespan"] is None
        waits = waits_in_order(placement, number, orders)
        circle = [key(placement, text) for text in result["cycle"]]
        for before, after in zip(circle, circle[1:] + circle[:1], strict=True):
            assert before in [earlier for earlier, _ in waits[after]]
    assert all(bool(result["cycle"]) == (ours(case) is None) for case, result in answers)


def test_memory_over_the_limit_is_named_where_it_is(answers: list[tuple[Any, Any]]) -> None:
    for case, result in answers:
        placement, _, orders = case
        over = [
            [device, orders[device][i], units]
            for device, order in enumerate(orders)
            for i, units in enumerate(memory_needed(placement, device, order))
            if units > MEMORY
        ]
        if ours(case):
            assert [[d, key(placement, text), units] for d, text, units in result["overMemory"]] == over


def test_the_load_bound_is_no_more_than_ours(answers: list[tuple[Any, Any]]) -> None:
    for case, result in answers:
        schedule, bound = ours(case), result["bound"]
        assert schedule is None or bound["ticks"] <= schedule.makespan
        if not case[0].transfer:
            assert max(map(case[0].load, range(case[0].num_devices))) * case[1] <= bound["ticks"]
            assert bound["ticks"] <= makespan_bound(case[0], case[1])
            if case[0].name == "v_shape" and len(case[0].blocks) == 2 * case[0].num_devices:
                assert bound["ticks"] == makespan_bound(case[0], case[1])


def test_the_critical_path_is_as_long_as_the_iteration(answers: list[tuple[Any, Any]]) -> None:
    """Each of its runs begins where the one before ends, or a transfer later; nothing else is in it."""
    for case, result in answers:
        if (schedule := ours(case)) is None:
            continue
        runs = [key(case[0], text) for text in result["path"]["keys"]]
        for before, after in pairwise(runs):
            wait = schedule.start_of[after] - schedule.end_of[before]
            assert wait in (0, case[0].transfer_time(before[0], after[0]))
            assert wait == 0 or before[0] in case[0].by_name[after[0]].after
        assert schedule.start_of[runs[0]] == 0 and schedule.end_of[runs[-1]] == schedule.makespan
        parts = result["path"]["parts"]
        assert sum(part["ticks"] + part["waiting"] for part in parts) == schedule.makespan
        assert sum(part["count"] for part in parts) == len(runs)


def test_a_saved_schedule_is_our_file(answers: list[tuple[Any, Any]]) -> None:
    checked = 0
    for case, result in answers:
        schedule = ours(case)
        if schedule is None or result["overMemory"]:
            continue
        wanted = schedule_to_dict(replace(schedule, placement=case[0].with_memory(MEMORY)))
        file = result["file"]
        assert schedule_to_dict(schedule_from_dict(file)) == wanted
        assert file.keys() == wanted.keys()
        names = wanted.keys() - {"placement", "bubble_rate"}
        assert {name: file[name] for name in names} == {name: wanted[name] for name in names}
        assert placement_from_dict(file["placement"]) == case[0].with_memory(MEMORY)
        checked += 1
    assert checked > 30


def test_a_block_on_all_devices_is_moved_on_all(tmp_path: Path) -> None:
    """The embedding's backward of micro-batch 0, moved behind that of 1, would else be a deadlock."""
    example = next(example for example in EXAMPLES if example.shape == "m_shape")
    placement = replace(example, num_devices=2).placement().with_memory(None)
    schedule = gpipe(placement, 2)
    orders = indexed(placement, [list(schedule.order(device)) for device in range(2)])
    back = [block.name for block in placement.blocks].index("EB")
    places = [orders[0].index([back, n]) for n in range(2)]
    moved = simulated(
        "return Simulator.moved(data.orders, 0, ...data.places);",
        {"orders": orders, "places": places},
        tmp_path,
    )
    for order, before in zip(moved, orders, strict=True):
        assert order.index([back, 1]) < order.index([back, 0])
        assert sorted(order) == sorted(before)
