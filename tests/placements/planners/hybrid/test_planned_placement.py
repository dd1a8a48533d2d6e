"""Plans as placements: all layers once, memory as planned, and schedules that keep it."""

from __future__ import annotations

import math
from itertools import chain

import pytest

from placements import Kind, Placement
from placements.cluster import read_cluster
from placements.models.zoo import read_model
from placements.planners.hybrid.placing.planned_placement import planned_placement
from placements.planners.hybrid.plan_options import PlanOptions, RatedPlan
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.shape_costs import ShapeCosts
from schedsearch.baselines import HAND_MADE
from schedsearch.validate import validate


def some_plans(
    model: str, memory_gib: float | None, cluster: str = "a100_8", **sizes: int
) -> list[RatedPlan]:
    options = PlanOptions(memory_gib=memory_gib, num_stages=(2, 4, 8), num_plans=3)
    return list(
        search_plans(ShapeCosts(read_model(model, **sizes)), read_cluster(cluster), 32, options).plans
    )


def room_mib(rated: RatedPlan) -> list[int]:
    """Return the MiB that rounding each block's memory up may add to each stage."""
    return [6 * (stage.in_flight + 2) for stage in rated.stages]


def one_f_one_b_mib(placement: Placement, device: int, num_micro_batches: int, in_flight: int) -> int:
    """Return a device's peak memory in MiB if 1F1B orders whole micro-batches over all its pieces."""
    blocks = [block for block in placement.blocks if block.devices == (device,)]
    forwards = [block for block in blocks if block.kind is Kind.F]
    backwards = [block for block in blocks if block.kind is Kind.B]
    held = most = placement.static[device]
    steady = [forwards, backwards] * (num_micro_batches - in_flight + 1)
    for block in chain([*forwards] * (in_flight - 1), *steady, [*backwards] * (in_flight - 1)):
        memory = block.memory_on(device)
        most = max(most, held + max(memory, 0) + block.transient)
        held += memory
    assert held == placement.static[device]
    return most


@pytest.mark.parametrize(
    ("model", "memory_gib"),
    [("gpt3_1.3b", None), ("llama2_7b", 10.0), ("t5_large", 7.5), ("swin_huge_32", 7.5)],
)
def test_one_f_one_b_holds_what_is_planned(model: str, memory_gib: float | None) -> None:
    """With one piece a stage 1F1B is defined, and takes the time of the formula within 5 %."""
    costs = ShapeCosts(read_model(model))
    for rated in some_plans(model, memory_gib):
        plan, m = rated.plan, rated.plan.num_micro_batches
        gib = (memory_gib or 80.0) - 4.0
        placement = planned_placement(plan, costs, [gib] * plan.num_stages)
        for device, (stage, room) in enumerate(zip(rated.stages, room_mib(rated), strict=True)):
            peak = one_f_one_b_mib(placement, device, m, stage.in_flight)
            assert peak <= stage.peak_mib + room
            assert peak <= gib * 1024
        if len(plan.pieces) == plan.num_stages:
            schedule = validate(HAND_MADE["one_f_one_b"](placement, m))
            assert rated.time_ms == pytest.approx(placement.ms(schedule.makespan), rel=0.05)


def test_blocks_are_the_layers_of_the_plan() -> None:
    """Times and memory of blocks sum up to the layers' own; each device has one update."""
    costs = ShapeCosts(read_model("llama2_7b", num_layers=8))
    rated = some_plans("llama2_7b", None, num_layers=8)[0]
    plan = rated.plan
    placement = planned_placement(plan, costs)
    for number, stage in enumerate(plan.stages):
        group = plan.group(number)
        layer_costs = [
            costs.cost(
                plan.layers[i], plan.strategies[i], plan.micro_batch_size, plan.num_micro_batches, group
            )
            for i in stage.layers
        ]
        blocks = [block for block in placement.blocks if block.devices == (number,)]
        forwards = [block for block in blocks if block.kind is Kind.F]
        assert sum(block.kind is Kind.O for block in blocks) == 1
        static_mib = sum(cost.static_bytes for cost in layer_costs) / 2**20
        kept_mib = sum(cost.kept_bytes for cost in layer_costs) / 2**20
        assert placement.static[number] == math.ceil(static_mib)
        assert kept_mib <= sum(block.memory_on(number) for block in forwards) <= kept_mib + len(forwards)
        ticks = sum(block.time for block in blocks if block.kind is not Kind.O)
        assert placement.ms(ticks) == pytest.approx(rated.stages[number].time_ms, rel=0.02)


def test_a_planned_placement_has_the_nodes_of_its_cluster() -> None:
    (rated, *_) = some_plans("gpt3_1.3b", None, "a100_16")
    cluster = read_cluster("a100_16")
    costs = ShapeCosts(read_model("gpt3_1.3b"))
    placement = planned_placement(rated.plan, costs)
    assert len(set(cluster.node_of)) == 2
    assert placement.nodes == placement.by_gpu.nodes == cluster.node_of
    (alone, *_) = some_plans("gpt3_1.3b", None, "a100_8")
    assert planned_placement(alone.plan, costs).nodes is None
