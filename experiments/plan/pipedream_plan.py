"""`experiments.plan` with PipeDream's planner: stages and workers for a profile, beside plans without one."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path

from experiments.config.options import OptionError, require, require_least
from experiments.config.run_record import output_directory
from experiments.plan.options import PlanCommandOptions
from experiments.plan.profiled_inputs import refuse_given
from placements.cluster import Cluster
from placements.files import csv_text, write_text
from placements.placement_file import placement_to_yaml
from placements.planners.parallel_plan import PlanError
from placements.planners.pipedream.plan import PipelinePlan
from placements.planners.pipedream.plan_placement import plan_placement
from placements.planners.pipedream.planner import best_plan, data_parallel_plan, straight_plan
from placements.planners.pipedream.profile_graph import ProfileGraph, read_profile_graph
from placements.planners.pipedream.topology import Level
from schedsearch.planning.explanation import table

log = logging.getLogger(__name__)

_OWN = (
    *("planner", "profiles", "flat", "cluster", "batch", "memory_gib"),
    *("gpus_per_node", "node_bandwidth_gb_s", "link_bandwidth_gb_s"),
)
"""Options that this planner has."""

_COLUMNS = (
    *("name", "configuration", "stages", "workers", "batch", "time_ms", "samples_per_s", "bottleneck"),
    *("bottleneck_stage", "peak_memory_mib", "note"),
)
"""Columns of the table of plans."""


def plan_profile(options: PlanCommandOptions, cluster: Cluster) -> dict[str, float | str]:
    """Plan a profile of nodes, write the plan and what it is compared with, and return its figures.

    Raises:
        OptionError: An option is missing, wrong or of another planner.
        ValueError: The profile or the cluster is wrong, or no plan fits.
    """
    batch, path = _checked(options)
    levels = levels_of(cluster, is_flat=options.flat)
    graph = read_profile_graph(path)
    memory_mib = None if options.memory_gib is None else 1024 * options.memory_gib
    best = best_plan(graph, levels, "per_worker", memory_mib)
    rows = _rows(graph, levels, best, memory_mib, batch)
    directory = output_directory()
    write_text(directory / "plan.md", explain_pipeline(best, graph, Path(path).name, rows))
    write_text(directory / "plans.csv", csv_text(_COLUMNS, (row.values() for row in rows)))
    write_text(directory / "placement.yaml", placement_to_yaml(plan_placement(best, memory_mib)))
    for row in rows:
        shown = (
            row["note"] or f"{row['configuration']}, {row['time_ms']:.5g} ms, bound by {row['bottleneck']}"
        )
        log.info("%s: %s", row["name"], shown)
    log.info("costs: as measured, of %s", path)
    log.info("plan, placement and the table in %s", directory)
    return {
        "plan": best.configuration,
        "samples_per_s": batch / best.time_ms * 1e3,
        "num_gpus": best.num_workers,
    }


def levels_of(cluster: Cluster, *, is_flat: bool = False) -> list[Level]:
    """Return GPUs of a node and nodes as levels of workers, at the bandwidths of the cluster as they are.

    Args:
        cluster: Cluster of equal nodes.
        is_flat: All GPUs are one level, with the links between nodes where there are several.

    Raises:
        OptionError: The nodes are not equal.

    >>> from placements.cluster import read_cluster
    >>> levels_of(read_cluster("v100_16", gpus_per_node=4, node_bandwidth_gb_s=1.25, link_bandwidth_gb_s=12))
    [Level(count=4, gb_per_s=12), Level(count=4, gb_per_s=1.25)]
    """
    if len(cluster.nodes) > 1:
        raise OptionError("cluster: has several kinds of nodes, which planner=pipedream cannot; use one kind")
    (nodes,) = cluster.nodes
    link_gb_s = cluster.link_bandwidth_gb_s or nodes.gpu.link_bandwidth_gb_s
    if nodes.num_nodes == 1:
        return [Level(nodes.gpus_per_node, link_gb_s)]
    if is_flat or nodes.gpus_per_node == 1:
        return [Level(cluster.num_gpus, cluster.node_bandwidth_gb_s)]
    return [Level(nodes.gpus_per_node, link_gb_s), Level(nodes.num_nodes, cluster.node_bandwidth_gb_s)]


def explain_pipeline(
    plan: PipelinePlan, graph: ProfileGraph, profile: str, rows: list[Mapping[str, object]]
) -> str:
    """Return the stages of a plan with their nodes, and the plans beside it, as Markdown."""
    links = " of ".join(f"{level.count} at {level.gb_per_s:g} GB/s" for level in reversed(plan.levels))
    exact = "" if plan.is_exact else " Not all cuts of the model were looked at."
    lines = [f"# {profile} on {plan.num_workers} workers", "", f"Workers: {links}."]
    lines += [
        "",
        f"Best plan: {plan.configuration}, {plan.time_ms:.5g} ms from one input to the next, bound by the "
        f"{plan.bottleneck} of stage {plan.bottleneck_stage}; {plan.num_in_flight} inputs in flight on each "
        f"worker of the first stage.{exact}",
        "",
        f"Costs: as measured, {len(graph.nodes)} nodes of {profile}; exchanges of gradients as each worker "
        "sends them.",
    ]
    head = ["stage", "workers", "nodes", "compute ms", "exchange ms", "transfer ms", "MiB of a worker"]
    stages = [
        [
            *(str(number), str(stage.replicas), str(len(stage.nodes)), f"{stage.compute_ms:.4g}"),
            *(f"{stage.synchronisation_ms:.4g}", f"{stage.transfer_ms:.4g}", f"{stage.memory_mib:.0f}"),
        ]
        for number, stage in enumerate(plan.stages)
    ]
    lines += ["", "## Stages", "", "Times are of one input, shared by the stage's workers.", ""]
    lines += [*table([head, *stages]), ""]
    lines += [f"- stage {number}: {', '.join(stage.nodes)}" for number, stage in enumerate(plan.stages)]
    head = ["plan", "configuration", "ms", "samples/s", "bound by", "MiB of a worker", "note"]
    lines += ["", "## Beside it", "", *table([head, *(_shown(row) for row in rows)])]
    return "\n".join(lines) + "\n"


def _checked(options: PlanCommandOptions) -> tuple[int, str]:
    """Return the batch and the path of the profile."""
    others = [each.name for each in dataclasses.fields(options) if each.name not in _OWN]
    refuse_given(options, others, "it is not of planner=pipedream; leave it out")
    if options.profiles is None:
        raise OptionError(
            "profiles: has no value; give the CSV file of a model's nodes, as in profiles=FILE.csv"
        )
    is_number = type(options.batch) is int and options.batch > 0
    require(is_number, "batch", options.batch, "the samples of a profiled input", "give one number")
    require_least("memory_gib", options.memory_gib, 1e-6)
    assert isinstance(options.batch, int)
    return options.batch, options.profiles


def _rows(
    graph: ProfileGraph, levels: list[Level], best: PipelinePlan, memory_mib: float | None, batch: int
) -> list[Mapping[str, object]]:
    """Return the figures of the plan, of data parallelism and of a stage for each worker."""
    found: dict[str, PipelinePlan | str] = {"pipedream": best}
    found["data_parallel"] = data_parallel_plan(graph, levels)
    try:
        found["straight"] = straight_plan(graph, levels, memory_mib=memory_mib)
    except PlanError as error:
        found["straight"] = str(error)
    return [_row(name, each, memory_mib, batch) for name, each in found.items()]


def _row(name: str, plan: PipelinePlan | str, memory_mib: float | None, batch: int) -> Mapping[str, object]:
    if isinstance(plan, str):
        return dict.fromkeys(_COLUMNS) | {"name": name, "batch": batch, "note": plan}
    fits = memory_mib is None or plan.memory_mib <= memory_mib
    return {
        "name": name,
        "configuration": plan.configuration,
        "stages": len(plan.stages),
        "workers": plan.num_workers,
        "batch": batch,
        "time_ms": plan.time_ms,
        "samples_per_s": batch / plan.time_ms * 1e3,
        "bottleneck": plan.bottleneck,
        "bottleneck_stage": plan.bottleneck_stage,
        "peak_memory_mib": plan.memory_mib,
        "note": "" if fits else f"does not fit in {memory_mib:g} MiB",
    }


def _shown(row: Mapping[str, object]) -> list[str]:
    figures = [
        "" if row[name] is None else f"{row[name]:.5g}"
        for name in ("time_ms", "samples_per_s", "peak_memory_mib")
    ]
    names = [str(row[name] or "") for name in ("name", "configuration", "bottleneck", "note")]
    return [names[0], names[1], figures[0], figures[1], names[2], figures[2], names[3]]
