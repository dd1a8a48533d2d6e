"""Ways to go on when devices are lost or slow, each with its time, beside a bound.

All of them do the same micro-batches: what they take is comparable. In the rule of ReCycle (arXiv 2405.14009)
micro-batches of a lost device go to its peers in turn, the halves of a backward apart where the pipeline
splits it, and the optimizer steps of stages wait for no other stage. ReCycle finds the order by a mixed
integer program; here idle devices run what is ready, or keep the order of before, whichever is shorter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from placements import Kind, Placement
from placements.modes import Chosen
from schedsearch.baselines import HAND_MADE
from schedsearch.modulo.lowered import Lowered
from schedsearch.modulo.result import FINITE, Objective
from schedsearch.modulo.search import search
from schedsearch.modulo.shared_limits import SharedLimits
from schedsearch.replanning.division import redivided
from schedsearch.replanning.replicated_job import ReplanError, ReplicatedJob, dealt
from schedsearch.schedule import Schedule, as_soon_as_possible, with_optimizer
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.unequal.starts import dispatched, executed
from schedsearch.unequal.unequal_search import unequal_search
from schedsearch.validate import validate

COLUMNS = ("way", "iteration_ms", "throughput", "bound_ms", "status")
"""Columns of the table of all ways."""

_PIPELINE_WORK = 1.0
"""The most units of work for the schedule of one pipeline."""

_WORK_LIMIT = 60.0
"""Units of work for all searches, where no limit is given."""

_SHUFFLES = 4
"""Choices of copies that are tried beside those in turn."""


@dataclass(frozen=True)
class ReplanRow:
    """A way to go on.

    Attributes:
        way: Its name.
        iteration_ms: Time of an iteration; None where the way is not possible.
        throughput: Share of that before, of the same micro-batches.
        bound_ms: Time that this way cannot beat, where one is known.
        status: What it is, or why it is not possible.
    """

    way: str
    iteration_ms: float | None
    throughput: float | None
    bound_ms: float | None
    status: str


@dataclass(frozen=True)
class Replan:
    """All ways to go on.

    Attributes:
        rows: Before, and each way.
        schedules: Of ways that need no other stages, the schedule of all copies; of a single pipeline its
            own, with the times that it is written with, so that a run of it can take the order over.
        bound_ms: No copies that micro-batches take and no orders beat it, with the stages as they are.
        interrupted: Whether a Ctrl-C ended the searches; the rows have the best orders until then.
    """

    rows: tuple[ReplanRow, ...]
    schedules: Mapping[str, Schedule]
    bound_ms: float
    interrupted: bool = False

    @property
    def best(self) -> ReplanRow:
        """The quickest way after what happened."""
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
    """Return the ways to go on with a job.

    Args:
        job: What is lost or slow.
        objective: ``device_span`` where an iteration begins on each stage when the stage has ended the one
            before (staggered optimizer), or ``makespan``.
        schedule: The order before: ``searched``, or the name of one made by hand.
        parts: Equal parts of each stage, such as its layers, by which stages are divided anew.
        work_limit: Units of counted work for all searches together; None for 60, or no limit where there is
            one of time.
        time_limit_s: Seconds for all of them; None for no limit.
        seed: Of the random choices.
        before: The order before, of one pipeline, instead of `schedule`.

    Raises:
        ReplanError: The order before is not of this pipeline.
        UnsuitablePlacementError: The schedule by hand is not for this pipeline.
        InvalidScheduleError: The order before needs more memory.
    """
    if work_limit is None and time_limit_s is None:
        work_limit = _WORK_LIMIT
    limits = SharedLimits.of({"work_limit": work_limit, "time_limit_s": time_limit_s})
    return _Replanning(job, Objective(objective), schedule, parts, limits, seed, before).run()


@dataclass
class _Replanning:
    job: ReplicatedJob
    objective: Objective
    schedule: str
    parts: int
    limits: SharedLimits
    seed: int
    given: Schedule | None
    times: dict[tuple[Placement, int], float | None] = field(default_factory=dict)

    def run(self) -> Replan:
        """Try each way; after a Ctrl-C each by hand."""
        found = None
        with INTERRUPTS.answered() as ending:
            found = self.tried()
        if found is None:  # interrupted between two searches
            self.limits.seconds = 0.0
            self.limits.spend(0.0)
            found = self.tried()
        return replace(found, interrupted=ending.interrupted)

    def tried(self) -> Replan:
        """Try each way; those that take whole pipelines share what the other searches leave."""
        job = self.job
        is_searched = self.given is None and self.schedule == "searched"
        self.limits.searches = is_searched + (not job.lost) + 1 + 1
        before_ms = self.ms(self.before)
        rows = [ReplanRow("before", before_ms, 1.0, None, self.schedule)]
        schedules: dict[str, Schedule] = {}
        bound_ms = job.placement.ms(job.bound(self.objective))

        def add(way: str, found: Schedule | None, status: str, bound: int | None = None) -> None:
            if found is None:
                rows.append(ReplanRow(way, None, None, None, status))
                return
            own = found if job.pipeline.optimizer_blocks else found.per_micro_batch
            schedules[way], took = own if job.num_replicas > 1 else self.of_one(own), self.ms(found)
            least = bound_ms if bound is None else max(bound_ms, found.placement.ms(bound))
            rows.append(ReplanRow(way, took, before_ms / took, least, status))

        if job.lost:
            add("unchanged", None, "a device is lost")
            add("reordered", None, "a device is lost")
        else:
            same = self.settled(
                executed(job.batch(job.own), job.orders(self.before, job.own), range(job.total))
            )
            add("unchanged", same, "the order of before")
            add("reordered", *self.searched(job.own, same))
        rule = self.rule(job.rerouted())
        add("rule", rule, "in turn, by what is ready" if rule else "does not fit the memory")
        add("rerouted", *self.searched(*self.choose(rule)))
        self.limits.searches = job.num_replicas * len(self.pipelines)
        for way, pipelines in self.pipelines.items():
            took_ms, status = self.shared(pipelines)
            share = None if took_ms is None else before_ms / took_ms
            rows.append(ReplanRow(way, took_ms, share, None, status))
        return Replan(tuple(rows), schedules, bound_ms)

    def of_one(self, found: Schedule) -> Schedule:
        """Return the orders of the only pipeline as a schedule of it."""
        by_name = found.placement.by_name
        orders = [
            [(name.rpartition("@")[0], n) for name, n in order if by_name[name].kind is not Kind.O]
            for order in map(found.order, range(found.placement.num_devices))
        ]
        return as_soon_as_possible(self.job.pipeline, self.job.num_micro_batches, orders)

    @cached_property
    def before(self) -> Schedule:
        """The order of one pipeline before."""
        pipeline, number = self.job.updated, self.job.num_micro_batches
        if self.given is not None:
            own = pipeline.per_micro_batch.blocks
            if self.given.placement.per_micro_batch.blocks != own or self.given.num_micro_batches != number:
                raise ReplanError(
                    "search.begin_with: is a schedule of another pipeline, or of other micro-batches; "
                    f"give one of {number} micro-batches of this pipeline"
                )
            given = validate(with_optimizer(pipeline, self.given.per_micro_batch.under(self.bare)))
            return self.settled_always(given)
        if self.schedule == "searched":
            limits = self.limits.share()
            found = search(pipeline, number, objectives=[self.objective], seed=self.seed, **limits)
            self.limits.spend(found.work, found.seconds)
            if found.schedule is None:
                raise ReplanError(f"memory: no schedule of {number} micro-batches fits it; raise it")
            return found.schedule
        return self.settled_always(validate(HAND_MADE[self.schedule](pipeline, number)))

    @property
    def bare(self) -> Placement:
        """The pipeline without optimizer blocks."""
        return self.job.updated.per_micro_batch

    def settled_always(self, schedule: Schedule) -> Schedule:
        """Return the schedule of the same orders in which the objective is least."""
        return FINITE[self.objective].settled(schedule)

    def settled(self, schedule: Schedule | None) -> Schedule | None:
        """Return likewise, where there is one."""
        return None if schedule is None else self.settled_always(schedule)

    def ms(self, schedule: Schedule) -> float:
        """Return the time of an iteration."""
        return schedule.placement.ms(FINITE[self.objective].value(schedule))

    def rule(self, chosen: tuple[Chosen, ...]) -> Schedule | None:
        """Return the shorter of two orders: what is ready first, and that of before with more in between."""
        job = self.job
        lowered = Lowered.of(job.placement, chosen)
        assert lowered is not None, "it has one stream"
        plain = dispatched(lowered, range(job.total))
        found = [
            None if plain is None else lowered.schedule(plain),
            executed(job.batch(chosen), job.orders(self.before, chosen), range(job.total)),
        ]
        settled = [self.settled_always(each) for each in found if each is not None]
        return min(settled, key=self.ms, default=None)

    def choose(self, rule: Schedule | None) -> tuple[tuple[Chosen, ...], Schedule | None]:
        """Return the copies that micro-batches take, of several choices the best, and a schedule of them."""
        best = self.job.rerouted(), rule
        for number in range(1, _SHUFFLES + 1):
            if best[1] is not None and self.ms(best[1]) <= self.job.placement.ms(
                self.job.bound(self.objective)
            ):
                break
            chosen = self.job.rerouted(self.seed + number)
            found = self.rule(chosen)
            if found is not None and (best[1] is None or self.ms(found) < self.ms(best[1])):
                best = chosen, found
        return best

    def searched(
        self, chosen: tuple[Chosen, ...], begin_with: Schedule | None
    ) -> tuple[Schedule | None, str, int | None]:
        """Return a schedule for given copies, what is known of it, and its bound."""
        found = unequal_search(
            self.job.batch(chosen),
            objective=self.objective,
            seed=self.seed,
            begin_with=begin_with,
            **self.limits.share(),
        )
        self.limits.spend(found.work, found.seconds)
        bound = found.device_span_bound if self.objective is Objective.DEVICE_SPAN else found.makespan_bound
        if found.schedule is None:
            return None, found.reason, None
        is_least = FINITE[self.objective].value(found.schedule) <= bound
        return found.schedule, "proved" if is_least else "searched", bound

    @cached_property
    def pipelines(self) -> Mapping[str, list[Placement | None]]:
        """The pipelines of the ways that divide micro-batches among whole pipelines; None for one dropped."""
        job, devices = self.job, range(self.job.pipeline.num_devices)
        hurt = {copy for _, copy in (*job.lost, *job.slowdown)}
        alone = {copy: job.alone(copy) for copy in range(job.num_replicas)}
        found: dict[str, list[Placement | None]] = {}
        if not job.lost:
            found["rebalanced"] = [*alone.values()]
        speeds = {
            copy: [job.slowdown.get((d, copy), 1.0) for d in devices if (d, copy) not in job.lost]
            for copy in hurt
        }
        found["restaged"] = [
            redivided(job.updated, speeds[copy], self.parts) if copy in hurt else each
            for copy, each in alone.items()
        ]
        found["dropped"] = [None if copy in hurt else each for copy, each in alone.items()]
        return found

    def shared(self, pipelines: Iterable[Placement | None]) -> tuple[float | None, str]:
        """Return the time in which pipelines do all micro-batches, and how many each does."""
        whole = [each for each in pipelines if each is not None]
        works = {i: _load_ms(each) for i, each in enumerate(whole)}
        if not whole:
            return None, "no pipeline is whole"
        unit = min(works.values()) / 1000
        by_work = dealt({i: round(work / unit) for i, work in works.items()}, self.job.total)
        ways = [by_work]
        if len(whole) == self.job.num_replicas:
            ways.append(dict.fromkeys(works, self.job.num_micro_batches))
        found = []
        for shares in ways:
            took = [self.time_ms(whole[i], number) for i, number in shares.items() if number]
            if None not in took:
                numbers = ", ".join(map(str, sorted(shares.values(), reverse=True)))
                found.append((max(each for each in took if each is not None), f"micro-batches {numbers}"))
        return min(found, default=(None, "does not fit the memory"))

    def time_ms(self, pipeline: Placement, number: int) -> float | None:
        """Return the time of one pipeline; None where it does not fit the memory."""
        key = pipeline, number
        if key not in self.times:
            if pipeline == self.job.updated and number == self.job.num_micro_batches:
                self.times[key] = self.ms(self.before)
            else:
                limits = self.limits.share()
                limits["work_limit"] = min(limits["work_limit"] or _PIPELINE_WORK, _PIPELINE_WORK)
                found = search(pipeline, number, objectives=[self.objective], **limits)
                self.limits.spend(found.work, found.seconds)
                self.times[key] = None if found.schedule is None else self.ms(found.schedule)
        return self.times[key]


def _load_ms(pipeline: Placement) -> float:
    """Return the time of a micro-batch on the device that it takes longest."""
    each = pipeline.per_micro_batch
    return max(pipeline.ms(sum(block.time for block in each.on(d))) for d in range(each.num_devices))
