"""Models of large vocabularies in a V-shape, and with the vocabulary on all GPUs (Tessel, Fig. 13 and 14).

Plans of both are searched, and a schedule for each of them. Times are modelled from data sheets. The module
does not know what the paper measured, except how much faster its schedules were at most.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from placements import Placement
from placements.cluster import CLUSTERS, Cluster, read_cluster
from placements.models.chain import ModelShape
from placements.models.zoo import read_model
from placements.planners.hybrid.decision_trees import PAPER, TreeOptions
from placements.planners.hybrid.placing.planned_placement import planned_placement
from placements.planners.hybrid.placing.shared_layers import TrunkPlan, search_trunks
from placements.planners.hybrid.plan import Plan
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.shape_costs import ShapeCosts
from schedsearch.baselines import applicable
from schedsearch.core.answer import Answer
from schedsearch.metrics import peak_memory
from schedsearch.procedures.search import search

SAMPLES = 128
"""Of an iteration (Tessel, Sec. VI-D)."""

PAPER_SPEEDUPS = {"m_shape": 4.8, "nn_shape": 5.5}
"""By how much Tessel's shape is faster than existing schedules at most (Tessel, Sec. VI-D)."""


class LargeVocabularyCase(NamedTuple):
    """A model and where it runs.

    Attributes:
        model: Model of Tessel's Table III, in `placements.models.zoo.MODELS`.
        num_gpus: V100 with 32 GB. The table's growing models on 4 to 32 GPUs of the paper do not fit with 16
            bytes for each parameter, so some have twice as many.
        shape: Shape that has the vocabulary on all GPUs.
        state_bytes: Bytes of a parameter's weight, gradient and optimizer states.
    """

    model: str
    num_gpus: int
    shape: str
    state_bytes: float = 16


CASES = {
    case.model: case
    for case in (
        LargeVocabularyCase("gpt_11b", 8, "m_shape"),
        LargeVocabularyCase("gpt_24b", 16, "m_shape"),
        LargeVocabularyCase("gpt_47b", 32, "m_shape"),
        LargeVocabularyCase("mt5_1.8b", 4, "nn_shape"),
        LargeVocabularyCase("mt5_9.5b", 8, "nn_shape"),
        LargeVocabularyCase("mt5_43b", 32, "nn_shape"),
    )
}
"""By model."""

FP16_STATES = 8
"""Bytes of a parameter whose weight, gradient and two moments have 16 bits each."""

PAPER_CASES = {
    case.model: case
    for case in (
        LargeVocabularyCase("gpt_11b", 4, "m_shape", FP16_STATES),
        LargeVocabularyCase("gpt_24b", 8, "m_shape", FP16_STATES),
        LargeVocabularyCase("gpt_47b", 16, "m_shape", FP16_STATES),
        LargeVocabularyCase("gpt_77b", 32, "m_shape", FP16_STATES),
        LargeVocabularyCase("mt5_1.8b", 4, "nn_shape", FP16_STATES),
        LargeVocabularyCase("mt5_9.5b", 8, "nn_shape", FP16_STATES),
        LargeVocabularyCase("mt5_43b", 16, "nn_shape", FP16_STATES),
        LargeVocabularyCase("mt5_88b", 32, "nn_shape", FP16_STATES),
    )
}
"""On the paper's GPUs, where the larger ones do not fit with 16 bytes for each parameter."""


@dataclass(frozen=True)
class VocabularyRow:
    """A model in one shape: the best of its plans by their searched schedules.

    Attributes:
        shape: Name of the placement's shape.
        plan: ``best``, or ``same_stages``: a V-shape with the numbers of the best M- or NN-shape.
        num_stages: Number of stages of the plan.
        gpus_per_stage: GPUs of each.
        num_micro_batches: Number of micro-batches of an iteration.
        least_memory_gib: Of each GPU, with which some plan with these numbers fits.
        peak_mib: The most that a GPU holds; None where nothing fits, like all that follows.
        iteration_ms: Time of the searched schedule.
        iteration_bound_ms: No schedule of the placement is shorter.
        hand_made_ms: Of the best hand-made schedule; None also where none is defined for the placement.
        samples_per_s: Throughput.
    """

    shape: str
    plan: str
    num_stages: int
    gpus_per_stage: int
    num_micro_batches: int
    least_memory_gib: float | None
    peak_mib: float | None = None
    iteration_ms: float | None = None
    iteration_bound_ms: float | None = None
    hand_made_ms: float | None = None
    samples_per_s: float | None = None


class Proposal(NamedTuple):
    """A plan in a shape.

    Attributes:
        plan: Stages, GPUs and layers.
        shape: Name of the placement's shape.
        placement: Its blocks, with the memory of each device.
    """

    plan: Plan
    shape: str
    placement: Placement

    def searched(self, work_limit: float) -> Answer:
        """Return what a search of so much work finds.

        Raises:
            KeyboardInterrupt: From the keyboard.
        """
        result = search(self.placement, self.plan.num_micro_batches, work_limit=work_limit)
        if result.interrupted:
            raise KeyboardInterrupt
        return result

    def iteration_ms(self, result: Answer) -> float:
        """Return the time of an iteration; infinite where no schedule was found."""
        return math.inf if result.schedule is None else self.placement.ms(result.schedule.makespan)


def cluster_of(case: LargeVocabularyCase) -> Cluster:
    """Return the GPUs of a case, with the network of Tessel's cluster."""
    bandwidth_gb_s = CLUSTERS["tessel_v100_32"].node_bandwidth_gb_s
    return read_cluster(f"v100_{case.num_gpus}", node_bandwidth_gb_s=bandwidth_gb_s)


def model_of(case: LargeVocabularyCase) -> ModelShape:
    """Return the model of a case; for an NN-shape the decoder looks its tokens up itself."""
    model = read_model(case.model, **({"second_lookup": True} if case.shape == "nn_shape" else {}))
    known = model.precision
    own = replace(known, optimizer_bytes=case.state_bytes - known.weight_bytes - known.gradient_bytes)
    return replace(model, precision=own)


def compare_shapes(
    model: ModelShape,
    cluster: Cluster,
    shape: str,
    global_batch_size: int = SAMPLES,
    *,
    options: PlanOptions | None = None,
    work_limit: float = 10.0,
) -> list[VocabularyRow]:
    """Return the best V-shape, the best shape with the vocabulary on all GPUs, and a V-shape like that one.

    Args:
        model: With as many embeddings and output layers as the shape wants.
        cluster: Its GPUs, all of which are used.
        shape: A key of `placements.planners.hybrid.placing.shared_layers.SHARED_VOCABULARY`.
        global_batch_size: Samples of an iteration.
        options: What plans may be; by default without ZeRO-1, as in the paper.
        work_limit: Units of work of the search of each schedule.

    Returns:
        One row of each that fits; the last one also where nothing fits.

    Raises:
        PlanError: The model has not such a vocabulary.
        KeyboardInterrupt: From the keyboard.
    """
    options = replace(options or PlanOptions(TreeOptions(PAPER), num_plans=3), idle_gpus=False)
    shapes = VocabularyPlans(ShapeCosts(model), cluster, global_batch_size, shape, options)
    ordinary = list(shapes.ordinary())
    shared = list(shapes.shared())
    rows = []
    for found in (ordinary, shared):
        if found:
            rows.append(shapes.row(found, "best", work_limit))
    if shared:
        rows.append(shapes.same_stages(rows[-1], work_limit))
    return rows


class _Numbers(NamedTuple):
    """Of a plan; see `VocabularyRow`."""

    num_stages: int
    gpus_per_stage: int
    num_micro_batches: int


def _numbers(plan: Plan) -> _Numbers:
    return _Numbers(plan.num_stages, len(plan.stages[0].gpus), plan.num_micro_batches)


@dataclass(frozen=True)
class VocabularyPlans:
    """The plans of one model on one cluster, in both shapes.

    Attributes:
        costs: Costs of the model's layers.
        cluster: The GPUs, all of which are used.
        batch: Samples of an iteration.
        shape: Shape that has the vocabulary on all GPUs.
        options: What plans may be.
    """

    costs: ShapeCosts
    cluster: Cluster
    batch: int
    shape: str
    options: PlanOptions

    def ordinary(self) -> Iterator[Proposal]:
        """Yield plans of a V-shape."""
        found = search_plans(self.costs, self.cluster, self.batch, self.options)
        if found.interrupted:
            raise KeyboardInterrupt
        for rated in found.plans:
            placement = planned_placement(rated.plan, self.costs, self._capacities_gib(rated.plan))
            yield Proposal(rated.plan, "v_shape", placement)

    def shared(self) -> Iterator[Proposal]:
        """Yield plans with the vocabulary on all GPUs."""
        for each in self._trunks():
            plan = each.rated.plan
            capacities_gib = self._capacities_gib(plan)
            placement = planned_placement(plan, self.costs, capacities_gib, shared=each.shared)
            yield Proposal(plan, self.shape, placement)

    def row(self, proposals: Sequence[Proposal], plan: str, work_limit: float) -> VocabularyRow:
        """Return the proposal with the shortest searched schedule."""
        found = [(each, each.searched(work_limit)) for each in proposals]
        best, result = min(found, key=lambda pair: pair[0].iteration_ms(pair[1]))
        return self._filled(self._row(best.shape, plan, _numbers(best.plan)), best, result)

    def same_stages(self, like: VocabularyRow, work_limit: float) -> VocabularyRow:
        """Return the V-shape with another row's numbers."""
        numbers = _Numbers(like.num_stages, like.gpus_per_stage, like.num_micro_batches)
        if proposals := list(self._restricted(numbers).ordinary()):
            return self.row(proposals, "same_stages", work_limit)
        return self._row("v_shape", "same_stages", numbers)

    def _trunks(self) -> tuple[TrunkPlan, ...]:
        return search_trunks(self.costs, self.cluster, self.batch, self.shape, self.options)

    def _capacities_gib(self, plan: Plan) -> list[float]:
        given_gib = self.options.memory_gib
        own_gib = self.cluster.whole.memory_gib if given_gib is None else given_gib
        return [own_gib - self.options.reserve_gib] * plan.num_stages

    def _with(self, **options: Any) -> VocabularyPlans:
        return replace(self, options=replace(self.options, **options))

    def _restricted(self, numbers: _Numbers) -> VocabularyPlans:
        return self._with(
            num_stages=(numbers.num_stages,),
            gpus_per_stage=(numbers.gpus_per_stage,),
            num_micro_batches=(numbers.num_micro_batches,),
            num_plans=1,
        )

    def _row(self, shape: str, plan: str, numbers: _Numbers) -> VocabularyRow:
        """Return a row without a schedule."""
        min_gib = self._restricted(numbers)._least_gib(shape)
        return VocabularyRow(shape, plan, *numbers, least_memory_gib=min_gib)

    def _filled(self, row: VocabularyRow, best: Proposal, result: Answer) -> VocabularyRow:
        """Return a row with what the search of its proposal found."""
        placement, schedule = best.placement, result.schedule
        hand_made = applicable(placement, best.plan.num_micro_batches).values()
        hand_made_ms = min((placement.ms(each.makespan) for each in hand_made), default=None)
        if schedule is None:
            return replace(row, hand_made_ms=hand_made_ms)
        iteration_ms = best.iteration_ms(result)
        return replace(
            row,
            peak_mib=placement.mib(int(peak_memory(schedule).max())),
            iteration_ms=iteration_ms,
            iteration_bound_ms=placement.ms(result.makespan_bound),
            hand_made_ms=hand_made_ms,
            samples_per_s=self.batch / iteration_ms * 1e3,
        )

    def _least_gib(self, shape: str, max_gib: float = 4096.0) -> float | None:
        """Return the least memory of each GPU, to a tenth of a GiB, with which a plan fits; None for none."""

        def fits(gib: float) -> bool:
            tried = self._with(memory_gib=gib)
            if shape == self.shape:
                return bool(tried._trunks())
            return bool(search_plans(self.costs, self.cluster, self.batch, tried.options).plans)

        low = self.options.reserve_gib
        high = 2 * max(low, 1.0)
        while not fits(high):
            low, high = high, 2 * high
            if high > max_gib:
                return None
        while high - low > 0.1:
            middle = (low + high) / 2
            low, high = (low, middle) if fits(middle) else (middle, high)
        return high


def speedup(rows: Sequence[VocabularyRow]) -> float | None:
    """Return how much faster the best M- or NN-shape is than the best V-shape; None where one is missing."""
    times = {row.shape: row.iteration_ms for row in rows if row.plan == "best"}
    ordinary_ms, shared_ms = times.pop("v_shape", None), next(iter(times.values()), None)
    return None if ordinary_ms is None or shared_ms is None else ordinary_ms / shared_ms
