"""The rounds of a simulation with real jobs behind them (dissertation, Sec. 5.5 and 5.6).

The policy, the priorities of rounds and their clock are the simulator's, so time is counted in steps by the
throughputs that the policy knows. It does not know what jobs compute.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from runtime.rounds.lease import CHECKPOINTS, Lease, LeaseReport, remove, saved_steps
from runtime.rounds.ray_jobs import LOG, JobError, NodeGoneError, RayGpus, RayJob
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


@dataclass(frozen=True)
class RealJob:
    """Folder of a job, which all nodes see, and its command, which is started in the folder of this process."""

    folder: Path
    command: Sequence[str]

    @property
    def checkpoints(self) -> Path:
        """Return the folder of its checkpoints."""
        return self.folder / "checkpoints"

    @property
    def done(self) -> int:
        """Return the steps of its newest checkpoint; 0 where there is none."""
        return [0, *saved_steps(self.checkpoints)][-1]


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
        real_jobs: Folder and command of each job, by name.
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
        self.reached = {name: job.done for name, job in real_jobs.items()}
        self.moves: list[Move] = []
        self.given_up: dict[str, str] = {}
        self._running: dict[str, RayJob] = {}
        self._saved: dict[str, tuple[str, float]] = {}  # where each job was last, and its time to save there
        self._failures: Counter[str] = Counter()
        self._whole, self._gpus = cluster, RayGpus(cluster, 0.5 if policy.shares_space else 1.0)
        self._has_other_gpus = False
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
        if self.reason and self.cluster.workers != self._whole.workers:
            self.reason = f"the jobs that are left cannot run on the GPUs that are there, {self._there}"

    def _carry_out(self, assignments: Sequence[Assignment], steps: FloatArray) -> FloatArray:
        """Run a round; after a Ctrl-C jobs end at their next step."""
        leases = {}
        jobs = [(one, name) for one in assignments for name in one.jobs]
        for (one, name), number in zip(jobs, steps.tolist(), strict=True):
            first, gpu_type = self.reached[name], self.cluster.gpu_types[one.gpu_type]
            leases[name] = Lease(first, first + round(number), gpu_type, one.gpu_ids)
        places = {name: lease[2:] for name, lease in leases.items()}
        self._leave([name for name, job in self._running.items() if job.lease[2:] != places.get(name)])
        gone = [name for name, lease in leases.items() if not self._begin(name, lease)]
        for name, job in [*self._running.items()]:
            try:
                self._note(name, job, job.report(self._timeout_s, self._pass_on_ctrl_c))
            except NodeGoneError:
                gone.append(name)
                self._lose(name)
            except JobError as error:
                self._lose(name)
                self._fail(name, job.lease, str(error))
        self._look(gone)
        if INTERRUPTS.seen:
            self._leave([*self._running])
        return np.array([self.reached[name] - lease.first for name, lease in leases.items()], float)

    def _begin(self, name: str, lease: Lease) -> bool:
        """Hand a job its lease, where it is or with a new start; return False where its node is gone."""
        if name in self._running:
            self._running[name].run(lease)
            return True
        real_job = self._real_jobs[name]
        for torn in real_job.checkpoints.glob("torn_*"):
            remove(torn)
        environment = {
            CHECKPOINTS: str(real_job.checkpoints.resolve()),
            "SCHEDSEARCH_JOB": name,
            "SCHEDSEARCH_JOB_TYPE": next(job.type for job in self.jobs if job.name == name),
            "SCHEDSEARCH_GPU_TYPE": lease.gpu_type,
            "SCHEDSEARCH_GPUS": ",".join(map(str, lease.gpu_ids)),
        }
        try:
            self._running[name] = RayJob(
                self._gpus, lease, real_job.folder.resolve(), real_job.command, environment
            )
        except NodeGoneError:
            self.rounds.end_lease(name)
            return False
        return True

    def _note(self, name: str, job: RayJob, report: LeaseReport) -> None:
        """Note the checkpoint of a job, and the cost of its start if it ran before."""
        if job.is_new and name in self._saved:
            start_s = report.first_step_at - job.start_at
            self.moves.append(
                Move(
                    len(self.recorded) + 1,
                    name,
                    self._saved[name][0],
                    job.place,
                    self._saved[name][1],
                    start_s,
                )
            )
        job.is_new = False
        self.reached[name], self._saved[name] = report.steps, (job.place, report.save_s)

    def _leave(self, names: Sequence[str]) -> None:
        """Let jobs end, which have their checkpoints, and wait until they have ended."""
        for name in names:
            self._running[name].run(Lease(self.reached[name], self.reached[name], "", ()))
        for name in names:
            try:
                self._running[name].report(self._timeout_s, lambda: None)
            except JobError as error:
                self._tell(f"job {name} {error} after its checkpoint of step {self.reached[name]}")
            self._running.pop(name).end()

    def _lose(self, name: str) -> None:
        self._running.pop(name).end()
        self.rounds.end_lease(name)

    def _fail(self, name: str, lease: Lease, why: str) -> None:
        """Let a job start again from its last checkpoint, or give it up."""
        log = self._real_jobs[name].folder / LOG
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        said = f": {lines[-1].strip()[:160]}" if lines else ""
        line = f"job {name} on {lease.place} in round {len(self.recorded) + 1} {why}{said}"
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
        ids = self._gpus.look()
        if gone or ids != self.rounds.gpu_ids:
            workers = dict(zip(self._whole.workers, map(len, ids), strict=True))
            self.cluster = self.rounds.cluster = replace(self._whole, workers=workers)
            self.rounds.gpu_ids = ids
            self.is_stale = self._has_other_gpus = True
            jobs = ", ".join(f"{name} from step {self.reached[name]}" for name in gone)
            self._tell(f"GPUs that are there: {self._there}" + f"; jobs go on elsewhere: {jobs}" * bool(jobs))

    @property
    def _there(self) -> str:
        counts = self.cluster.workers
        return ", ".join(f"{counts[name]} of {number} {name}" for name, number in self._whole.workers.items())

    @property
    def _due_s(self) -> float:
        """Time from which the policy may decide again; at once on other GPUs than before."""
        return self.now_s if self._has_other_gpus else super()._due_s

    def _decide(self) -> None:
        """Decide on the jobs that the GPUs that are there can run; the others wait."""
        everyone, self._has_other_gpus = self.index, False
        self.index = {
            name: number
            for name, number in everyone.items()
            if self.throughputs.can_run(self.cluster, self.jobs[number].type, self.jobs[number].scale_factor)
        }
        super()._decide()
        self.index = everyone

    def _pass_on_ctrl_c(self) -> None:
        if INTERRUPTS.seen:
            for job in self._running.values():
                job.stop()
