"""The search for plans of a model on a cluster, as rows: its time, and the paper's algorithms beside it."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from experiments.benchmarks.comparison import ALMOST
from experiments.benchmarks.results import CaseResult, true_of
from experiments.benchmarks.timing import timed
from placements.cluster import read_cluster
from placements.models.zoo import read_model
from placements.planners.hybrid.decision_trees import PAPER, TreeOptions
from placements.planners.hybrid.plan_options import PlanOptions, PlanSearchResult
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.shape_costs import ShapeCosts

METHODS = {
    "exact": ("exact", "exact"),
    "bmw": ("bmw", "exact"),
    "base": ("base", "exact"),
    "base, paper's programme": ("base", "paper"),
}
"""Division of layers, and search inside a stage, by the name in a note."""


def plan_options(memory_gib: float) -> PlanOptions:
    """Return the paper's decision trees, on GPUs of so much memory, for the best plan alone."""
    return PlanOptions(TreeOptions(PAPER), memory_gib=memory_gib, reserve_gib=1.0, num_plans=1)


def whole_search(
    model: str, cluster: str, batch: int, memory_gib: float, *, cpu_s: float, num_layers: int | None = None
) -> CaseResult:
    """Search the best plan of a model of the zoo on a cluster, for ``batch`` samples of an iteration.

    The number of layers may be another one; None for the model's own.
    """
    sizes = {} if num_layers is None else {"num_layers": num_layers}
    costs, gpus = ShapeCosts(read_model(model, **sizes)), read_cluster(cluster)
    found, took_s = timed(lambda: search_plans(costs, gpus, batch, plan_options(memory_gib)))
    wrong = {f"more than {cpu_s:g} CPU s": took_s > cpu_s}
    return CaseResult(took_s, true_of(wrong), note=_described(found))


def beside_others(model: str, cluster: str, batch: int, memory_gib: float) -> CaseResult:
    """Search with each division and each search inside a stage, all with the same numbers to try.

    The paper's programme rounds memory up to MiB, and its Alg. 2 moves one layer at a time; both may be as
    good, never better.
    """
    costs, gpus = ShapeCosts(read_model(model)), read_cluster(cluster)
    stages = tuple(2**i for i in range(gpus.num_gpus.bit_length()))
    common = replace(plan_options(memory_gib), num_stages=stages, idle_gpus=False)
    times_ms, seconds, texts = dict[str, float](), dict[str, float](), list[str]()
    for name, (method, stage_method) in METHODS.items():
        options = replace(common, method=method, stage_method=stage_method)
        found, seconds[name] = timed(partial(search_plans, costs, gpus, batch, options))
        times_ms[name] = found.plans[0].time_ms if found.plans else math.inf
        time = f"{times_ms[name]:,.5g} ms" if found.plans else "out of memory"
        texts.append(f"{name} {time} in {seconds[name]:.2f} s")
    exact = times_ms["exact"]
    wrong = {f"{name} is better": value < exact * (1 - ALMOST) for name, value in times_ms.items()}
    return CaseResult(seconds["exact"], true_of(wrong), note=", ".join(texts))


def _described(found: PlanSearchResult) -> str:
    solved = f"{found.num_solved} stages solved, {len(found.trials)} numbers"
    if not found.plans:
        return f"out of memory; {solved}"
    best = found.plans[0]
    gpus = len(best.plan.stages[0].gpus)
    return (
        f"{best.plan.num_stages} stages x {gpus} GPUs, {best.plan.num_micro_batches} micro-batches, "
        f"{best.samples_per_s:.4g} samples/s; {solved}"
    )
