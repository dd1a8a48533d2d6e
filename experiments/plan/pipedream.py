"""`experiments.plan` with PipeDream's planner: stages and workers for a profile, beside plans without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.config.options import OptionError
from experiments.plan.inputs import one_batch, plan_cluster, refuse_all_but
from experiments.plan.options import PipeDreamPlanner, PlanQuestion
from experiments.report.result import Result, Table
from placements.cluster import Cluster
from placements.placement_file import placement_to_yaml
from placements.planners.hybrid.plan import PlanError
from placements.planners.pipedream.plan import Level, PipelinePlan, plan_placement
from placements.planners.pipedream.planner import best_plan
from placements.planners.pipedream.profile_graph import read_profile_graph

_COLUMNS = (
    *("name", "configuration", "stages", "workers", "batch", "time_ms", "samples_per_s", "bottleneck"),
    *("bottleneck_stage", "peak_memory_mib", "note"),
)
"""Columns of the table of plans."""

_TAKEN = (
    *("cluster", "batch", "profiles", "memory_gib"),
    *("gpus_per_node", "node_bandwidth_gb_s", "link_bandwidth_gb_s"),
)
"""Options that this planner has."""


def task(question: PlanQuestion, planner: PipeDreamPlanner) -> Result:
    """Plan a profile of nodes beside data parallelism and a straight pipeline; the figures are the plan's.

    Raises:
        OptionError: An option is missing or wrong.
        ValueError: The profile or the cluster is wrong, or no plan fits.
    """
    refuse_all_but(question, _TAKEN, "pipedream")
    if (path := question.profiles) is None:
        raise OptionError("profiles: has no value; give the CSV file of nodes, as in profiles=FILE.csv")
    batch = one_batch(question, "the samples of a profiled input")
    levels, graph = levels_of(plan_cluster(question)), read_profile_graph(path)
    memory_mib = None if question.memory_gib is None else 1024 * question.memory_gib
    best = best_plan(graph, levels, "per_worker", memory_mib)
    plans = {"pipedream": best, "data_parallel": best_plan(graph, levels, is_cut=False)}
    rows = [plan_row(name, plan, memory_mib, batch) for name, plan in plans.items()]
    try:
        straight = best_plan(graph, levels, "per_worker", memory_mib, is_replicated=False)
        rows.append(plan_row("straight", straight, memory_mib, batch))
    except PlanError as error:
        rows.append(dict.fromkeys(_COLUMNS) | {"name": "straight", "batch": batch, "note": str(error)})
    lines = [f"{row['name']}: {row['note'] or _in_words(row)}" for row in rows]
    for number, stage in enumerate(best.stages):
        lines.append(f"stage {number} on {stage.replicas} workers: {', '.join(stage.nodes)}")
    rate = batch / best.time_ms * 1e3
    return Result(
        figures={"plan": best.configuration, "samples_per_s": rate, "num_gpus": best.num_workers},
        tables={"plans": Table(dict, rows)},
        files={"placement.yaml": placement_to_yaml(plan_placement(best, memory_mib))},
        sentences=[*lines, f"costs: as measured, of {path}"],
    )


def _in_words(row: Mapping[str, Any]) -> str:
    return f"{row['configuration']}, {row['time_ms']:.5g} ms, bound by {row['bottleneck']}"


def levels_of(cluster: Cluster) -> list[Level]:
    """Return GPUs of a node and nodes as levels of workers, at the bandwidths of the cluster as they are.

    Raises:
        OptionError: The nodes are not equal.

    >>> from placements.cluster import read_cluster
    >>> levels_of(read_cluster("v100_16", gpus_per_node=4, node_bandwidth_gb_s=1.25, link_bandwidth_gb_s=12))
    [Level(count=4, gb_per_s=12.0), Level(count=4, gb_per_s=1.25)]
    """
    if len(cluster.nodes) > 1:
        raise OptionError("cluster: has several kinds of nodes, which planner=pipedream cannot; use one kind")
    (nodes,) = cluster.nodes
    in_node = Level(nodes.gpus_per_node, cluster.link_bandwidth_gb_s or nodes.gpu.link_bandwidth_gb_s)
    between = Level(nodes.num_nodes, cluster.node_bandwidth_gb_s)
    return [level for level in (in_node, between) if level.count > 1] or [in_node]


def plan_row(name: str, plan: PipelinePlan, memory_mib: float | None, batch: int) -> dict[str, Any]:
    """Return the figures of a plan for a batch, in samples, by `_COLUMNS`."""
    fits = memory_mib is None or plan.memory_mib <= memory_mib
    time_ms, cause, stage = plan.bottleneck
    figures = (
        *(name, plan.configuration, len(plan.stages), plan.num_workers, batch, time_ms),
        *(batch / time_ms * 1e3, cause, stage, plan.memory_mib),
        "" if fits else f"does not fit in {memory_mib:g} MiB",
    )
    return dict(zip(_COLUMNS, figures, strict=True))
