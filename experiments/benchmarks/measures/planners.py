"""Planners of models: PipeDream's, divisions of layers, and the search for hybrid plans."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.benchmarks.timing import timed
from placements.cluster import read_cluster
from placements.models.zoo import read_model
from placements.planners.hybrid.decision_trees import PAPER, TreeOptions
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.planners.pipedream.profile_graph import (
    ProfiledNode,
    ProfileGraph,
    chain_graph,
)

_BATCH_SIZES = {"vgg16": 64, "alexnet": 256, "resnet50": 128}
"""Images on each worker (dissertation, Sec. 2.5.1)."""


def random_chain(num_nodes: int, seed: int) -> ProfileGraph:
    """Return a chain of made-up nodes: times of some ms, outputs and parameters of some MB."""
    random = np.random.default_rng(seed)
    rows = zip(*(random.exponential(scale, num_nodes).tolist() for scale in (3.0, 4e6, 8e6)), strict=True)
    return chain_graph(
        ProfiledNode(f"node{i}", "made up", time_ms, 2 * time_ms, activation, parameters)
        for i, (time_ms, activation, parameters) in enumerate(rows)
    )


def plan_options(memory_gib: float) -> PlanOptions:
    """Return the paper's decision trees, on GPUs of so much memory, for the best plan alone."""
    return PlanOptions(TreeOptions(PAPER), memory_gib=memory_gib, reserve_gib=1.0, num_plans=1)


def plan_search(
    *, model: str, cluster: str, batch: int, memory_gib: float, num_layers: int | None = None
) -> dict[str, Any]:
    """Search the best plan of a model of the zoo, of its own layers or of as many, for a batch."""
    sizes = {} if num_layers is None else {"num_layers": num_layers}
    costs, gpus = ShapeCosts(read_model(model, **sizes)), read_cluster(cluster)
    found, cpu_s = timed(lambda: search_plans(costs, gpus, batch, plan_options(memory_gib)))
    figures: dict[str, Any] = {"cpu_s": cpu_s, "solved": found.num_solved, "trials": len(found.trials)}
    if found.plans:
        best = found.plans[0]
        figures |= {
            "iteration_ms": best.time_ms,
            "samples_per_s": best.samples_per_s,
            "stages": best.plan.num_stages,
            "micro_batches": best.plan.num_micro_batches,
        }
    return figures
