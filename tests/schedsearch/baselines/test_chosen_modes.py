"""Hand-made schedules where blocks have modes."""

from __future__ import annotations

import pytest

import schedsearch
from experiments.benchmarks.inputs.made_placements import offloading, recomputing
from placements import Placement
from schedsearch.baselines import HAND_MADE
from schedsearch.baselines.chosen_modes import with_chosen_modes
from schedsearch.metrics import peak_memory
from schedsearch.searches.search import search
from schedsearch.validate import validate


def test_each_stage_decides_for_itself_what_it_can_afford() -> None:
    """Of four stages that hold 4, 3, 2 and 1 micro-batches of 10 units, with 32, the first recomputes."""
    placement = recomputing(4).with_memory(32)
    schedules = dict(with_chosen_modes(placement, 12, {"one_f_one_b": HAND_MADE["one_f_one_b"]}))
    assert set(schedules) == {"one_f_one_b, all recompute", "one_f_one_b, each stage what it can afford"}
    best = schedules["one_f_one_b, each stage what it can afford"]
    assert set(best.chosen) == {(1, 0, 0, 0)}
    assert best.makespan < schedules["one_f_one_b, all recompute"].makespan


def test_copies_to_the_host_are_put_beside_1f1b() -> None:
    """Forwards that wait for a copy to free memory do not delay 1F1B, which would hold eight."""
    placement = offloading(8, 6).with_memory(30)
    schedules = dict(with_chosen_modes(placement, 32, {"one_f_one_b": HAND_MADE["one_f_one_b"]}))
    assert schedules["one_f_one_b, offload on the first 5"].makespan == 31 * (2 + 4) + 8 * (2 + 4)
    assert all(peak_memory(validate(schedule)).max() <= 30 for schedule in schedules.values())


RECOMPUTE, OFFLOAD = recomputing(3).with_memory(20), offloading(4, 4).with_memory(20)


@pytest.mark.parametrize("goal", ["period makespan", "makespan"])
@pytest.mark.parametrize(("case", "size", "made", "most"), [(RECOMPUTE, 6, 56, 50), (OFFLOAD, 16, 126, 126)])
def test_a_search_begins_with_modes_chosen_by_hand(
    case: Placement, size: int, made: int, most: int, goal: str
) -> None:
    """A search is shorter than by hand where streams share no memory, else equal; more work is no worse."""
    assert min(schedule.makespan for _, schedule in with_chosen_modes(case, size, HAND_MADE)) == made
    little, more = (search(case, size, objectives=goal.split(), work_limit=work) for work in (0.1, 2))
    assert little.schedule is not None and more.schedule is not None
    assert made >= little.schedule.makespan >= more.schedule.makespan <= most


def test_a_comparison_of_stages_with_modes() -> None:
    """The search is shorter than the schedule by hand, whose note tells how its modes were chosen."""
    stages = schedsearch.stages_of(
        4,
        forward_ms=20,
        backward_ms=40,
        activation_mib=1000,
        memory_mib=3200,
        recompute_ms=20,
        recompute_mib=100,
    )
    by_hand, searched = schedsearch.compare(stages, ["one_f_one_b", "searched"], 16, work_limit=4).rows
    assert by_hand.note == "modes: each stage what it can afford"
    assert by_hand.makespan_ms is not None and searched.makespan_ms is not None
    assert searched.makespan_ms < by_hand.makespan_ms
