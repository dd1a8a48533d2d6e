"""The kept schedules of the playground: valid, as good as they say, and what a search finds again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from docs.playground_data import (
    FILE,
    NUM_MICRO_BATCHES,
    PRESETS,
    Preset,
    from_script,
    hand_made,
    orders_to_text,
    page_data,
    schedule_from_text,
    search,
    to_script,
)
from placements import Placement
from schedsearch.baselines import zb_h1
from schedsearch.metrics import bubble_rate, peak_memory

MOST_BYTES = 500_000
AGAIN = ("x-kept", 2, 8), ("nn-recomputed", 2, 8), ("loop-kept", 2, 8), ("k-kept", 2, 8)

KEPT = {preset["name"]: preset for preset in from_script(FILE.read_text(encoding="utf-8"))["presets"]}


def kept(preset: Preset, num_devices: int, number: int) -> dict[str, Any]:
    found: dict[str, Any] = KEPT[preset.name]["devices"][str(num_devices)]["micro_batches"][str(number)]
    return found


def problems() -> Iterator[tuple[Placement, int, dict[str, Any]]]:
    for preset in PRESETS:
        for num_devices, numbers in NUM_MICRO_BATCHES.items():
            for number in numbers:
                yield preset.placement(num_devices), number, kept(preset, num_devices, number)


def test_the_file_is_small_and_what_the_script_would_write() -> None:
    assert FILE.stat().st_size < MOST_BYTES
    assert to_script(page_data(kept)) == FILE.read_text(encoding="utf-8")


def test_every_kept_schedule_is_valid_and_as_good_as_it_says() -> None:
    for placement, number, found in problems():
        assert found["searched"], placement
        for each in [*found["searched"], *found["hand_made"].values()]:
            limited = placement.with_memory(each.get("memory"))
            schedule = schedule_from_text(limited, number, each["orders"])
            assert orders_to_text(schedule) == each["orders"]
            assert (
                schedule.makespan == each["makespan"] >= each.get("bound", found["bound"]) >= found["bound"]
            )
            assert each["peak_memory"] == peak_memory(schedule).max()
            assert each["bubble_rate"] == pytest.approx(bubble_rate(schedule), abs=1e-6)


def test_none_made_by_hand_that_fits_is_shorter_than_a_searched_one() -> None:
    for placement, _, found in problems():
        for searched in found["searched"]:
            fits = [e for e in found["hand_made"].values() if e["peak_memory"] <= searched["memory"]]
            assert all(searched["makespan"] <= each["makespan"] for each in fits), placement


@pytest.mark.parametrize(("name", "num_devices", "number"), AGAIN)
def test_a_search_again_finds_the_same_makespan(name: str, num_devices: int, number: int) -> None:
    """Where the makespan is proved, whatever time a busy machine needs for that."""
    (preset,) = (preset for preset in PRESETS if preset.name == name)
    placement, found = preset.placement(num_devices), kept(preset, num_devices, number)
    proved = next(each for each in found["searched"] if each["makespan"] == each["bound"])
    again = search(placement, proved["memory"], number, time_limit_s=120.0)
    assert (again["makespan"], again["bound"]) == (proved["makespan"], proved["bound"])
    assert hand_made(placement, number) == found["hand_made"]


def test_orders_as_text_are_the_same_schedule() -> None:
    placement = next(preset for preset in PRESETS if preset.name == "v-split").placement(2)
    schedule = zb_h1(placement, 5)
    assert schedule_from_text(placement, 5, orders_to_text(schedule)) == schedule
