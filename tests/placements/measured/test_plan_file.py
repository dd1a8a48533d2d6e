from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_up_runs import FAST, PLANS, SLOW, plan
from told import told

from placements.files import write_json
from placements.measured.link_fit import GpuGroup
from placements.measured.plan_file import PlanFileError, ReplicatedPlan, read_replicated_plan


def read(tmp_path: Path, data: Any) -> ReplicatedPlan:
    return read_replicated_plan(write_json(tmp_path / "plan.json", data))


def test_a_plan_is_read(tmp_path: Path) -> None:
    found = read(tmp_path, PLANS["two_types"] | {"real": 1, "N": 3})
    assert [stage.layers for stage in found.stages] == [(0, 1), (2, 3)]
    assert found.stages[0].replicas == (GpuGroup("fast", "east", 2), GpuGroup("slow", "west", 2))
    assert (found.num_gpus, found.width, found.num_micro_batches) == (6, 2, 4)


def test_micro_batches_are_rounded_up(tmp_path: Path) -> None:
    assert read(tmp_path, plan([[0]], [[(FAST, 1), (SLOW, 1)]], mbs=2, gbs=9)).num_micro_batches == 3


def test_a_stage_of_fewer_replicas_computes_more_at_a_time(tmp_path: Path) -> None:
    found = read(tmp_path, plan([[0], [1]], [[(FAST, 1)] * 3, [(FAST, 1)] * 2], gbs=12))
    assert [found.share_of(stage) for stage in found.stages] == [1, 2]
    assert found.num_micro_batches == 4


def changed(**fields: Any) -> dict[str, Any]:
    data = plan([[0], [1]], [[(FAST, 1)], [(SLOW, 1)]])
    return {**data, "pipeline_list": [{**data["pipeline_list"][0], **fields}]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "plan: [] is not a mapping"),
        ({}, "plan: lacks the field 'pipeline_list'; add it"),
        ({**PLANS["one_stage"], "pipeline_list": []}, "pipeline_list: [] is not a list of one pipeline"),
        ({**PLANS["one_stage"], "mbs": 0}, "mbs: 0 is not a whole number of 1 or more"),
        ({**PLANS["one_stage"], "gbs": "4"}, "gbs: '4' is not a whole number of 1"),
        (changed(num_stages=3), "layers_per_stage: has 2 entries, not one for each of the 3 stages"),
        (changed(dp=[1]), "dp: has 1 entries, not one for each of the 2 stages"),
        (
            changed(dp=[1, 2]),
            "pipeline_list[0]: dp[1]: 2 is not the number of replicas in tmp_per_stage[1], 1",
        ),
        (
            changed(layers_per_stage=[[0], []]),
            "layers_per_stage[1]: is empty; give each stage at least one layer",
        ),
        (
            changed(layers_per_stage=[[0], [-1]]),
            "layers_per_stage[1][0]: -1 is not a whole number of 0 or more",
        ),
        (changed(tmp_per_stage=[[1], [1]]), "tmp_per_stage[0][0]: 1 is not [nodes, tensor_parallel]"),
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
    with told(PlanFileError, f"{tmp_path / 'plan.json'}: ", has=message):
        read(tmp_path, data)


def test_what_is_not_there_is_a_line(tmp_path: Path) -> None:
    with pytest.raises(PlanFileError, match="cannot be read"):
        read_replicated_plan(tmp_path / "none.json")
