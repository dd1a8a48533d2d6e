"""`experiments.plan` with PipeDream-2BW's planner: parallel pipelines of equal blocks, and which to take."""

from __future__ import annotations

import dataclasses
import logging

from experiments.config.options import OptionError, require
from experiments.config.run_record import output_directory
from experiments.plan.options import PlanCommandOptions
from experiments.plan.pipedream_plan import table_of
from placements import Placement
from placements.cluster import Cluster
from placements.copies.replicas import replicated
from placements.forms.texts import csv_text, write_text
from placements.models.chain import ModelShape
from placements.models.costing.layer_costs import layer_cost
from placements.models.costing.options import CostOptions
from placements.models.parallel import Cost, LayerStrategy, Pass
from placements.models.piece_placement import PieceCost, in_ticks
from placements.models.transformer import TransformerLayer
from placements.pieces import blocks_of, transfers_of
from placements.placement_file import placement_to_yaml
from placements.planners.parallel_plan import PlanError
from placements.planners.pipedream.two_bw import BlockProfile, EqualServers, TwoBwPlan, two_bw_plans

log = logging.getLogger(__name__)

_SHOWN = 10
"""Rows of the table in ``plan.md``."""

_COLUMNS = (*(each.name for each in dataclasses.fields(TwoBwPlan)), "batch_size", "samples_per_s")


def plan_two_bw(
    options: PlanCommandOptions, model: ModelShape, cluster: Cluster, costs: CostOptions
) -> dict[str, float | str]:
    """Plan equal blocks, write the best plan with all that were looked at, and return its figures.

    Args:
        options: Those of the command.
        model: Its transformer layers are the equal blocks; embedding and output layer are not counted.
        cluster: Servers of one kind.
        costs: Shares of the peaks that layers reach.

    Raises:
        OptionError: The batch is wrong, or the layers or nodes are not equal.
        PlanError: No plan fits.
    """
    batch = options.batch
    is_number = isinstance(batch, int) and batch > 0
    require(is_number, "batch", batch, "the samples of an update", "give one number")
    assert isinstance(batch, int)
    profile, servers = _profile(options, model, cluster, costs), _servers(options, cluster)
    plans = two_bw_plans(profile, servers, batch)
    best = plans[0]
    if best.reason:
        raise PlanError(f"no plan fits: that of {_in_words(best)} {best.reason}; give more memory or GPUs")
    rows = [{name: getattr(plan, name) for name in _COLUMNS} for plan in plans]
    names = {"data_parallel": "pipelines", "num_stages": "stages", "micro_batch_size": "micro-batch"}
    names |= {"recompute": "again", "time_ms": "ms", "samples_per_s": "samples/s"}
    names |= {"memory_mib": "MiB of a GPU", "reason": "note"}
    lines = [
        f"# {model.name} in parallel pipelines, as PipeDream-2BW plans",
        "",
        f"Best: {_in_words(best)}; an update of {best.batch_size} samples, of {best.accumulation} times as "
        "many micro-batches of each pipeline as it has stages.",
        "",
        f"Run it with `{_run_options(best)}`.",
        "",
        "Costs are those of the transformer layers, computed; memory is that of the dissertation's closed "
        "form: weights of two versions and activations, without gradients and the optimizer's states.",
        "",
        *table_of(rows[:_SHOWN], names),
        "",
    ]
    directory = output_directory()
    write_text(directory / "plan.md", "\n".join(lines))
    write_text(directory / "plans.csv", csv_text(_COLUMNS, (row.values() for row in rows)))
    write_text(directory / "placement.yaml", placement_to_yaml(_placement(best, profile, servers)))
    log.info("best: %s, %.5g ms for a micro-batch of each pipeline", _in_words(best), best.time_ms)
    log.info("plan, placement and the table in %s", directory)
    log.info("run it with: %s", _run_options(best))
    name = f"{best.data_parallel}x{best.num_stages}"
    num_gpus = best.data_parallel * best.num_stages
    return {"plan": name, "samples_per_s": best.samples_per_s, "num_gpus": num_gpus}


def _profile(
    options: PlanCommandOptions, model: ModelShape, cluster: Cluster, costs: CostOptions
) -> BlockProfile:
    """Return what a block costs one GPU."""
    blocks = [(count, layer) for count, layer in model.chained.runs if isinstance(layer, TransformerLayer)]
    if len(blocks) != 1:
        raise OptionError(
            f"model: {model.name} has {len(blocks)} kinds of transformer layers in a row, but "
            "planner=pipedream_2bw plans equal blocks; use planner=hybrid"
        )
    ((count, layer),) = blocks
    found = {
        size: layer_cost(layer, LayerStrategy(), size, 1, cluster.group(0, 1), costs)
        for size in sorted(set(options.micro_batch_sizes))
    }
    precision = model.precision
    return BlockProfile(
        count,
        {size: cost.forward.time_ms for size, cost in found.items()},
        {size: cost.backward.time_ms for size, cost in found.items()},
        precision.weight_bytes * layer.num_parameters,
        sum(layer.kept(precision, 1)),
        float(precision.number_bytes * layer.output_elements()),
    )


def _servers(options: PlanCommandOptions, cluster: Cluster) -> EqualServers:
    if len(cluster.nodes) > 1:
        raise OptionError(
            "cluster: has several kinds of nodes, which planner=pipedream_2bw cannot; use one kind"
        )
    (nodes,) = cluster.nodes
    memory_gib = nodes.gpu.memory_gib if options.memory_gib is None else options.memory_gib
    return EqualServers(
        cluster.num_gpus,
        nodes.gpus_per_node,
        cluster.link_bandwidth_gb_s or nodes.gpu.link_bandwidth_gb_s,
        cluster.node_bandwidth_gb_s,
        1024 * memory_gib,
    )


def _placement(plan: TwoBwPlan, profile: BlockProfile, servers: EqualServers) -> Placement:
    """Return the plan's pipelines: a device for each GPU, and stages as copies that take turns."""
    size, number = plan.micro_batch_size, plan.num_stages
    blocks = profile.num_blocks // number
    forward_ms, backward_ms = (blocks * each[size] for each in (profile.forward_ms, profile.backward_ms))
    backward_ms += forward_ms if plan.recompute else 0.0
    kept = size * (profile.input_bytes if plan.recompute else blocks * profile.activation_bytes)
    cost = Cost(Pass(forward_ms), Pass(backward_ms), kept)
    hop_ms = servers.in_pipeline_ms(size * profile.input_bytes, plan.data_parallel, number)
    hops_ms = [0.0, *([hop_ms] * (number - 1))]
    costs = [PieceCost((stage,), cost, 1, hop, hop) for stage, hop in enumerate(hops_ms)]
    pieces, tick_ms = in_ticks(costs, None)
    stages = Placement(
        f"pipedream_2bw_{plan.data_parallel}x{number}",
        number,
        tuple(blocks_of(pieces)),
        tick_ms,
        transfer=transfers_of(pieces),
        memory_unit_mib=1.0,
    )
    if plan.data_parallel == 1:
        return stages
    return dataclasses.replace(replicated(stages, [plan.data_parallel] * number), name=stages.name)


def _run_options(plan: TwoBwPlan) -> str:
    """Return the options with which a run is the plan; without a flush of four updates."""
    each = plan.num_stages * plan.accumulation
    flushes, number = plan.num_stages == 1, each * plan.data_parallel
    run = f"schedule=pipedream search.num_micro_batches={number if flushes else 4 * number}"
    run += " runtime.recompute=all" if plan.recompute else ""
    versions = f"runtime.weight_versions=double_buffering runtime.micro_batches_per_update={each}"
    return run if flushes else f"{run} {versions}"


def _in_words(plan: TwoBwPlan) -> str:
    again = ", computed again" if plan.recompute else ""
    size = plan.micro_batch_size
    return f"{plan.data_parallel} pipelines of {plan.num_stages} stages, micro-batches of {size}{again}"
