"""The least makespan of one batch of unequal micro-batches, with a bound that no order beats.

Orders made by hand begin, each with micro-batches in several orders. Then blocks and whole micro-batches
change places (simulated annealing), and a solver orders parts anew, in rounds of counted work.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from placements import Block, Kind
from schedsearch.baselines import HAND_MADE
from schedsearch.core.answer import EndedBy, SearchError, SearchProgress, SearchReport, SearchResult, Status
from schedsearch.core.objective import FINITE, Objective
from schedsearch.core.problem import seconds_of
from schedsearch.passes.lowered import Lowered
from schedsearch.procedures.neighbourhoods.improvement import (
    NEIGHBOURHOODS,
    QUERIES,
    STATES,
    Improvement,
    RoundBudget,
)
from schedsearch.procedures.search import search
from schedsearch.proof.memory_need import minimum_memory
from schedsearch.proof.sequences import two_devices
from schedsearch.proof.timeline import Timeline
from schedsearch.robust.annealing import PART, anneal_part
from schedsearch.robust.drawn_orders import drawn_orders, orders_of
from schedsearch.robust.scenarios import Scenario
from schedsearch.schedule import CyclicOrderError, Schedule, ScheduledBlock, as_soon_as_possible
from schedsearch.solver.effort import Effort
from schedsearch.solver.interrupts import Ending
from schedsearch.unequal.micro_batches import UnequalBatch
from schedsearch.unequal.replica_work import ReplicaWork, replica_work
from schedsearch.unequal.sequence_tables import anneal_in_parts, order_of, schedule_of, sequences_of
from schedsearch.unequal.starts import (
    AS_GIVEN,
    Orders,
    by_hand,
    dispatched,
    executed,
    hand_made_orders,
    numberings,
    one_by_one,
)
from schedsearch.validate import InvalidScheduleError, validate

if TYPE_CHECKING:
    from schedsearch.unequal.sequencing import Sequences

_FIRST_ROUND = 0.5
"""Units of work after which the first round of annealing ends; each later one ends at twice as much."""

_SOLVER_FROM = 2.0
"""Units of work from which on each round ends with the solver; small batches have half of all rounds."""

_ANNEALED = 0.85
"""Share of the work that annealing has of large batches, where a solver orders small parts alone."""

_EXCHANGES = 0.5
"""Share of annealing's steps that move whole micro-batches."""

_BEGUN = 0.25
"""Share of each round in which schedules to begin with are made."""

_SEQUENCED = 0.6
"""Share of the rest in which micro-batches change places in a sequence that all devices keep."""

_HEAT = 0.004
"""Share of the value by which a step of that may be worse at first, on average."""

_WORK_OF_BLOCK = 4e-5
"""Units of work for a block of a schedule that is made and checked."""

_WORK_OF_DISPATCH = 1.2e-4
"""Likewise of one that idle devices make."""

_GOOD = (AS_GIVEN, "short first", "long first")
"""Orders of micro-batches that are tried first."""

_WHOLE = 100
"""Blocks up to which all are ordered anew at once; with memory, models of more take a solver long to read."""

_SMALL = 0.1
"""Units of work of the solver's first steps where it orders all blocks: small batches are proved in it."""


def unequal_search(
    batch: UnequalBatch,
    *,
    objective: str = Objective.MAKESPAN,
    given_order: bool = False,
    time_limit_s: float | None = None,
    work_limit: float | None = None,
    seed: int = 0,
    begin_with: Schedule | None = None,
    on_progress: SearchReport | None = None,
) -> SearchResult:
    """Search the schedule of least makespan for one batch.

    Args:
        batch: The micro-batches.
        objective: ``makespan`` or ``device_span``.
        given_order: Whether each block runs the micro-batches as they are numbered.
        time_limit_s: As of `schedsearch.procedures.search.search`, as for the rest.
        work_limit: Units of counted work; more work never ends with a longer schedule.
        seed: Seed of the random choices.
        begin_with: A schedule of this batch: the answer is no longer.
        on_progress: Called whenever something better is found or proved.

    Raises:
        SearchError: An argument is out of its range, or `begin_with` is not for this batch.
    """
    goal = finite_objective(objective)
    if not batch.chosen:
        return search(
            batch.placement,
            batch.num_micro_batches,
            objectives=[objective],
            time_limit_s=time_limit_s,
            work_limit=work_limit,
            seed=seed,
            begin_with=begin_with,
            on_progress=on_progress,
        )
    if begin_with is not None:
        begin_with = _on(batch, begin_with)
    effort = effort_of(time_limit_s, work_limit)
    running = _BatchSearch(batch, goal, given_order, effort, seed, on_progress or (lambda _: None))
    with effort.answered() as ending:
        running.run(begin_with)
    if ending.interrupted and not running.too_large:
        for name, made in by_hand(batch, HAND_MADE).items():
            running.offer(name, made)
    return running.result(ending)


def finite_objective(name: str) -> Objective:
    """Return the objective of that name.

    Raises:
        SearchError: It is not for one batch.
    """
    if name not in FINITE:
        raise SearchError(f"search.objectives: {name!r} is not for one batch; use makespan or device_span")
    return Objective(name)


def effort_of(time_limit_s: float | None, work_limit: float | None) -> Effort:
    """Return the limits of a search that begins now."""
    return Effort(time.monotonic() + seconds_of(time_limit_s, work_limit), limit=work_limit or math.inf)


@dataclass(eq=False)
class _BatchSearch:
    """The state of a search: the best schedule of the lowered placement so far, and the bound."""

    batch: UnequalBatch
    objective: Objective
    given_order: bool
    effort: Effort
    seed: int
    on_progress: SearchReport
    bound: int = 0
    best: Schedule | None = None
    found_by: str = ""
    sequences: tuple[ReplicaWork, Sequences] | None = None

    def __post_init__(self) -> None:
        """Begin now."""
        self.began, self.goal = time.monotonic(), FINITE[self.objective]
        lowered = Lowered.of(self.batch.placement, self.batch.chosen)
        assert lowered is not None, "a batch has no streams"
        self.lowered = _in_given_order(lowered) if self.given_order else lowered
        self.too_large = _too_large(self.batch)

    def run(self, begin_with: Schedule | None) -> None:
        """Go on until the best is proved.

        Raises:
            OutOfTimeError: The limit of time or of work is reached.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        if self.too_large:
            return
        self.offer("one by one", executed(self.batch, one_by_one(self.batch), self.numbers))
        if begin_with is not None:
            self.offer("given", begin_with)
        self.bound = self.goal.bound(self.lowered.plain, 1)
        if self.goal.one_clock:
            self.bound = max(self.bound, _in_a_row(self.lowered))
        starts = self.begin()
        improvement: Improvement | None = None
        for number in itertools.count():
            end = max(_FIRST_ROUND, 2 * self.effort.spent)
            until = self.effort.share(end, _BEGUN)
            while self.effort.spent < until and not self.proved and next(starts, None) is not None:
                self.effort.require_s()
            self.sequence(number, self.effort.share(end, _SEQUENCED))
            if self.best is None:
                return
            small = len(self.lowered.plain.blocks) <= _WHOLE
            share = 0.5 if small else 1.0 if end <= _SOLVER_FROM else _ANNEALED
            self.anneal(number, self.effort.share(end, share))
            improvement = self.improve(improvement, end)
            if self.proved:
                return
            self.effort.spent = max(self.effort.spent, end)
            self.effort.require_s()

    @property
    def numbers(self) -> Sequence[int]:
        """All micro-batches as they are numbered."""
        return range(self.batch.num_micro_batches)

    @property
    def value(self) -> int:
        """The objective of the best schedule in ticks."""
        assert self.best is not None
        return self.goal.value(self.best)

    @property
    def proved(self) -> bool:
        """Whether none is better."""
        return self.best is not None and self.value <= self.bound

    def begin(self) -> Iterator[str]:
        """Offer schedules to begin with, and yield the name of each; those first that are good most often.

        Idle devices run what is ready, with micro-batches in several orders; orders made by hand are run.
        """
        blocks = len(self.lowered.plain.blocks)
        every = dict(numberings(self.batch))
        if self.given_order:
            every = {AS_GIVEN: every[AS_GIVEN]}
        made: dict[str, Orders] = {}
        for name, orders in hand_made_orders(self.batch):
            if orders not in made.values():
                made[name] = orders
        for how in sorted(every, key=lambda how: how not in _GOOD):
            self.effort.spend(blocks * _WORK_OF_DISPATCH)
            if (plain := dispatched(self.lowered, every[how])) is not None:
                self.keep(how, plain)
            yield how
            if how == AS_GIVEN:
                for name, orders in made.items():
                    self.effort.spend(blocks * _WORK_OF_BLOCK)
                    self.offer(name, executed(self.batch, orders, self.numbers))
                    yield name
        for how, (name, orders) in itertools.product([*every][1:], made.items()):
            self.effort.spend(blocks * _WORK_OF_BLOCK)
            self.offer(f"{name}, {how}", executed(self.batch, orders, every[how]))
            yield name

    def offer(self, name: str, schedule: Schedule | None) -> Schedule | None:
        """Keep a valid schedule of the batch if better, and return it lowered; None if it may not be."""
        if schedule is None:
            return None
        plain = self.lowered.lowered_schedule(schedule)
        if self.given_order:
            try:
                plain = as_soon_as_possible(self.lowered.plain, 1, plain.lane_orders)
            except CyclicOrderError:
                return None
        return self.keep(name, plain)

    def keep(self, name: str, plain: Schedule) -> Schedule:
        """Keep a valid schedule of the plain placement if it is better, and return it."""
        settled = self.goal.settled(plain)
        if self.best is None or self.goal.value(settled) < self.value:
            self.best, self.found_by = settled, name
            self.tell()
        return settled

    def sequence(self, number: int, until: float) -> None:
        """Let micro-batches change places in a sequence that all devices keep, until so much work is done."""
        if self.proved or self.given_order or any(len(b.devices) > 1 for b in self.batch.placement.blocks):
            return
        if self.sequences is None:
            work, span = replica_work(self.batch, 1), self.objective is Objective.DEVICE_SPAN
            self.sequences = work, sequences_of(work, [self.numbers], span)
        work, g = self.sequences
        try:
            for part in anneal_in_parts(g, until - self.effort.spent, self.seed + 1000 * number, _HEAT):
                self.effort.require_s()
                self.effort.spend(part)
        finally:
            numbers, found = order_of(g, 0), schedule_of(g, 0, work)
            if found is not None:
                optimizer = {block.name for block in self.batch.placement.optimizer_blocks}
                blocks = [
                    ScheduledBlock(start, n if name in optimizer else numbers[n], name)
                    for start, n, name in found.blocks
                ]
                own = Schedule(self.batch.placement, len(numbers), tuple(blocks), self.batch.chosen)
                self.offer("sequences", own)

    def anneal(self, number: int, until: float) -> None:
        """Let blocks and micro-batches change places, from the best on, until so much work is done."""
        assert self.best is not None
        schedule, share = self.best, 0.0 if self.given_order else _EXCHANGES
        drawn = drawn_orders(schedule, [Scenario("own times")], 1, self.seed)
        twins, seed = self.twins(schedule), self.seed + 1000 * number
        parts = max(1, round((until - self.effort.spent) / PART))
        self.effort.spend(len(schedule.blocks) * _WORK_OF_BLOCK)
        for part in itertools.count():
            left = until - self.effort.spent
            if left <= 0 or self.proved:
                return
            self.effort.require_s()
            work = self.effort.at_most(left)
            self.effort.spend(anneal_part(drawn, -1.0, work, part, parts, seed, twins, share))
            orders = orders_of(drawn, schedule)
            self.keep("annealing", as_soon_as_possible(schedule.placement, 1, orders))

    def twins(self, schedule: Schedule) -> NDArray[np.int64]:
        """Return the nodes of each micro-batch by block; -1 for what does not run."""
        names = [b.name for b in self.batch.placement.per_micro_batch.blocks]
        kind = {name: i for i, name in enumerate(names)}
        found = np.full((len(names), self.batch.num_micro_batches), -1, np.int64)
        for node, (_, _, name) in enumerate(schedule.blocks):
            if schedule.placement.by_name[name].kind is not Kind.O:
                own, n = self.lowered.own(name)
                found[kind[own], n] = node
        return found

    def improve(self, improvement: Improvement | None, until: float) -> Improvement | None:
        """Order parts of the best schedule anew, with a solver, until so much work is done."""
        assert self.best is not None
        small = len(self.best.blocks) <= _WHOLE
        if (until <= _SOLVER_FROM and not small) or self.proved or self.effort.spent >= until:
            return improvement
        if improvement is None:
            improvement = Improvement(
                self.best,
                self.effort,
                self.goal,
                self.bound,
                self.seed,
                self.improved,
                RoundBudget(work=_SMALL if small else 0.5, work_of_states=_SMALL, whole_blocks=_WHOLE),
                (QUERIES, STATES, NEIGHBOURHOODS) if small else (NEIGHBOURHOODS,),
            )
        elif self.value < improvement.value:
            improvement.begin_with(self.best)
        try:
            improvement.go_on(until)
        finally:
            self.bound = max(self.bound, improvement.bound)
            if improvement.value < self.value:
                self.best = improvement.best
        return improvement

    def improved(self, best: int, bound: int, move: str) -> None:
        """Tell what the solver found."""
        self.bound = max(self.bound, bound)
        if best < self.value:
            self.found_by = move
        self.tell(min(best, self.value))

    def tell(self, best: int | None = None) -> None:
        """Tell the caller how far the search is."""
        elapsed_s = time.monotonic() - self.began
        best = self.value if best is None else best
        self.on_progress(SearchProgress(self.objective.value, best, self.bound, 0, elapsed_s, self.found_by))

    def result(self, ending: Ending) -> SearchResult:
        """Return the answer as it stands."""
        proved = self.proved and not ending.interrupted
        schedule = None if self.best is None else validate(self.lowered.schedule(self.best))
        status = Status.OPTIMAL if proved else Status.FEASIBLE if schedule else Status.UNKNOWN
        status = Status.INFEASIBLE if self.too_large else status
        plain = self.lowered.plain
        bounds = {
            each: self.bound if each is self.objective else goal.bound(plain, 1)
            for each, goal in FINITE.items()
        }
        return SearchResult(
            status=status,
            repetend=None,
            schedule=schedule,
            period_bound=0.0,
            span_bound=0,
            makespan_bound=bounds[Objective.MAKESPAN],
            device_span_bound=bounds[Objective.DEVICE_SPAN],
            queries=0,
            seconds=time.monotonic() - self.began,
            work=self.effort.spent,
            ended_by=EndedBy.of(ending, proved=proved or bool(self.too_large)),
            reason=""
            if schedule
            else self.too_large
            or "no schedule of these micro-batches fits the memory that was tried; raise it",
        )


def _in_a_row(lowered: Lowered) -> int:
    """Return a lower bound on the makespan: two blocks in a row on two devices, by Johnson's rule.

    Before the first of them there is at least the least head of all micro-batches, after the last the least
    tail. The shortest transfer is in between: it moves the second device by so much.
    """
    placement, bound = lowered.plain, 0
    whole = Timeline(placement, frozenset())
    rows: dict[tuple[str, str], list[tuple[Block, Block]]] = {}
    for block in placement.per_micro_batch.blocks:
        for name in block.after:
            before = placement.by_name[name]
            if not {*block.devices} & {*before.devices}:
                rows.setdefault((lowered.own(name)[0], lowered.own(block.name)[0]), []).append(
                    (before, block)
                )
    for row in rows.values():
        head, tail = min(whole.heads[a.name] for a, _ in row), min(whole.tails[b.name] for _, b in row)
        transfer = min(placement.transfer_time(a.name, b.name) for a, b in row)
        bound = max(bound, head + two_devices((a.time, b.time) for a, b in row) + transfer + tail)
    return bound


def _too_large(batch: UnequalBatch) -> str:
    """Return which micro-batch does not fit alone; empty where each does."""
    placement = batch.placement
    if placement.free_memory is None:
        return ""
    for n, chosen in enumerate(batch.chosen):
        own = placement.as_run(chosen)
        for device, free in enumerate(placement.free_memory):
            if (needed := minimum_memory(own, device)) > free:
                return (
                    f"micro-batch {n} alone needs {needed} units of memory on device {device}, where {free} "
                    "are free; raise search.memory"
                )
    return ""


def _on(batch: UnequalBatch, schedule: Schedule) -> Schedule:
    """Return a schedule to begin with under the memory of a batch.

    Raises:
        SearchError: It is of other micro-batches, or needs more memory.
    """
    placement, own = schedule.placement, batch.placement
    same = all(getattr(placement, name) == getattr(own, name) for name in ("blocks", "decisions", "transfer"))
    if not same or schedule.chosen != batch.chosen:
        raise SearchError("search.begin_with: is a schedule of other micro-batches; give one of these")
    try:
        return validate(schedule.under(own))
    except InvalidScheduleError as error:
        raise SearchError(f"search.begin_with: {error.reason}; give one that fits, or leave it out") from None


def _in_given_order(lowered: Lowered) -> Lowered:
    """Return the plain placement with each block after that of the micro-batch before."""
    last: dict[str, str] = {}
    blocks = []
    for block in lowered.plain.blocks:
        if block.kind is not Kind.O:
            own, _ = lowered.own(block.name)
            if own in last:
                block = replace(block, after=tuple(dict.fromkeys((*block.after, last[own]))))
            last[own] = block.name
        blocks.append(block)
    return replace(lowered, plain=replace(lowered.plain, blocks=tuple(blocks)))
