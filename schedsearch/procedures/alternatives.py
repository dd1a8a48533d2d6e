"""Alternative schedules of one period: the search's own, samples of its repetend, and hand-made schedules.

A search ends with one schedule of many that are equally good: repetends of the least period differ in span
and in the order of their blocks. Which of them is best by another figure, such as energy at a deadline, is
decided in `schedsearch.energy.orders.ordering`, not here.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from placements import Placement
from schedsearch.baselines import HAND_MADE, applicable
from schedsearch.baselines.chosen_modes import with_chosen_modes
from schedsearch.core.answer import Answer
from schedsearch.core.budget import Account, Budget
from schedsearch.core.known import OfSize
from schedsearch.core.objective import VALUE, Objective
from schedsearch.core.problem import OBJECTIVES
from schedsearch.metrics import peak_memory
from schedsearch.procedures.neighbourhoods import neighbourhood
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule, with_optimizer
from schedsearch.solver.effort import Effort, OutOfTimeError
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.solver.portfolio import SOLVERS
from schedsearch.validate import InvalidScheduleError, validate

_SAMPLERS = ("z3", "cpsat")
"""Solvers that sample in turn, because each has only a few different answers to one query."""

_PATIENCE = 30
"""Most samples in a row without a new repetend, after which sampling ends."""


@dataclass(frozen=True)
class ScheduleCandidate:
    """A candidate schedule, with its repetend and its origin.

    Attributes:
        schedule: A valid schedule under the search's memory limit.
        repetend: Its steady state; the search's repetend for a hand-made schedule or one without repeats.
        origin: ``search``, ``repetend`` (the search's, unrolled), ``sample``, ``gathered`` (the one before,
            with its shared blocks at the ends), or the name of a hand-made schedule.
    """

    schedule: Schedule
    repetend: Repetend | None
    origin: str


def order_key(schedule: Schedule) -> tuple[tuple[object, ...], ...]:
    """Return the order of the blocks on every stream, and their modes, which clocks do not change."""
    return (*schedule.lane_orders, schedule.chosen)


def schedules_of_equal_period(
    placement: Placement,
    num_micro_batches: int,
    result: Answer,
    *,
    limit: Mapping[Objective, int] | None = None,
    count: int = 16,
    work_limit: float = 2.0,
    seed: int = 0,
) -> Iterator[ScheduleCandidate]:
    """Yield different schedules of the period that a search found, its own first.

    Then come its repetend unrolled, the hand-made schedules that fit the placement and its memory, and
    samples of repetends of that period with spans from the least on, unrolled. Each but the
    hand-made ones is there again with blocks of several devices, such as embeddings, at its ends (see
    `neighbourhood.gathered`). No two have the same orders and modes. Their makespans may differ; hand-made
    ones may have a period of their own. Of a placement with modes or streams there are the search's and
    those made by hand alone.

    Args:
        placement: What runs where; its `memory` is the capacity.
        num_micro_batches: Micro-batches of every schedule.
        result: Result of the search, with a schedule.
        limit: Limits on objectives that every candidate keeps, see `reached`; by default the values of the
            search's default objectives.
        count: Most schedules.
        work_limit: Units of work, of about a second, after which the search for more ends.
        seed: Seed of the samples; other seeds make others.
    """
    assert result.schedule is not None, "a search without a schedule has nothing to vary"
    effort, known = Effort(limit=work_limit), set[tuple[tuple[object, ...], ...]]()
    limit = reached(result, OBJECTIVES) if limit is None else limit
    for candidate in _candidates(placement, num_micro_batches, result, limit, effort, seed):
        orders = order_key(candidate.schedule)
        if orders not in known and keeps_memory(candidate.schedule, limit):
            known.add(orders)
            yield candidate
        if len(known) >= count or (known and effort.is_over):
            return


def reached(result: Answer, objectives: Sequence[str]) -> dict[Objective, int]:
    """Return the value of each objective except the makespan, for a search's repetend; empty without one."""
    if result.repetend is None:
        return {}
    wanted = (Objective(name) for name in objectives if name != Objective.MAKESPAN)
    return {objective: VALUE[objective](result.repetend) for objective in wanted}


def keeps_memory(schedule: Schedule, limit: Mapping[Objective, int]) -> bool:
    """Return whether no device holds more than a search's repetend does, if that was an objective."""
    return Objective.MEMORY not in limit or int(peak_memory(schedule).max()) <= limit[Objective.MEMORY]


def may_reorder(limit: Mapping[Objective, int]) -> bool:
    """Return whether blocks may leave the repetend's order: a limited latency forbids it."""
    return Objective.LATENCY not in limit


def _candidates(
    placement: Placement,
    number: int,
    result: Answer,
    limit: Mapping[Objective, int],
    effort: Effort,
    seed: int,
) -> Iterator[ScheduleCandidate]:
    """Yield candidates, some of them equal."""
    schedule, repetend = result.schedule, result.repetend
    assert schedule is not None

    def with_gathered(
        schedule: Schedule, repetend: Repetend | None, origin: str
    ) -> Iterator[ScheduleCandidate]:
        """Yield a candidate, and a version with its shared blocks at the ends if this is valid."""
        yield ScheduleCandidate(validate(schedule), repetend, origin)
        if may_reorder(limit) and placement.is_plain:
            with contextlib.suppress(InvalidScheduleError):
                yield ScheduleCandidate(validate(neighbourhood.gathered(schedule)), repetend, "gathered")

    yield from with_gathered(schedule, repetend, "search")
    if repetend is not None:
        yield from with_gathered(with_optimizer(placement, repetend.unroll(number)), repetend, "repetend")
    if may_reorder(limit) and placement.is_plain:
        for name, by_hand in applicable(placement, number).items():
            yield ScheduleCandidate(by_hand, repetend, name)
    elif may_reorder(limit):  # with the modes that people choose
        for name, by_hand in with_chosen_modes(placement.per_micro_batch, number, HAND_MADE):
            yield ScheduleCandidate(validate(with_optimizer(placement, by_hand)), repetend, name)
    if repetend is not None and placement.is_plain:
        best = replace(repetend, placement=placement.per_micro_batch)
        for samples in _samples(best, number, result.span_bound, limit, effort, seed):
            for sample in samples:
                yield from with_gathered(with_optimizer(placement, sample.unroll(number)), sample, "sample")


def _samples(
    best: Repetend, number: int, span: int, limit: Mapping[Objective, int], effort: Effort, seed: int
) -> Iterator[list[Repetend]]:
    """Yield new samples of a repetend, with gaps, until no new one comes."""
    known = OfSize.without_search(best.placement, best.micro_batches)
    known = replace(known, repetend=best, limit=limit)
    query, period = known.query(Objective.PERIOD, best.period), best.period
    accounts = [Account(SOLVERS[name](), seed, 0.0, effort, lambda _: None) for name in _SAMPLERS]
    spans = [span, None, span + period // 2, span + period, span + 2 * period]
    seen, in_vain, number_of = {best.unroll(number).blocks}, 0, itertools.count()
    while in_vain < _PATIENCE and not (in_vain and effort.is_over):
        i = next(number_of)
        budget, most = Budget(accounts[i % len(accounts)], effort.limit), spans[i % len(spans)]
        asked = replace(query, span=min(filter(None, (most, query.span)), default=None))
        try:
            with INTERRUPTS.watched():  # Ctrl-C is put off until the solver can be left
                _, sampled = budget.ask(asked, budget.left / 4, i)
        except OutOfTimeError:
            return
        draws = [] if sampled is None else [sampled, sampled.with_min_period(period)]
        draws = [draw for draw in draws if known.keeps_limits(draw) and draw.period == period]
        unrolled = {draw.unroll(number).blocks: replace(draw, placement=best.placement) for draw in draws}
        fresh = [draw for blocks, draw in unrolled.items() if blocks not in seen]
        seen |= unrolled.keys()
        in_vain = 0 if fresh else in_vain + 1
        yield fresh
