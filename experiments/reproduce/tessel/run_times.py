"""Fig. 16 and 17: how long blocks run and devices wait, and what blocking transfers cost.

Plans are searched for a cluster of V100, their schedules for the plans without transfers, as Tessel does;
then programs with transfers are played in virtual time. All times are modelled from data sheets, so only what
the paper concludes from its own is claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from schedsearch.procedures.search import search

from experiments.reproduce.item import Claim, Item, Row, Trend
from experiments.reproduce.rows import bars, cases_in, grouped, numbers, rows_with, span, value_of
from experiments.reproduce.tessel.large_vocabulary import (
    CASES,
    SAMPLES,
    LargeVocabularyCase,
    Proposal,
    VocabularyPlans,
    cluster_of,
    model_of,
)
from experiments.reproduce.tessel.published import (
    BLOCK_TIME_RATIO,
    NON_BLOCKING_SPEED_UP,
    WAIT_OVERHEAD,
)
from experiments.reproduce.tessel.vocabulary_item import VocabularyOptions, cases
from placements import Block, Kind, Placement
from placements.planners.hybrid.decision_trees import PAPER, TreeOptions
from placements.planners.hybrid.plan import Plan
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.shape_costs import ShapeCosts
from runtime.program.deadlock import check
from runtime.program.lower import lower
from runtime.program.prefetch import prefetch_receives
from runtime.virtual.play import play
from runtime.virtual.rules import Communication
from schedsearch.baselines import HAND_MADE, UnsuitablePlacementError
from schedsearch.figures.bars import BarPanel, draw_bars
from schedsearch.schedule import Schedule
from schedsearch.validate import InvalidScheduleError, validate

_OPTIONS = PlanOptions(trees=TreeOptions(PAPER, ("full",)), num_plans=1, idle_gpus=False)
"""Every layer is computed again in its backward, as in the paper (Sec. VI-A), and without ZeRO-1."""

_RECEIVE_AHEAD = 2
"""Blocks of its device that a receive is posted ahead of."""

_BLOCK_S, _WAIT, _PLANNED_WAIT = "block_s", "wait_share", "planned_wait_share"
_RATIO, _ITERATION_S = "blocking_over_non_blocking", "iteration_s"
_TESSEL = "Tessel's placement, our search"
_NO_SCHEDULE = "not defined, as a device has stages on both sides of an embedding, or does not fit in memory"


@dataclass(frozen=True)
class PlanPlacement:
    """A plan as a placement.

    Attributes:
        plan: Stages, GPUs and layers.
        placement: Its blocks, with their transfers.
    """

    plan: Plan
    placement: Placement

    @property
    def without_transfers(self) -> Placement:
        """What the schedule is searched for: transfers come on top, as in Tessel (Sec. III-A)."""
        return replace(self.placement, transfer=())

    def seconds(self, ticks: float) -> float:
        """Return ticks in seconds."""
        return ticks * self.placement.tick_ms / 1e3


def v_shape_of(case: LargeVocabularyCase) -> PlanPlacement | None:
    """Return the best plan in stages of consecutive layers; None where none fits."""
    return _best(_plans_of(case).ordinary())


def shared_shape_of(case: LargeVocabularyCase) -> PlanPlacement | None:
    """Return the best plan with the vocabulary on all GPUs; None where none fits."""
    return _best(_plans_of(case).shared())


def _plans_of(case: LargeVocabularyCase) -> VocabularyPlans:
    return VocabularyPlans(ShapeCosts(model_of(case)), cluster_of(case), SAMPLES, case.shape, _OPTIONS)


def _best(proposals: Iterator[Proposal]) -> PlanPlacement | None:
    found = next(proposals, None)
    return None if found is None else PlanPlacement(found.plan, whole_stages(found.placement))


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


def searched_schedule(planned: PlanPlacement, work_limit: float) -> Schedule | None:
    """Return the schedule of the repetend with the shortest period that our search finds."""
    placement, number = planned.without_transfers, planned.plan.num_micro_batches
    found = search(placement, number, objectives=("period",), work_limit=work_limit)
    return found.schedule


def hand_made_schedule(planned: PlanPlacement, name: str) -> Schedule | None:
    """Return a schedule of `schedsearch.baselines.HAND_MADE`; None where it is undefined or does not fit."""
    try:
        return validate(HAND_MADE[name](planned.without_transfers, planned.plan.num_micro_batches))
    except (UnsuitablePlacementError, InvalidScheduleError):
        return None


def played_s(planned: PlanPlacement, schedule: Schedule, communication: Communication) -> float:
    """Return the seconds of an iteration with transfers; receives that do not block are posted early."""
    programs = check(lower(schedule))
    if communication is not Communication.BLOCKING:
        programs = check(prefetch_receives(programs, _RECEIVE_AHEAD))
    transfer_time: Callable[[str, str], float] = planned.placement.transfer_time
    return planned.seconds(play(programs, communication, transfer_time=transfer_time).time)


def plan_in_words(plan: Plan) -> str:
    """Return stages, GPUs and micro-batches of a plan."""
    stages = "1 stage" if plan.num_stages == 1 else f"{plan.num_stages} stages"
    return f"{stages} on {plan.cluster.num_gpus} GPUs, {plan.num_micro_batches} micro-batches"


def _breakdown_rows(options: VocabularyOptions, case: str) -> Iterator[Row]:
    ordinary, shared = v_shape_of(CASES[case]), shared_shape_of(CASES[case])
    made = {
        "1F1B": (ordinary, partial(hand_made_schedule, name="one_f_one_b")),
        "1F1B+": (shared, partial(hand_made_schedule, name="one_f_one_b_plus")),
        _TESSEL: (shared, partial(searched_schedule, work_limit=options.work_limit)),
    }
    for label, (planned, make) in made.items():
        schedule = None if planned is None else make(planned)
        if planned is None or schedule is None:
            note = "no plan fits in memory" if planned is None else _NO_SCHEDULE
            yield Row(label, _BLOCK_S, None, note=note)
        else:
            yield from _system_rows(label, planned, schedule)


def _system_rows(label: str, planned: PlanPlacement, schedule: Schedule) -> Iterator[Row]:
    """Yield what the busiest device's blocks take, and its share of waiting with and without transfers."""
    placement = planned.without_transfers
    busy = max(
        sum(placement.by_name[name].time for name, _ in schedule.order(device))
        for device in range(placement.num_devices)
    )
    block_s = planned.seconds(busy)
    yield Row(label, _BLOCK_S, block_s, digits=1, note=plan_in_words(planned.plan))
    yield Row(label, _PLANNED_WAIT, 1 - block_s / planned.seconds(schedule.makespan), digits=3)
    yield Row(label, _WAIT, 1 - block_s / played_s(planned, schedule, Communication.DIRECTED), digits=3)


def _breakdown_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    blocks, waits, planned = (
        value_of(rows_with(rows, metric=metric), "label", "case")
        for metric in (_BLOCK_S, _WAIT, _PLANNED_WAIT)
    )
    above = max((wait - planned[key] for key, wait in waits.items()), default=None)
    yield Trend(
        f"devices wait less than {WAIT_OVERHEAD:.0%} above what the schedule says",
        above is not None and above < WAIT_OVERHEAD,
        f"at most {above or 0:.1%}",
    )
    cases = [case for case in cases_in(rows) if (_TESSEL, case) in blocks]
    ratios = [blocks["1F1B", case] / blocks[_TESSEL, case] for case in cases if ("1F1B", case) in blocks]
    yield Trend(
        "1F1B's slowest stage has more to compute than Tessel's",
        bool(ratios) and min(ratios) > 1,
        f"{span(ratios)}; the paper: {BLOCK_TIME_RATIO:g} times for GPT on 16 GPUs",
    )
    pairs = [(waits[_TESSEL, case], waits["1F1B+", case]) for case in cases if ("1F1B+", case) in waits]
    yield Trend(
        "devices wait less than in 1F1B+",
        bool(pairs) and all(ours < plus for ours, plus in pairs),
        "; ".join(f"{ours:.1%} for {plus:.1%}" for ours, plus in pairs),
    )


def _draw_breakdown(rows: Sequence[Row]) -> Any:
    panels = []
    for title, metric in (
        ("(a) time of the slowest stage's blocks (s)", _BLOCK_S),
        ("(b) share of waiting", _WAIT),
        ("(c) share of waiting by the schedule alone", _PLANNED_WAIT),
    ):
        value = value_of(rows_with(rows, metric=metric), "case", "label")
        groups = {
            case: {row.label: value.get((case, row.label)) for row in own}
            for case, own in grouped(rows_with(rows, metric=_BLOCK_S)).items()
        }
        panels.append(BarPanel(title, groups))
    return draw_bars(panels, "", same_axis=False)


FIGURE_16 = Item(
    name="tessel_figure16",
    paper="Tessel",
    part="Fig. 16",
    title="Time of blocks and share of waiting",
    claim=Claim.TREND,
    known=cases,
    make=_breakdown_rows,
    conclude=_breakdown_trends,
    draw=_draw_breakdown,
    small=VocabularyOptions(models=("gpt_11b",)),
    because=(
        "Modelled, for V100 with 32 GB and the paper's network; with 16 bytes for each parameter some models "
        "need twice the paper's GPUs. 1F1B has the plan that is best of all, often of one stage whose GPUs "
        "share the vocabulary; the paper's has four. The weights' update is left out. 1F1B+ of an mT5 is "
        "left out where a stage has layers of encoder and decoder."
    ),
)
"""1F1B, 1F1B+ and Tessel's placement with our search."""


def _transfer_rows(options: VocabularyOptions, case: str) -> Iterator[Row]:
    shared = shared_shape_of(CASES[case])
    schedule = None if shared is None else searched_schedule(shared, options.work_limit)
    if shared is None or schedule is None:
        yield Row(_TESSEL, _RATIO, None, note="no plan or no schedule was found")
        return
    blocking_s = played_s(shared, schedule, Communication.BLOCKING)
    non_blocking_s = played_s(shared, schedule, Communication.DIRECTED)
    yield Row("blocking", _ITERATION_S, blocking_s, digits=1, note=plan_in_words(shared.plan))
    yield Row("non-blocking", _ITERATION_S, non_blocking_s, digits=1)
    yield Row(_TESSEL, _RATIO, blocking_s / non_blocking_s, digits=2)


def _transfer_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    ratios = numbers(rows_with(rows, metric=_RATIO))
    yield Trend(
        "non-blocking communication is faster",
        bool(ratios) and min(ratios) > 1,
        f"up to {max(ratios, default=0):.2f} times; the paper: up to {NON_BLOCKING_SPEED_UP:g}",
    )


def _draw_transfers(rows: Sequence[Row]) -> Any:
    return draw_bars([BarPanel("", bars(rows_with(rows, metric=_ITERATION_S)))], "iteration (s)")


FIGURE_17 = Item(
    name="tessel_figure17",
    paper="Tessel",
    part="Fig. 17",
    title="Iterations with blocking and non-blocking communication",
    claim=Claim.TREND,
    known=cases,
    make=_transfer_rows,
    conclude=_transfer_trends,
    draw=_draw_transfers,
    small=VocabularyOptions(models=("mt5_1.8b",)),
    because=(
        "Modelled; see Fig. 16. Transfers take what the data sheets' links do, with nothing for launching "
        "them."
    ),
)
"""GPT in M-shapes and mT5 in NN-shapes."""
