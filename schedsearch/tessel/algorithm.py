"""Tessel's search for a schedule (Tessel, Sec. IV, Alg. 1), from the paper, as a baseline beside ours.

What the paper leaves open is decided as its authors' released code does, and said where it is: most
micro-batches in a repetend and their use in `candidates`, encodings in `queries`. Beyond the paper are
capacities that differ, transfer times, any DAG (that code takes a placement's blocks as one chain, so tries
fewer candidates on two branches), and an end to the search by time or by Ctrl-C.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from placements import Placement
from schedsearch.core.answer import EndedBy, InFlightPeriod, SearchProgress, SearchResult, Status
from schedsearch.proof.ends import device_span_bound
from schedsearch.proof.load_and_path import critical_path, load_bound, period_bound
from schedsearch.proof.makespan import makespan_bound
from schedsearch.repetend import Repetend
from schedsearch.schedule import Instance, Schedule, with_optimizer
from schedsearch.solver.interrupts import INTERRUPTS, Ending
from schedsearch.solver.query import Answer
from schedsearch.tessel import candidates
from schedsearch.tessel.arguments import (
    DOES_NOT_FIT,
    LONGEST_S,
    OUT_OF_TIME,
    check_arguments,
    check_most_in_flight,
)
from schedsearch.tessel.phases import Phase, concatenate, cooldown, shortened, warmup
from schedsearch.tessel.queries import Budget, Least, QueryTimeError, RepetendQuery, minimise
from schedsearch.validate import validate

_SHARE_OF_SWEEP = 0.75
"""Share of the time limit that the sweep may use when warmup and cooldown come last."""


def tessel(
    placement: Placement,
    num_micro_batches: int,
    *,
    max_in_flight: int | None = None,
    every_index: bool = True,
    lazy: bool = True,
    early_exit: bool = True,
    time_limit_s: float = 60.0,
    seed: int = 0,
    on_progress: Callable[[SearchProgress], None] | None = None,
    on_repetend: Callable[[candidates.Indices, int], None] | None = None,
) -> SearchResult:
    """Search a schedule as Tessel does (Tessel, Alg. 1).

    For one micro-batch in the repetend, then two, and so on: every assignment of micro-batches to the
    repetend's blocks is tried. Z3 finds the order of least period; one that is not better than the best so
    far is refuted by the first question. A better one must have a warmup and a cooldown that fit memory.
    The three phases are put together as each device's order of blocks, every block as early as it can be,
    which is how they run (Tessel, Sec. IV-D). The sweep knows of no bound but the busiest device's work, the
    paper's; the status is of the period against our own, which is never below it. Optimizer blocks come last.

    Args:
        placement: What runs where; its `memory` is the capacity.
        num_micro_batches: Micro-batches of the schedule; at least 1, and at least as many as in a repetend.
        max_in_flight: Greatest number of micro-batches in a repetend; None for what memory suggests, see
            `schedsearch.tessel.candidates.max_in_flight`.
        every_index: Whether each of a repetend's micro-batches has a block in it, as in the authors' code.
            Eq. 3 does not say so; without, there are several times as many candidates.
        lazy: Whether warmup and cooldown are only shown to exist during the sweep, and made short once, for
            the best repetend (Tessel, Sec. V); a quarter of the time is kept for that.
        early_exit: Whether the sweep ends when the period meets its bound.
        time_limit_s: Seconds for all of it; then the best so far is returned.
        seed: Seed of Z3's random choices.
        on_progress: Called after each candidate, and before the completion.
        on_repetend: Called with each repetend that is the best so far: the micro-batch of each block in it,
            and how many there are.

    Raises:
        SearchError: An argument is out of its range, or the placement has transient memory.
        CapacityError: A device's memory is too small for one micro-batch.
    """
    check_arguments("tessel", placement, num_micro_batches, time_limit_s)
    check_most_in_flight(max_in_flight, num_micro_batches)
    running = _Search(
        placement,
        num_micro_batches,
        max_in_flight or candidates.max_in_flight(placement.per_micro_batch, num_micro_batches),
        _Options(every_index, lazy, early_exit),
        min(time_limit_s, LONGEST_S),
        seed,
        on_progress or (lambda _: None),
        on_repetend or (lambda *_: None),
    )
    with INTERRUPTS.answered() as ending:
        running.run()
    return running.result(ending.interrupted)


@dataclass(frozen=True)
class _Options:
    every_index: bool
    lazy: bool
    early_exit: bool


@dataclass(frozen=True)
class _Best:
    """The best repetend so far, with some warmup and cooldown."""

    period: int
    indices: candidates.Indices
    in_flight: int
    starts: dict[Instance, int]
    warmup: Phase
    cooldown: Phase


class _Search:
    """One run of Algorithm 1: what was found so far, and what it took."""

    def __init__(
        self,
        placement: Placement,
        num_micro_batches: int,
        max_in_flight: int,
        options: _Options,
        time_limit_s: float,
        seed: int,
        on_progress: Callable[[SearchProgress], None],
        on_repetend: Callable[[candidates.Indices, int], None],
    ) -> None:
        self.began = time.monotonic()
        self.whole, self.placement = placement, placement.per_micro_batch
        self.num_micro_batches = num_micro_batches
        self.max_in_flight = max_in_flight
        self.options = options
        self.deadline = self.began + time_limit_s
        sweep_s = time_limit_s * (_SHARE_OF_SWEEP if options.lazy else 1)
        self.budget = Budget(self.began + sweep_s, seed)
        self.on_progress, self.on_repetend = on_progress, on_repetend
        self.load_bound = load_bound(self.placement)
        self.in_flight = 0
        self.best: _Best | None = None
        self.infeasible = False
        self.all_decided = True
        self.by_in_flight: list[InFlightPeriod] = []

    def run(self) -> None:
        """Try the candidates, then make warmup and cooldown of the best as short as can be."""
        self.sweep()
        if self.best is not None and self.options.lazy:
            self.budget.deadline = self.deadline
            self.report("completion")
            self.shorten()

    def sweep(self) -> None:
        """Try repetends of more and more micro-batches (Alg. 1, lines 7 to 21)."""
        for in_flight in range(1, self.max_in_flight + 1):
            self.in_flight, decided = in_flight, False
            try:
                decided = self.try_all()
            except QueryTimeError:
                pass
            finally:
                self.record(decided)
            if self.bound_met or self.infeasible or (self.budget.left_s <= 0 and not decided):
                break

    def try_all(self) -> bool:
        """Try the repetends of so many micro-batches; return whether each was decided."""
        decided = True
        for indices in candidates.assignments(self.placement, self.in_flight, self.options.every_index):
            self.budget.check()
            decided &= self.try_one(indices)
            self.report("repetend")
            if self.bound_met:
                break
        return decided

    def try_one(self, indices: candidates.Indices) -> bool:
        """Find a candidate's best order (Alg. 1, lines 9 to 18); return whether it was decided."""
        held = candidates.memory_at_entry(self.placement, indices)
        if self.placement.free_memory is not None and any(
            taken > capacity for taken, capacity in zip(held, self.placement.free_memory, strict=True)
        ):
            return True
        query = RepetendQuery(self.placement, indices, self.budget)
        longest = query.horizon if self.best is None else self.best.period - 1
        least = minimise(query, self.load_bound, longest)
        if least.starts is None:
            self.infeasible |= self.in_flight == 1 and least.decided
            return least.decided
        return self.complete(indices, least) and least.decided

    def complete(self, indices: candidates.Indices, least: Least) -> bool:
        """Keep a repetend if it has a warmup and a cooldown; return whether that was decided."""
        before = warmup(self.placement, indices, self.budget)
        if before.answer is not Answer.YES:
            return before.answer is Answer.NO
        after = cooldown(self.placement, indices, self.in_flight, self.budget)
        if after.answer is not Answer.YES:
            return after.answer is Answer.NO
        assert least.starts is not None
        self.best = _Best(least.value, indices, self.in_flight, least.starts, before, after)
        self.on_repetend(indices, self.in_flight)
        if not self.options.lazy:
            self.shorten()
        return True

    def shorten(self) -> None:
        """Make warmup and cooldown of the best repetend as short as can be (Alg. 1, lines 16 and 17)."""
        assert self.best is not None
        self.best = replace(self.best, warmup=shortened(self.placement, self.best.warmup, self.budget))
        self.best = replace(self.best, cooldown=shortened(self.placement, self.best.cooldown, self.budget))

    @property
    def bound_met(self) -> bool:
        """Whether the search may end early (Alg. 1, line 19)."""
        met = self.best is not None and self.best.period <= self.load_bound
        return met and self.options.early_exit

    def record(self, decided: bool) -> None:
        """Note what is known after the repetends of so many micro-batches."""
        self.all_decided &= decided
        repetend = self.repetend(self.best) if self.best is not None else None
        bound = repetend.period if repetend is not None and self.all_decided else self.load_bound
        elapsed_s = time.monotonic() - self.began
        self.by_in_flight.append(InFlightPeriod(self.in_flight, repetend, bound, elapsed_s))

    def report(self, phase: str) -> None:
        """Tell the caller how far the search is."""
        self.on_progress(
            SearchProgress(
                f"{phase} of {self.in_flight} micro-batches:",
                self.best.period if self.best is not None else None,
                self.load_bound,
                self.budget.calls,
                time.monotonic() - self.began,
            )
        )

    def repetend(self, best: _Best) -> Repetend:
        """Return a repetend in our form: a block with index n starts n periods after micro-batch 0's."""
        first = {(name, 0): start - index * best.period for (name, index), start in best.starts.items()}
        return Repetend.from_first_starts(self.placement, 1, best.period, first)

    def result(self, interrupted: bool) -> SearchResult:
        """Return the answer as it stands."""
        best, bound = self.best, period_bound(self.whole)
        return SearchResult(
            status=self.status(bound, interrupted),
            repetend=self.repetend(best) if best else None,
            schedule=validate(self.schedule(best)) if best else None,
            period_bound=float(bound),
            span_bound=critical_path(self.placement),
            makespan_bound=makespan_bound(self.whole, self.num_micro_batches),
            device_span_bound=device_span_bound(self.whole, self.num_micro_batches),
            queries=self.budget.calls,
            seconds=time.monotonic() - self.began,
            ended_by=EndedBy.of(
                Ending(interrupted, out_of_time=self.budget.left_s <= 0),
                proved=self.infeasible or (best is not None and best.period <= bound),
            ),
            reason=self.reason(),
            by_in_flight=tuple(self.by_in_flight),
        )

    def status(self, bound: Fraction, interrupted: bool) -> Status:
        """Return what is known of the period."""
        if self.best is None:
            return Status.INFEASIBLE if self.infeasible else Status.UNKNOWN
        return Status.OPTIMAL if self.best.period <= bound and not interrupted else Status.FEASIBLE

    def reason(self) -> str:
        """Return why there is no schedule."""
        if self.best is not None:
            return ""
        return DOES_NOT_FIT if self.infeasible else OUT_OF_TIME

    def schedule(self, best: _Best) -> Schedule:
        """Return the three phases as one schedule, and the optimizer blocks after them."""
        phases = concatenate(
            self.placement,
            self.num_micro_batches,
            best.in_flight,
            best.warmup.starts,
            best.starts,
            best.cooldown.starts,
        )
        return with_optimizer(self.whole, phases)
