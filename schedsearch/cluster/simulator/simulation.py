"""The rounds of a simulation one after another, as in Gavel's simulator (dissertation, Sec. 5.5 and 5.7).

A round begins when the last job of the one before has stopped. What happens meanwhile waits: an arrival for
the next round, a GPU whose job is done for its end. A job does as many whole steps as fit in a round, or what
it has left; a step that is longer than a round is done in parts, so that it ends at all. Two jobs on the same
GPUs begin together, and keep the throughputs of the pair until the round ends, also where one is done before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import pairwise
from random import Random
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from schedsearch.cluster.demand import NOBODY, FloatArray
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.jobs import ActiveJob, Job
from schedsearch.cluster.policies.fairness import isolated_steps_per_s
from schedsearch.cluster.policies.policy import Policy
from schedsearch.cluster.rounds import Assignment, RoundScheduler
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.outcome import JobOutcome, JobRun, Outcome, Round, RoundSeries
from schedsearch.cluster.throughputs import Throughputs
from schedsearch.solver.interrupts import INTERRUPTS

_OF_OUTCOME = {one.name: one.default for one in fields(JobOutcome) if one.name not in ("job", "steps_done")}
"""Columns of jobs that are also fields of a `JobOutcome`, with their initial values."""

_COLUMNS = {"steps_left": 0.0, "isolated_steps_per_s": math.nan, **_OF_OUTCOME}
_BLANK = np.array(tuple(_COLUMNS.values()), dtype=[(name, type(value)) for name, value in _COLUMNS.items()])
"""The row of a job at first."""


FROM_KEYBOARD = "interrupted from the keyboard"
"""The reason of an outcome that a Ctrl-C ended."""


class ClusterProgress(NamedTuple):
    """Progress of a simulation.

    Attributes:
        jobs_done: Jobs of the window that are done.
        jobs_wanted: Jobs of the window; 0 without a window if the trace's length is unknown.
        simulated_h: Hours since the begin of the trace.
        active_jobs: Jobs that have arrived and are not done.
    """

    jobs_done: int
    jobs_wanted: int
    simulated_h: float
    active_jobs: int


def simulate_cluster(
    trace: Iterable[Job],
    cluster: GpuCluster,
    throughputs: Throughputs,
    policy: Policy,
    options: SimulationOptions | None = None,
    on_progress: Callable[[ClusterProgress], None] | None = None,
) -> Outcome:
    """Return the outcome of jobs on a cluster; a Ctrl-C ends the simulation between two rounds.

    Args:
        trace: Jobs in the order of their arrival; may be without end if the options have a window.
        cluster: GPUs of the cluster.
        throughputs: Throughputs of all jobs.
        policy: A fresh one; decides until the end.
        options: Options of the simulation; None for the defaults.
        on_progress: Called before each round.

    Raises:
        ClusterError: A job cannot run anywhere, the trace is not in the order of arrival or ends before
            the window, or the policy gives no time to anybody.
    """
    simulation = ClusterSimulation(trace, cluster, throughputs, policy, options or SimulationOptions())
    with INTERRUPTS.answered() as ending:
        simulation.run(on_progress)
    if ending.interrupted:
        simulation.reason = FROM_KEYBOARD
    return simulation.outcome()


class ClusterSimulation:
    """The state of a simulation between two rounds.

    Attributes:
        now_s: Simulated time.
        decided_s: When the policy decided last; 0 before it did, and no time need pass after a decision at 0.
        is_stale: A job arrived or is done since then.
        next_job: The next that arrives; None at the end of the trace.
        jobs: All that arrived, in the order of arrival.
        index: Index of each active job by name, in the order of arrival.
        rows: A row for each job, and blank ones after the last. Columns are those of `JobOutcome`;
            ``steps_left``, until it is done, exactly 0 then; and ``isolated_steps_per_s``, on its own share
            of the cluster, since the last decision.
        done: Jobs of the window that are done.
        reason: Why it ended before all that was asked for was done.
        busy_s: GPU seconds of each type in which jobs ran.
        recorded: Who ran in each round.
    """

    def __init__(
        self,
        trace: Iterable[Job],
        cluster: GpuCluster,
        throughputs: Throughputs,
        policy: Policy,
        options: SimulationOptions,
    ) -> None:
        """Begin at time 0."""
        self.cluster, self.throughputs, self.policy, self.options = cluster, throughputs, policy, options
        arrivals = _checked(trace, cluster, throughputs)
        self._known = [*arrivals] if isinstance(trace, Sequence) else []
        if self._known and options.window is not None and options.window[1] > len(self._known):
            raise ClusterError(_short_trace(options.window, len(self._known)))
        self._arrivals = iter(self._known) if isinstance(trace, Sequence) else arrivals
        self.next_job = next(self._arrivals, None)
        fills = options.types_in_turn and bool(getattr(policy, "fills_idle_gpus", True))
        sees_servers = throughputs.unconsolidated is not None
        self.rounds = RoundScheduler(cluster, options.round_s, fills, sees_servers)
        self._random = Random(options.seed + 5)
        self.now_s = self.decided_s = 0.0
        self.is_stale = False
        self.jobs: list[Job] = []
        self.index: dict[str, int] = {}
        self.rows: npt.NDArray[np.void] = np.full(64, _BLANK)
        self.done = 0
        self.reason = ""
        self.busy_s = np.zeros(len(cluster.workers))
        self._round_rows: list[tuple[float, list[int], int, int]] = []
        self._decided_s: list[float] = []
        self._share_errors: list[float] = []
        self.recorded: list[Round] = []

    def run(self, on_progress: Callable[[ClusterProgress], None] | None) -> None:
        """Simulate rounds until the jobs of the window are done, or until another reason ends the simulation.

        Raises:
            KeyboardInterrupt: There was a Ctrl-C; the state is that between two rounds.
        """
        while True:
            INTERRUPTS.raise_if_seen()
            if on_progress is not None:
                hours, active = self.now_s / 3600, len(self.index)
                on_progress(ClusterProgress(self.done, self._wanted, hours, active))
            while self.next_job is not None and self.next_job.arrival_s <= self.now_s:
                self._add(self.next_job)
                self.next_job = next(self._arrivals, None)
            if self._is_done():
                return
            if self.now_s >= self.options.stop_at_s:
                self.reason = f"stopped at stop_at_s={self.options.stop_at_s}"
                return
            if self.is_stale and (self.now_s >= self._due_s or self.decided_s == 0):
                self._decide()
            assignments = self.rounds.next_round(self._type_order())
            if assignments:
                self._run_round(assignments)
            elif not self._wait():
                return

    def outcome(self) -> Outcome:
        """Return the outcome so far."""
        rows = self.rows[: len(self.jobs)]
        columns = zip(self.jobs, rows["steps_left"].tolist(), rows[[*_OF_OUTCOME]].tolist(), strict=True)
        start_s, busy, active, waiting = [*zip(*self._round_rows, strict=True)] or [()] * 4
        by_type = np.array(busy, dtype=np.int64).reshape(-1, len(self.cluster.workers))
        return Outcome(
            self.policy.name,
            self.cluster,
            self.options.round_s,
            self.options.window or (0, len(self._known) or len(self.jobs)),
            self.now_s,
            self.reason,
            tuple(JobOutcome(job, job.steps - left, *row) for job, left, row in columns),
            dict(zip(self.cluster.workers, self.busy_s.tolist(), strict=True)),
            RoundSeries(np.array(start_s), by_type, np.array(active, int), np.array(waiting, int)),
            np.array(self._decided_s),
            np.array([*self._share_errors, math.nan][1:]),
            tuple(self.recorded),
        )

    def _add(self, job: Job) -> None:
        number = len(self.jobs)
        if number == len(self.rows):
            self.rows = np.concatenate([self.rows, np.full(number, _BLANK)])
        self.jobs.append(job)
        self.index[job.name] = number
        self.rows["steps_left"][number] = job.steps
        self.is_stale = True

    @property
    def _wanted(self) -> int:
        first, last = self.options.window or (0, len(self._known))
        return last - first

    def _is_done(self) -> bool:
        window, is_over = self.options.window, self.next_job is None and not self.index
        if window is None:
            return is_over
        if is_over and self.done < self._wanted:
            raise ClusterError(_short_trace(window, len(self.jobs)))
        return self.done == self._wanted

    @property
    def _due_s(self) -> float:
        """Time from which the policy may decide again, in s."""
        return self.decided_s + self.options.reset_s

    def _decide(self) -> None:
        allocation, numbers = None, [*self.index.values()]
        if numbers:
            left, isolated = (self.rows[name][numbers].tolist() for name in ("steps_left", "isolated_s"))
            active = [
                ActiveJob(self.jobs[number], steps, self.now_s - self.jobs[number].arrival_s, isolated_s)
                for number, steps, isolated_s in zip(numbers, left, isolated, strict=True)
            ]
            demand = self.throughputs.demand(self.cluster, active, shares_space=self.policy.shares_space)
            allocation = self.policy.allocate(demand)
            self.rows["isolated_steps_per_s"][numbers] = isolated_steps_per_s(demand)
        error = self.rounds.decide(allocation, self.now_s - self.decided_s)
        self._share_errors.append(error)
        self._decided_s.append(self.now_s)
        self.decided_s, self.is_stale = self.now_s, False

    def _type_order(self) -> list[int] | None:
        if not self.options.types_in_turn:
            return None
        order = list(range(len(self.cluster.workers)))
        if getattr(self.policy, "is_agnostic", False):
            self._random.shuffle(order)
        return order

    def _run_round(self, assignments: Sequence[Assignment]) -> None:
        """Do the steps of a round; arrays have an entry for each assignment, or each job in one (`of`)."""
        options, rows, start_s = self.options, self.rows, self.now_s
        of = np.repeat(np.arange(len(assignments)), [len(one.jobs) for one in assignments])
        job = np.array([self.index[name] for one in assignments for name in one.jobs], dtype=np.int64)
        renewed = np.array([flag for one in assignments for flag in one.renewed], dtype=np.bool_)
        ways = self.rounds.candidates.only(np.array([one.placed_as for one in assignments]))
        rate = ways.steps_per_s[ways.jobs != NOBODY]
        cost_s = options.restart_s + options.checkpoint_s * (rows["starts"][job] > 0)
        lost_s = np.zeros(len(assignments))
        np.maximum.at(lost_s, of, np.where(renewed, 0.0, cost_s))
        left = rows["steps_left"][job]
        fitting = rate * (options.round_s - lost_s)[of]
        whole = np.floor(fitting)
        steps = np.minimum(np.where(whole > 0, whole, fitting), left)
        steps = self._carry_out(assignments, steps)
        first_step_s = start_s + lost_s
        job_end_s = first_step_s[of] + steps / rate
        end_s = np.full(len(assignments), start_s)
        np.maximum.at(end_s, of, job_end_s)
        seconds, parts = end_s - start_s, np.bincount(of)
        gpu_s = ways.gpus * seconds
        prices = np.array([self.cluster.price_of(gpu_type) for gpu_type in self.cluster.workers])
        paid = {
            "gpu_s": gpu_s,
            "dollars": prices[ways.gpu_type] * gpu_s / 3600 / parts,
            "kwh": ways.power_w * seconds / 3.6e6 / parts,
        }
        for name, amount in paid.items():
            rows[name][job] += amount[of]
        busy = np.bincount(ways.gpu_type, ways.gpus, len(self.busy_s)).astype(np.int64)
        self.busy_s += np.bincount(ways.gpu_type, gpu_s, len(self.busy_s))
        self._round_rows.append((start_s, busy.tolist(), len(self.index), len(self.index) - len(job)))
        if options.records_rounds:
            ends = [0, *np.cumsum(parts).tolist()]
            of_jobs = (
                [tuple(column[first:end]) for first, end in pairwise(ends)]
                for column in (job.tolist(), rate.tolist(), steps.tolist())
            )
            columns = *of_jobs, ways.power_w.tolist(), first_step_s.tolist(), end_s.tolist()
            runs = (
                JobRun(jobs, one.gpu_type, one.gpu_ids, rates, power_w, first_s, last_s, done, one.renewed)
                for one, jobs, rates, done, power_w, first_s, last_s in zip(
                    assignments, *columns, strict=True
                )
            )
            self.recorded.append(Round(start_s, tuple(runs)))
        self.rounds.receive([one.candidate for one in assignments], seconds)
        rows["renewals"][job] += renewed
        rows["first_start_s"][job[rows["starts"][job] == 0]] = start_s
        rows["starts"][job] += ~renewed
        rows["isolated_s"][job] += steps / rows["isolated_steps_per_s"][job]
        rows["steps_left"][job] = left - steps
        rows["finish_s"][job] = np.where(left <= steps, job_end_s, math.nan)
        for number in job[left <= steps].tolist():
            del self.index[self.jobs[number].name]
            self.rounds.remove(self.jobs[number].name)
            first, last = options.window or (0, math.inf)
            self.done += first <= number < last
            self.is_stale = True
        self.now_s = float(end_s.max())

    def _carry_out(self, assignments: Sequence[Assignment], steps: FloatArray) -> FloatArray:
        """Return the steps that each job did in the round, at most `steps`, by assignment."""
        return steps

    def _wait(self) -> bool:
        """Advance the time to the next event when no job runs; return False if no event is left."""
        due_s = self._due_s if self.is_stale and not self.options.skips_to_arrivals else math.inf
        if self.next_job is not None:
            self.now_s = max(self.now_s, min(self.next_job.arrival_s, due_s))
        elif self.is_stale:
            self.decided_s = 0.0  # nobody else will come, so the decision need not wait
        else:
            first = next(iter(self.index))
            self.reason = f"the policy gives no time to job {first}, nor to any other"
            return False
        return True


def _short_trace(window: tuple[int, int], num_jobs: int) -> str:
    return f"window: {list(window)} is beyond the trace, which has {num_jobs} jobs; end it there or before"


def _checked(trace: Iterable[Job], cluster: GpuCluster, throughputs: Throughputs) -> Iterator[Job]:
    """Yield the jobs of a trace, which may be without end, each checked as it arrives."""
    names, last_s = set[str](), 0.0
    for job in trace:
        if job.name in names:
            raise ClusterError(f"job {job.name} is there twice in the trace; give each job its own name")
        if job.arrival_s < last_s:
            raise ClusterError(
                f"job {job.name}: arrival_s: {job.arrival_s!r} is before the job above it; sort the trace"
            )
        names.add(job.name)
        last_s = job.arrival_s
        largest = max(cluster.workers, key=lambda gpu_type: cluster.workers[gpu_type])
        if job.scale_factor > cluster.workers[largest]:
            raise ClusterError(
                f"job {job.name}: scale_factor: {job.scale_factor} GPUs are more than any type has; "
                f"{largest} has most, {cluster.workers[largest]}; ask for fewer, or give more"
            )
        if not throughputs.can_run(cluster, job.type, job.scale_factor):
            fitting = [name for name, workers in cluster.workers.items() if workers >= job.scale_factor]
            raise ClusterError(
                f"job {job.name}: {job.type!r} on {job.scale_factor} GPUs has no throughput on "
                f"{', '.join(fitting)}; add one, or leave the job out"
            )
        yield job
