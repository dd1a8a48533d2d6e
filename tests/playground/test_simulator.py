"""The simulator of the playground's page: the same starts, figures, deadlocks and files as ours."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from javascript import simulated
from strategies import with_transfer

from docs.playground_data import PRESETS, blocks_to_rows, orders_to_text
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
return data.map(({placement, number, orders, memory}) => {
  const found = Simulator.simulate(placement, number, orders, memory);
  const file = found.cycle.length ? null : Simulator.scheduleToFile(placement, number, found, memory);
  const link = Simulator.ordersToLink(placement, orders);
  return {
    ...found, starts: [...found.starts], file, bound: Simulator.simpleBound(placement, number),
    again: Simulator.ordersFromLink(placement, number, link),
  };
});
"""


def in_page(placement: Placement, transfer: int) -> dict[str, Any]:
    names = "name", "kind", "devices", "time", "memory", "after"
    return {
        "name": placement.name,
        "numDevices": placement.num_devices,
        "tickMs": placement.tick_ms,
        "transfer": transfer,
        "blocks": [dict(zip(names, row, strict=True)) for row in blocks_to_rows(placement)],
    }


def orders_at_random(choose: random.Random, placement: Placement, number: int) -> list[list[Instance]]:
    """Return orders that once were valid, with a few swaps of neighbours, on one device or on all."""
    schedule = gpipe(placement, number)
    orders = [list(schedule.order(device)) for device in range(placement.num_devices)]
    for _ in range(choose.randrange(MOST_SWAPS)):
        order = choose.choice(orders)
        i = choose.randrange(len(order) - 1)
        order[i : i + 2] = order[i + 1], order[i]
    return orders


def cases() -> list[tuple[Placement, int, int, list[list[Instance]]]]:
    choose = random.Random(7)
    found = []
    for preset in PRESETS:
        for _ in range(12):
            number, transfer = choose.randint(1, 6), choose.choice([0, 0, 1, 3])
            placement = preset.placement(choose.choice([2, 4]))
            placement = with_transfer(placement, transfer) if transfer else placement
            found.append((placement, number, transfer, orders_at_random(choose, placement, number)))
    return found


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, Any]]:
    """Each case with what the page's simulator makes of it."""
    given = cases()
    data = []
    for placement, number, transfer, orders in given:
        index = {block.name: i for i, block in enumerate(placement.blocks)}
        rows = [[[index[name], n] for name, n in order] for order in orders]
        page = in_page(placement, transfer)
        data.append({"placement": page, "number": number, "orders": rows, "memory": MEMORY})
    found = simulated(SIMULATE, data, tmp_path_factory.mktemp("page"))
    assert [each["orders"] for each in data] == [each["again"] for each in found]
    return list(zip(given, found, strict=True))


def key(placement: Placement, text: str) -> Instance:
    block, n = map(int, text.split(":"))
    return placement.blocks[block].name, n


def ours(case: Any) -> Schedule | None:
    """Return the schedule of a case; None where it is a deadlock."""
    placement, number, _, orders = case
    try:
        return as_soon_as_possible(placement, number, orders)
    except CyclicOrderError:
        return None


def test_starts_and_figures_are_ours(answers: list[tuple[Any, Any]]) -> None:
    valid = [(schedule, found) for case, found in answers if (schedule := ours(case))]
    assert len(valid) > 50
    for schedule, found in valid:
        placement = schedule.placement
        assert {key(placement, text): start for text, start in found["starts"]} == schedule.start_of
        assert found["makespan"] == schedule.makespan
        assert found["bubbleRate"] == pytest.approx(bubble_rate(schedule), abs=1e-12)
        assert found["peaks"] == peak_memory(schedule).tolist()
        assert found["spans"] == device_spans(schedule).tolist()


def test_deadlocks_are_ours_and_name_a_circle(answers: list[tuple[Any, Any]]) -> None:
    stuck = [(case, found) for case, found in answers if ours(case) is None]
    assert len(stuck) > 30
    for (placement, number, _, orders), found in stuck:
        assert found["makespan"] is None
        waits = waits_in_order(placement, number, orders)
        circle = [key(placement, text) for text in found["cycle"]]
        for before, after in zip(circle, circle[1:] + circle[:1], strict=True):
            assert before in [earlier for earlier, _ in waits[after]]
    assert all(bool(found["cycle"]) == (ours(case) is None) for case, found in answers)


def test_memory_over_the_limit_is_named_where_it_is(answers: list[tuple[Any, Any]]) -> None:
    for (placement, _, _, orders), found in answers:
        over = [
            [device, i]
            for device, order in enumerate(orders)
            for i, units in enumerate(memory_needed(placement, device, order))
            if units > MEMORY
        ]
        assert found["overMemory"] == over


def test_the_simple_bound_is_no_more_than_ours(answers: list[tuple[Any, Any]]) -> None:
    for case, found in answers:
        schedule = ours(case)
        assert schedule is None or found["bound"] <= schedule.makespan
        if case[2] == 0:
            assert found["bound"] <= makespan_bound(case[0], case[1])


def test_a_saved_schedule_is_our_file(answers: list[tuple[Any, Any]]) -> None:
    checked = 0
    for case, found in answers:
        schedule = ours(case)
        if schedule is None or found["overMemory"]:
            continue
        wanted = schedule_to_dict(replace(schedule, placement=case[0].with_memory(MEMORY)))
        file = found["file"]
        assert schedule_to_dict(schedule_from_dict(file)) == wanted
        assert file.keys() == wanted.keys()
        names = wanted.keys() - {"placement", "bubble_rate"}
        assert {name: file[name] for name in names} == {name: wanted[name] for name in names}
        assert placement_from_dict(file["placement"]) == case[0].with_memory(MEMORY)
        checked += 1
    assert checked > 30


MOVE = """
const {placement, orders, device, from, to} = data;
return [
  Simulator.moved(placement, orders, device, from, to),
  Simulator.ordersFromText(placement, data.texts),
  Simulator.ordersFromLink(placement, 2, "a0"),
  Simulator.ordersFromLink(placement, 2, "??.??"),
];
"""


def test_a_block_on_all_devices_is_moved_on_all(tmp_path: Path) -> None:
    """The embedding's backward of micro-batch 0, moved behind that of 1, would else be a deadlock."""
    placement = next(preset for preset in PRESETS if preset.shape == "m_shape").placement(2)
    schedule = gpipe(placement, 2)
    index = {block.name: i for i, block in enumerate(placement.blocks)}
    orders = [[[index[name], n] for name, n in schedule.order(device)] for device in range(2)]
    back = index["EB"]
    start = orders[0].index([back, 0])
    end = orders[0].index([back, 1])
    data = {
        "placement": in_page(placement, 0),
        "orders": orders,
        "device": 0,
        "from": start,
        "to": end,
        "texts": orders_to_text(schedule),
    }
    moved, from_text, *wrong = simulated(MOVE, data, tmp_path)
    for order in moved:
        assert order.index([back, 1]) < order.index([back, 0])
        assert sorted(order) == sorted(orders[moved.index(order)])
    assert from_text == orders
    assert wrong == [None, None]
