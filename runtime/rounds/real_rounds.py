"""The rounds of a simulation with real jobs behind them (dissertation, Sec. 5.5 and 5.6).

The policy, the priorities of rounds and their clock are the simulator's, so time is counted in steps by the
throughputs that the policy knows. It does not know what jobs compute.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from runtime.rounds.iterator import Lease, newest
from runtime.rounds.ray_jobs import JobError, NodeGoneError, RayGpus, RayJob, RealJob
from schedsearch.cluster.demand import FloatArray
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.policies.policy import Policy
from schedsearch.cluster.rounds import Assignment
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.simulation import ClusterProgress, ClusterSimulation
from schedsearch.cluster.throughputs import Throughputs
from schedsearch.solver.interrupts import INTERRUPTS


class Move(NamedTuple):
    """A start of a job that ran before, and its cost in s; the last where it came to a step."""

    round: int
    job: str
    source: str
    target: str
    save_s: float
    start_s: float


class RealRounds(ClusterSimulation):
    """Runs the jobs of a simulation on Ray, round by round.

    A job that fails goes on from the last checkpoint; one that fails more often than `retries` is given up.
    The others go on. So do all jobs where a node dies: policy and rounds take the GPUs that are there.

    Attributes:
        reached: Steps of the last checkpoint of each job.
        moves: Starts of jobs that ran before.
        given_up: Why each job that is given up failed last.

    Args:
        trace: Jobs with the steps that are left; this and the next four as in `ClusterSimulation`.
        real_jobs: Files and command of each job, by name.
        tell: Is given a line where something goes wrong.
        retries: How often a job may fail and start again.
        timeout_s: How long a lease may take by the clock of this machine; a job that takes longer failed.
    """

    def __init__(
        self,
        trace: Sequence[Job],
        cluster: GpuCluster,
        throughputs: Throughputs,
        policy: Policy,
        options: SimulationOptions,
        real_jobs: Mapping[str, RealJob],
        tell: Callable[[str], object],
        *,
        retries: int = 1,
        timeout_s: float = math.inf,
    ) -> None:
        """Begin at time 0, with nothing running; Ray is connected."""
        super().__init__(trace, cluster, throughputs, policy, replace(options, records_rounds=True))
        self._real_jobs, self._tell = real_jobs, tell
        self._retries, self._timeout_s = retries, timeout_s
        self.reached = {name: newest(job.checkpoints) for name, job in real_jobs.items()}
        self.moves: list[Move] = []
        self.given_up: dict[str, str] = {}
        self._running: dict[str, RayJob] = {}
        self._saved: dict[str, tuple[str, float]] = {}  # where each job was last, and its time to save there
        self._failures: Counter[str] = Counter()
        self._whole, self._gpus = cluster, RayGpus(cluster.workers, 0.5 if policy.shares_space else 1.0)
        self._look([])

    def run(self, on_progress: Callable[[ClusterProgress], None] | None) -> None:
        """Go on until all jobs are done or given up.

        Raises:
            KeyboardInterrupt: There was a Ctrl-C; all jobs have written their checkpoints. After a second
                one they are ended at once.
        """
        try:
            super().run(on_progress)
            self._leave([*self._running])
        finally:
            for job in self._running.values():
                job.end()

    def _carry_out(self, assignments: Sequence[Assignment], steps: FloatArray) -> FloatArray:
        """Run a round; after a Ctrl-C jobs end at their next step."""
        leases, types = dict[str, Lease](), self.cluster.gpu_types
        jobs = [(name, types[one.gpu_type], one.gpu_ids) for one in assignments for name in one.jobs]
        for (name, gpu_type, gpu_ids), number in zip(jobs, steps.tolist(), strict=True):
            first = self.reached[name]
            leases[name] = Lease(first, first + round(number), gpu_type, gpu_ids)
        places = {name: lease.place for name, lease in leases.items()}
        self._leave([name for name, job in self._running.items() if job.lease.place != places.get(name)])
        gone = [name for name, lease in leases.items() if not self._begin(name, lease)]
        for name, job in [*self._running.items()]:
            try:
                report = job.report(self._timeout_s, self._pass_on_ctrl_c)
            except JobError as error:
                self._running.pop(name).end()
                self.rounds.end_lease(name)
                if isinstance(error, NodeGoneError):
                    gone.append(name)
                else:
                    self._fail(name, job.lease, str(error))
            else:
                place, first_at = job.lease.place, report.first_step_at
                if first_at is not None and name in self._saved:
                    source, save_s = self._saved[name]
                    self.moves.append(Move(self._round, name, source, place, save_s, first_at - job.start_at))
                self.reached[name], self._saved[name] = report.steps, (place, report.save_s)
        self._look(gone)
        if INTERRUPTS.seen:
            self._leave([*self._running])
        return np.array([self.reached[name] - lease.first for name, lease in leases.items()], float)

    @property
    def _round(self) -> int:
        return len(self.recorded) + 1

    def _begin(self, name: str, lease: Lease) -> bool:
        """Hand a job its lease, where it is or with a new start; return False where its node is gone."""
        try:
            if name in self._running:
                self._running[name].run(lease)
            else:
                self._running[name] = RayJob(self._gpus, lease, self._real_jobs[name])
        except NodeGoneError:
            self.rounds.end_lease(name)
            return False
        return True

    def _leave(self, names: Sequence[str]) -> None:
        """Let jobs end, which have their checkpoints, and wait until they have ended."""
        for name in names:
            self._running[name].run(Lease(self.reached[name], self.reached[name], "", ()))
        for name in names:
            try:
                self._running[name].report(self._timeout_s)
            except JobError as error:
                self._tell(f"job {name} {error} after its checkpoint of step {self.reached[name]}")
            self._running.pop(name).end()

    def _fail(self, name: str, lease: Lease, why: str) -> None:
        """Let a job start again from its last checkpoint, or give it up."""
        log = self._real_jobs[name].log
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        said = f": {lines[-1].strip()[:160]}" if lines else ""
        line = f"job {name} on {lease.place} in round {self._round} {why}{said}"
        self._failures[name] += 1
        if self._failures[name] <= self._retries:
            self._tell(f"{line}; it goes on from step {self.reached[name]}")
        else:
            self._tell(f"{line}; it is given up, and the others go on")
            self.given_up[name] = line
            del self.index[name]
            self.rounds.remove(name)
            self.is_stale = True

    def _look(self, gone: Sequence[str]) -> None:
        """Look for GPUs; tell if others are there than before, and which jobs lost theirs."""
        ids, whole = self._gpus.look(), self._whole.workers
        if gone or ids != self.rounds.gpu_ids:
            self.cluster = replace(self._whole, workers=dict(zip(whole, map(len, ids), strict=True)))
            self.rounds.cluster, self.rounds.gpu_ids, self.is_stale = self.cluster, ids, True
            there = ", ".join(
                f"{len(own)} of {whole[name]} {name}" for name, own in zip(whole, ids, strict=True)
            )
            jobs = ", ".join(f"{name} from step {self.reached[name]}" for name in gone)
            self._tell(f"GPUs that are there: {there}" + f"; jobs go on elsewhere: {jobs}" * bool(jobs))

    def _decide(self) -> None:
        """Decide on the jobs that can run on the GPUs that are there; the others wait."""
        everyone = self.index
        fits = [self.throughputs.can_run(self.cluster, job.type, job.scale_factor) for job in self.jobs]
        self.index = {name: number for name, number in everyone.items() if fits[number]}
        super()._decide()
        self.index = everyone

    def _pass_on_ctrl_c(self) -> None:
        if INTERRUPTS.seen:
            for job in self._running.values():
                job.stop()
