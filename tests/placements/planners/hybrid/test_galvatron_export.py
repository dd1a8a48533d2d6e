"""Plans in Galvatron's form: read back, and what differs of what it runs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from made_up_costs import usual_plan

from placements.cluster import read_cluster
from placements.models.parallel import LayerStrategy
from placements.models.zoo import read_model
from placements.planners.galvatron_file import galvatron_from_dict
from placements.planners.hybrid.decision_trees import TreeOptions
from placements.planners.hybrid.exports.as_run import PlanExport, RunLimits, rate
from placements.planners.hybrid.exports.galvatron import parallel_plan, to_galvatron
from placements.planners.hybrid.plan import Plan, StagePlan
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.planners.parallel_plan import PlanError

USUAL = LayerStrategy(2, 2)


def exported(plan: Plan) -> PlanExport:
    """Return a plan in Galvatron's form, whatever memory it needs."""
    costs = ShapeCosts(plan.model)
    return to_galvatron(rate(plan, costs), RunLimits(costs, [math.inf] * plan.num_stages))


@pytest.mark.parametrize(
    ("model", "memory_gib"),
    [("gpt3_1.3b", 8.0), ("bert_huge_32", 24.0), ("t5_large", 8.0), ("swin_huge_32", 24.0)],
)
def test_searched_plans_are_read_back_from_galvatrons_form(model: str, memory_gib: float) -> None:
    found = search_plans(
        ShapeCosts(read_model(model)),
        read_cluster("a100_8"),
        32,
        PlanOptions(memory_gib=memory_gib, num_micro_batches=(8,), num_plans=3),
    )
    assert found.plans
    for rated in found.plans:
        plan = rated.plan
        inner = [s.tensor_innermost or 1 in (s.tensor_parallel, s.data_parallel) for s in plan.strategies]
        try:
            written = exported(plan)
        except PlanError as error:
            assert str(error).startswith("pp_division")
            continue
        if not all(inner):
            continue
        expected = parallel_plan(written.run.plan)
        assert galvatron_from_dict(written.options) == replace(
            expected, layers=tuple(replace(s, tensor_innermost=True) for s in expected.layers)
        )


def test_galvatrons_form_by_hand() -> None:
    plan = usual_plan(USUAL, USUAL, LayerStrategy(1, 4, 3, "full"), LayerStrategy(4, 1))
    found = exported(plan)
    assert found.differs == ()
    options = found.options
    assert options == {
        "pp_deg": 2,
        "tp_sizes_enc": "1,4,2,2,2,2,2,2",
        "tp_consecutive_flags": "1,1,1,1,1,1,1,1",
        "dp_types_enc": "1,0,0,0,0,0,0,0",
        "use_sp": "0,0,0,0,0,0,0,0",
        "checkpoint": "1,0,0,0,0,0,0,0",
        "global_bsz": 32,
        "chunks": 8,
        "pp_division": "4,4",
        "pipeline_type": "pipedream_flush",
        "default_dp_type": "ddp",
        "vtp": 2,
        "vsp": 0,
        "embed_sdp": 0,
        "world_size": 8,
    }


@pytest.mark.parametrize(
    ("strategy", "lost"),
    [
        (LayerStrategy(2, 2, 1), "ZeRO-1: Galvatron has ZeRO-2"),
        (LayerStrategy(2, 2, 2), "different ZeRO stages below 3"),
        (LayerStrategy(2, 2, 0, "selective"), "selective recomputation: Galvatron recomputes whole layers"),
        (LayerStrategy(4, 1), "the output layer's strategy: Galvatron gives it the embedding's"),
    ],
)
def test_what_galvatron_loses_is_said(strategy: LayerStrategy, lost: str) -> None:
    assert any(line.startswith(lost) for line in exported(usual_plan(USUAL, strategy)).differs)


def test_what_galvatron_cannot_have_is_refused() -> None:
    with pytest.raises(PlanError, match=r"^context_parallel: is above 1, .*; export another plan$"):
        exported(usual_plan(USUAL, LayerStrategy(2, 1, context_parallel=2)))
    with pytest.raises(PlanError, match=r"^model: wide_resnet50_8 has no transformer layer; "):
        exported(of_one_stage("wide_resnet50_8"))


def of_one_stage(name: str) -> Plan:
    model = read_model(name)
    count = len(model.layers)
    stage = StagePlan(range(2), range(count), (LayerStrategy(1, 2),) * count)
    return Plan(model, read_cluster("a100_8"), (stage,), 4, 2)


def test_what_does_not_fit_as_galvatron_runs_it_is_refused() -> None:
    """It has no expert parallelism, so that each GPU would hold all experts."""
    costs = ShapeCosts(read_model("mixtral_8x7b", num_layers=8))
    options = PlanOptions(
        TreeOptions(expert_parallel=(8,), recompute=("none",)), num_stages=(1,), num_plans=1
    )
    rated = search_plans(costs, read_cluster("h100_8"), 8, options).plans[0]
    assert rated.plan.common.expert_parallel == 8
    with pytest.raises(
        PlanError, match=r"^memory: as Galvatron shares the layers, stage 0 needs .* GiB of 24.0; "
    ):
        to_galvatron(rated, RunLimits(costs, (24.0,)))
