"""A vocabulary on all GPUs beside a chain of stages: its cost, and the search for the best plans.

The layers between are searched as any model, in the memory that the vocabulary leaves. The module does not
know in what order blocks run.
"""

from __future__ import annotations

import math
import re
import time
from contextlib import suppress
from dataclasses import replace
from itertools import product

from placements.block import PlacementError
from placements.cluster import Cluster, DeviceGroup
from placements.models.chain import ModelShape
from placements.models.parallel import LayerStrategy
from placements.planners.hybrid.decision_trees import divisors
from placements.planners.hybrid.plan import PlanError, UnsuitableShapeError, is_embedding, is_vocabulary
from placements.planners.hybrid.plan_options import PlanOptions, RatedPlan, SharedLayers
from placements.planners.hybrid.search.pipeline import PlanProblem
from placements.planners.hybrid.search.plan_search import PlannerReport, search_plans
from placements.planners.hybrid.stage_tables import LayerCosts

SHARED_VOCABULARY = {"m_shape": "E-+O", "nn_shape": "E-+E-+O"}
"""Order of embeddings, output layer and others in a model of each shape, as a regular expression."""


class PartCosts:
    """The costs of a part of a model, taken from the costs of the whole model: a `LayerCosts`."""

    def __init__(self, model: ModelShape, whole: LayerCosts) -> None:
        self.model = model
        self.cost, self.transition_ms, self.transfer_ms = whole.cost, whole.transition_ms, whole.transfer_ms


def shared_vocabulary(
    costs: LayerCosts, group: DeviceGroup, data_parallel: int, samples: int, m: int
) -> SharedLayers:
    """Return the embeddings and the output layer of a model on all GPUs, which share the table's rows.

    Each of the `data_parallel` groups has all rows and a share of the samples of each of m micro-batches.

    Raises:
        PlacementError: One of them cannot be shared so, or its cost is not known.
    """
    pairs = [pair for pair in enumerate(costs.model.layers) if is_vocabulary(pair[1])]
    places = tuple(place - before for before, (place, _) in enumerate(pairs))
    layers = tuple(layer for _, layer in pairs)
    how = LayerStrategy(group.count // data_parallel, data_parallel)
    layer_costs = tuple(costs.cost(layer, how, samples, m, group) for layer in layers)
    return SharedLayers(layers, places, how, layer_costs)


def trunk_of(model: ModelShape, shape: str) -> ModelShape:
    """Return a model without its embeddings and its output layer, for a shape of `SHARED_VOCABULARY`.

    Raises:
        UnsuitableShapeError: They do not come as in the shape.
    """
    kinds = ("E" if is_embedding(layer) else "-O"[is_vocabulary(layer)] for layer in model.layers)
    if model.branches or not re.fullmatch(SHARED_VOCABULARY[shape], "".join(kinds)):
        over = " over a second one" if shape == "nn_shape" else ""
        fault = f"needs a model from an embedding{over} to an output layer, which {model.name} is not"
        raise UnsuitableShapeError(shape, f"{fault}; leave it out")
    return replace(model, runs=tuple(run for run in model.runs if not is_vocabulary(run[1])))


def search_trunks(
    costs: LayerCosts,
    cluster: Cluster,
    global_batch_size: int,
    shape: str,
    options: PlanOptions | None = None,
    on_progress: PlannerReport | None = None,
) -> tuple[RatedPlan, ...]:
    """Return the best plans by increasing time; empty if no plan fits.

    All GPUs are used, by at least two stages. For each number of stages and of micro-batches every way to
    share the vocabulary is tried, but for those whose bound is no better than the plans at hand.

    Args:
        costs: Costs of the whole model.
        cluster: The GPUs.
        global_batch_size: Samples of an iteration.
        shape: A key of `SHARED_VOCABULARY`.
        options: Strategies and numbers that are allowed.
        on_progress: Told about these ways.

    Raises:
        PlanError: The model has no such vocabulary, or its costs on all GPUs are not known.
        KeyboardInterrupt: From the keyboard.
    """
    options, batch, best = options or PlanOptions(), global_batch_size, dict[tuple[int, int], RatedPlan]()
    end_s = time.monotonic() + options.time_limit_s
    trunk = PartCosts(trunk_of(costs.model, shape), costs)
    queue = _ways(costs, trunk, cluster, batch, options)
    for done, (bound_ms, num_stages, m, shared) in enumerate(queue, 1):
        times_ms = sorted(plan.time_ms for plan in best.values())[: options.num_plans]
        limit_ms = times_ms[-1] if len(times_ms) == options.num_plans else math.inf
        if bound_ms >= limit_ms:
            break
        shared_ms, key = shared.iteration_ms(m), (num_stages, m)
        with suppress(PlanError):  # no memory is left, or nodes cannot be cut so
            limited = replace(
                options,
                num_stages=(num_stages,),
                gpus_per_stage=(cluster.num_gpus // num_stages,),
                num_micro_batches=(m,),
                reserve_gib=options.reserve_gib + shared.held_mib / 1024,
                num_plans=1,
                time_limit_s=max(end_s - time.monotonic(), 1e-3),
            )
            searched = search_plans(trunk, cluster, batch, limited, below_ms=limit_ms - shared_ms)
            if searched.interrupted:
                raise KeyboardInterrupt
            for rated in searched.plans:
                whole = rated._replace(time_ms=rated.time_ms + shared_ms, shared=shared)
                best[key] = min(best.get(key, whole), whole, key=lambda plan: plan.time_ms)
        if on_progress is not None:
            known_ms, left_ms = [plan.time_ms for plan in best.values()], [way[0] for way in queue[done:]]
            bound_ms = min([*known_ms, *left_ms[:1]], default=math.inf)
            on_progress(done, len(queue), min(known_ms, default=None), bound_ms)
    return tuple(sorted(best.values(), key=lambda plan: plan.time_ms)[: options.num_plans])


def _ways(
    costs: LayerCosts, trunk: LayerCosts, cluster: Cluster, batch: int, options: PlanOptions
) -> list[tuple[float, int, int, SharedLayers]]:
    """Return numbers of stages and micro-batches with a way to share the vocabulary, after their bound.

    That of the least bound, of the time of an iteration whatever memory it takes, comes first.

    Raises:
        PlanError: The vocabulary cannot be shared in any of these ways.
    """
    ways, refused = list[tuple[float, int, int, SharedLayers]](), ""
    problem = PlanProblem(trunk, cluster, batch, options)
    num_stages = [n for n in divisors(cluster.num_gpus)[1:] if n in (options.num_stages or (n,))]
    for stages, m in product(num_stages, divisors(batch)):
        num_gpus, samples = cluster.num_gpus // stages, batch // m
        is_wanted = num_gpus in (options.gpus_per_stage or (num_gpus,)) and stages <= len(trunk.model.layers)
        if not is_wanted or m not in (options.num_micro_batches or (m,)):
            continue
        try:
            bound_ms = problem.loose_ms(stages, num_gpus, m)
        except PlanError:  # no strategy can share a layer
            continue
        for copies in divisors(math.gcd(num_gpus, samples)):
            try:
                shared = shared_vocabulary(costs, cluster.whole, copies, samples, m)
                ways.append((bound_ms + shared.iteration_ms(m), stages, m, shared))
            except PlacementError as error:
                refused = f"the vocabulary cannot be on all GPUs: {error}"
    if refused and not ways:
        raise PlanError(refused)
    return sorted(ways, key=lambda way: way[:3])
