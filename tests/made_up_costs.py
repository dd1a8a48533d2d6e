"""Made-up costs of layers for a search of plans, and all plans there are, compared one by one."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from placements.block import PlacementError
from placements.cluster import Cluster, DeviceGroup, read_cluster
from placements.models.chain import ModelShape
from placements.models.end_layers import CustomLayer, EmbeddingLayer, OutputLayer
from placements.models.layers import HALF, Layer
from placements.models.parallel import Cost, LayerStrategy, Pass
from placements.models.zoo import read_model
from placements.planners.hybrid.decision_trees import layer_strategies
from placements.planners.hybrid.plan import Plan, StagePlan, layers_of_stage, layout_of
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.search.pipeline import PlanProblem
from placements.planners.hybrid.stage_tables import LayerCosts, strategy_costs, transitions_ms
from placements.planners.stage_solver import StageProblem, weigh

MIB = 2**20


def small_model(rng: random.Random) -> ModelShape:
    """Return an embedding and a tied output layer around one to three layers of at most two kinds."""
    table = {"hidden_size": 8, "vocab_size": 8, "sequence_length": 8}
    inner = [
        (
            rng.randint(1, 2),
            CustomLayer(name=f"inner{i}", num_weights=8, flops=8, kept_bytes=8, input_numbers=8),
        )
        for i in range(rng.randint(1, 2))
    ]
    if sum(count for count, _ in inner) > 3:
        inner = inner[:1]
    return ModelShape(
        "made_up",
        (
            (1, EmbeddingLayer(name="embedding", **table)),
            *inner,
            (1, OutputLayer(name="output", **table, tied=True)),
        ),
        HALF,
    )


@dataclass(frozen=True)
class MadeUpCosts:
    """A random cost of each layer under each strategy; a table of its own costs the output layer more."""

    seed: int
    model: ModelShape

    def cost(
        self, layer: Layer, strategy: LayerStrategy, samples: int, num_micro_batches: int, group: DeviceGroup
    ) -> Cost:
        if samples % strategy.data_parallel:
            raise PlacementError("data_parallel: does not divide the samples; use a divisor")
        rng = random.Random(f"{self.seed} {layer.name} {strategy} {samples} {group.pattern}")
        kept, transient = rng.randint(0, 300), rng.choice([0, 100, 400])
        again = strategy.recompute != "none"
        total = Cost(
            Pass(rng.randint(1, 9), rng.randint(0, 3)),
            Pass(rng.randint(1, 9) + 4 * again),
            MIB * kept // (4 if again else 1),
            MIB * rng.randint(0, transient),
            MIB * (rng.randint(0, transient) + (kept if again else 0)),
            MIB * rng.randint(50, 500),
            rng.randint(0, 9),
        )
        if isinstance(layer, OutputLayer) and not layer.tied:
            total += Cost(static_bytes=100 * MIB, update_ms=2.0)
        return total

    def transition_ms(
        self, layer: Layer, before: LayerStrategy, after: LayerStrategy, samples: int, group: DeviceGroup
    ) -> float:
        rng = random.Random(f"{self.seed} {layer.name} {layout_of(before)} {layout_of(after)}")
        return float(rng.randint(0, 4)) if layout_of(before) != layout_of(after) else 0.0

    def transfer_ms(self, layer: Layer, samples: int, before: DeviceGroup, after: DeviceGroup) -> float:
        return float(random.Random(f"{self.seed} {layer.name} {samples} {before.count}").randint(0, 3))


class EveryPlan:
    """All plans of a search: numbers, divisions into stages and strategies of each layer."""

    def __init__(self, costs: LayerCosts, cluster: Cluster, batch: int, options: PlanOptions) -> None:
        self.costs, self.cluster, self.batch, self.options = costs, cluster, batch, options
        self.layers = costs.model.layers
        self._stages: dict[tuple[object, ...], float] = {}

    def min_ms(self) -> float:
        """Return the shortest iteration; infinite where nothing fits."""
        return min(self.times_ms(), default=math.inf)

    def times_ms(self) -> Iterator[float]:
        node = math.gcd(*(nodes.gpus_per_node for nodes in self.cluster.nodes))
        total = self.cluster.num_gpus
        for num_gpus in range(1, total + 1):
            if node % num_gpus and num_gpus % node:
                continue
            for num_stages in range(1, min(total // num_gpus, len(self.layers)) + 1):
                for m in (m for m in range(1, self.batch + 1) if self.batch % m == 0):
                    yield from self._divided(num_gpus, num_stages, m)

    def _divided(self, num_gpus: int, num_stages: int, m: int) -> Iterator[float]:
        groups = [self.cluster.group(stage * num_gpus, num_gpus) for stage in range(num_stages)]
        samples = self.batch // m
        for cuts in itertools.combinations(range(1, len(self.layers)), num_stages - 1):
            spans = list(itertools.pairwise((0, *cuts, len(self.layers))))
            stages = [
                self._stage_ms(group, m, min(num_stages - i, m), *span)
                for i, (group, span) in enumerate(zip(groups, spans, strict=True))
            ]
            transfers = sum(
                2 * self.costs.transfer_ms(self.layers[end - 1], samples, *groups[i : i + 2])
                for i, (_, end) in enumerate(spans[:-1])
            )
            if max(stages) < math.inf:
                yield (m - 1) * max(stages) + sum(stages) + transfers

    def _stage_ms(self, group: DeviceGroup, m: int, in_flight: int, first: int, end: int) -> float:
        """Return the least time of a micro-batch and its share of the update, over all strategies."""
        layers = layers_of_stage(self.layers, first, end)
        key = (group.pattern, m, in_flight, layers)
        if key not in self._stages:
            memory = group.memory_gib if self.options.memory_gib is None else self.options.memory_gib
            capacity = (memory - self.options.reserve_gib) * 1024 - 6 * (in_flight + 2)
            problem = self._problem(layers, group, m, in_flight, capacity)
            sizes = () if problem is None else [range(len(layer.piece)) for layer in problem.layers]
            results = [weigh(problem, choice) for choice in itertools.product(*sizes)] if problem else []
            self._stages[key] = min(
                (result.cost for result in results if problem and result.peak_mib <= problem.room_mib),
                default=math.inf,
            )
        return self._stages[key]

    def _problem(
        self, layers: tuple[Layer, ...], group: DeviceGroup, m: int, in_flight: int, capacity_mib: float
    ) -> StageProblem | None:
        strategies = [
            strategy
            for strategy in layer_strategies(group.count, self.options.trees)
            if (self.batch // m) % strategy.data_parallel == 0
        ]
        if not strategies:
            return None
        layouts: dict[object, LayerStrategy] = {}
        samples = self.batch // m
        stage_layers = tuple(
            strategy_costs(
                {how: self.costs.cost(layer, how, samples, m, group) for how in strategies}, m, layouts
            )
            for layer in layers
        )
        kinds = PlanProblem(self.costs, self.cluster, self.batch, self.options).kinds
        between = transitions_ms(self.costs, kinds, layouts.values(), samples, group)
        return StageProblem(stage_layers, between, in_flight, capacity_mib)


def usual_plan(
    usual: LayerStrategy, *firsts: LayerStrategy, model: str = "gpt3_1.3b", cluster: str = "a100_8"
) -> Plan:
    """Return two stages of four GPUs with five layers each, shared as usual but for the first layers."""
    strategies = (*firsts, *[usual] * (10 - len(firsts)))
    stages = tuple(
        StagePlan(range(4 * i, 4 * i + 4), range(5 * i, 5 * i + 5), strategies[5 * i : 5 * i + 5])
        for i in range(2)
    )
    return Plan(read_model(model, num_layers=8), read_cluster(cluster), stages, 32, 8)
