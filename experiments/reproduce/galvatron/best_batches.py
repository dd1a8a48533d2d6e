"""The rows of Galvatron-BMW's tables by our planner: the best batch of each method for a model and a memory.

Costs are modelled from data sheets, so throughputs are not the paper's measured ones; what can be compared is
which method is better, and what fits. The module does not know the published figures.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    costs: ShapeCosts, cluster: Cluster, memory_gib: float, methods: Iterable[str], most: int = MOST_SAMPLES
) -> dict[str, Best | None]:
    """Return the best batch, up to the largest, of each method of `METHODS`; None where nothing fits.

    A method tries the best batches of those before it too, so that it is never worse than one of which it may
    choose all.

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
    costs: ShapeCosts, cluster: Cluster, options: PlanOptions, others: set[int], most: int
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
    costs: ShapeCosts, cluster: Cluster, options: PlanOptions, most: int
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


def _samples_per_s(costs: ShapeCosts, cluster: Cluster, batch: int, options: PlanOptions) -> float:
    """Return the throughput with a batch; 0 where nothing fits."""
    plans = uninterrupted(search_plans(costs, cluster, batch, options)).plans
    return plans[0].samples_per_s if plans else 0.0
