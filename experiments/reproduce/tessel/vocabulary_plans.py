"""Plans of models with large vocabularies, in a V-shape and with the vocabulary on all GPUs.

Schedules are searched for the plans without transfers, as Tessel does. Times are modelled from data sheets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from experiments.reproduce.item import CaseOptions
from experiments.reproduce.rows import uninterrupted
from placements import Block, Kind, Placement
from placements.cluster import CLUSTERS, Cluster, read_cluster
from placements.forms.meaning import option
from placements.models.chain import ModelShape
from placements.models.zoo import read_model
from placements.planners.hybrid.decision_trees import PAPER, TreeOptions
from placements.planners.hybrid.placing.planned_placement import planned_placement
from placements.planners.hybrid.placing.shared_layers import SharedLayers, search_trunks
from placements.planners.hybrid.plan import Plan
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.shape_costs import ShapeCosts
from schedsearch.baselines import HAND_MADE, UnsuitablePlacementError
from schedsearch.schedule import Schedule
from schedsearch.searches.search import search
from schedsearch.validate import InvalidScheduleError, validate

SAMPLES = 128
"""Samples of an iteration (Tessel, Sec. VI-D)."""

PLAIN, PLUS, TESSEL = "1F1B", "1F1B+", "Tessel's placement, our search"
"""Systems."""

_OPTIONS = PlanOptions(trees=TreeOptions(PAPER, ("full",)), num_plans=1, idle_gpus=False)
"""Every layer is computed again in its backward, as in the paper (Sec. VI-A), and without ZeRO-1."""


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
"""Cases of Fig. 16 and 17, by model."""


@dataclass(frozen=True)
class VocabularyOptions(CaseOptions):
    """Options of all figures with a large vocabulary."""

    work_limit: float = option(
        10.0, "work limit of the search for each schedule, in units of about 1 s of one core", above=0
    )


@dataclass(frozen=True)
class PlanPlacement:
    """A plan as a placement whose blocks have transfers."""

    plan: Plan
    placement: Placement

    @property
    def without_transfers(self) -> Placement:
        """The placement that schedules are searched for: transfers come on top (Tessel, Sec. III-A)."""
        return replace(self.placement, transfer=())

    @property
    def in_words(self) -> str:
        """Stages, GPUs and micro-batches of the plan."""
        plan = self.plan
        stages = "1 stage" if plan.num_stages == 1 else f"{plan.num_stages} stages"
        return f"{stages} on {plan.cluster.num_gpus} GPUs, {plan.num_micro_batches} micro-batches"

    def seconds(self, ticks: float) -> float:
        """Return ticks in seconds."""
        return ticks * self.placement.tick_ms / 1e3

    def searched(self, work_limit: float) -> Schedule | None:
        """Return the schedule of the repetend with the shortest period that our search finds."""
        number = self.plan.num_micro_batches
        found = search(self.without_transfers, number, objectives=("period",), work_limit=work_limit)
        return found.schedule

    def by_hand(self, name: str) -> Schedule | None:
        """Return a schedule of `HAND_MADE`; None where it is undefined or does not fit."""
        try:
            return validate(HAND_MADE[name](self.without_transfers, self.plan.num_micro_batches))
        except (UnsuitablePlacementError, InvalidScheduleError):
            return None


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


def planned(case: LargeVocabularyCase) -> tuple[PlanPlacement | None, PlanPlacement | None]:
    """Return the best plans in stages of consecutive layers, and with the vocabulary on all GPUs.

    None stands where no plan fits.
    """
    costs, cluster = ShapeCosts(model_of(case)), cluster_of(case)
    capacity_gib = cluster.whole.memory_gib - _OPTIONS.reserve_gib

    def placed(plan: Plan, shared: SharedLayers | None = None) -> PlanPlacement:
        capacities_gib = [capacity_gib] * plan.num_stages
        return PlanPlacement(
            plan, whole_stages(planned_placement(plan, costs, capacities_gib, shared=shared))
        )

    ordinary = uninterrupted(search_plans(costs, cluster, SAMPLES, _OPTIONS)).plans
    trunks = search_trunks(costs, cluster, SAMPLES, case.shape, _OPTIONS)
    return (
        placed(ordinary[0].plan) if ordinary else None,
        placed(trunks[0].rated.plan, trunks[0].shared) if trunks else None,
    )


def scheduled(
    case: LargeVocabularyCase, work_limit: float
) -> dict[str, tuple[PlanPlacement | None, Schedule | None]]:
    """Return the plan and the schedule of each system; None where no plan fits, or no schedule is defined."""
    ordinary, shared = planned(case)
    return {
        PLAIN: (ordinary, None if ordinary is None else ordinary.by_hand("one_f_one_b")),
        PLUS: (shared, None if shared is None else shared.by_hand("one_f_one_b_plus")),
        TESSEL: (shared, None if shared is None else shared.searched(work_limit)),
    }


def whole_stages(placement: Placement) -> Placement:
    """Return a chain whose blocks are one where they follow each other on the same devices; without updates.

    A planned stage has a block for each way in which its GPUs share layers; 1F1B knows one for each stage.
    """
    chain = placement.per_micro_batch
    groups: list[list[Block]] = []
    for block in chain.topological_order:
        if groups and (groups[-1][0].devices, groups[-1][0].kind) == (block.devices, block.kind):
            groups[-1].append(block)
        else:
            groups.append([block])
    name_of = {block.name: _named_by(group).name for group in groups for block in group}
    blocks = tuple(_joined(group, name_of) for group in groups)
    transfer = {
        (name_of[source], name_of[target]): ticks
        for source, target, ticks in chain.transfer
        if name_of[source] != name_of[target]
    }
    return replace(chain, blocks=blocks, transfer=tuple((*pair, ticks) for pair, ticks in transfer.items()))


def _named_by(group: Sequence[Block]) -> Block:
    """Return the first block of a forward or the last of a backward, which belong together."""
    return group[0 if group[0].kind is Kind.F else -1]


def _joined(group: Sequence[Block], name_of: Mapping[str, str]) -> Block:
    first = group[0]
    return replace(
        first,
        name=_named_by(group).name,
        data_parallel=_named_by(group).data_parallel,
        time=sum(block.time for block in group),
        memory=tuple(sum(block.memory_on(device) for block in group) for device in first.devices),
        transient=max(block.transient for block in group),
        after=tuple(name_of[name] for name in first.after),
    )
