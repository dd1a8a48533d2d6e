"""The least makespan of one batch of unequal micro-batches, on one or several replicas, with a bound.

The replicas end together, so the slowest one counts. Orders made by hand begin, with usual assignments.
Then micro-batches change replicas and places in sequences that all devices keep (simulated annealing), and a
solver orders blocks of the slowest replica anew. All in rounds of counted work.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from schedsearch.baselines import HAND_MADE
from schedsearch.core.answer import EndedBy, SearchError, SearchProgress, SearchReport, SearchResult, Status
from schedsearch.core.objective import FINITE, Objective
from schedsearch.core.problem import seconds_of
from schedsearch.procedures.search import search
from schedsearch.proof.memory_need import minimum_memory
from schedsearch.robust.annealing import PART
from schedsearch.schedule import Schedule, ScheduledBlock
from schedsearch.solver.effort import Effort
from schedsearch.solver.interrupts import Ending
from schedsearch.unequal.block_orders import WHOLE, BlockOrders
from schedsearch.unequal.micro_batches import UnequalBatch
from schedsearch.unequal.replica_bound import replica_bound
from schedsearch.unequal.replica_work import ReplicaSchedules, ReplicaWork, replica_work
from schedsearch.unequal.sequence_tables import resequenced, schedules_of, sequences_of, ticks_of
from schedsearch.unequal.starts import (
    AS_GIVEN,
    USUAL,
    by_hand,
    dispatched,
    executed,
    numberings,
    one_by_one,
    packings,
    replicas_by_hand,
)
from schedsearch.validate import InvalidScheduleError, validate

if TYPE_CHECKING:
    from schedsearch.unequal.sequencing import Sequences

_FIRST_ROUND = (0.25, 0.5)
"""Units of work after which the first round of several replicas ends, and that of one; each later one ends at
twice as much."""

_BEGUN = 0.25
"""Share of each round in which schedules to begin with are made."""

_SEQUENCED, _SEQUENCED_OF_SMALL = 0.9, 0.6
"""Shares of the rest in which micro-batches change replicas and places in sequences, before a solver orders
parts of a schedule, or all of a small one."""

_LONG = 2.0
"""Units of work at which rounds of several replicas end that begin with more heat; each longer one of a large
batch ends with the solver."""

_HEAT, _HEAT_OF_LONG = 0.004, 0.03
"""Share of the value by which a step of that may be worse at first, on average."""

_WORK_OF_BLOCK = 4e-5
"""Units of work for a block of a schedule that is made and checked."""

_WORK_OF_DISPATCH = 1.2e-4
"""Likewise of one that idle devices make."""


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
    goal = _finite(objective)
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
    effort = _effort(time_limit_s, work_limit)
    running = _BatchSearch(replica_work(batch, 1), goal, effort, seed, on_progress, None, given_order)
    begin = None if begin_with is None else ReplicaSchedules((running.numbers,), (begin_with,))
    return running.answer(begin, _too_large(batch))


def replica_search(
    work: ReplicaWork,
    *,
    objective: str = Objective.MAKESPAN,
    given: Sequence[Sequence[int]] | None = None,
    begin_with: ReplicaSchedules | None = None,
    time_limit_s: float | None = None,
    work_limit: float | None = None,
    seed: int = 0,
    on_progress: SearchReport | None = None,
) -> tuple[ReplicaSchedules | None, SearchResult]:
    """Search the assignment and the orders of the least makespan over all replicas.

    Args:
        work: The micro-batches.
        objective: As of `unequal_search`, as for the rest.
        given: The micro-batches of each replica, which stay there; None where that is to be decided.
        begin_with: The answer is no longer.
        time_limit_s: Seconds.
        work_limit: Units of counted work.
        seed: Seed of the random choices.
        on_progress: Called whenever something better is found.

    Returns:
        The schedules, None where none fits the memory, and the answer for the slowest of them.

    Raises:
        SearchError: An argument is out of its range.
        MicroBatchError: No assignment within the limit of a replica was found.
    """
    effort = _effort(time_limit_s, work_limit)
    running = _BatchSearch(work, _finite(objective), effort, seed, on_progress, given)
    answer = running.answer(begin_with)
    return running.best, answer


def _finite(name: str) -> Objective:
    if name not in FINITE:
        raise SearchError(f"search.objectives: {name!r} is not for one batch; use makespan or device_span")
    return Objective(name)


def _effort(time_limit_s: float | None, work_limit: float | None) -> Effort:
    return Effort(time.monotonic() + seconds_of(time_limit_s, work_limit), limit=work_limit or math.inf)


@dataclass(eq=False)
class _BatchSearch:
    """The state of a search: the best schedules so far, and the bound."""

    work: ReplicaWork
    objective: Objective
    effort: Effort
    seed: int
    on_progress: SearchReport | None
    given: Sequence[Sequence[int]] | None
    given_order: bool = False
    bound: int = 0
    best: ReplicaSchedules | None = None
    found_by: str = ""
    sequences: Sequences | None = None
    blocks: dict[tuple[int, tuple[int, ...]], BlockOrders] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin now."""
        self.began, self.goal = time.monotonic(), FINITE[self.objective]
        self.is_single, self.numbers = self.work.num_replicas == 1, tuple(range(self.work.num_micro_batches))
        self.is_small = self.is_single and self.work.times[0].size <= WHOLE

    @cached_property
    def batch(self) -> UnequalBatch:
        """The micro-batches, as the first replica takes them; the only one has them all."""
        return self.work.part(0, self.numbers)

    @property
    def value(self) -> float:
        """The objective of the slowest replica in ticks."""
        return math.inf if self.best is None else self.best.value(self.objective)

    @property
    def proved(self) -> bool:
        """Whether none is better."""
        return self.value <= self.bound

    def answer(self, begin_with: ReplicaSchedules | None, too_large: str = "") -> SearchResult:
        """Search, and return the answer for the slowest replica.

        Args:
            begin_with: Schedules to begin with.
            too_large: Why no schedule fits, where that is known.
        """
        with self.effort.answered() as ending:
            if not too_large:
                self.run(begin_with)
        if ending.interrupted and self.given is None and not too_large:
            for name in HAND_MADE:
                self.offer_by_hand(name)
        return self.result(ending, too_large)

    def run(self, begin_with: ReplicaSchedules | None) -> None:
        """Go on until the best is proved, or nothing fits.

        Raises:
            OutOfTimeError: The limit of time or of work is reached.
            KeyboardInterrupt: There was a Ctrl-C.
            MicroBatchError: No assignment within the limit of a replica was found.
        """
        if begin_with is not None:
            self.offer("given", begin_with)
        if self.given is None and self.work.in_sequence:
            self.bound = replica_bound(self.work, not self.goal.one_clock)
        if self.is_single and self.batch.chosen:
            self.bound = max(self.bound, self.orders_of(0, self.numbers).bound())
        starts = self.begin()
        next(starts)
        for number in itertools.count():
            end = max(_FIRST_ROUND[self.is_single], 2 * self.effort.spent)
            until = self.effort.share(end, _BEGUN)
            while self.effort.spent < until and not self.proved and next(starts, None) is not None:
                self.effort.require_s()
            self.sequence(number, end)
            if self.best is None:
                return
            self.order_blocks(end)
            if self.proved:
                return
            self.effort.spent = max(self.effort.spent, end)
            self.effort.require_s()

    def begin(self) -> Iterator[str]:
        """Offer schedules to begin with, and yield the name of each; those first that are good most often.

        Idle devices run what is ready, with micro-batches in several orders or assignments; of a single
        pipeline, orders made by hand are run too.

        Raises:
            MicroBatchError: No assignment within the limit of a replica was found.
        """
        ways = self.ways()
        if self.work.in_sequence and not self.given_order:
            span, begin_with = not self.goal.one_clock, [AS_GIVEN] if self.is_single else ways
            tables = {how: sequences_of(self.work, ways[how], span) for how in begin_with}
            best = min(tables, key=lambda how: ticks_of(tables[how]))
            self.sequences = tables[best]
            self.offer(best, schedules_of(self.sequences, self.work))
        if self.best is None:
            assigned = tuple(map(tuple, next(iter(ways.values()))))
            parts = [self.work.part(r, numbers) for r, numbers in enumerate(assigned)]
            made = tuple(executed(each, one_by_one(each), range(each.num_micro_batches)) for each in parts)
            fits = all(each or not numbers for each, numbers in zip(made, assigned, strict=True))
            self.offer("one by one", ReplicaSchedules(assigned, made) if fits else None)
        yield "one by one"
        if not (self.is_single and self.batch.chosen):
            return
        orders = self.orders_of(0, self.numbers)
        for how in sorted(ways, key=lambda how: how not in USUAL):
            self.effort.spend(orders.num_blocks * _WORK_OF_DISPATCH)
            if (plain := dispatched(orders.lowered, ways[how][0])) is not None:
                self.offer(how, self.of_one(validate(orders.lowered.schedule(plain))))
            yield how
        for name in HAND_MADE:
            self.effort.spend(len(USUAL) * orders.num_blocks * _WORK_OF_BLOCK)
            self.offer_by_hand(name)
            yield name

    def ways(self) -> Mapping[str, Sequence[Sequence[int]]]:
        """Return sequences of the micro-batches on each replica to begin with, by name."""
        if self.is_single:
            found = dict(numberings(self.batch))
            return {how: [found[how]] for how in ([AS_GIVEN] if self.given_order else found)}
        ways = dict(packings(self.work)) if self.given is None else {AS_GIVEN: self.given}
        if not ways:
            raise self.work.no_room()
        return ways if self.best is None else {**ways, "given": self.best.assigned}

    def offer_by_hand(self, name: str) -> None:
        """Offer what a schedule made by hand is with the usual orders or assignments."""
        if self.is_single:
            for how, made in by_hand(self.batch, [name]).items():
                self.offer(how, self.of_one(made))
        else:
            for how, shared in replicas_by_hand(self.work, [name]).items():
                self.offer(how, shared)

    def of_one(self, schedule: Schedule | None) -> ReplicaSchedules | None:
        """Return the schedule of the only replica."""
        return None if schedule is None else ReplicaSchedules((self.numbers,), (schedule,))

    def orders_of(self, replica: int, numbers: tuple[int, ...]) -> BlockOrders:
        """Return the blocks of some micro-batches on a replica."""
        key = replica, numbers
        if key not in self.blocks:
            batch = self.work.part(replica, numbers)
            self.blocks[key] = BlockOrders(batch, self.goal, self.given_order)
        return self.blocks[key]

    def offer(self, name: str, found: ReplicaSchedules | None) -> None:
        """Keep schedules if they are better."""
        if found is None:
            return
        if self.is_single:
            (numbers,), (schedule,) = found.assigned, found.schedules
            assert schedule is not None, "it has all micro-batches"
            found = self.of_one(self.numbered(schedule, numbers))
            if found is None:
                return
        settled = tuple(None if each is None else self.goal.settled(each) for each in found.schedules)
        found = ReplicaSchedules(found.assigned, settled)
        if found.value(self.objective) < self.value:
            self.best, self.found_by = found, name
            self.tell(found.value(self.objective))

    def numbered(self, schedule: Schedule, numbers: Sequence[int]) -> Schedule | None:
        """Return the only replica's schedule with micro-batches as numbered; None if not in order."""
        if numbers != self.numbers:
            optimizer = {block.name for block in self.batch.placement.optimizer_blocks}
            blocks = tuple(
                ScheduledBlock(start, n if name in optimizer else numbers[n], name)
                for start, n, name in schedule.blocks
            )
            schedule = Schedule(self.batch.placement, len(numbers), blocks, self.batch.chosen)
        return self.orders_of(0, self.numbers).in_order(schedule) if self.given_order else schedule

    def tell(self, best: float) -> None:
        """Tell the caller how far the search is."""
        if self.on_progress is not None:
            elapsed_s = time.monotonic() - self.began
            progress = self.objective.value, int(best), self.bound, 0, elapsed_s, self.found_by
            self.on_progress(SearchProgress(*progress))

    def is_solved(self, end: float) -> bool:
        """Return whether a round is for the solver too; of large batches only long ones are."""
        return self.is_small or self.sequences is None or end > _LONG

    def sequence(self, number: int, end: float) -> None:
        """Let micro-batches change replicas and places, for a share of the work of a round."""
        if self.proved or self.sequences is None:
            return
        share = _SEQUENCED_OF_SMALL if self.is_small else _SEQUENCED if self.is_solved(end) else 1.0
        until = self.effort.share(end, share)
        if not self.is_single:
            self.sequences.patience[:] = 0  # what one assignment waits for is wrong for another
        try:
            for ticks in resequenced(
                self.sequences,
                self.effort,
                work=until - self.effort.spent,
                heat=_HEAT if self.is_single or end < _LONG else _HEAT_OF_LONG,
                seed=self.seed + 1000 * number,
                across=self.given is None,
            ):
                if ticks <= self.bound:
                    break
        finally:
            self.offer("sequences", schedules_of(self.sequences, self.work))

    def order_blocks(self, end: float) -> None:
        """Order blocks of the slowest replica anew, until so much work is done or nothing is better."""
        before = math.inf
        while self.is_solved(end) and self.bound < self.value < before and self.effort.spent < end:
            assert self.best is not None
            before, replica, schedules = self.value, self.best.slowest(self.objective), [*self.best.schedules]
            numbers, own = self.best.assigned[replica], self.best.of_slowest(self.objective)
            if not own.chosen:
                return  # its micro-batches are alike: there is a best sequence, which they have
            orders = self.orders_of(replica, numbers)
            solver = orders.solver(own, self.bound, self.effort, self.seed, self.told)
            share = self.effort.share(end, 1.0 if self.is_single else 0.5)
            try:
                solver.go_on(max(share, self.effort.spent + PART))
            finally:
                schedules[replica] = validate(orders.lowered.schedule(solver.best))
                self.offer(self.found_by, ReplicaSchedules(self.best.assigned, tuple(schedules)))

    def told(self, best: int, bound: int, move: str) -> None:
        """Take what the solver found of a replica; what it proves is of the only one."""
        self.found_by = move if best < self.value else self.found_by
        if self.is_single:
            self.bound = max(self.bound, bound)
            self.tell(min(best, self.value))

    def result(self, ending: Ending, too_large: str) -> SearchResult:
        """Return the answer as it stands, for the slowest replica."""
        proved = self.proved and not ending.interrupted
        schedule = None if self.best is None else self.best.of_slowest(self.objective)
        status = Status.OPTIMAL if proved else Status.FEASIBLE if schedule else Status.UNKNOWN
        bounds = dict.fromkeys(FINITE, 0) | {self.objective: self.bound}
        if self.is_single and self.batch.chosen:
            plain = self.orders_of(0, self.numbers).lowered.plain
            bounds |= {each: goal.bound(plain, 1) for each, goal in FINITE.items() if each != self.objective}
        none = "no schedule of these micro-batches fits the memory that was tried; raise it"
        if not self.is_single:
            none = "no assignment to the replicas was found that fits the memory; raise it"
        return SearchResult(
            status=Status.INFEASIBLE if too_large else status,
            repetend=None,
            schedule=schedule,
            period_bound=0.0,
            span_bound=0,
            makespan_bound=bounds[Objective.MAKESPAN],
            device_span_bound=bounds[Objective.DEVICE_SPAN],
            queries=0,
            seconds=time.monotonic() - self.began,
            work=self.effort.spent,
            ended_by=EndedBy.of(ending, proved=proved or bool(too_large)),
            reason="" if schedule else too_large or none,
        )


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
