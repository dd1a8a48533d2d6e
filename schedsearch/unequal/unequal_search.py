"""The least makespan of one batch of unequal micro-batches, on one or several replicas, with a bound.

The replicas end together, so the slowest one counts. The search begins with common assignments and orders.
Then micro-batches change replicas and places in sequences that all devices keep (simulated annealing), and
a solver orders blocks of a single pipeline anew. All this is in rounds of counted work.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from schedsearch.baselines import HAND_MADE
from schedsearch.core.answer import Answer, EndedBy, SearchError, SearchProgress, SearchReport, Status
from schedsearch.core.objective import FINITE, Objective
from schedsearch.core.problem import Problem
from schedsearch.core.team import Leader, Member
from schedsearch.procedures.team_search import TeamProgress
from schedsearch.proof.memory_need import minimum_memory
from schedsearch.robust.annealing import PART
from schedsearch.schedule import Schedule
from schedsearch.solver.effort import Effort
from schedsearch.solver.interrupts import Ending
from schedsearch.unequal.block_orders import WHOLE, BlockOrders
from schedsearch.unequal.replica_bound import replica_bound
from schedsearch.unequal.replica_work import ReplicaSchedules, ReplicaWork, replica_work
from schedsearch.unequal.sequence_tables import resequenced, schedules_of, sequences_of, ticks_of
from schedsearch.unequal.starts import (
    AS_GIVEN,
    by_hand,
    dispatched,
    executed,
    numberings,
    one_by_one,
    packings,
)
from schedsearch.validate import InvalidScheduleError, validate

if TYPE_CHECKING:
    from schedsearch.unequal.sequencing import Sequences

_FIRST_ROUND = (0.25, 0.5)
"""Work at the end of the first round, for several replicas and for one; each later round ends at twice the
work of the one before."""

_SEQUENCED, _SEQUENCED_OF_SMALL = 0.9, 0.6
"""Shares of a round in which micro-batches change places in sequences, before a solver orders parts of a
schedule, or all of a small one."""

_LONG = 2.0
"""Units of work at which rounds of several replicas end that begin with more heat; each longer one of a large
batch ends with the solver."""

_HEAT, _HEAT_OF_LONG = 0.004, 0.03
"""Share of the value by which a step of that may be worse at first, on average."""

_BEYOND_S = 1.0
"""Seconds beyond the time limit in which the last findings of other workers may come."""

_WORKER = "another worker"
"""Finder of schedules that are taken over."""

_WORK_OF_BLOCK = 1.2e-4
"""Units of work per block of a schedule made by a rule and checked."""


def solve_unequal(problem: Problem, on_progress: SearchReport) -> Answer:
    """Answer a problem that is checked: the schedule of least makespan, or device span, for its batch.

    More work never ends with a longer schedule.

    Raises:
        SearchError: The last objective is that of a repetend, or `begin_with` is not for this batch.
    """
    running = _BatchSearch(replica_work(problem, 1), problem, on_progress)
    begin = problem.begin_with.schedule if isinstance(problem.begin_with, Answer) else problem.begin_with
    given = None if begin is None else ReplicaSchedules((running.numbers,), (_on(problem, begin),))
    return running.answer(given, _too_large(problem))


def replica_search(
    work: ReplicaWork,
    *,
    given: Sequence[Sequence[int]] | None = None,
    begin_with: ReplicaSchedules | None = None,
    on_progress: SearchReport | None = None,
    **options: Any,
) -> tuple[ReplicaSchedules | None, Answer]:
    """Search the assignment and the orders of the least makespan over all replicas.

    Args:
        work: The micro-batches.
        given: The micro-batches of each replica, which stay there; None to assign them too.
        begin_with: Schedules of this work: the answer is no longer.
        on_progress: Called whenever a better schedule or bound is found.
        options: Limits, seed and objectives, as in `schedsearch.core.problem.Problem`.

    Returns:
        The schedules, None where none fits the memory, and the answer for the slowest of them.

    Raises:
        SearchError: An argument is out of its range.
    """
    problem = Problem(
        work.placement, work.num_micro_batches, **{"objectives": [Objective.MAKESPAN]} | options
    )
    problem.check()
    running = _BatchSearch(work, problem, on_progress, given)
    answer = running.answer(begin_with)
    return running.best, answer


class _Finding(NamedTuple):
    """The findings of a worker: its best schedules and its bound."""

    best: ReplicaSchedules | None
    bound: int


_Task = tuple[ReplicaWork, Problem, Sequence[Sequence[int]] | None, ReplicaSchedules | None]
"""The task of a helper: the arguments of a search, and what it begins with."""


def _help(task: _Task, member: Member) -> _Finding:
    """Search as a helper of a team."""
    work, problem, given, begin_with = task
    running = _BatchSearch(work, problem, None, given)
    running.effort.deadline, running.member = time.monotonic() + member.left_s, member
    running.answer(begin_with)
    return _Finding(running.best, running.bound)


class _BatchSearch:
    """The state of a search: the best schedules so far, and the bound."""

    def __init__(
        self,
        work: ReplicaWork,
        problem: Problem,
        on_progress: SearchReport | None,
        given: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Begin now."""
        self.began, self.objective = time.monotonic(), problem.of_batch
        self.goal, self.seed, self.work = FINITE[self.objective], problem.seed, work
        self.effort = Effort(self.began + problem.seconds, limit=problem.work_limit or math.inf)
        self.on_progress, self.given = TeamProgress(on_progress or (lambda _: None)), given
        self.is_single, self.numbers = work.num_replicas == 1, tuple(range(work.num_micro_batches))
        self.batch = work.part(0, self.numbers)  # as the first replica takes them; the only one has them all
        self.blocks: BlockOrders | None = None
        if self.is_single and self.batch.chosen:
            self.blocks = BlockOrders(self.batch, self.goal)
        self.in_sequence = all(len(block.devices) == 1 for block in work.placement.blocks)
        self.is_small = self.is_single and work.times[0].size <= WHOLE
        self.bound = 0
        self.best: ReplicaSchedules | None = None
        self.found_by = ""
        self.sequences: Sequences | None = None
        self.problem = problem
        self.member: Member | None = None

    @property
    def value(self) -> float:
        """The objective of the slowest replica in ticks."""
        return math.inf if self.best is None else self.best.value(self.objective)

    @property
    def proved(self) -> bool:
        """Whether the best schedules meet the bound."""
        return self.value <= self.bound

    def answer(self, begin_with: ReplicaSchedules | None, too_large: str = "") -> Answer:
        """Search, and return the answer for the slowest replica, or why no schedule fits."""
        if too_large or self.problem.workers == 1:
            return self.result(self.ending(begin_with, too_large), too_large)
        tasks = [(self.work, problem, self.given, begin_with) for problem in self.problem.of_helpers]
        with Leader(_help, tasks, self.effort) as team:
            self.member = team
            ending = self.ending(begin_with, too_large)
            for finding in [] if self.proved else team.finish(ending, _BEYOND_S):
                self.take(finding)
            return self.result(ending, too_large)

    def ending(self, begin_with: ReplicaSchedules | None, too_large: str) -> Ending:
        """Search until a limit or a Ctrl-C; return how the search ended."""
        with self.effort.answered() as ending:
            if not too_large:
                self.run(begin_with)
        return ending

    def take(self, finding: _Finding) -> None:
        """Take over the findings of another worker."""
        self.bound, before = max(self.bound, finding.bound), self.best
        self.offer(_WORKER, finding.best)
        if self.sequences is not None and self.best is not None and self.best is not before:
            self.sequences = sequences_of(self.work, self.best.assigned, not self.goal.one_clock)

    def swap(self, member: Member) -> bool:
        """Exchange the findings of a round with the other workers; return whether the best is proved.

        Only helpers take over what others found.
        """
        others: list[_Finding] = member.swap(_Finding(self.best, self.bound))
        values = [self.value, *(other.best.value(self.objective) for other in others if other.best)]
        if not member.leads:
            for other in others:
                self.take(other)
        elif (best := min(values)) < math.inf:
            self.tell(best, _WORKER)
        return min(values) <= max(self.bound, *(other.bound for other in others), 0)

    def run(self, begin_with: ReplicaSchedules | None) -> None:
        """Search in rounds until the best is proved, or no schedule fits.

        Raises:
            OutOfTimeError: The limit of time or of work is reached.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        if begin_with is not None:
            self.offer("given", begin_with)
        if self.given is None and self.in_sequence:
            self.bound = replica_bound(self.work, not self.goal.one_clock)
        if self.blocks is not None:
            self.bound = max(self.bound, self.blocks.bound())
        self.begin()
        if self.is_small and not self.proved:  # for large batches they are far behind sequences
            for how, made in by_hand(self.batch, HAND_MADE).items():
                self.offer(how, self.of_one(made))
        for number, end in enumerate(self.effort.rounds(_FIRST_ROUND[self.is_single])):
            self.sequence(number, end)
            if self.best is None:
                return
            self.order_blocks(end)
            if self.proved or (self.member is not None and self.swap(self.member)):
                return

    def begin(self) -> None:
        """Offer schedules to begin with.

        Idle devices run ready blocks, with micro-batches in several orders or assignments.
        """
        ways = self.ways()
        if self.in_sequence:
            tables = {how: sequences_of(self.work, way, not self.goal.one_clock) for how, way in ways.items()}
            best = min(tables, key=lambda how: ticks_of(tables[how]))
            self.sequences = tables[best]
            self.offer(best, schedules_of(self.sequences, self.work))
        if self.best is None:
            assigned = tuple(map(tuple, next(iter(ways.values()))))
            parts = [self.work.part(r, numbers) for r, numbers in enumerate(assigned)]
            made = tuple(executed(part, one_by_one(part), range(part.num_micro_batches)) for part in parts)
            fits = all(schedule or not numbers for schedule, numbers in zip(made, assigned, strict=True))
            self.offer("one by one", ReplicaSchedules(assigned, made) if fits else None)
        if self.sequences is not None or self.blocks is None:
            return
        for how, (numbers,) in ways.items():
            self.effort.require_s()
            self.effort.spend(len(self.blocks.lowered.plain.blocks) * _WORK_OF_BLOCK)
            if (plain := dispatched(self.blocks.lowered, numbers)) is not None:
                self.offer(how, self.of_one(validate(self.blocks.lowered.schedule(plain))))

    def ways(self) -> Mapping[str, Sequence[Sequence[int]]]:
        """Return by name the sequences of micro-batches per replica to begin with."""
        if self.is_single:
            return {how: [numbers] for how, numbers in numberings(self.batch)}
        ways = dict(packings(self.work)) if self.given is None else {AS_GIVEN: self.given}
        return ways if self.best is None else {**ways, "given": self.best.assigned}

    def of_one(self, schedule: Schedule | None) -> ReplicaSchedules | None:
        """Wrap a schedule as the schedule of the only replica; None stays None."""
        return None if schedule is None else ReplicaSchedules((self.numbers,), (schedule,))

    def offer(self, name: str, whole: ReplicaSchedules | None) -> None:
        """Keep the schedules of all replicas if they are better than the best so far."""
        if whole is None:
            return
        if self.is_single and whole.assigned != (self.numbers,):
            whole = ReplicaSchedules((self.numbers,), (self.numbered(whole),))
        settled = tuple(self.goal.settled(schedule) if schedule else None for schedule in whole.schedules)
        whole = ReplicaSchedules(whole.assigned, settled)
        if whole.value(self.objective) < self.value:
            self.best, self.found_by = whole, name
            self.tell(whole.value(self.objective))

    def numbered(self, whole: ReplicaSchedules) -> Schedule:
        """Return the only replica's schedule with the batch's numbers of micro-batches."""
        (numbers,), schedule = whole.assigned, whole.of_slowest(self.objective)
        optimizer = {block.name for block in self.batch.placement.optimizer_blocks}
        blocks = tuple(
            run if run.block in optimizer else run._replace(micro_batch=numbers[run.micro_batch])
            for run in schedule.blocks
        )
        return Schedule(self.batch.placement, len(numbers), blocks, self.batch.chosen)

    def tell(self, best: float, found_by: str = "") -> None:
        """Tell the caller how far the search is."""
        elapsed_s, by = time.monotonic() - self.began, found_by or self.found_by
        self.on_progress(SearchProgress(self.objective.value, int(best), self.bound, 0, elapsed_s, by))

    def is_solved(self, end: float) -> bool:
        """Return whether a round also uses the solver; for large batches, only long rounds do."""
        return self.blocks is not None and (self.is_small or self.sequences is None or end > _LONG)

    def sequence(self, number: int, end: float) -> None:
        """Let micro-batches change replicas and places, for a share of the work of a round."""
        if self.proved or self.sequences is None:
            return
        share = _SEQUENCED_OF_SMALL if self.is_small else _SEQUENCED if self.is_solved(end) else 1.0
        work = self.effort.share(end, share) - self.effort.spent
        heat = _HEAT if self.is_single or end < _LONG else _HEAT_OF_LONG
        if not self.is_single:
            self.sequences.patience[:] = 0  # what one assignment waits for is wrong for another
        seed, across = self.seed + 1000 * number, self.given is None
        try:
            for ticks in resequenced(
                self.sequences, self.effort, work=work, heat=heat, seed=seed, across=across
            ):
                if ticks <= self.bound:
                    break
        finally:
            self.offer("sequences", schedules_of(self.sequences, self.work))

    def order_blocks(self, end: float) -> None:
        """Order blocks of the only replica anew, until so much work is done or nothing is better."""
        before = math.inf
        while self.is_solved(end) and self.bound < self.value < before and self.effort.spent < end:
            assert self.best is not None and self.blocks is not None
            before, schedule = self.value, self.best.of_slowest(self.objective)
            solver = self.blocks.solver(schedule, self.bound, self.effort, self.seed, self.on_move)
            try:
                solver.go_on(max(end, self.effort.spent + PART))
            finally:
                self.offer(self.found_by, self.of_one(validate(self.blocks.lowered.schedule(solver.best))))

    def on_move(self, best: int, bound: int, move: str) -> None:
        """Take the solver's best value and bound, and report them."""
        self.found_by = move if best < self.value else self.found_by
        self.bound = max(self.bound, bound)
        self.tell(min(best, self.value))

    def result(self, ending: Ending, too_large: str) -> Answer:
        """Return the current answer, with the schedule of the slowest replica."""
        proved = self.proved and not ending.interrupted
        schedule = None if self.best is None else self.best.of_slowest(self.objective)
        status = Status.OPTIMAL if proved else Status.FEASIBLE if schedule else Status.UNKNOWN
        bounds = dict.fromkeys(FINITE, 0)
        if self.blocks is not None:
            bounds = {name: goal.bound(self.blocks.lowered.plain, 1) for name, goal in FINITE.items()}
        bounds[self.objective] = self.bound
        none = "no schedule of these micro-batches fits the memory that was tried; raise it"
        if not self.is_single:
            none = "no assignment to the replicas was found that fits the memory; raise it"
        return Answer(
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


def _too_large(batch: Problem) -> str:
    """Return which micro-batch does not fit alone; empty where each does."""
    for n, chosen in enumerate(batch.chosen):
        as_run = batch.placement.as_run(chosen)
        for device, free in enumerate(batch.placement.free_memory or ()):
            if (needed := minimum_memory(as_run, device)) > free:
                return (
                    f"micro-batch {n} alone needs {needed} units of memory on device {device}, where {free} "
                    "are free; raise search.memory"
                )
    return ""


def _on(batch: Problem, schedule: Schedule) -> Schedule:
    """Return a schedule to begin with under the memory of a batch.

    Raises:
        SearchError: It is of other micro-batches, or needs more memory.
    """
    old, new = schedule.placement, batch.placement
    same = all(getattr(old, name) == getattr(new, name) for name in ("blocks", "decisions", "transfer"))
    if not same or schedule.chosen != batch.chosen:
        raise SearchError("search.begin_with: is a schedule of other micro-batches; give one of these")
    try:
        return validate(schedule.under(new))
    except InvalidScheduleError as error:
        raise SearchError(f"search.begin_with: {error.reason}; give one that fits, or leave it out") from None
