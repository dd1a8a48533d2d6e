"""Ways to continue when devices are lost or slow, each with its iteration time, and a bound.

All ways run the same micro-batches, so their times are comparable. In ReCycle's rule (arXiv 2405.14009)
micro-batches of a lost device go to its peers in turn, the halves of a backward apart if the pipeline
splits it, and the optimizer steps of stages wait for no other stage. ReCycle finds the order by a mixed
integer program; here idle devices run ready blocks, or keep the earlier order, whichever is shorter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from placements import Kind, Placement
from placements.modes import Chosen
from schedsearch.baselines import HAND_MADE
from schedsearch.core.objective import FINITE, Objective
from schedsearch.core.shared_limits import SharedLimits
from schedsearch.passes.lowered import Lowered
from schedsearch.replanning.division import redivided
from schedsearch.replanning.replicated_job import ReplanError, ReplicatedJob, dealt
from schedsearch.schedule import Schedule, as_soon_as_possible, with_optimizer
from schedsearch.searches.search import search
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.unequal.starts import dispatched, executed
from schedsearch.validate import validate

_PIPELINE_WORK = 1.0
"""Most units of work for the schedule of one pipeline."""

_WORK_LIMIT = 60.0
"""Default limit of work for all searches, in units of about a second."""

_SHUFFLES = 4
"""Shuffled assignments of micro-batches to copies, tried besides the one in turn."""


@dataclass(frozen=True)
class ReplanRow:
    """A way to continue, with its iteration time and throughput.

    Attributes:
        way: Name of the way.
        iteration_ms: Time of an iteration; None if the way is not possible.
        throughput: Throughput as a share of the one before, for the same micro-batches.
        bound_ms: Known lower bound on the time of this way; None without one.
        status: How its schedule was made, or why the way is not possible.
    """

    way: str
    iteration_ms: float | None
    throughput: float | None
    bound_ms: float | None
    status: str


@dataclass(frozen=True)
class Replan:
    """All ways to continue after devices became lost or slow.

    Attributes:
        rows: The iteration before, then each way.
        schedules: Schedules of all copies, for ways that keep the stages. For a single pipeline, the schedule
            of this pipeline with its original times, so that its run can take over the order.
        bound_ms: Lower bound with the present stages, over all assignments to copies and all orders.
        interrupted: Whether a Ctrl-C ended the searches; the rows have the best orders until then.
    """

    rows: tuple[ReplanRow, ...]
    schedules: Mapping[str, Schedule]
    bound_ms: float
    interrupted: bool = False

    @property
    def best(self) -> ReplanRow:
        """The way with the shortest iteration."""
        return min(
            (row for row in self.rows[1:] if row.iteration_ms is not None), key=lambda r: r.iteration_ms or 0
        )


def replan(
    job: ReplicatedJob,
    objective: str = Objective.DEVICE_SPAN,
    *,
    schedule: str = "searched",
    parts: int = 4,
    work_limit: float | None = None,
    time_limit_s: float | None = None,
    seed: int = 0,
    before: Schedule | None = None,
) -> Replan:
    """Return the ways to continue with a job whose devices are lost or slow.

    Args:
        job: The job, with its lost and slow devices.
        objective: ``device_span`` if each stage begins an iteration when it has ended the one before
            (staggered optimizer), or ``makespan``.
        schedule: The earlier order: ``searched``, or the name of a hand-made schedule.
        parts: Equal parts of each stage, such as its layers, by which stages are divided anew.
        work_limit: Units of counted work for all searches together; None for 60, or no limit where there is
            one of time.
        time_limit_s: Seconds for all searches together; None for no limit.
        seed: Seed of the random choices.
        before: The earlier schedule of one pipeline, instead of `schedule`.

    Raises:
        ReplanError: The earlier schedule is not of this pipeline.
        UnsuitablePlacementError: The hand-made schedule is not defined for this pipeline.
        InvalidScheduleError: The earlier schedule needs more memory.
    """
    if work_limit is None and time_limit_s is None:
        work_limit = _WORK_LIMIT
    limits = SharedLimits.of({"work_limit": work_limit, "time_limit_s": time_limit_s})
    hurt = _HurtJob(job, Objective(objective), schedule, parts, limits, seed, before)
    result = None
    with INTERRUPTS.answered() as ending:
        result = _tried(hurt)
    if result is None:  # interrupted between two searches
        limits.seconds = 0.0
        limits.spend(0.0)
        result = _tried(hurt)
    return replace(result, interrupted=ending.interrupted)


class _Way(NamedTuple):
    """The result of a way: a schedule of all copies, or the time of separate pipelines, or why none."""

    status: str
    schedule: Schedule | None = None
    bound: int = 0
    took_ms: float | None = None


@dataclass
class _HurtJob:
    """A job with lost or slow devices, and the data that all ways share; see `replan` for the fields."""

    job: ReplicatedJob
    objective: Objective
    schedule: str
    parts: int
    limits: SharedLimits
    seed: int
    given: Schedule | None
    times: dict[tuple[Placement, int], float | None] = field(default_factory=dict)

    def ms(self, schedule: Schedule) -> float:
        """Return the iteration time of a schedule, by the objective."""
        return schedule.placement.ms(FINITE[self.objective].value(schedule))

    def settled(self, schedule: Schedule) -> Schedule:
        """Return the schedule of the same orders in which the objective is least."""
        return FINITE[self.objective].settled(schedule)

    @cached_property
    def bound_ms(self) -> float:
        """Lower bound in ms over all assignments of micro-batches to copies, and all orders."""
        return self.job.placement.ms(self.job.bound(self.objective))

    @cached_property
    def before(self) -> Schedule:
        """The schedule of one pipeline before devices became lost or slow."""
        pipeline, number, given = self.job.updated, self.job.num_micro_batches, self.given
        if given is not None:
            bare = pipeline.per_micro_batch
            if given.placement.per_micro_batch.blocks != bare.blocks or given.num_micro_batches != number:
                raise ReplanError(
                    "search.begin_with: is a schedule of another pipeline, or of other micro-batches; "
                    f"give one of {number} micro-batches of this pipeline"
                )
            return self.settled(validate(with_optimizer(pipeline, given.per_micro_batch.under(bare))))
        if self.schedule != "searched":
            return self.settled(validate(HAND_MADE[self.schedule](pipeline, number)))
        schedule = self.searched(pipeline, number, self.seed, self.limits.share())
        if schedule is None:
            raise ReplanError(f"memory: no schedule of {number} micro-batches fits it; raise it")
        return schedule

    def searched(
        self, pipeline: Placement, number: int, seed: int, limits: Mapping[str, float | None]
    ) -> Schedule | None:
        """Return a schedule of one pipeline; None where none fits its memory."""
        answer = search(
            pipeline,
            number,
            objectives=[self.objective],
            seed=seed,
            work_limit=limits["work_limit"],
            time_limit_s=limits["time_limit_s"],
        )
        self.limits.spend(answer.work, answer.seconds)
        return answer.schedule

    def in_order(self, chosen: tuple[Chosen, ...]) -> Schedule | None:
        """Return the schedule with the earlier order on chosen copies; None if it is not valid."""
        job = self.job
        made = executed(job.batch(chosen), job.orders(self.before, chosen), range(job.total))
        return None if made is None else self.settled(made)

    def by_rule(self, chosen: tuple[Chosen, ...]) -> Schedule | None:
        """Return the shorter of two schedules: ready blocks first, or the earlier order with more blocks."""
        lowered = Lowered.of(self.job.placement, chosen)
        assert lowered is not None, "it has one stream"
        plain = dispatched(lowered, range(self.job.total))
        ready = None if plain is None else self.settled(lowered.schedule(plain))
        return min(filter(None, (ready, self.in_order(chosen))), key=self.ms, default=None)

    def ordered(self, chosen: tuple[Chosen, ...], begin_with: Schedule | None) -> _Way:
        """Search the order of blocks for a given choice of copies."""
        answer = search(
            self.job.batch(chosen),
            objectives=[self.objective],
            seed=self.seed,
            begin_with=begin_with,
            **self.limits.share(),
        )
        self.limits.spend(answer.work, answer.seconds)
        if answer.schedule is None:
            return _Way(answer.reason)
        bound = answer.device_span_bound if self.objective is Objective.DEVICE_SPAN else answer.makespan_bound
        is_least = FINITE[self.objective].value(answer.schedule) <= bound
        return _Way("proved" if is_least else "searched", answer.schedule, bound)

    def shared(self, pipelines: Sequence[Placement | None]) -> _Way:
        """Share all micro-batches among whole pipelines; return the time, and the numbers of each in words.

        Args:
            pipelines: One placement each; None for a dropped pipeline.
        """
        whole = [pipeline for pipeline in pipelines if pipeline is not None]
        if not whole:
            return _Way("no pipeline is whole")
        loads = [(pipeline, pipeline.per_micro_batch) for pipeline in whole]
        works = [
            pipeline.ms(max(sum(block.time for block in bare.on(d)) for d in range(bare.num_devices)))
            for pipeline, bare in loads
        ]
        unit = min(works) / 1000
        ways = [dealt({i: round(work / unit) for i, work in enumerate(works)}, self.job.total)]
        if len(whole) == self.job.num_replicas:
            ways.append(dict.fromkeys(range(len(whole)), self.job.num_micro_batches))
        outcomes = []
        for shares in ways:
            took = [self.time_ms(whole[i], number) for i, number in shares.items() if number]
            if None not in took:
                numbers = ", ".join(map(str, sorted(shares.values(), reverse=True)))
                outcomes.append((max(ms or 0.0 for ms in took), f"micro-batches {numbers}"))
        took_ms, status = min(outcomes, default=(None, "does not fit the memory"))
        return _Way(status, took_ms=took_ms)

    def time_ms(self, pipeline: Placement, number: int) -> float | None:
        """Return the iteration time of one pipeline in ms; None if no schedule found fits the memory."""
        if pipeline == self.job.updated and number == self.job.num_micro_batches:
            return self.ms(self.before)
        key = pipeline, number
        if key not in self.times:
            limits = self.limits.share()
            limits["work_limit"] = min(limits["work_limit"] or _PIPELINE_WORK, _PIPELINE_WORK)
            schedule = self.searched(pipeline, number, 0, limits)
            self.times[key] = None if schedule is None else self.ms(schedule)
        return self.times[key]


def _ways(hurt: _HurtJob) -> Iterator[tuple[str, _Way]]:
    """Yield each way to continue, by name; ways with separate pipelines share the work left by the others."""
    job, lost = hurt.job, _Way("a device is lost")
    same = None if job.lost else hurt.in_order(job.unmoved)
    yield "unchanged", lost if job.lost else _Way("the order of before", same)
    yield "reordered", lost if job.lost else hurt.ordered(job.unmoved, same)
    chosen = job.rerouted()
    rule = best = hurt.by_rule(chosen)
    yield "rule", _Way("in turn, ready blocks first" if rule else "does not fit the memory", rule)
    for seed in range(hurt.seed + 1, hurt.seed + _SHUFFLES + 1):
        if best is not None and hurt.ms(best) <= hurt.bound_ms:
            break
        schedule = hurt.by_rule(job.rerouted(seed))
        if schedule is not None and (best is None or hurt.ms(schedule) < hurt.ms(best)):
            chosen, best = job.rerouted(seed), schedule
    yield "rerouted", hurt.ordered(chosen, best)
    bad = {copy for _, copy in (*job.lost, *job.slowdown)}
    alone = [job.alone(copy) for copy in range(job.num_replicas)]
    hurt.limits.searches = job.num_replicas * (2 if job.lost else 3)
    if not job.lost:
        yield "rebalanced", hurt.shared(alone)
    divided = list[Placement | None](alone)
    for copy in bad:
        left = [d for d in range(job.pipeline.num_devices) if (d, copy) not in job.lost]
        divided[copy] = redivided(job.updated, [job.slowdown.get((d, copy), 1.0) for d in left], hurt.parts)
    yield "restaged", hurt.shared(divided)
    yield "dropped", hurt.shared([None if copy in bad else pipeline for copy, pipeline in enumerate(alone)])


def _tried(hurt: _HurtJob) -> Replan:
    """Try every way to continue, and compare each with the iteration before."""
    job = hurt.job
    is_searched = hurt.given is None and hurt.schedule == "searched"
    hurt.limits.searches = is_searched + (not job.lost) + 1 + 1
    before_ms = hurt.ms(hurt.before)
    rows = [ReplanRow("before", before_ms, 1.0, None, hurt.schedule)]
    schedules: dict[str, Schedule] = {}
    for name, (status, schedule, bound, took_ms) in _ways(hurt):
        min_ms = None
        if schedule is not None:
            whole = schedule if job.pipeline.optimizer_blocks else schedule.per_micro_batch
            schedules[name] = whole if job.num_replicas > 1 else _of_one(job, whole)
            took_ms, min_ms = hurt.ms(schedule), max(hurt.bound_ms, schedule.placement.ms(bound))
        share = None if took_ms is None else before_ms / took_ms
        rows.append(ReplanRow(name, took_ms, share, min_ms, status))
    return Replan(tuple(rows), schedules, hurt.bound_ms)


def _of_one(job: ReplicatedJob, schedule: Schedule) -> Schedule:
    """Return a schedule of all copies as a schedule of the job's only pipeline."""
    by_name = schedule.placement.by_name
    orders = [
        [(name.rpartition("@")[0], n) for name, n in order if by_name[name].kind is not Kind.O]
        for order in map(schedule.order, range(schedule.placement.num_devices))
    ]
    return as_soon_as_possible(job.pipeline, job.num_micro_batches, orders)
