from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_up_runs import ENDLESS, FAST, GB_PER_S, PLANS, SLOW, links, plan, write_runs
from one_line_errors import raises_line

from placements import Kind, Placement
from placements.forms.texts import write_json
from placements.measured.layer_profile import NotProfiledError
from placements.measured.link_fit import GpuGroup
from placements.measured.measured_placement import place_measured
from placements.measured.plan_file import PlanFileError, ReplicatedPlan, read_replicated_plan
from placements.measured.profile_folder import read_profiled_model


def placed(folder: Path, data: dict[str, Any], fit: list[Any] = ENDLESS, **options: float) -> Placement:
    model = read_profiled_model(write_runs(folder, between=links(fit)), "toy")
    return place_measured(read(folder, data), model, 100, **options)


def ms(placement: Placement, *names: str) -> list[float]:
    return [placement.ms(placement.by_name[name].time) for name in names]


TWO_STAGES = plan([[0, 1], [2, 3]], [[(FAST, 1)], [(SLOW, 1)]])


def test_each_stage_runs_on_its_own_type_of_gpu(tmp_path: Path) -> None:
    """Blocks of 10 + 20 ms, embedding 1 + 2, head 4 + 6; the slow ones take three times as long."""
    placement = placed(tmp_path, TWO_STAGES)
    assert ms(placement, "F0", "B0", "F1", "B1") == pytest.approx([11, 22, 42, 78])
    assert placement.num_devices == 2


def test_the_slowest_replica_sets_the_time(tmp_path: Path) -> None:
    data = plan([[0, 1, 2, 3]], [[(FAST, 1), (SLOW, 2)]])
    assert ms(placed(tmp_path, data), "F0", "B0") == pytest.approx([37.5, 72])


def test_a_transfer_is_a_block_on_both_devices(tmp_path: Path) -> None:
    """A million bytes at 1 GB/s."""
    placement = placed(tmp_path, TWO_STAGES, GB_PER_S)
    for name, kind in (("A0", Kind.F), ("G0", Kind.B)):
        assert placement.by_name[name].devices == (0, 1) and placement.by_name[name].kind is kind
    assert ms(placement, "A0", "G0") == pytest.approx([1, 1])
    assert not placement.transfer


def test_the_whole_is_gathered_before_it_is_used(tmp_path: Path) -> None:
    """Half a million bytes at 1 GB/s, at the receivers of activations and of gradients."""
    data = plan([[0, 1], [2, 3]], [[(FAST, 2)], [(FAST, 2)]])
    free = placed(tmp_path, data)
    write_json(tmp_path / "bandwidth/intra_node.json", {"fast": {"2": GB_PER_S}})
    gathered = place_measured(read(tmp_path, data), read_profiled_model(tmp_path, "toy"), 100)
    longer = [
        a - b for a, b in zip(*(ms(case, "F0", "B0", "F1", "B1") for case in (gathered, free)), strict=True)
    ]
    assert longer == pytest.approx([0, 0.5, 0.5, 0])


def test_gradients_are_summed_over_replicas_after_the_last_micro_batch(tmp_path: Path) -> None:
    """Four million weights of four bytes: each of two replicas sends half of them twice."""
    alone, both = ([(FAST, 1)] * count for count in (1, 2))
    assert ms(placed(tmp_path, plan([[0, 1, 2, 3]], [both]), GB_PER_S), "O0") == pytest.approx([16])
    assert ms(placed(tmp_path, plan([[0, 1, 2, 3]], [alone]), GB_PER_S), "O0") == pytest.approx([0.001])


def test_a_stage_of_half_as_many_replicas_does_twice_as_much(tmp_path: Path) -> None:
    data = plan([[0, 1], [2, 3]], [[(FAST, 1), (FAST, 1)], [(FAST, 1)]])
    halved, one = placed(tmp_path, data, GB_PER_S), placed(tmp_path, TWO_STAGES, GB_PER_S)
    assert ms(halved, "F0", "F1", "A0") == pytest.approx([11, 28, 2])
    assert halved.by_name["F1"].memory == 15 and one.by_name["F1"].memory == 8  # 2 or 1 times 8 MB in MiB


def test_memory_is_context_weights_and_what_is_kept(tmp_path: Path) -> None:
    """20 bytes of two million weights and 100 MiB; the backward needs one layer's activations besides."""
    placement = placed(tmp_path, TWO_STAGES)
    assert placement.static[0] == round(100 + 40e6 / 2**20)
    assert placement.by_name["F0"].memory == -placement.by_name["B0"].memory == round(8e6 / 2**20)
    assert placement.by_name["B0"].transient == round(8e6 / 2**20) + round(4e6 / 2**20)


def test_a_slowdown_is_of_layers_alone(tmp_path: Path) -> None:
    slower = placed(tmp_path, TWO_STAGES, GB_PER_S, compute_slowdown=1.1)
    assert ms(slower, "F0", "A0") == pytest.approx([12.1, 1])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (plan([[0, 7]], [[(FAST, 1)]]), "layer 7 is not of the model, whose last is 3"),
        (plan([[0]], [[(FAST, 4)]]), "tensor parallelism 4 has no memory profile, only 1, 2"),
        (plan([[0]], [[(FAST, 1)]], mbs=8), "micro-batches of 8 are not within the 1 to 4 measured on fast"),
        (plan([[0]], [[(("new", 4, "east"), 1)]]), "the model has no times on new; measured: fast, slow"),
    ],
)
def test_what_was_not_measured_is_said(tmp_path: Path, data: dict[str, Any], message: str) -> None:
    with pytest.raises(NotProfiledError, match=message):
        placed(tmp_path, data)


def read(tmp_path: Path, data: Any) -> ReplicatedPlan:
    return read_replicated_plan(write_json(tmp_path / "plan.json", data))


def test_a_plan_is_read(tmp_path: Path) -> None:
    two_types = read(tmp_path, PLANS["two_types"] | {"real": 1, "N": 3})
    assert [stage.layers for stage in two_types.stages] == [(0, 1), (2, 3)]
    assert two_types.stages[0].replicas == (GpuGroup("fast", "east", 2), GpuGroup("slow", "west", 2))
    assert (two_types.num_gpus, two_types.width, two_types.num_micro_batches) == (6, 2, 4)
    fewer = read(tmp_path, plan([[0], [1]], [[(FAST, 1)] * 3, [(FAST, 1)] * 2], mbs=2, gbs=20))
    assert [fewer.repeats_of(stage) for stage in fewer.stages] == [1, 2]
    assert fewer.num_micro_batches == 4


def changed(**fields: Any) -> dict[str, Any]:
    data = plan([[0], [1]], [[(FAST, 1)], [(SLOW, 1)]])
    return {**data, "pipeline_list": [{**data["pipeline_list"][0], **fields}]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({**PLANS["one_stage"], "pipeline_list": []}, "pipeline_list: [] is not a list of one pipeline"),
        ({**PLANS["one_stage"], "mbs": 0}, "mbs: 0 is not a whole number of 1 or more"),
        (changed(dp=[1, 2]), "dp[1]: 2 is not the number of replicas in tmp_per_stage[1], 1"),
        (
            changed(layers_per_stage=[[0], []]),
            "layers_per_stage[1]: is empty; give each stage at least one layer",
        ),
        (
            changed(tmp_per_stage=[[[[["fast", 4, "east"]], 8]], [[[["fast", 4, "east"]], 1]]]),
            "tmp_per_stage[0][0]: 8 is not at most the GPUs of its nodes; name more nodes",
        ),
        (
            changed(tmp_per_stage=[[[[list(FAST), list(SLOW)], 8]], [[[list(FAST)], 1]]]),
            "are not nodes of one type of GPU and one zone; make others a replica of their own",
        ),
    ],
)
def test_wrong_plans_are_a_line(tmp_path: Path, data: Any, message: str) -> None:
    with raises_line(PlanFileError, f"{tmp_path / 'plan.json'}: ", has=message):
        read(tmp_path, data)
