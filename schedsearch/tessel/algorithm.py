"""Tessel's search for a schedule (Tessel, Sec. IV, Alg. 1), from the paper, as a baseline beside ours.

Where the paper is silent, we do as its authors' released code, and say so at the place: the most
micro-batches in a repetend and their use in `candidates`, encodings in `queries`. Beyond the paper are
capacities that differ, transfer times, any DAG (that code takes a placement's blocks as one chain, so tries
fewer candidates on two branches), and an end to the search by time or by Ctrl-C.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from placements import Placement
from schedsearch.core.answer import Answer, InFlightPeriod, SearchError, SearchProgress
from schedsearch.proof.load_and_path import load_bound, period_bound
from schedsearch.repetend import Repetend
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible, with_optimizer
from schedsearch.solver.effort import OutOfTimeError
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.solver.query import Verdict
from schedsearch.tessel import candidates
from schedsearch.tessel.answering import answer, seconds_of
from schedsearch.tessel.queries import Budget, TesselQuery, minimise, phase_query, repetend_query
from schedsearch.validate import validate

_SHARE_OF_SWEEP = 0.75
"""Share of the time limit that the sweep may use when warmup and cooldown come last."""


def tessel(
    placement: Placement,
    num_micro_batches: int,
    *,
    max_in_flight: int | None = None,
    time_limit_s: float = 60.0,
    seed: int = 0,
    on_progress: Callable[[SearchProgress], None] | None = None,
) -> Answer:
    """Search a schedule as Tessel does (Tessel, Alg. 1).

    For one micro-batch in the repetend, then two, and so on: every assignment of micro-batches to the
    repetend's blocks is tried. Z3 finds the order of least period; one that is not better than the best so
    far is refuted by the first question. A better one must have a warmup and a cooldown that fit memory.
    The three phases are put together as each device's order of blocks, every block as early as it can be,
    which is how they run (Tessel, Sec. IV-D). The sweep knows of no bound but the busiest device's work, the
    paper's, and ends when the period meets it; the status is of the period against our own, which is never
    below it. Optimizer blocks come last.

    During the sweep warmup and cooldown are only shown to exist; for the best repetend they are made short,
    for which a quarter of the time is kept (Tessel, Sec. V).

    Args:
        placement: What runs where; its `memory` is the capacity.
        num_micro_batches: Micro-batches of the schedule; at least 1, and at least as many as in a repetend.
        max_in_flight: Greatest number of micro-batches in a repetend; None for what memory suggests, see
            `schedsearch.tessel.candidates.max_in_flight`.
        time_limit_s: Seconds for all of it; then the best so far is returned.
        seed: Seed of Z3's random choices.
        on_progress: Called after each candidate, and before the completion.

    Raises:
        SearchError: An argument is out of its range, or the placement has transient memory.
        CapacityError: A device's memory is too small for one micro-batch.
    """
    limit_s = seconds_of("tessel", placement, num_micro_batches, time_limit_s)
    if max_in_flight is not None and not 1 <= max_in_flight <= num_micro_batches:
        raise SearchError(
            f"tessel.max_in_flight: {max_in_flight} is not at least 1 and at most "
            f"search.num_micro_batches={num_micro_batches}; change one of them"
        )
    plain = placement.per_micro_batch
    most = max_in_flight or candidates.max_in_flight(plain, num_micro_batches)
    running = _Search(plain, most, limit_s, seed, on_progress)
    with INTERRUPTS.answered() as ending:
        running.run()
    best, schedule = running.best, None
    if best is not None:
        schedule = validate(with_optimizer(placement, _concatenate(plain, num_micro_batches, best)))
    return answer(
        placement,
        num_micro_batches,
        schedule,
        running.repetend,
        least=None if best is None else best.period,
        bound=float(period_bound(placement)),
        is_infeasible=running.infeasible,
        interrupted=ending.interrupted,
        began=running.began,
        budget=running.budget,
        by_in_flight=tuple(running.by_in_flight),
    )


@dataclass(frozen=True)
class _Phase:
    """A warmup or a cooldown.

    Attributes:
        query: The rules of the phase.
        starts: Start of each block, in ticks from the phase's begin; empty if none were found.
        answer: Whether such starts exist.
    """

    query: TesselQuery
    starts: Mapping[Instance, int]
    answer: Verdict


def _some_phase(placement: Placement, blocks: list[Instance], held: list[int], budget: Budget) -> _Phase:
    """Return a phase with starts that fit the memory; its `answer` tells whether any were found.

    Its blocks, and the memory held before them, follow from the micro-batches of the repetend's blocks and
    not from their order. So a phase exists for all orders or for none.

    Raises:
        OutOfTimeError: The deadline came first.
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    query = phase_query(placement, blocks, held, budget)
    verdict, starts = query.ask(query.horizon, budget.left_s / 2) if blocks else (Verdict.YES, {})
    return _Phase(query, starts, verdict)


def _shortened(phase: _Phase) -> _Phase:
    """Return the phase made as short as can be, or as the budget allows.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    if not phase.starts:
        return phase
    query = phase.query
    least = minimise(query, query.busiest_device, query.value(phase.starts) - 1)
    return replace(phase, starts=least.starts or phase.starts)


def _concatenate(placement: Placement, num_micro_batches: int, best: _Best) -> Schedule:
    """Return the schedule of warmup, ``num_micro_batches - in_flight + 1`` repetends, and cooldown.

    Every device keeps this order. The paper says only that the three are put together; each block starts
    as early as the order allows, because a device knows only its order when it runs (Tessel, Sec. IV-D). The
    cooldown's micro-batches are numbered as if the repetend, of `in_flight` micro-batches, ran once.
    """
    rounds = num_micro_batches - best.in_flight + 1
    orders: list[list[Instance]] = [[] for _ in range(placement.num_devices)]
    repetends = [(best.starts, i) for i in range(rounds)]
    for starts, shift in [(best.warmup.starts, 0), *repetends, (best.cooldown.starts, rounds - 1)]:
        for name, micro_batch in sorted(starts, key=lambda instance: starts[instance]):
            for device in placement.by_name[name].devices:
                orders[device].append((name, micro_batch + shift))
    return as_soon_as_possible(placement, num_micro_batches, orders)


@dataclass(frozen=True)
class _Best:
    """The best repetend so far, with some warmup and cooldown."""

    period: int
    indices: candidates.Indices
    in_flight: int
    starts: dict[Instance, int]
    warmup: _Phase
    cooldown: _Phase


class _Search:
    """One run of Algorithm 1, with the best repetend so far, its proofs and its cost."""

    def __init__(
        self,
        placement: Placement,
        most: int,
        limit_s: float,
        seed: int,
        on_progress: Callable[[SearchProgress], None] | None,
    ) -> None:
        self.began = time.monotonic()
        self.placement, self.max_in_flight = placement, most
        self.deadline = self.began + limit_s
        self.budget = Budget(self.began + limit_s * _SHARE_OF_SWEEP, seed=seed)
        self.on_progress = on_progress
        self.load_bound = load_bound(placement)
        self.in_flight = 0
        self.best: _Best | None = None
        self.infeasible = False
        self.all_decided = True
        self.by_in_flight: list[InFlightPeriod] = []

    def run(self) -> None:
        """Try repetends of more and more micro-batches (Alg. 1, lines 7 to 21), then complete the best."""
        for in_flight in range(1, self.max_in_flight + 1):
            self.in_flight, decided = in_flight, False
            try:
                decided = self.try_all()
            except OutOfTimeError:
                pass
            finally:
                self.record(decided)
            if self.bound_met or self.infeasible or (self.budget.left_s <= 0 and not decided):
                break
        if self.best is not None:
            self.budget.deadline = self.deadline
            self.report("completion")  # made as short as can be (Alg. 1, lines 16 and 17)
            self.best = replace(self.best, warmup=_shortened(self.best.warmup))
            self.best = replace(self.best, cooldown=_shortened(self.best.cooldown))

    def try_all(self) -> bool:
        """Try the repetends that span `in_flight` micro-batches; return whether each was decided."""
        decided = True
        for indices in candidates.assignments(self.placement, self.in_flight):
            self.budget.require_s()
            decided &= self.try_one(indices)
            self.report("repetend")
            if self.bound_met:
                break
        return decided

    def try_one(self, indices: candidates.Indices) -> bool:
        """Find a candidate's best order (Alg. 1, lines 9 to 18); return whether the candidate was decided."""
        held, free = candidates.memory_at_entry(self.placement, indices), self.placement.free_memory
        if free is not None and any(taken > most for taken, most in zip(held, free, strict=True)):
            return True
        query = repetend_query(self.placement, indices, self.budget)
        longest = query.horizon if self.best is None else self.best.period - 1
        least = minimise(query, self.load_bound, longest)
        if least.starts is None:
            self.infeasible |= self.in_flight == 1 and least.decided
            return least.decided
        # keep it if it has a warmup, blocks before the first repetend (Eq. 5), and a cooldown (Eq. 6)
        before = [(name, n) for name, index in indices.items() for n in range(index)]
        after = [(name, n) for name, index in indices.items() for n in range(index + 1, self.in_flight)]
        phases = []
        for blocks, memory in ((before, [0] * len(held)), (after, held)):
            phases.append(_some_phase(self.placement, blocks, memory, self.budget))
            if phases[-1].answer is not Verdict.YES:
                return phases[-1].answer is Verdict.NO and least.decided
        self.best = _Best(least.value, indices, self.in_flight, least.starts, *phases)
        return least.decided

    @property
    def bound_met(self) -> bool:
        """Whether the search may end early (Alg. 1, line 19)."""
        return self.best is not None and self.best.period <= self.load_bound

    @property
    def repetend(self) -> Repetend | None:
        """The best in our form: a block with index n starts n periods after micro-batch 0's."""
        if (best := self.best) is None:
            return None
        first = {(name, 0): start - index * best.period for (name, index), start in best.starts.items()}
        return Repetend.from_first_starts(self.placement, 1, best.period, first)

    def record(self, decided: bool) -> None:
        """Record the best period and the bound after the repetends that span `in_flight` micro-batches."""
        self.all_decided &= decided
        repetend = self.repetend
        bound = repetend.period if repetend is not None and self.all_decided else self.load_bound
        elapsed_s = time.monotonic() - self.began
        self.by_in_flight.append(InFlightPeriod(self.in_flight, repetend, bound, elapsed_s))

    def report(self, phase: str) -> None:
        """Tell the caller how far the search is."""
        if self.on_progress is not None:
            phase = f"{phase} of {self.in_flight} micro-batches:"
            best = None if self.best is None else self.best.period
            elapsed_s = time.monotonic() - self.began
            self.on_progress(SearchProgress(phase, best, self.load_bound, self.budget.calls, elapsed_s))
