"""Fig. 13 and 14: models with large vocabularies by 1F1B, 1F1B+ and Tessel's placement.

1F1B has the best plan in stages of consecutive layers; 1F1B+ and our search share the best plan with the
vocabulary on all GPUs. Schedules are made for plans without transfers, as Tessel does (Sec. III-A). Times are
modelled from data sheets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from experiments.reproduce.item import CaseOptions, Row, Trend, described
from experiments.reproduce.rows import (
    draw_metric,
    grouped,
    listed,
    published_table,
    rows_with,
    span,
    uninterrupted,
    value_of,
)
from placements import Placement
from placements.cluster import CLUSTERS, Cluster, read_cluster
from placements.forms.meaning import option
from placements.models.chain import ModelShape
from placements.models.training_figures import model_flops
from placements.models.zoo import read_model
from placements.planners.hybrid.decision_trees import PAPER, TreeOptions
from placements.planners.hybrid.placing.planned_placement import chunk_pieces, placement_of_pieces
from placements.planners.hybrid.placing.shared_layers import search_trunks
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
_BY_HAND = {PLAIN: "one_f_one_b", PLUS: "one_f_one_b_plus"}

_OPTIONS = PlanOptions(trees=TreeOptions(PAPER, ("full",)), num_plans=1, idle_gpus=False)
"""Every layer is computed again in its backward, as in the paper (Sec. VI-A), and without ZeRO-1."""

_PLAIN_TICK_MS = 0.01
"""Tick of plans whose schedule is made by hand."""

PAPER_SPEEDUPS = {"m_shape": 4.8, "nn_shape": 5.5}
"""Largest speedup of Tessel's shape over existing schedules (Sec. VI-D)."""

OVER_ONE_F_ONE_B_PLUS = 1.4
"""Tessel's largest speedup over 1F1B+ in training, of GPT and of mT5 (Sec. VI-D, of Fig. 13 and 14)."""

_BAND = 0.1
"""Largest difference of our largest speedup from the paper's, as a part of it."""

_PFLOPS, _SPEEDUP = "pflops", "speedup"
_NONE = "no plan or schedule"


class LargeVocabularyCase(NamedTuple):
    """A model and its GPUs, a row of ``large_vocabularies.csv``.

    Attributes:
        model: Model of Tessel's Table III, in `placements.models.zoo.MODELS`.
        num_gpus: V100 with 32 GB.
        shape: Shape that has the vocabulary on all GPUs.
        state_bytes: Bytes of a parameter's weight, gradient and optimizer states.
    """

    model: str
    num_gpus: int
    shape: str
    state_bytes: float

    @property
    def cluster(self) -> Cluster:
        """The GPUs, with the network of Tessel's cluster."""
        bandwidth_gb_s = CLUSTERS["tessel_v100_32"].node_bandwidth_gb_s
        return read_cluster(f"v100_{self.num_gpus}", node_bandwidth_gb_s=bandwidth_gb_s)

    @property
    def model_shape(self) -> ModelShape:
        """The model; for an NN-shape the decoder looks its tokens up itself."""
        model = read_model(self.model, **({"second_lookup": True} if self.shape == "nn_shape" else {}))
        known = model.precision
        states = self.state_bytes - known.weight_bytes - known.gradient_bytes
        return replace(model, precision=replace(known, optimizer_bytes=states))


CASES = {row.model: row for row in published_table(__file__, "large_vocabularies.csv", LargeVocabularyCase)}
"""Cases by the model."""


@dataclass(frozen=True)
class VocabularyOptions(CaseOptions):
    """Options of the figures with a large vocabulary."""

    work_limit: float = option(
        10.0, "work limit of the search for each schedule, in units of about 1 s of one core", above=0
    )


def iterations_s(case: LargeVocabularyCase, work_limit: float) -> dict[str, float | None]:
    """Return the seconds of an iteration by system.

    It is None where no plan fits in memory, or where a hand-made schedule does not suit the plan: a device of
    it has stages on both sides of an embedding, or too little memory.
    """
    costs, cluster = ShapeCosts(case.model_shape), case.cluster
    capacity_gib = cluster.whole.memory_gib - _OPTIONS.reserve_gib
    ordinary = uninterrupted(search_plans(costs, cluster, SAMPLES, _OPTIONS)).plans
    trunks = search_trunks(costs, cluster, SAMPLES, case.shape, _OPTIONS)
    shared = (trunks[0].plan, trunks[0].shared) if trunks else None
    plans = {PLAIN: (ordinary[0].plan, None) if ordinary else None, PLUS: shared, TESSEL: shared}
    seconds: dict[str, float | None] = dict.fromkeys(plans)
    for system, planned in plans.items():
        if planned is None:
            continue
        plan, vocabulary = planned
        pieces = chunk_pieces(plan, costs, shared=vocabulary, are_whole=True)
        capacities_gib, tick_ms = [capacity_gib] * plan.num_stages, None if vocabulary else _PLAIN_TICK_MS
        placed = placement_of_pieces("planned", plan, pieces, capacities_gib, tick_ms).per_micro_batch
        schedule = _schedule(system, replace(placed, transfer=()), plan.num_micro_batches, work_limit)
        if schedule is not None:
            seconds[system] = placed.ms(schedule.makespan) / 1e3
    return seconds


def _schedule(system: str, placement: Placement, number: int, work_limit: float) -> Schedule | None:
    """Return a system's schedule, ours of the shortest period; None where it is undefined or does not fit."""
    if system == TESSEL:
        answer = search(placement, number, objectives=("period",), work_limit=work_limit)
        return uninterrupted(answer).schedule
    try:
        return validate(HAND_MADE[_BY_HAND[system]](placement, number))
    except (UnsuitablePlacementError, InvalidScheduleError):
        return None


def _throughput_rows(options: VocabularyOptions, case: LargeVocabularyCase) -> Iterator[Row]:
    times_s = iterations_s(case, options.work_limit)
    operations = SAMPLES * model_flops(case.model_shape)
    for label, time_s in times_s.items():
        pflops = operations / time_s / 1e15 if time_s else None
        yield Row(label, _PFLOPS, pflops, digits=3, note="" if time_s else _NONE, series=label)
    ours_s = times_s[TESSEL]
    for label, published in ((PLAIN, PAPER_SPEEDUPS[case.shape]), (PLUS, OVER_ONE_F_ONE_B_PLUS)):
        time_s = times_s[label]
        ratio = time_s / ours_s if time_s and ours_s else None
        note = "the paper's largest" if ratio else _NONE
        yield Row(f"{TESSEL} / {label}", _SPEEDUP, ratio, published, digits=1, note=note, series=label)


def _throughput_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    over = value_of(rows_with(rows, metric=_SPEEDUP), "series", "case")
    plus = [ratio for (label, _), ratio in over.items() if label == PLUS]
    most = max(plus, default=0.0)
    yield Trend(
        f"up to {OVER_ONE_F_ONE_B_PLUS:g} times the throughput of 1F1B+ (within {_BAND:.0%})",
        bool(plus) and min(plus) > 1 and abs(most / OVER_ONE_F_ONE_B_PLUS - 1) <= _BAND,
        span(plus),
    )
    plain = {case: ratio for (label, case), ratio in over.items() if label == PLAIN}
    conclusion = "more throughput than 1F1B for every model"
    yield Trend(conclusion, min(plain.values(), default=0) > 1, listed(plain))
    several = [case for case in grouped(rows) if len({*CASES[case].cluster.node_of}) > 1]
    if pairs := {case: over[PLAIN, case] / over[PLUS, case] for case in several if (PLUS, case) in over}:
        holds = min(pairs.values()) > 1
        yield Trend("over several servers 1F1B+ has more throughput than 1F1B", holds, listed(pairs))


ITEMS = (
    described(
        "tessel_figure13",
        CASES,
        _throughput_rows,
        _throughput_trends,
        partial(draw_metric, metric=_PFLOPS, y_label="PFLOPS"),
        VocabularyOptions(("gpt_11b", "mt5_1.8b"), work_limit=2.5),
    ),
)
