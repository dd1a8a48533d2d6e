"""The rows of Galvatron-BMW's tables by our planner: the best batch of each method for a model and a memory.

Costs are modelled from data sheets, so throughputs are not the paper's measured ones; what can be compared is
which method is better, and what fits. The module does not know the published figures.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from experiments.reproduce.galvatron.published_columns import DEEPSPEED, MEMORY_BALANCED, Best
from placements.cluster import Cluster, DeviceGroup
from placements.models.chain import ModelShape
from placements.models.layers import Layer
from placements.models.parallel import Cost, LayerStrategy
from placements.planners.hybrid.decision_trees import PAPER, Paradigm, TreeOptions
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.planners.hybrid.stage_tables import LayerCosts

RESERVE_GIB = 1.0
"""Memory of the CUDA context, as Galvatron's search has it: 1024 MB."""

MOST_SAMPLES = 512
"""The largest batch that is tried: with 1F1B any number of micro-batches fits."""


def _of(*paradigms: Paradigm) -> TreeOptions:
    return TreeOptions(paradigms, ("none",))


_PLAIN = _of(*PAPER)
_BI_OBJECTIVE = PlanOptions(trees=_PLAIN, method="bmw", idle_gpus=False, num_plans=1)
_BASE = replace(_BI_OBJECTIVE, trees=TreeOptions(PAPER), method="base", pipeline="gpipe")
_WITHOUT_PIPELINE = replace(_BASE, num_stages=(1,))
_AT_ONCE = replace(_WITHOUT_PIPELINE, num_micro_batches=(1,))

METHODS = {
    "DP": replace(_AT_ONCE, trees=_of(Paradigm.DP)),
    "TP": replace(_AT_ONCE, trees=_of(Paradigm.TP)),
    "PP": replace(_BASE, trees=_PLAIN, gpus_per_stage=(1,)),
    "SDP": replace(_AT_ONCE, trees=_of(Paradigm.SDP)),
    "DP+TP": replace(_WITHOUT_PIPELINE, trees=_of(Paradigm.DP, Paradigm.TP)),
    "DP+PP": replace(_BASE, trees=_of(Paradigm.DP)),
    "Galvatron": replace(_BASE, trees=_PLAIN),
    "1F1B+Time": replace(_BI_OBJECTIVE, method="base"),
    "1F1B+Bi-obj": _BI_OBJECTIVE,
    "Galvatron-Base": _BASE,
    "Galvatron-BMW": replace(_BI_OBJECTIVE, trees=TreeOptions(PAPER), method="exact"),
    MEMORY_BALANCED: replace(_BI_OBJECTIVE, method="memory"),
    DEEPSPEED: replace(
        _BASE,
        trees=TreeOptions((Paradigm.DP, Paradigm.TP), ("none",), tensor_parallel=(2,)),
        num_stages=(2,),
    ),
}
"""What each row of the tables may choose (Galvatron-BMW, Sec. VII-A), by its name.

Without 1F1B all micro-batches are held, as GPipe does. Divisions are exact in Galvatron-BMW's row; the paper
has its Alg. 2 there, as in 1F1B+Bi-obj. DeepSpeed 3D has two stages and pairs that share a layer by tensor
parallelism; all else is data parallel (Sec. VII-B).
"""


@dataclass(frozen=True)
class RememberedCosts:
    """What layers of a model cost, each computed once for all methods, memories and batches.

    Attributes:
        costs: Who computes it.
    """

    costs: ShapeCosts
    _known: dict[tuple[object, ...], Cost] = field(default_factory=dict, repr=False)

    @property
    def model(self) -> ModelShape:
        """The layers."""
        return self.costs.model

    def cost(
        self, layer: Layer, strategy: LayerStrategy, samples: int, num_micro_batches: int, group: DeviceGroup
    ) -> Cost:
        """Return what a layer costs each GPU of a group of one cluster."""
        key = (layer, strategy, samples, num_micro_batches, group.pattern)
        if key not in self._known:
            self._known[key] = self.costs.cost(layer, strategy, samples, num_micro_batches, group)
        return self._known[key]

    def transition_ms(
        self, layer: Layer, before: LayerStrategy, after: LayerStrategy, samples: int, group: DeviceGroup
    ) -> float:
        """Return the time to lay a layer's output out for the next strategy."""
        return self.costs.transition_ms(layer, before, after, samples, group)

    def transfer_ms(self, layer: Layer, samples: int, before: DeviceGroup, after: DeviceGroup) -> float:
        """Return the time to send a layer's output to the next stage."""
        return self.costs.transfer_ms(layer, samples, before, after)


def best_batches(
    costs: LayerCosts, cluster: Cluster, memory_gib: float, methods: Iterable[str], most: int = MOST_SAMPLES
) -> dict[str, Best | None]:
    """Return the best batch of each method, in the order of `METHODS`; None where nothing fits.

    A method tries the best batches of those before it too, so that it is never worse than one of which it may
    choose all.

    Args:
        costs: Costs of the model's layers.
        cluster: On which they run.
        memory_gib: Memory of each GPU.
        methods: Keys of `METHODS`.
        most: Largest batch.

    Raises:
        KeyboardInterrupt: From the keyboard.
    """
    wanted, found = set(methods), dict[str, Best | None]()
    for name, options in METHODS.items():
        if name in wanted:
            limited = replace(options, memory_gib=memory_gib, reserve_gib=RESERVE_GIB)
            others = {each.batch for each in found.values() if each is not None}
            found[name] = _best_batch(costs, cluster, limited, others, most)
    return found


def _best_batch(
    costs: LayerCosts, cluster: Cluster, options: PlanOptions, others: set[int], most: int
) -> Best | None:
    """Return the best of the batches that double from 8 on, of the best one's neighbors, and of others."""
    rates = _until_nothing_fits(costs, cluster, options, most)
    if rates:
        best = max(rates, key=rates.__getitem__)
        near = (best * 3 // 4, best * 3 // 2)
        others = others | {batch for batch in near if batch % cluster.num_gpus == 0 and batch <= most}
    for batch in sorted(others - set(rates)):
        if rate := _samples_per_s(costs, cluster, batch, options):
            rates[batch] = rate
    return max((Best(*each) for each in rates.items()), key=lambda each: each.samples_per_s, default=None)


def _until_nothing_fits(
    costs: LayerCosts, cluster: Cluster, options: PlanOptions, most: int
) -> dict[int, float]:
    """Return the samples per second of batches that double from 8 on.

    What does not fit with a multiple of the number of GPUs does not with a larger one.
    """
    rates, batch = dict[int, float](), 8
    while batch <= most:
        if rate := _samples_per_s(costs, cluster, batch, options):
            rates[batch] = rate
        elif batch % cluster.num_gpus == 0:
            break
        batch *= 2
    return rates


def _samples_per_s(costs: LayerCosts, cluster: Cluster, batch: int, options: PlanOptions) -> float:
    """Return the throughput with a batch; 0 where nothing fits."""
    found = search_plans(costs, cluster, batch, options)
    if found.interrupted:
        raise KeyboardInterrupt
    return found.plans[0].samples_per_s if found.plans else 0.0
