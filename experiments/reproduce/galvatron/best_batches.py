"""The rows of Galvatron-BMW's tables by our planner: the best batch of each method for a model and a memory.

Costs are modelled from data sheets, so throughputs are not the paper's measured ones; what can be compared is
which method is better, and what fits. The module does not know the published figures.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from experiments.reproduce.rows import uninterrupted
from placements.cluster import Cluster, DeviceGroup
from placements.models.layers import Layer
from placements.models.parallel import Cost, LayerStrategy
from placements.planners.hybrid.decision_trees import PAPER, Paradigm, TreeOptions
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.shape_costs import ShapeCosts

RESERVE_GIB = 1.0
"""Memory of the CUDA context, as Galvatron's search has it: 1024 MB."""

MOST_SAMPLES = 512
"""The largest batch that is tried: with 1F1B any number of micro-batches fits."""

MEMORY_BALANCED = "1F1B+Mem"
"""Row of Table V's partitions alone."""


class Best(NamedTuple):
    """The batch with the most samples per second, and these."""

    batch: int
    samples_per_s: float


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
}
"""Options of each row of the tables (Galvatron-BMW, Sec. VII-A), by its name.

Without 1F1B all micro-batches are held, as GPipe does. Divisions are exact in Galvatron-BMW's row; the paper
has its Alg. 2 there, as in 1F1B+Bi-obj.
"""


@dataclass(frozen=True)
class RememberedCosts(ShapeCosts):
    """Costs of layers on one cluster, each computed once for all methods, memories and batches."""

    _known: dict[tuple[object, ...], Cost] = field(default_factory=dict, repr=False, compare=False)

    def cost(
        self, layer: Layer, strategy: LayerStrategy, samples: int, num_micro_batches: int, group: DeviceGroup
    ) -> Cost:
        """Return a layer's cost on each GPU of a group."""
        key = (layer, strategy, samples, num_micro_batches, group.pattern)
        if key not in self._known:
            self._known[key] = super().cost(layer, strategy, samples, num_micro_batches, group)
        return self._known[key]


def best_batches(
    costs: ShapeCosts, cluster: Cluster, memory_gib: float, methods: Collection[str], most: int = MOST_SAMPLES
) -> dict[str, Best | None]:
    """Return the best batch, up to the largest, of each method of `METHODS`; None where nothing fits.

    A method tries the best batches of those before it too, so that it is never worse than one of which it may
    choose all.

    Raises:
        KeyboardInterrupt: From the keyboard.
    """
    best_of = dict[str, Best | None]()
    for name, options in METHODS.items():
        if name in methods:
            limited = replace(options, memory_gib=memory_gib, reserve_gib=RESERVE_GIB)
            others = {best.batch for best in best_of.values() if best is not None}
            best_of[name] = _best_batch(costs, cluster, limited, others, most)
    return best_of


def _best_batch(
    costs: ShapeCosts, cluster: Cluster, options: PlanOptions, others: set[int], most: int
) -> Best | None:
    """Return the best of the batches that double from 8 on, of the best one's neighbors, and of others.

    Where nothing fits with a multiple of the number of GPUs, it does not with a larger batch.
    """
    rates = dict[int, float]()

    def samples_per_s(batch: int) -> float:
        plans = uninterrupted(search_plans(costs, cluster, batch, options)).plans
        rates[batch] = plans[0].samples_per_s if plans else 0.0
        return rates[batch]

    batch = 8
    while batch <= most and (samples_per_s(batch) or batch % cluster.num_gpus):
        batch *= 2
    best = max(rates, key=rates.__getitem__)
    near = (best * 3 // 4, best * 3 // 2) if rates[best] else ()
    others = others | {batch for batch in near if batch % cluster.num_gpus == 0 and batch <= most}
    for batch in sorted(others - rates.keys()):
        samples_per_s(batch)
    best = max(rates, key=rates.__getitem__)
    return Best(best, rates[best]) if rates[best] else None
