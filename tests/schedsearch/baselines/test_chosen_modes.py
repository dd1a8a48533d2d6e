"""Hand-made schedules where blocks have modes."""

from __future__ import annotations

import schedsearch
from experiments.benchmarks.inputs.made_placements import recomputing
from placements.models.memory_levers import Offload, with_levers
from placements.shapes import v_shape
from schedsearch.baselines import HAND_MADE
from schedsearch.baselines.chosen_modes import with_chosen_modes
from schedsearch.metrics import peak_memory
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
    placement = with_levers(
        v_shape(4, forward_time=4, backward_time=8, stage_memory=10).with_memory(30),
        offload={f"F{stage}": [Offload(10, 4)] for stage in range(4)},
        host_memory=100,
    )
    schedules = dict(with_chosen_modes(placement, 12, {"one_f_one_b": HAND_MADE["one_f_one_b"]}))
    assert any("offload on the first" in name for name in schedules)
    assert all(peak_memory(validate(schedule)).max() <= 30 for schedule in schedules.values())


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
