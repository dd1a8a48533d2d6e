"""The rounds of a simulation with real jobs behind them (dissertation, Sec. 5.5 and 5.6).

The policy, the priorities of rounds and their clock are the simulator's, so time is counted in steps by the
throughputs that the policy knows. While a round runs, the next one is decided on, and each job finds at the
end of its lease whether it stays. It does not know what jobs compute.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from runtime.leases.engine import LocalProcess, LocalProcesses
from runtime.leases.lease import LEASES, JobFolder, Lease
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.policies.policy import Policy
from schedsearch.cluster.rounds import Assignment
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.outcome import Round
from schedsearch.cluster.simulator.simulation import ClusterProgress, ClusterSimulation
from schedsearch.cluster.throughputs import Throughputs
from schedsearch.solver.interrupts import INTERRUPTS

LOG = "log.txt"
"""Output of the processes of a job, in its folder."""

_POLL_S = 0.01


class LeasedSteps(NamedTuple):
    """Steps of a job in a round, from 1, on GPUs, whose ids are among those of the type.

    Attributes:
        steps: Below 0 where it lost some of earlier rounds.
        duration_s: Time of these steps by the throughputs that are known.
    """

    round: int
    job: str
    gpu_type: str
    gpu_ids: tuple[int, ...]
    steps: int
    duration_s: float


def steps_of_rounds(rounds: Iterable[Round], names: Sequence[str], cluster: GpuCluster) -> list[LeasedSteps]:
    """Return the steps of the jobs of recorded rounds, by round and name."""
    return sorted(
        LeasedSteps(
            number, names[job], cluster.gpu_types[run.gpu_type], run.gpu_ids, round(steps), steps / rate
        )
        for number, each in enumerate(rounds, 1)
        for run in each.runs
        for job, steps, rate in zip(run.jobs, run.steps, run.steps_per_s, strict=True)
    )


@dataclass(frozen=True)
class JobStart:
    """Files and command of a job, and the steps that it did before this run."""

    folder: JobFolder
    command: Sequence[str]
    done: int = 0


def start_of(folder: Path, command: Sequence[str]) -> JobStart:
    """Return how a job is started whose files are in a folder, which is made; it goes on where it was."""
    files = JobFolder(folder)
    files.begin()
    return JobStart(files, command, files.newest_checkpoint()[0])


@dataclass
class _Running:
    """A process of a job and its lease, with the time of its steps as planned, and when they began."""

    task: LocalProcess
    lease: Lease
    duration_s: float
    since_s: float


class LeasedRun(ClusterSimulation):
    """Runs jobs, in the rounds of a simulation that goes ahead of them by one.

    A job that fails goes on from its last checkpoint; one that fails more often than `retries` is given up.
    The others go on.

    Attributes:
        steps_done: Steps that jobs really did, in the order in which rounds end.
        given_up: Why each job that is given up failed last.
        stopped_at: Steps of each job that a Ctrl-C stopped.

    Args:
        trace: Jobs with the steps that are left; this and the next four as in `ClusterSimulation`.
        starts: How each job is started, by name.
        engine: Starts processes.
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
        starts: Mapping[str, JobStart],
        engine: LocalProcesses,
        tell: Callable[[str], object],
        *,
        retries: int = 1,
        timeout_s: float = math.inf,
    ) -> None:
        """Begin at time 0, with nothing running."""
        super().__init__(trace, cluster, throughputs, policy, replace(options, records_rounds=True))
        self._starts, self._engine, self._tell = starts, engine, tell
        self._retries, self._timeout_s = retries, timeout_s
        self._reached = {name: start.done for name, start in starts.items()}
        self._running: dict[str, _Running] = {}
        self._failures: Counter[str] = Counter()
        self.steps_done: list[LeasedSteps] = []
        self.given_up: dict[str, str] = {}
        self.stopped_at: dict[str, int] = {}

    def run(self, on_progress: Callable[[ClusterProgress], None] | None) -> None:
        """Go on until all jobs are done or given up.

        Raises:
            KeyboardInterrupt: There was a Ctrl-C; all jobs have written their checkpoints. After a second
                one they are ended at once.
        """
        try:
            while True:
                super().run(on_progress)
                self._go_over_to([])
                if self.reason or self._is_done():
                    return
        except KeyboardInterrupt:
            self._stop()
            raise
        finally:
            for running in self._running.values():
                running.task.kill()

    def _run_round(self, assignments: Sequence[Assignment]) -> None:
        """Note the round as if it were over, end the one before, and start this one."""
        super()._run_round(assignments)
        planned = steps_of_rounds(self.recorded[-1:], [*self._number], self.cluster)
        self._go_over_to([plan._replace(round=len(self.recorded)) for plan in planned])

    def _go_over_to(self, planned: Sequence[LeasedSteps]) -> None:
        """Tell all that run what comes, wait for the end of their leases, and start those that do not run."""
        plan_of = {plan.job: plan for plan in planned}
        stays = {
            name: plan
            for name, plan in plan_of.items()
            if name in self._running and (plan.gpu_type, plan.gpu_ids) == self._running[name].lease.place
        }
        renewals = {name: self._lease(plan) for name, plan in stays.items()}
        for name, running in self._running.items():
            self._starts[name].folder.answer(running.lease.round, renewals.get(name))
        for name in [*self._running]:
            if self._await(name, name in stays):
                self._begin(self._running[name].task, renewals[name], stays[name])
        for name, plan in plan_of.items():
            if name not in self._running and name not in self.given_up:
                self._start(plan)

    @property
    def _number(self) -> dict[str, int]:
        return {job.name: number for number, job in enumerate(self.jobs)}

    def _lease(self, plan: LeasedSteps) -> Lease:
        first = self._reached[plan.job]
        return Lease(plan.round, first, first + plan.steps, plan.gpu_type, plan.gpu_ids, os.getpid())

    def _start(self, plan: LeasedSteps) -> None:
        start, lease = self._starts[plan.job], self._lease(plan)
        start.folder.start(lease)
        environment = {
            LEASES: str(start.folder.path.resolve()),
            "SCHEDSEARCH_JOB": plan.job,
            "SCHEDSEARCH_JOB_TYPE": self.jobs[self._number[plan.job]].type,
            "SCHEDSEARCH_GPU_TYPE": plan.gpu_type,
            "SCHEDSEARCH_GPUS": ",".join(map(str, plan.gpu_ids)),
        }
        try:
            task = self._engine.start(lease, start.command, environment, start.folder.path / LOG)
        except OSError as error:
            self._failed(plan.job, lease, f"cannot be started ({error.strerror})", lost=plan.steps)
        else:
            self._begin(task, lease, plan)

    def _begin(self, task: LocalProcess, lease: Lease, plan: LeasedSteps) -> None:
        self._running[plan.job] = _Running(task, lease, plan.duration_s, time.monotonic())
        self._reached[plan.job] = lease.until

    def _await(self, name: str, stays: bool) -> bool:
        """Wait until a job is at the end of its lease, or has left; return whether it is there still."""
        running, folder = self._running[name], self._starts[name].folder
        lease, why = running.lease, ""
        while (code := running.task.poll()) is None and not why:
            INTERRUPTS.raise_if_seen()
            if stays and folder.is_reported(lease.round):
                self._note(running, name, lease.until)
                return True
            if time.monotonic() - running.since_s > self._timeout_s:
                running.task.kill()
                why = f"took longer than {self._timeout_s:g} s for its lease"
            time.sleep(_POLL_S)
        kept = self._end(name)
        if not why and code:
            why = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        elif not why and (kept != lease.until or stays):
            why = f"ended after step {kept}, before its lease"
        if why:
            self._reached[name] = kept
            self._failed(name, lease, why, lost=lease.until - kept)
        return False

    def _note(self, running: _Running, name: str, reached: int) -> None:
        """Note the steps of a job in the round that it was in."""
        lease, steps = running.lease, reached - running.lease.first
        duration_s = running.duration_s * steps / max(lease.until - lease.first, 1)
        self.steps_done.append(LeasedSteps(lease.round, name, *lease.place, steps, duration_s))

    def _end(self, name: str) -> int:
        """Take a job whose process has ended from those that run; return the steps of its checkpoint."""
        folder, running = self._starts[name].folder, self._running.pop(name)
        folder.leave()
        kept, _ = folder.newest_checkpoint()
        self._note(running, name, kept)
        return kept

    def _failed(self, name: str, lease: Lease, why: str, lost: int) -> None:
        """Put a job back to its last checkpoint, also where it seemed to be done, or give it up."""
        log, number = self._starts[name].folder.path / LOG, self._number[name]
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        said = f": {lines[-1].strip()[:160]}" if lines else ""
        gpus = ",".join(map(str, lease.gpu_ids))
        line = f"job {name} on {lease.gpu_type} {gpus} in round {lease.round} {why}{said}"
        self._failures[name] += 1
        self.is_stale = True
        if self._failures[name] <= self._retries:
            self._tell(f"{line}; it goes on from step {self._reached[name]}")
            self.rows["steps_left"][number] += lost
            self.rounds.end_lease(name)
            if name not in self.index and lost:
                self.index[name] = number
                self.rows["finish_s"][number] = np.nan
                self.done -= 1
        else:
            self._tell(f"{line}; it is given up, and the others go on")
            self.given_up[name] = line
            self.rows["finish_s"][number] = np.nan
            self.index.pop(name, None)
            self.rounds.remove(name)

    def _stop(self) -> None:
        """Let all jobs write a checkpoint at their next step, and wait until they have ended."""
        for name in self._running:
            self._starts[name].folder.stop()
        for name in [*self._running]:
            while self._running[name].task.poll() is None:
                time.sleep(_POLL_S)
            self.stopped_at[name] = self._end(name)
