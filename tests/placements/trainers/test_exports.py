"""Plans as arguments of Megatron-LM and torchtitan, and as Galvatron's files: parsed as these do."""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from export_facts import megatron_parser, words
from made_up_costs import usual_plan
from one_line_errors import raises_line

from placements.cluster import read_cluster
from placements.models.parallel import LayerStrategy
from placements.models.transformer import TransformerLayer
from placements.models.zoo import read_model
from placements.planners.hybrid.decision_trees import TreeOptions
from placements.planners.hybrid.plan import Plan, PlanError, StagePlan
from placements.planners.hybrid.plan_options import PlanOptions, RatedPlan
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.trainers import megatron, torchtitan
from placements.trainers.as_run import PlanExport, Planned, planned_by, rate
from placements.trainers.files import read_any
from placements.trainers.galvatron import galvatron_plan, to_galvatron
from placements.trainers.layout import layout_of_sizes
from placements.trainers.megatron import to_megatron
from placements.trainers.torchtitan import to_torchtitan

USUAL = LayerStrategy(2, 2, 1)


def some_plan(*strategies: LayerStrategy, model: str = "gpt3_1.3b", cluster: str = "a100_8") -> Plan:
    return usual_plan(USUAL, *strategies, model=model, cluster=cluster)


def costs_of(plan: Plan) -> ShapeCosts:
    return ShapeCosts(plan.model)


def to(export: Callable[[Planned], PlanExport], plan: Plan, gib: float = math.inf) -> PlanExport:
    """Return a plan in a trainer's form, for GPUs with `gib` of memory."""
    costs = costs_of(plan)
    return export(planned_by(rate(plan, costs), costs, [gib] * plan.num_stages))


def planned(rated: RatedPlan) -> Planned:
    """Return a plan with the memory that its cluster has."""
    return planned_by(rated, costs_of(rated.plan), capacities_gib(rated.plan))


@cache
def searched(model: str, cluster: str) -> tuple[RatedPlan, ...]:
    """Return the best plans of a model with few numbers to try, and experts shared where it has any."""
    experts = (1, 2, 4, 8) if "mixtral" in model else (1,)
    options = PlanOptions(
        TreeOptions(expert_parallel=experts),
        num_stages=(1, 2),
        num_micro_batches=(8,),
        idle_gpus=False,
        num_plans=3,
    )
    costs = ShapeCosts(read_model(model).chained)
    return search_plans(costs, read_cluster(cluster), 64, options).plans


def capacities_gib(plan: Plan) -> Sequence[float]:
    return [plan.group(stage).memory_gib - 4.0 for stage in range(plan.num_stages)]


def parsed_megatron(exported: PlanExport) -> argparse.Namespace:
    return megatron_parser().parse_args(words(exported.text))


def check_megatron(exported: PlanExport, num_gpus: int, capacity_gib: Sequence[float]) -> None:
    """Assert Megatron-LM's own conditions on its arguments, and that they read back as the planned job."""
    options, run = parsed_megatron(exported), exported.run
    assert megatron.read(words(exported.text), num_gpus) == exported.job
    check_job(exported, num_gpus)
    t, e = options.tensor_model_parallel_size, options.expert_model_parallel_size
    groups = options.num_query_groups or options.num_attention_heads
    assert groups % t == 0 or t % groups == 0
    assert (options.num_experts or 1) % e == 0
    assert options.num_experts is None or t == 1 or options.sequence_parallel
    assert options.bf16 == options.grad_reduce_in_bf16 == (run.plan.model.precision.name == "half")
    check_memory(run, capacity_gib)


def check_torchtitan(exported: PlanExport, num_gpus: int, capacity_gib: Sequence[float]) -> None:
    job = exported.job
    check_job(exported, num_gpus)
    degrees = job.layout.degrees
    if degrees.pipeline > 1:
        read = torchtitan.read(words(exported.text))
        assert (read.layout, read.stages) == (job.layout, job.stages)
    is_eager = degrees.pipeline > 1 or degrees.expert > 1
    assert ("--training.disable_cuda_graphs" in exported.text) == is_eager
    check_memory(exported.run, capacity_gib)


def check_job(exported: PlanExport, num_gpus: int) -> None:
    """Assert that a job has the GPUs and the batch of its plan."""
    job, plan = exported.job, exported.run.plan
    assert job.layout.degrees.num_gpus == num_gpus
    assert (job.layout.batch, job.layout.num_micro_batches) == (
        plan.global_batch_size,
        plan.num_micro_batches,
    )
    assert [len(stage.layers) for stage in plan.stages] == list(job.stages.sizes)
    assert job.layout.strategy.matrix_parallel == plan.common.matrix_parallel


def check_memory(run: RatedPlan, capacity_gib: Sequence[float]) -> None:
    again = rate(run.plan, costs_of(run.plan))
    for stage, counted, gib in zip(run.stages, again.stages, capacity_gib, strict=True):
        assert stage.peak_mib == pytest.approx(counted.peak_mib)
        assert stage.peak_mib <= gib * 1024


@pytest.mark.parametrize(
    ("model", "cluster"),
    [
        ("llama3_8b", "h100_16"),
        ("qwen3_30b_a3b", "h100_16"),
        ("deepseek_v2_lite", "a100_8"),
        ("gpt_oss_20b", "h100_16"),
        ("t5_large", "a100_8"),
        ("mixtral_8x7b", "h100_16"),
    ],
)
def test_every_export_of_each_kind_of_model_is_of_what_fits(model: str, cluster: str) -> None:
    for rated in searched(model, cluster):
        for export, check in ((to_megatron, check_megatron), (to_torchtitan, check_torchtitan)):
            try:
                exported = export(planned(rated))
            except PlanError as error:
                assert re.match(r"^(model|memory|num_kv_heads): ", str(error))
                continue
            check(exported, rated.plan.num_gpus, capacities_gib(rated.plan))
            assert all("\n" not in line for line in exported.differs)


def test_memory_that_no_way_of_sharing_fits_is_refused() -> None:
    plan = some_plan(*[LayerStrategy(4), LayerStrategy(4)])
    needs = max(stage.peak_mib for stage in rate(plan, costs_of(plan)).stages) / 1024
    for export, system in ((to_megatron, "Megatron-LM"), (to_torchtitan, "torchtitan")):
        with pytest.raises(
            PlanError, match=rf"^memory: as {system} shares the layers, stage 1 needs .* planner.uniform=true"
        ):
            to(export, plan, 0.2 * needs)


def test_as_few_layers_are_recomputed_as_fit() -> None:
    """Once all were recomputed as most of them, with two thirds of the memory left."""
    plan = some_plan(*[LayerStrategy(2, 2, 1, "full")] * 7)
    assert parsed_megatron(to(to_megatron, plan)).recompute_granularity is None
    assert "activation_checkpoint:none" in to(to_torchtitan, plan).text


def test_zero_of_each_system() -> None:
    for zero, is_optimizer, is_sharded in (
        (0, False, False),
        (1, True, False),
        (2, True, False),
        (3, True, True),
    ):
        plan = some_plan(*[LayerStrategy(2, 2, zero)] * 10)
        megatron, titan = to(to_megatron, plan), to(to_torchtitan, plan)
        options = parsed_megatron(megatron)
        assert (options.use_distributed_optimizer, options.use_megatron_fsdp) == (is_optimizer, is_sharded)
        assert f"data_parallel_shard_degree {2 if zero else 1}" in titan.text
        assert bool(titan.differs[0].startswith("10 of 10 layers")) == (zero == 2)


def test_sequences_that_are_shared() -> None:
    shared = some_plan(*[LayerStrategy(2, 2, 1, sequence="megatron")] * 10)
    assert parsed_megatron(to(to_megatron, shared)).sequence_parallel
    assert "no-enable-sequence-parallel" not in to(to_torchtitan, shared).text
    assert "--parallelism.no-enable-sequence-parallel" in to(to_torchtitan, some_plan()).text
    ulysses = to(to_megatron, some_plan(*[LayerStrategy(2, 2, 1, sequence="ulysses")] * 10))
    options = parsed_megatron(ulysses)
    assert (options.context_parallel_size, options.cp_comm_type) == (2, "a2a")
    ring = to(to_torchtitan, some_plan(*[LayerStrategy(2, 2, 0, sequence="ulysses")] * 10))
    assert "context_parallel_degree 2" in ring.text
    assert ring.run.plan.common == LayerStrategy(1, 2, 1, context_parallel=2)


def test_heads_that_do_not_divide_are_refused() -> None:
    plan = some_plan(*[LayerStrategy(4, 1)] * 10, model="llama2_70b")
    layer = plan.model.layers[1]
    assert isinstance(layer, TransformerLayer)
    few = replace(layer, num_heads=24, num_kv_heads=6, hidden_size=24 * 128)
    runs = tuple(
        (count, few if isinstance(layer, TransformerLayer) else replace(layer, hidden_size=24 * 128))
        for count, layer in plan.model.runs
    )
    plan = replace(plan, model=replace(plan.model, runs=runs))
    with raises_line(PlanError, "num_kv_heads: 6 and 4 tensor-parallel GPUs do not divide one another"):
        to(to_megatron, plan)
    with pytest.raises(PlanError, match="^num_kv_heads: 4 tensor-parallel GPUs do not divide the 6$"):
        to(to_torchtitan, plan)


def test_a_model_of_torchtitans_own_is_named() -> None:
    rated = searched("llama3_8b", "h100_16")[0]
    exported = to_torchtitan(planned(rated))
    assert "--module llama3\n--config llama3_8b\n" in exported.text
    other = to(to_torchtitan, some_plan(*[LayerStrategy(2, 2, 3)] * 10))
    assert "\n--config " not in other.text
    assert other.differs == ("torchtitan 0.3.0 has no gpt3_1.3b: give --module and --config of your own",)


def test_chunks_are_written_and_read_back(tmp_path: Path) -> None:
    plan, cut = some_plan(*[LayerStrategy(2, 2, 3)] * 10, cluster="a100_16"), (4, 3, 2, 1)
    chunks = [range(first, end) for first, end in pairwise([0, *accumulate(cut)])]
    rated, costs = rate(plan, costs_of(plan)), costs_of(plan)
    whole = planned_by(rated, costs, [math.inf] * 2, chunks=chunks)
    expected = layout_of_sizes(2, "E" + "t" * 8 + "L", cut)
    for export in (to_megatron, to_torchtitan):
        path = tmp_path / "arguments.txt"
        written = export(whole)
        path.write_text(written.text)
        assert "8 of 16 GPUs are used; start a process for each of these" in written.differs
        assert read_any(str(path)).layout == expected
    few = rated._replace(plan=replace(plan, num_micro_batches=1))
    with pytest.raises(PlanError, match="^num_micro_batches: 1 are fewer than the 2 ranks of"):
        to_megatron(whole._replace(rated=few))
    odd = rated._replace(plan=replace(plan, num_micro_batches=5, global_batch_size=40))
    with pytest.raises(PlanError, match="^num_micro_batches: Interleaved1F1B of torch refuses 5 on 2 ranks"):
        to_torchtitan(whole._replace(rated=odd))


def test_golden_text(golden: Callable[[str, str], None]) -> None:
    plan = some_plan(*[LayerStrategy(2, 2, 3)] * 3, model="llama3_8b", cluster="h100_8")
    golden("export/megatron.txt", to(to_megatron, plan, 76.0).text)
    golden("export/torchtitan.txt", to(to_torchtitan, plan, 76.0).text)


UNSHARDED = LayerStrategy(2, 2)


def exported(plan: Plan) -> PlanExport:
    """Return a plan in Galvatron's form, whatever memory it needs."""
    costs = ShapeCosts(plan.model)
    return to_galvatron(planned_by(rate(plan, costs), costs, [math.inf] * plan.num_stages))


@pytest.mark.parametrize(("model", "memory_gib"), [("gpt3_1.3b", 8.0), ("swin_huge_32", 24.0)])
def test_searched_plans_are_read_back_from_galvatrons_form(model: str, memory_gib: float) -> None:
    answer = search_plans(
        ShapeCosts(read_model(model)),
        read_cluster("a100_8"),
        32,
        PlanOptions(TreeOptions(), memory_gib=memory_gib, num_micro_batches=(8,), num_plans=3),
    )
    assert answer.plans
    for rated in answer.plans:
        plan = rated.plan
        inner = [s.tensor_innermost or 1 in (s.tensor_parallel, s.data_parallel) for s in plan.strategies]
        try:
            written = exported(plan)
        except PlanError as error:
            assert str(error).startswith("pp_division")
            continue
        if not all(inner):
            continue
        again = read_again(written)
        assert again.stage_layers == plan.stage_layers
        for i in plan.inner_layers():
            assert again.strategies[i] == replace(written.run.plan.strategies[i], tensor_innermost=True)


def read_again(written: PlanExport) -> Plan:
    plan = written.run.plan
    return galvatron_plan(json.loads(written.text), lambda _: plan.model, lambda _: plan.cluster)


def test_galvatrons_form_by_hand() -> None:
    plan = usual_plan(UNSHARDED, UNSHARDED, LayerStrategy(1, 4, 3, "full"), LayerStrategy(4, 1))
    export = exported(plan)
    assert export.differs == ()
    options = json.loads(export.text)
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
    assert any(line.startswith(lost) for line in exported(usual_plan(UNSHARDED, strategy)).differs)


def test_what_galvatron_cannot_have_is_refused() -> None:
    with pytest.raises(PlanError, match=r"^context_parallel: is above 1, .*; export another plan$"):
        exported(usual_plan(UNSHARDED, LayerStrategy(2, 1, context_parallel=2)))
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
    with raises_line(PlanError, match=r"^memory: as Galvatron shares the layers, stage 0 needs .* of 24.0; "):
        to_galvatron(planned_by(rated, costs, (24.0,)))
