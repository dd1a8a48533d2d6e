"""Fig. 13, 14, 16 and 17: models with large vocabularies by 1F1B, 1F1B+ and Tessel's placement.

1F1B has the best plan in stages of consecutive layers; 1F1B+ and our search share the best plan with the
vocabulary on all GPUs. Schedules are made for plans without transfers, as Tessel does (Sec. III-A), and
programs with transfers are played in virtual time. Times are modelled from data sheets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from experiments.reproduce.item import CaseOptions, Row, Trend, described
from experiments.reproduce.rows import (
    cases_in,
    draw_metrics,
    listed,
    numbers,
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
from placements.planners.hybrid.plan import Plan
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.shape_costs import ShapeCosts
from runtime.program.deadlock import check
from runtime.program.lower import lower
from runtime.program.prefetch import prefetch_receives
from runtime.virtual.play import Communication, play
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

WAIT_OVERHEAD = 0.06
"""Largest wait of devices above the theory's share (Sec. VI-E, of Fig. 16)."""

BLOCK_TIME_RATIO = 4.0
"""Time of the slowest stage's blocks of GPT on 16 GPUs, 1F1B over Tessel: "almost 400" over "around 100"
seconds (Sec. VI-E, of Fig. 16)."""

NON_BLOCKING_SPEED_UP = 1.9
"""Largest speedup of non-blocking communication (Sec. VI-E, of Fig. 17)."""

_BAND = 0.1
"""Largest difference of our largest speedup from the paper's, as a part of it."""

_RECEIVE_AHEAD = 2
"""Blocks of its device that a receive is posted ahead of."""

_PFLOPS, _SPEEDUP, _ITERATION_S = "pflops", "speedup", "iteration_s"
_BLOCK_S, _WAIT, _PLANNED_WAIT = "block_s", "wait_share", "planned_wait_share"
_RATIO = "blocking_over_non_blocking"
_NO_PLAN = "no plan fits in memory"
_NO_SCHEDULE = "not defined, as a device has stages on both sides of an embedding, or does not fit in memory"


class LargeVocabularyCase(NamedTuple):
    """A model and its GPUs, a row of ``large_vocabularies.csv``.

    Attributes:
        figure: 13, which has the paper's GPUs, or 16, also for Fig. 17.
        model: Model of Tessel's Table III, in `placements.models.zoo.MODELS`.
        num_gpus: V100 with 32 GB. With 16 bytes for each parameter some models do not fit on the paper's
            number of GPUs, and have twice as many.
        shape: Shape that has the vocabulary on all GPUs.
        state_bytes: Bytes of a parameter's weight, gradient and optimizer states.
    """

    figure: int
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


_ROWS = published_table(__file__, "large_vocabularies.csv", LargeVocabularyCase)
CASES = {figure: {row.model: row for row in _ROWS if row.figure == figure} for figure in (13, 16)}
"""Cases by the number of the figure and the model."""


@dataclass(frozen=True)
class VocabularyOptions(CaseOptions):
    """Options of all figures with a large vocabulary."""

    work_limit: float = option(
        10.0, "work limit of the search for each schedule, in units of about 1 s of one core", above=0
    )


@dataclass(frozen=True)
class ScheduledPlan:
    """A plan, its blocks with transfers, and their schedule without."""

    plan: Plan
    placement: Placement
    schedule: Schedule

    @property
    def in_words(self) -> str:
        """Stages, GPUs and micro-batches of the plan."""
        plan = self.plan
        stages = "1 stage" if plan.num_stages == 1 else f"{plan.num_stages} stages"
        return f"{stages} on {plan.cluster.num_gpus} GPUs, {plan.num_micro_batches} micro-batches"

    @property
    def planned_s(self) -> float:
        """Seconds of an iteration without transfers."""
        return self.placement.ms(self.schedule.makespan) / 1e3

    @property
    def busiest_s(self) -> float:
        """Seconds of an iteration in which the busiest device runs blocks."""
        loads = [self.placement.load(device) for device in range(self.placement.num_devices)]
        return self.placement.ms(self.plan.num_micro_batches * max(loads)) / 1e3

    def played_s(self, communication: Communication) -> float:
        """Return the seconds of an iteration with transfers; receives that do not block are posted early."""
        programs = check(lower(self.schedule))
        if communication is not Communication.BLOCKING:
            programs = check(prefetch_receives(programs, _RECEIVE_AHEAD))
        played = play(programs, communication, transfer_time=self.placement.transfer_time)
        return played.time * self.placement.tick_ms / 1e3


def scheduled(case: LargeVocabularyCase, work_limit: float) -> dict[str, ScheduledPlan | str]:
    """Return the scheduled plan of each system, or why there is none."""
    costs, cluster = ShapeCosts(case.model_shape), case.cluster
    capacity_gib = cluster.whole.memory_gib - _OPTIONS.reserve_gib
    ordinary = uninterrupted(search_plans(costs, cluster, SAMPLES, _OPTIONS)).plans
    trunks = search_trunks(costs, cluster, SAMPLES, case.shape, _OPTIONS)
    shared = (trunks[0].plan, trunks[0].shared) if trunks else None
    plans = {PLAIN: (ordinary[0].plan, None) if ordinary else None, PLUS: shared, TESSEL: shared}
    systems: dict[str, ScheduledPlan | str] = {}
    for system, planned in plans.items():
        if planned is None:
            systems[system] = _NO_PLAN
            continue
        plan, vocabulary = planned
        pieces = chunk_pieces(plan, costs, shared=vocabulary, are_whole=True)
        capacities_gib, tick_ms = [capacity_gib] * plan.num_stages, None if vocabulary else _PLAIN_TICK_MS
        placed = placement_of_pieces("planned", plan, pieces, capacities_gib, tick_ms).per_micro_batch
        schedule = _schedule(system, replace(placed, transfer=()), plan.num_micro_batches, work_limit)
        systems[system] = _NO_SCHEDULE if schedule is None else ScheduledPlan(plan, placed, schedule)
    return systems


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
    systems = scheduled(case, options.work_limit)
    operations = SAMPLES * model_flops(case.model_shape)
    seconds = {
        label: result.planned_s for label, result in systems.items() if isinstance(result, ScheduledPlan)
    }
    for label, result in systems.items():
        pflops = operations / seconds[label] / 1e15 if label in seconds else None
        note = result if isinstance(result, str) else result.in_words
        yield Row(label, _PFLOPS, pflops, digits=3, note=note, series=label)
    for label, published in ((PLAIN, PAPER_SPEEDUPS[case.shape]), (PLUS, OVER_ONE_F_ONE_B_PLUS)):
        ratio = seconds[label] / seconds[TESSEL] if {label, TESSEL} <= seconds.keys() else None
        note = "the paper's is the largest of its models" if ratio else "not defined"
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
    says = "more throughput than 1F1B for every model"
    yield Trend(says, min(plain.values(), default=0) > 1, listed(plain))
    several = [case for case in cases_in(rows) if len({*CASES[13][case].cluster.node_of}) > 1]
    if pairs := {case: over[PLAIN, case] / over[PLUS, case] for case in several if (PLUS, case) in over}:
        holds = min(pairs.values()) > 1
        yield Trend("over several servers 1F1B+ has more throughput than 1F1B", holds, listed(pairs))


def _waiting_rows(options: VocabularyOptions, case: LargeVocabularyCase) -> Iterator[Row]:
    """Yield the time of the busiest device's blocks, and its share of waiting with and without transfers."""
    for label, result in scheduled(case, options.work_limit).items():
        if isinstance(result, str):
            yield Row(label, _BLOCK_S, None, note=result)
            continue
        yield Row(label, _BLOCK_S, result.busiest_s, digits=1, note=result.in_words)
        yield Row(label, _PLANNED_WAIT, 1 - result.busiest_s / result.planned_s, digits=3)
        yield Row(label, _WAIT, 1 - result.busiest_s / result.played_s(Communication.DIRECTED), digits=3)


def _waiting_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    blocks, waits, by_plan = (
        value_of(rows_with(rows, metric=metric), "label", "case")
        for metric in (_BLOCK_S, _WAIT, _PLANNED_WAIT)
    )
    above = max((wait - by_plan[key] for key, wait in waits.items()), default=None)
    says = f"devices wait less than {WAIT_OVERHEAD:.0%} above what the schedule says"
    yield Trend(says, above is not None and above < WAIT_OVERHEAD, f"at most {above or 0:.1%}")
    cases = [case for case in cases_in(rows) if (TESSEL, case) in blocks]
    ratios = [blocks[PLAIN, case] / blocks[TESSEL, case] for case in cases if (PLAIN, case) in blocks]
    yield Trend(
        "1F1B's slowest stage has more to compute than Tessel's",
        bool(ratios) and min(ratios) > 1,
        f"{span(ratios)}; the paper: {BLOCK_TIME_RATIO:g} times for GPT on 16 GPUs",
    )
    pairs = [(waits[TESSEL, case], waits[PLUS, case]) for case in cases if (PLUS, case) in waits]
    yield Trend(
        "devices wait less than in 1F1B+",
        bool(pairs) and all(ours < plus for ours, plus in pairs),
        "; ".join(f"{ours:.1%} for {plus:.1%}" for ours, plus in pairs),
    )


def _transfer_rows(options: VocabularyOptions, case: LargeVocabularyCase) -> Iterator[Row]:
    result = scheduled(case, options.work_limit)[TESSEL]
    if isinstance(result, str):
        yield Row(TESSEL, _RATIO, None, note=result)
        return
    blocking_s, non_blocking_s = map(result.played_s, (Communication.BLOCKING, Communication.DIRECTED))
    yield Row("blocking", _ITERATION_S, blocking_s, digits=1, note=result.in_words)
    yield Row("non-blocking", _ITERATION_S, non_blocking_s, digits=1)
    yield Row(TESSEL, _RATIO, blocking_s / non_blocking_s, digits=2)


def _transfer_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    ratios = numbers(rows_with(rows, metric=_RATIO))
    shown = f"up to {max(ratios, default=0):.2f} times; the paper: up to {NON_BLOCKING_SPEED_UP:g}"
    yield Trend("non-blocking communication is faster", bool(ratios) and min(ratios) > 1, shown)


_WAITING = {
    _BLOCK_S: "(a) time of the slowest stage's blocks (s)",
    _WAIT: "(b) share of waiting",
    _PLANNED_WAIT: "(c) share of waiting by the schedule alone",
}

ITEMS = (
    described(
        "tessel_figure13",
        CASES[13],
        _throughput_rows,
        _throughput_trends,
        partial(draw_metrics, y_label="PFLOPS", titles={_PFLOPS: ""}),
        VocabularyOptions(("gpt_11b", "mt5_1.8b"), work_limit=2.5),
    ),
    described(
        "tessel_figure16",
        CASES[16],
        _waiting_rows,
        _waiting_trends,
        partial(draw_metrics, y_label="", titles=_WAITING, same_axis=False),
        VocabularyOptions(("gpt_11b",)),
    ),
    described(
        "tessel_figure17",
        CASES[16],
        _transfer_rows,
        _transfer_trends,
        partial(draw_metrics, y_label="iteration (s)", titles={_ITERATION_S: ""}),
        VocabularyOptions(("mt5_1.8b",)),
    ),
)
