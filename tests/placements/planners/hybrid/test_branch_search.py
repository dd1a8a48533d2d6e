"""Plans of models whose branches join: each branch on GPUs of its own, the joined layers on all."""

from __future__ import annotations

from itertools import pairwise

import pytest

from placements import Kind
from placements.cluster import read_cluster
from placements.models.zoo import read_model
from placements.planners.hybrid.placing.branch_search import BranchedPlan, branched_placement, search_branches
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.planners.parallel_plan import PlanError
from schedsearch.metrics import peak_memory
from schedsearch.modulo.search import search
from schedsearch.validate import validate

COSTS = ShapeCosts(read_model("flava", num_layers=4))
SMALL = PlanOptions(num_plans=3, num_micro_batches=(4, 8))


def plans(options: PlanOptions = SMALL) -> tuple[BranchedPlan, ...]:
    return search_branches(COSTS, read_cluster("a100_8"), 32, options)


def test_branches_have_gpus_of_their_own() -> None:
    found = plans()
    assert [each.time_ms for each in found] == sorted(each.time_ms for each in found)
    for plan in found:
        used = [gpu for rated in plan.branches for stage in rated.plan.stages for gpu in stage.gpus]
        assert sorted(used) == list(range(8))
        assert [len(rated.plan.model.layers) for rated in plan.branches] == [
            len(branch.layers) for branch in COSTS.model.branches
        ]
        assert plan.joined.num_gpus == 8


def test_the_placement_joins_them() -> None:
    """A chain for each branch, one forward on all devices after both, and the same in reverse."""
    plan = plans()[0]
    placement = branched_placement(plan, COSTS, 76.0)
    joined = [block for block in placement.blocks if len(block.devices) == placement.num_devices]
    assert [block.kind for block in joined] == [Kind.F, Kind.B]
    forward, backward = joined
    assert backward.after == (forward.name,)
    ends = [placement.by_name[name] for name in forward.after]
    assert len(ends) == len(COSTS.model.branches)
    assert len({end.devices for end in ends}) == len(ends)
    first = [block for block in placement.blocks if block.kind is Kind.F and not block.after]
    assert len(first) == len(COSTS.model.branches)
    after_joined = [block for block in placement.blocks if backward.name in block.after]
    assert {block.name for block in after_joined if block.kind is Kind.B} == {
        end.name.replace("F", "B") for end in ends
    }
    found = search(placement, plan.num_micro_batches, work_limit=2.5)
    assert found.schedule is not None
    validate(found.schedule)
    assert placement.memory is not None
    assert (peak_memory(found.schedule) <= placement.memory).all()


def test_more_memory_is_never_worse() -> None:
    times_ms = []
    for memory_gib in (12.0, 16.0, 24.0, 80.0):
        options = PlanOptions(num_plans=1, memory_gib=memory_gib, num_micro_batches=(8,))
        found = plans(options)
        times_ms.append(found[0].time_ms if found else float("inf"))
    assert all(less >= more * (1 - 1e-9) for less, more in pairwise(times_ms))
    assert times_ms[-1] < float("inf")


def test_a_chain_of_the_branches_has_all_layers() -> None:
    model = COSTS.model
    assert model.chained.num_parameters == model.num_parameters
    assert len(model.chained.layers) == sum(len(each.layers) for each in (*model.branches, model))
    assert search_plans(ShapeCosts(model.chained), read_cluster("a100_8"), 8, SMALL).plans


def test_wrong_models_and_clusters() -> None:
    chain = ShapeCosts(read_model("gpt3_125m"))
    with pytest.raises(PlanError, match="^model: gpt3_125m has no branches"):
        search_branches(chain, read_cluster("a100_8"), 8)
    with pytest.raises(PlanError, match="^cluster: has several kinds of GPUs"):
        search_branches(COSTS, read_cluster("a100_8+v100_8"), 8)
