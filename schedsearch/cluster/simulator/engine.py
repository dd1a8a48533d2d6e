"""The rounds of a simulation one after another, as in Gavel's simulator (dissertation, Sec. 5.5 and 5.7).

A round begins when the last job of the one before has stopped. What happens meanwhile waits: an arrival for
the next round, a GPU whose job is done for its end. A job does as many whole steps as fit in a round, or what
it has left; a step that is longer than a round is done in parts, so that it ends at all. Two jobs on the same
GPUs begin together, and keep the throughputs of the pair until the round ends, also where one is done before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random

import numpy as np

from schedsearch.cluster.allocation import Allocation
from schedsearch.cluster.demand import NOBODY, Demand, FloatArray
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.policies.fairness import isolated_steps_per_s
from schedsearch.cluster.policies.policy import Policy
from schedsearch.cluster.rounds import MIN_SHARE, Assignment, RoundScheduler
from schedsearch.cluster.simulator.failures import GpuFailures
from schedsearch.cluster.simulator.job_table import ClusterProgress, JobTable, arriving, can_run
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.outcome import (
    DecisionSeries,
    JobRun,
    Outcome,
    Round,
    RoundSeries,
    Snapshot,
)
from schedsearch.cluster.throughputs import Throughputs
from schedsearch.solver.interrupts import INTERRUPTS


class ClusterSimulation:
    """The state of a simulation between two rounds.

    Attributes:
        now_s: Simulated time.
        decided_s: When the policy decided last; 0 before it did, and no time need pass after a decision at 0.
        is_stale: A job arrived or is done, or a GPU failed or came back, since then.
        next_job: The next that arrives; None at the end of the trace.
        table: All jobs that arrived, and how far each one is.
        done: Jobs of the window that are done.
        reason: Why it ended before all that was asked for was done.
        busy_s: GPU seconds of each type in which jobs ran.
        snapshots: Allocations that are kept.
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
        self.num_jobs = len(trace) if isinstance(trace, Sequence) else None
        if self.num_jobs is not None and options.window is not None and options.window[1] > self.num_jobs:
            raise ClusterError(_short_trace(options.window, self.num_jobs))
        self.arrivals = arriving(trace, cluster, throughputs)
        self.next_job = next(self.arrivals, None)
        self.rounds = RoundScheduler(
            cluster,
            options.round_s,
            _chosen(options.fills_idle_gpus, policy, "fills_idle_gpus", otherwise=True),
            throughputs.unconsolidated is not None,
        )
        self.failures = GpuFailures.of(cluster, options.failures, options.seed)
        self.shuffler = Random(options.seed + 5)
        self.now_s = 0.0
        self.decided_s = 0.0
        self.is_stale = False
        self.table = JobTable()
        self.done = 0
        self.reason = ""
        self.busy_s = np.zeros(len(cluster.workers))
        self.round_rows: list[tuple[float, list[int], int, int]] = []
        self.decision_rows: list[tuple[float, int, float, float]] = []
        self.snapshots: list[Snapshot] = []
        self.recorded: list[Round] = []

    def run(self, on_progress: Callable[[ClusterProgress], None] | None) -> None:
        """Go on until everything that is wanted is done, or a reason ends it.

        Raises:
            KeyboardInterrupt: There was a Ctrl-C; the state is that between two rounds.
        """
        while True:
            INTERRUPTS.raise_if_seen()
            if on_progress is not None:
                window = self.options.window or (0, self.num_jobs or 0)
                hours, active = self.now_s / 3600, len(self.table.index)
                on_progress(ClusterProgress(self.done, window[1] - window[0], hours, active))
            while self.next_job is not None and self.next_job.arrival_s <= self.now_s:
                self.table.add(self.take_next())
                self.is_stale = True
            self.is_stale |= self.failures.advance(self.now_s)
            if self._is_done():
                return
            if self.now_s >= self.options.stop_at_s:
                self.reason = f"stopped at stop_at_s={self.options.stop_at_s}"
                return
            if self.is_stale and (self.now_s >= self._due_s or self.decided_s == 0):
                self._decide()
            assignments = self.rounds.next_round(self._type_order(), self.failures.away)
            if assignments:
                self._run_round(assignments)
            elif not self._wait():
                return

    def take_next(self) -> Job:
        """Return the next job of the trace, and look at the one after it.

        Raises:
            ClusterError: That one cannot run anywhere, arrives before this one, or has a name again.
        """
        assert self.next_job is not None, "no jobs are left"
        job, self.next_job = self.next_job, next(self.arrivals, None)
        return job

    def outcome(self) -> Outcome:
        """Return what there is."""
        cluster = self.cluster
        busy_s = dict(zip(cluster.workers, self.busy_s.tolist(), strict=True))
        idle_kwh = math.fsum(
            power_w * (cluster.workers[gpu_type] * self.now_s - busy_s[gpu_type]) / 3.6e6
            for gpu_type, power_w in cluster.idle_power_w.items()
        )
        start_s, busy, active, waiting = _columns(self.round_rows)
        time_s, jobs, error, shortfall = _columns(self.decision_rows)
        by_type = busy.reshape(-1, len(cluster.workers)).astype(np.int64)
        return Outcome(
            self.policy.name,
            cluster,
            self.options.round_s,
            self.options.window or (0, self.num_jobs or len(self.table.jobs)),
            self.now_s,
            self.reason,
            self.table.outcomes(),
            busy_s,
            idle_kwh,
            RoundSeries(start_s, by_type, active.astype(np.int64), waiting.astype(np.int64)),
            DecisionSeries(time_s, jobs.astype(np.int64), error, shortfall),
            tuple(self.snapshots),
            tuple(self.recorded),
        )

    def _is_done(self) -> bool:
        window = self.options.window
        is_over = self.next_job is None and not self.table.index
        if window is None:
            return is_over
        if is_over and self.done < window[1] - window[0]:
            raise ClusterError(_short_trace(window, len(self.table.jobs)))
        return self.done == window[1] - window[0]

    @property
    def _due_s(self) -> float:
        """When the policy may decide again."""
        return self.decided_s + self.options.reset_s

    def _decide(self) -> None:
        demand = self._demand()
        allocation = None if demand is None else self.policy.allocate(demand)
        missed = self.rounds.decide(allocation, self.now_s - self.decided_s)
        if self.decision_rows:
            self.decision_rows[-1] = (*self.decision_rows[-1][:2], *missed)
        if demand is not None and allocation is not None:
            numbers = [self.table.index[active.name] for active in demand.jobs]
            self.table.rows["isolated_steps_per_s"][numbers] = isolated_steps_per_s(demand)
            self._note_snapshot(allocation)
        self.decision_rows.append((self.now_s, len(self.table.index), math.nan, 0.0))
        self.decided_s, self.is_stale = self.now_s, False

    def _demand(self) -> Demand | None:
        """Return what the policy is asked: about jobs that can run on the GPUs that are not away."""
        away = self.failures.away
        workers = {
            gpu_type: count - len(away.get(number, ()))
            for number, (gpu_type, count) in enumerate(self.cluster.workers.items())
        }
        cluster, names = self.cluster, list(self.table.index)
        if workers != cluster.workers:
            cluster = replace(cluster, workers=workers)
            jobs = (self.table.jobs[self.table.index[name]] for name in names)
            names = [job.name for job in jobs if can_run(job, cluster, self.throughputs)]
        if not names:
            return None
        active = self.table.active(names, self.now_s)
        shares_space = self.policy.shares_space
        return self.throughputs.demand(cluster, active, shares_space=shares_space, now_s=self.now_s)

    def _note_snapshot(self, allocation: Allocation) -> None:
        last_s = self.snapshots[-1].time_s if self.snapshots else -math.inf
        if math.isfinite(self.options.snapshots_s) and self.now_s - last_s >= self.options.snapshots_s:
            self.snapshots.append(Snapshot(self.now_s, allocation.used(MIN_SHARE)))

    def _type_order(self) -> list[int] | None:
        if not self.options.types_in_turn:
            return None
        order = list(range(len(self.cluster.workers)))
        if _chosen(self.options.shuffles_types, self.policy, "is_agnostic", otherwise=False):
            self.shuffler.shuffle(order)
        return order

    def _run_round(self, assignments: Sequence[Assignment]) -> None:
        """Do the steps of a round; arrays have an entry for each assignment, or each job in one (`of`)."""
        options, rows, start_s = self.options, self.table.rows, self.now_s
        of = np.repeat(np.arange(len(assignments)), [len(one.jobs) for one in assignments])
        job = np.array([self.table.index[name] for one in assignments for name in one.jobs], dtype=np.int64)
        renewed = np.array([flag for one in assignments for flag in one.renewed], dtype=np.bool_)
        placed = np.array([one.placed_as for one in assignments], dtype=np.int64)
        ways = self.rounds.candidates.configurations.only(placed)
        rate = ways.steps_per_s[ways.jobs != NOBODY]
        lost_s = np.zeros(len(assignments))
        if options.restart_s or options.checkpoint_s:
            cost_s = options.restart_s + options.checkpoint_s * (rows["starts"][job] > 0)
            np.maximum.at(lost_s, of, np.where(renewed, 0.0, cost_s))
        left = rows["steps_left"][job]
        fitting = rate * (options.round_s - lost_s)[of]
        whole = np.floor(fitting)
        steps = np.minimum(np.where(whole > 0, whole, fitting), left)
        first_step_s = start_s + lost_s
        job_end_s = first_step_s[of] + steps / rate
        end_s = np.full(len(assignments), start_s)
        np.maximum.at(end_s, of, job_end_s)
        fails_s = np.array([self.failures.first_s(one.gpu_type, one.gpu_ids) for one in assignments])
        failed = fails_s < end_s
        if failed.any():
            end_s = np.where(failed, np.maximum(fails_s, start_s), end_s)
            is_cut = failed[of] & ~((steps >= left) & (job_end_s <= end_s[of]))
            loses_more = options.failures is not None and options.failures.loses_lease
            taken_back = np.where(renewed, left - rows["steps_saved"][job], 0.0) if loses_more else 0.0
            steps = np.where(is_cut, taken_back, steps)
        seconds, parts = end_s - start_s, np.bincount(of)
        prices = np.array([self.cluster.price_of(gpu_type) for gpu_type in self.cluster.workers])
        dollars = prices[ways.gpu_type] * ways.gpus * seconds / 3600 / parts
        kwh = ways.power_w * seconds / 3.6e6 / parts
        busy = np.bincount(ways.gpu_type, ways.gpus, len(self.busy_s)).astype(np.int64)
        self.busy_s += np.bincount(ways.gpu_type, ways.gpus * seconds, len(self.busy_s))
        active = len(self.table.index)
        self.round_rows.append((start_s, busy.tolist(), active, active - len(job)))
        if options.records_rounds:
            runs = []
            for number, one in enumerate(assignments):
                own = np.flatnonzero(of == number)
                runs.append(
                    JobRun(
                        tuple(job[own].tolist()),
                        one.gpu_type,
                        one.gpu_ids,
                        tuple(rate[own].tolist()),
                        float(ways.power_w[number]),
                        float(first_step_s[number]),
                        float(end_s[number]),
                        tuple(steps[own].tolist()),
                        one.renewed,
                        bool(failed[number]),
                    )
                )
            self.recorded.append(Round(start_s, tuple(runs)))
        self.rounds.receive([one.candidate for one in assignments], seconds)
        for name, amount in (("gpu_s", ways.gpus * seconds), ("dollars", dollars), ("kwh", kwh)):
            rows[name][job] += amount[of]
        self.table.begin(job, renewed, start_s)
        self.table.advance(job, steps, left - steps)
        for entry in np.flatnonzero(failed[of] & (left > steps)).tolist():
            rows["failures"][job[entry]] += 1
            self.rounds.end_lease(self.table.jobs[job[entry]].name)
        for entry in np.flatnonzero(left <= steps).tolist():
            self._finish(int(job[entry]), float(job_end_s[entry]))
        self.now_s = float(end_s.max())

    def _finish(self, number: int, finish_s: float) -> None:
        name = self.table.jobs[number].name
        self.table.rows["finish_s"][number] = finish_s
        del self.table.index[name]
        self.rounds.remove(name)
        self.is_stale = True
        first, last = self.options.window or (0, math.inf)
        self.done += first <= number < last

    def _wait(self) -> bool:
        """Go on to the next event when nothing runs; return whether there is one."""
        due_s = self._due_s if self.is_stale and not self.options.skips_to_arrivals else math.inf
        event_s = min(self.failures.next_repair_s(), due_s)
        if self.next_job is not None:
            self.now_s = max(self.now_s, min(self.next_job.arrival_s, event_s))
        elif self.is_stale:
            self.decided_s = 0.0  # nobody else will come, so the decision need not wait
        elif math.isfinite(event_s):
            self.now_s = event_s
        else:
            first = next(iter(self.table.index))
            self.reason = f"the policy gives no time to job {first}, nor to any other"
            return False
        return True


def _columns(rows: Sequence[tuple[object, ...]]) -> list[FloatArray]:
    """Return the four columns of rows."""
    return [np.array(column, dtype=np.float64) for column in (zip(*rows, strict=True) if rows else ((),) * 4)]


def _chosen(option: bool | None, policy: Policy, attribute: str, *, otherwise: bool) -> bool:
    """Return an option; where it is not given what the policy says, which need not say anything."""
    return bool(getattr(policy, attribute, otherwise)) if option is None else option


def _short_trace(window: tuple[int, int], num_jobs: int) -> str:
    return f"window: {list(window)} is beyond the trace, which has {num_jobs} jobs; end it there or before"
