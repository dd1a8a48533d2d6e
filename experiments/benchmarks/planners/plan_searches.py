"""The search for plans of a model on a cluster, as rows: its time, and the paper's algorithms beside it."""

from __future__ import annotations

from dataclasses import replace

from experiments.benchmarks.results import CaseResult, true_of
from experiments.benchmarks.timing import CpuClock
from placements.cluster import read_cluster
from placements.models.zoo import read_model
from placements.planners.hybrid.decision_trees import PAPER, TreeOptions
from placements.planners.hybrid.plan_options import PlanOptions, PlanSearchResult
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.shape_costs import ShapeCosts

_ALMOST = 1e-9


def whole_search(
    model: str, cluster: str, batch: int, options: PlanOptions, *, cpu_s: float, num_layers: int | None = None
) -> CaseResult:
    """Search the best plan.

    Args:
        model: Of the zoo.
        cluster: By name.
        batch: Samples of an iteration.
        options: What is allowed.
        cpu_s: CPU seconds that it may take.
        num_layers: Of the model; None for its own.
    """
    sizes = {} if num_layers is None else {"num_layers": num_layers}
    costs, gpus = ShapeCosts(read_model(model, **sizes)), read_cluster(cluster)
    clock = CpuClock()
    found = search_plans(costs, gpus, batch, options)
    took_s = clock.seconds
    wrong = {f"more than {cpu_s:g} CPU s": took_s > cpu_s}
    return CaseResult(took_s, true_of(wrong), note=_described(found))


def beside_others(model: str, cluster: str, batch: int, memory_gib: float) -> CaseResult:
    """Search with each division and each search inside a stage, all with the same numbers to try.

    The paper's programme rounds memory up to MiB, and its Alg. 2 moves one layer at a time; both may be as
    good, never better.

    Args:
        model: Of the zoo.
        cluster: By name.
        batch: Samples of an iteration.
        memory_gib: Of each GPU.
    """
    costs, gpus = ShapeCosts(read_model(model)), read_cluster(cluster)
    stages = tuple(2**i for i in range(gpus.num_gpus.bit_length()))
    common = PlanOptions(
        TreeOptions(PAPER),
        num_stages=stages,
        idle_gpus=False,
        memory_gib=memory_gib,
        reserve_gib=1.0,
        num_plans=1,
    )
    times_ms, seconds = {}, {}
    for name, method, stage_method in (
        ("exact", "exact", "exact"),
        ("bmw", "bmw", "exact"),
        ("base", "base", "exact"),
        ("base, paper's programme", "base", "paper"),
    ):
        clock = CpuClock()
        found = search_plans(costs, gpus, batch, replace(common, method=method, stage_method=stage_method))
        seconds[name] = clock.seconds
        times_ms[name] = found.plans[0].time_ms if found.plans else None
    exact = times_ms["exact"]
    wrong = {
        f"{name} is better": value is not None and (exact is None or value < exact * (1 - _ALMOST))
        for name, value in times_ms.items()
    }
    shown = ", ".join(
        f"{name} {'out of memory' if value is None else f'{value:,.5g} ms'} in {seconds[name]:.2f} s"
        for name, value in times_ms.items()
    )
    return CaseResult(seconds["exact"], true_of(wrong), note=shown)


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
