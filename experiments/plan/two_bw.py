"""`experiments.plan` with PipeDream-2BW's planner: parallel pipelines of equal blocks, and which to take."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from experiments.config.options import OptionError
from experiments.plan.inputs import computed_costs, one_batch, plan_cluster, plan_model, refuse_all_but
from experiments.plan.options import PlanQuestion, TwoBwPlanner
from experiments.plan.pipedream import levels_of
from experiments.report.result import Result, Table
from placements import Placement
from placements.cluster import Cluster
from placements.copies.replicas import replicated
from placements.models.chain import ModelShape
from placements.models.costing.layer_costs import layer_cost
from placements.models.costing.options import CostOptions
from placements.models.parallel import Cost, LayerStrategy, Pass
from placements.models.piece_placement import PieceCost, in_ticks
from placements.models.transformer import TransformerLayer
from placements.pieces import blocks_of, transfers_of
from placements.placement_file import placement_to_yaml
from placements.planners.hybrid.plan import PlanError
from placements.planners.pipedream.two_bw import BlockProfile, EqualServers, TwoBwPlan, two_bw_plans

_COLUMNS = (*(field.name for field in dataclasses.fields(TwoBwPlan)), "batch_size", "samples_per_s")

_TAKEN = (
    *("cluster", "batch", "gpus_per_node", "node_bandwidth_gb_s", "link_bandwidth_gb_s", "memory_gib"),
    *("model", "num_layers", "sequence_length", "vocab_size", "precision", "machine"),
    *("model_flops_utilisation", "memory_efficiency"),
)
"""Options that this planner has."""


def task(question: PlanQuestion, planner: TwoBwPlanner) -> Result:
    """Plan equal blocks; the best plan stands with all that were looked at.

    Embedding and output layer are not counted.

    Raises:
        OptionError: An option is not of this planner, the batch is wrong, or layers or nodes are not equal.
        PlanError: No plan fits.
    """
    refuse_all_but(question, _TAKEN, "pipedream_2bw")
    batch = one_batch(question, "the samples of an update")
    model, cluster = plan_model(question), plan_cluster(question)
    costs = computed_costs(question, model, cluster)[0].options
    profile, nodes = _profile(planner.micro_batch_sizes, model, cluster, costs), cluster.nodes[0]
    gib = nodes.gpu.memory_gib if question.memory_gib is None else question.memory_gib
    links = levels_of(cluster)[0].gb_per_s, cluster.node_bandwidth_gb_s
    servers = EqualServers(cluster.num_gpus, nodes.gpus_per_node, *links, 1024 * gib)
    plans = two_bw_plans(profile, servers, batch)
    best = plans[0]
    if best.reason:
        raise PlanError(f"no plan fits: {_in_words(best)} {best.reason}; give more memory or GPUs")
    name, num_gpus = f"{best.data_parallel}x{best.num_stages}", best.data_parallel * best.num_stages
    return Result(
        figures={"plan": name, "samples_per_s": best.samples_per_s, "num_gpus": num_gpus},
        tables={"plans": Table(TwoBwPlan, plans, _COLUMNS)},
        files={"placement.yaml": placement_to_yaml(_placement(best, profile, servers))},
        sentences=[
            f"best: {_in_words(best)}, {best.time_ms:.5g} ms for a micro-batch of each pipeline",
            f"run it with: {_run_options(best)}",
        ],
    )


def _profile(sizes: Sequence[int], model: ModelShape, cluster: Cluster, costs: CostOptions) -> BlockProfile:
    """Return the costs of a block on one GPU."""
    blocks = [(count, layer) for count, layer in model.chained.runs if isinstance(layer, TransformerLayer)]
    if len(blocks) != 1:
        wrong = f"{model.name} has {len(blocks)} kinds of transformer layers in a row"
        raise OptionError(f"model: {wrong}, but planner=pipedream_2bw plans equal ones; use planner=default")
    ((count, layer),) = blocks
    gpu = cluster.group(0, 1)
    by_size = {size: layer_cost(layer, LayerStrategy(), size, 1, gpu, costs) for size in sizes}
    precision = model.precision
    return BlockProfile(
        count,
        {size: cost.forward.time_ms for size, cost in by_size.items()},
        {size: cost.backward.time_ms for size, cost in by_size.items()},
        precision.weight_bytes * layer.num_parameters,
        sum(layer.kept(precision, 1)),
        float(precision.number_bytes * layer.output_elements()),
    )


def _placement(plan: TwoBwPlan, profile: BlockProfile, servers: EqualServers) -> Placement:
    """Return the plan's pipelines: a device for each GPU, and stages as copies that take turns."""
    size, number = plan.micro_batch_size, plan.num_stages
    blocks = profile.num_blocks // number
    forward_ms, backward_ms = blocks * profile.forward_ms[size], blocks * profile.backward_ms[size]
    backward_ms += forward_ms if plan.recompute else 0.0
    kept = size * (profile.input_bytes if plan.recompute else blocks * profile.activation_bytes)
    cost = Cost(Pass(forward_ms), Pass(backward_ms), kept)
    hop_ms = servers.in_pipeline_ms(size * profile.input_bytes, plan.data_parallel, number)
    hops_ms = [0.0, *([hop_ms] * (number - 1))]
    costs = [PieceCost((stage,), cost, 1, hop, hop) for stage, hop in enumerate(hops_ms)]
    pieces, tick_ms = in_ticks(costs, None)
    name, links = f"pipedream_2bw_{plan.data_parallel}x{number}", transfers_of(pieces)
    stages = Placement(name, number, tuple(blocks_of(pieces)), tick_ms, transfer=links, memory_unit_mib=1.0)
    if plan.data_parallel == 1:
        return stages
    return dataclasses.replace(replicated(stages, [plan.data_parallel] * number), name=name)


def _run_options(plan: TwoBwPlan) -> str:
    """Return the options with which a run is the plan; without a flush of four updates."""
    per_update = plan.num_stages * plan.accumulation
    flushes, number = plan.num_stages == 1, per_update * plan.data_parallel
    run = f"schedule=pipedream search.num_micro_batches={number if flushes else 4 * number}"
    run += " runtime.recompute=all" if plan.recompute else ""
    versions = f"runtime.weight_versions=double_buffering runtime.micro_batches_per_update={per_update}"
    return run if flushes else f"{run} {versions}"


def _in_words(plan: TwoBwPlan) -> str:
    size = f"{plan.micro_batch_size}{', computed again' * plan.recompute}"
    return f"{plan.data_parallel} pipelines of {plan.num_stages} stages, micro-batches of {size}"
