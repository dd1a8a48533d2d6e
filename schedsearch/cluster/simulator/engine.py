"""The rounds of a simulation one after another, as in Gavel's simulator (dissertation, Sec. 5.5 and 5.7).

A round begins when the last job of the one before has stopped. What happens meanwhile waits: an arrival for
the next round, a GPU whose job is done for its end. It does not know what policies are after.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random

import numpy as np

from schedsearch.cluster.allocation import Allocation
from schedsearch.cluster.demand import Demand
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.policies.fairness import isolated_steps_per_s
from schedsearch.cluster.policies.policy import Policy
from schedsearch.cluster.rounds import MIN_SHARE, Assignment, RoundScheduler
from schedsearch.cluster.simulator.arrivals import Arrivals, can_run
from schedsearch.cluster.simulator.failures import GpuFailures
from schedsearch.cluster.simulator.history import History
from schedsearch.cluster.simulator.job_table import ClusterProgress, JobTable
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.outcome import Outcome, Snapshot
from schedsearch.cluster.simulator.running import RoundRuns, run
from schedsearch.cluster.throughputs import Throughputs
from schedsearch.solver.interrupts import INTERRUPTS


class ClusterSimulation:
    """The state of a simulation between two rounds.

    Attributes:
        now_s: Simulated time.
        decided_s: When the policy decided last; 0 before it did, and no time need pass after a decision at 0.
        is_stale: A job arrived or is done, or a GPU failed or came back, since then.
        table: All jobs that arrived, and how far each one is.
        done: Jobs of the window that are done.
        reason: Why it ended before all that was asked for was done.
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
        self.arrivals = Arrivals(trace, cluster, throughputs)
        self.rounds = RoundScheduler(
            cluster,
            options.round_s,
            _chosen(options.fills_idle_gpus, policy, "fills_idle_gpus", otherwise=True),
            throughputs.unconsolidated is not None,
        )
        self.failures = GpuFailures.of(cluster, options.failures, options.seed)
        self.shuffler = Random(options.seed + 5)
        self.history = History(len(cluster.workers))
        prices = [cluster.price_of(gpu_type) for gpu_type in cluster.workers]
        self._dollars_per_hour = np.array(prices)
        self.now_s = 0.0
        self.decided_s = 0.0
        self.is_stale = False
        self.table = JobTable()
        self.done = 0
        self.reason = ""

    def run(self, on_progress: Callable[[ClusterProgress], None] | None) -> None:
        """Go on until everything that is wanted is done, or a reason ends it.

        Raises:
            KeyboardInterrupt: There was a Ctrl-C; the state is that between two rounds.
        """
        while True:
            INTERRUPTS.raise_if_seen()
            if on_progress is not None:
                on_progress(self._progress())
            self._admit()
            if self._is_done():
                return
            if self.now_s >= self.options.stop_at_s:
                self.reason = f"stopped at stop_at_s={self.options.stop_at_s}"
                return
            self._decide_if_due()
            assignments = self.rounds.next_round(self._type_order(), self.failures.away)
            if assignments:
                self._run_round(assignments)
            elif not self._wait():
                return

    def outcome(self) -> Outcome:
        """Return what there is."""
        window = self.options.window or (0, self.num_jobs or len(self.table.jobs))
        cluster, options = self.cluster, self.options
        busy_s = dict(zip(cluster.workers, self.history.busy_s.tolist(), strict=True))
        idle_kwh = math.fsum(
            power_w * (cluster.workers[gpu_type] * self.now_s - busy_s[gpu_type]) / 3.6e6
            for gpu_type, power_w in cluster.idle_power_w.items()
        )
        return Outcome(
            self.policy.name,
            cluster,
            options.round_s,
            window,
            self.now_s,
            self.reason,
            self.table.outcomes(),
            busy_s,
            idle_kwh,
            self.history.round_series(),
            self.history.decision_series(),
            tuple(self.history.snapshots),
            tuple(self.history.recorded),
        )

    def _progress(self) -> ClusterProgress:
        window = self.options.window
        wanted = (self.num_jobs or 0) if window is None else window[1] - window[0]
        return ClusterProgress(self.done, wanted, self.now_s / 3600, len(self.table.index))

    def _admit(self) -> None:
        """Let in all jobs that arrived until now, and notice GPUs that failed or came back."""
        while self.arrivals.next is not None and self.arrivals.next.arrival_s <= self.now_s:
            self.table.add(self.arrivals.take())
            self.is_stale = True
        if self.failures.advance(self.now_s):
            self.is_stale = True

    def _is_done(self) -> bool:
        window = self.options.window
        is_over = self.arrivals.next is None and not self.table.index
        if window is None:
            return is_over
        if is_over and self.done < window[1] - window[0]:
            raise ClusterError(_short_trace(window, len(self.table.jobs)))
        return self.done == window[1] - window[0]

    def _decide_if_due(self) -> None:
        elapsed_s = self.now_s - self.decided_s
        if self.is_stale and (self.now_s >= self._due_s or self.decided_s == 0):
            demand = self._demand()
            allocation = None if demand is None else self.policy.allocate(demand)
            self.history.settle(self.rounds.decide(allocation, elapsed_s))
            if demand is not None and allocation is not None:
                self._note_isolated(demand)
                self._note_snapshot(allocation)
            self.history.decide(self.now_s, len(self.table.index))
            self.decided_s, self.is_stale = self.now_s, False

    @property
    def _due_s(self) -> float:
        """When the policy may decide again."""
        return self.decided_s + self.options.reset_s

    def _demand(self) -> Demand | None:
        """Return what the policy is asked: about jobs that can run on the GPUs that are not away."""
        away = self.failures.away
        workers = {
            gpu_type: count - len(away.get(number, ()))
            for number, (gpu_type, count) in enumerate(self.cluster.workers.items())
        }
        cluster = self.cluster if workers == self.cluster.workers else replace(self.cluster, workers=workers)
        names = list(self.table.index)
        if cluster is not self.cluster:
            jobs = (self.table.jobs[self.table.index[name]] for name in names)
            names = [job.name for job in jobs if can_run(job, cluster, self.throughputs)]
        if not names:
            return None
        active = self.table.active(names, self.now_s)
        shares_space = self.policy.shares_space
        return self.throughputs.demand(cluster, active, shares_space=shares_space, now_s=self.now_s)

    def _note_isolated(self, demand: Demand) -> None:
        """Note how fast each job would be on its own share of the cluster."""
        numbers = [self.table.index[active.name] for active in demand.jobs]
        self.table.rows["isolated_steps_per_s"][numbers] = isolated_steps_per_s(demand)

    def _note_snapshot(self, allocation: Allocation) -> None:
        kept = self.history.snapshots
        if math.isinf(self.options.snapshots_s) or (
            kept and self.now_s - kept[-1].time_s < self.options.snapshots_s
        ):
            return
        kept.append(Snapshot(self.now_s, allocation.used(MIN_SHARE)))

    def _type_order(self) -> list[int] | None:
        if not self.options.types_in_turn:
            return None
        order = list(range(len(self.cluster.workers)))
        if _chosen(self.options.shuffles_types, self.policy, "is_agnostic", otherwise=False):
            self.shuffler.shuffle(order)
        return order

    def _run_round(self, assignments: Sequence[Assignment]) -> None:
        start_s = self.now_s
        fails_s = np.array([self.failures.first_s(one.gpu_type, one.gpu_ids) for one in assignments])
        found = run(assignments, self.rounds.candidates, self.table, start_s, fails_s, self.options)
        waiting = len(self.table.index) - len(found.job)
        self.history.note_round(start_s, found, waiting, is_recorded=self.options.records_rounds)
        self.rounds.receive([one.candidate for one in assignments], found.end_s - start_s)
        self._charge(found, start_s)
        self.table.begin(found.job, found.renewed, start_s)
        self.table.advance(found.job, found.steps, found.steps_left)
        for entry in np.flatnonzero(found.failed[found.of] & (found.steps_left > 0)).tolist():
            self.table.rows["failures"][found.job[entry]] += 1
            self.rounds.end_lease(self.table.jobs[found.job[entry]].name)
        for entry in np.flatnonzero(found.steps_left <= 0).tolist():
            self._finish(int(found.job[entry]), float(found.job_end_s[entry]))
        self.now_s = float(found.end_s.max())

    def _charge(self, found: RoundRuns, start_s: float) -> None:
        """Divide what GPUs cost and draw among their jobs."""
        seconds = found.end_s - start_s
        parts = np.bincount(found.of)
        dollars = self._dollars_per_hour[found.gpu_type] * found.gpus * seconds / 3600 / parts
        kwh = found.power_w * seconds / 3.6e6 / parts
        self.table.rows["gpu_s"][found.job] += (found.gpus * seconds)[found.of]
        self.table.rows["dollars"][found.job] += dollars[found.of]
        self.table.rows["kwh"][found.job] += kwh[found.of]

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
        if self.arrivals.next is not None:
            self.now_s = max(self.now_s, min(self.arrivals.next.arrival_s, event_s))
        elif self.is_stale:
            self.decided_s = 0.0  # nobody else will come, so the decision need not wait
        elif math.isfinite(event_s):
            self.now_s = event_s
        else:
            first = next(iter(self.table.index))
            self.reason = f"the policy gives no time to job {first}, nor to any other"
            return False
        return True


def _chosen(option: bool | None, policy: Policy, attribute: str, *, otherwise: bool) -> bool:
    """Return an option; where it is not given what the policy says, which need not say anything."""
    return bool(getattr(policy, attribute, otherwise)) if option is None else option


def _short_trace(window: tuple[int, int], num_jobs: int) -> str:
    return f"window: {list(window)} is beyond the trace, which has {num_jobs} jobs; end it there or before"
