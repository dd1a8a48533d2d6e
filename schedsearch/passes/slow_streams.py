"""Streams that slow each other down: searched with worst-case block times, then run with actual times."""

from __future__ import annotations

import math
from dataclasses import replace

from placements import Block, Placement
from schedsearch.core.answer import Answer, EndedBy, SearchProgress, SearchReport, Status
from schedsearch.core.objective import FINITE, Objective
from schedsearch.core.problem import Problem
from schedsearch.passes.passed import Passed
from schedsearch.proof.ends import device_span_bound
from schedsearch.proof.load_and_path import critical_path, period_bound
from schedsearch.proof.makespan import makespan_bound
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule, as_soon_as_possible
from schedsearch.validate import validate

_MOST_ROUNDS = 4
"""Rounds of a repetend after which its starts may come again, where streams slow each other down."""

_SETTLING = 12
"""Rounds until starts are taken as periodic, in addition to the rounds in flight."""


def lower(problem: Problem, on_progress: SearchReport) -> Passed | None:
    """Return the problem with the worst-case time of each block beside blocks of other streams.

    The orders found are then run with the actual times: no block starts later. The search's bounds hold for
    the slow blocks only; the bounds reported are of the given placement.
    """
    placement, number = problem.placement, problem.num_micro_batches
    if not placement.slowdown:
        return None
    slow, path, period = at_worst(placement), critical_path(placement), float(period_bound(placement))
    proved = {Objective.PERIOD: period, Objective.MAKESPAN: makespan_bound(placement, number)}

    def report(event: SearchProgress) -> None:
        on_progress(replace(event, bound=min(event.bound, proved.get(Objective(event.phase), path))))

    return Passed(replace(problem, placement=slow), report, lambda answer: _lifted(problem, answer))


def at_worst(placement: Placement) -> Placement:
    """Return a placement without slowdown between streams, where each block has its worst-case time.

    Its schedules are valid for the given placement too, where no block takes longer.
    """
    streams: list[set[str]] = [set() for _ in range(placement.num_devices)]
    for block in placement.all_blocks:
        for device in block.devices:
            streams[device].add(block.stream)

    def slowed(block: Block) -> Block:
        factors = (
            math.prod(placement.slowdown_of(block.stream, other) for other in streams[device])
            for device in block.devices
        )
        return replace(block, time=math.ceil(block.time * max(1, *factors)))

    return replace(
        placement,
        blocks=tuple(map(slowed, placement.blocks)),
        decisions=tuple(decision.mapped(slowed) for decision in placement.decisions),
        slowdown=(),
    )


def _lifted(problem: Problem, answer: Answer) -> Answer:
    """Return the answer for the given placement, made of the answer for its worst-case times.

    Its repetend is the steady state that the orders reach, if they reach one; else the worst-case one.
    """
    if answer.schedule is None or answer.status not in (Status.OPTIMAL, Status.FEASIBLE):
        return answer
    placement, number, last = problem.placement, problem.num_micro_batches, problem.wanted[-1]
    schedule = validate(_in_its_orders(placement, answer.schedule))
    bound, repetend = period_bound(placement), answer.repetend
    if repetend is not None:
        repetend = _in_the_long_run(placement, repetend, len(answer.sizes) > 1) or repetend
        is_least = repetend.period_per_micro_batch <= bound
    else:
        is_least = FINITE[last].value(schedule) <= FINITE[last].bound(placement, number)
    is_more = answer.ended_by is EndedBy.PROOF and not is_least
    return replace(
        answer,
        status=Status.OPTIMAL if is_least and not answer.interrupted else Status.FEASIBLE,
        ended_by=EndedBy.NOTHING_LEFT if is_more else answer.ended_by,
        schedule=schedule,
        repetend=repetend,
        period_bound=float(bound),
        universal_bound=float(bound),
        makespan_bound=makespan_bound(placement, number),
        device_span_bound=device_span_bound(placement, number),
        span_bound=critical_path(placement),
        min_period=None,
        tried=tuple(
            replace(attempt, bound=math.ceil(bound * attempt.micro_batches), refuted=None)
            for attempt in answer.tried
        ),
    )


def _in_the_long_run(placement: Placement, slow: Repetend, may_grow: bool) -> Repetend | None:
    """Return the steady state that the orders of a repetend come to, if its starts come again.

    Proof that they go on so: what starts next, and when, depends on the last rounds in flight alone. If all
    starts in so many rounds come again after the same ticks, so do all that follow. The repetend is one with
    each block as slow as it can become; if it may grow, several of its rounds may make one of the steady
    state.
    """
    size, flight = slow.micro_batches, slow.in_flight
    rounds = 3 * (flight + _MOST_ROUNDS) + _SETTLING
    starts = _in_its_orders(placement.per_micro_batch, slow.unroll(rounds * size)).start_of
    last = rounds - flight - 1  # after it fewer micro-batches run beside each other
    for several in range(1, _MOST_ROUNDS + 1 if may_grow else 2):
        first = last - flight - several
        periods = {
            start - starts[name, n - several * size]
            for (name, n), start in starts.items()
            if first * size <= n < last * size
        }
        if len(periods) > 1:
            continue
        begin = (last - several) * size
        return Repetend.from_first_starts(
            placement.per_micro_batch,
            several * size,
            min(periods),
            {(name, n - begin): starts[name, n] for name, n in starts if begin <= n < begin + several * size},
            slow.chosen * several,
        )
    return None


def _in_its_orders(placement: Placement, schedule: Schedule) -> Schedule:
    """Return a schedule with the orders of another one, with each block as early as possible."""
    placed = placement if schedule.placement.optimizer_blocks else placement.per_micro_batch
    return as_soon_as_possible(
        placed, schedule.num_micro_batches, schedule.lane_orders, schedule.chosen, schedule.memory_waits
    )
