"""The rounds of a simulation with real jobs behind them (dissertation, Sec. 5.5 and 5.6).

The policy, the priorities of rounds and their clock are the simulator's, so time is counted in steps by the
throughputs that the policy knows. While a round runs, the next one is decided on, and each job finds at the
end of its lease whether it stays. It does not know what jobs compute.
"""

from __future__ import annotations

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
"""What the processes of a job print, in its folder."""

_POLL_S = 0.01


class LeasedSteps(NamedTuple):
    """What a job did in a round.

    Attributes:
        round: Number of the round, from 1.
        job: Name of the job.
        gpu_type: Type of its GPUs.
        gpu_ids: Their ids among those of the type.
        steps: Steps that it did; below 0 where it lost some of earlier rounds.
        duration_s: Time of these steps by the throughputs that are known.
    """

    round: int
    job: str
    gpu_type: str
    gpu_ids: tuple[int, ...]
    steps: int
    duration_s: float


def steps_of_rounds(rounds: Iterable[Round], names: Sequence[str], cluster: GpuCluster) -> list[LeasedSteps]:
    """Return what the jobs of recorded rounds do, by round and name."""
    found = [
        LeasedSteps(
            number, names[job], cluster.gpu_types[run.gpu_type], run.gpu_ids, round(steps), steps / rate
        )
        for number, each in enumerate(rounds, 1)
        for run in each.runs
        for job, steps, rate in zip(run.jobs, run.steps, run.steps_per_s, strict=True)
    ]
    return sorted(found)


@dataclass(frozen=True)
class JobStart:
    """How a job is started.

    Attributes:
        folder: Its files.
        command: Program and arguments.
        done: Steps that it did before this run.
    """

    folder: JobFolder
    command: Sequence[str]
    done: int = 0


@dataclass
class _Running:
    task: LocalProcess
    lease: Lease
    duration_s: float
    since_s: float


class LeasedRun(ClusterSimulation):
    """Runs jobs, in the rounds of a simulation that goes ahead of them by one.

    A job that fails goes on from its last checkpoint; one that fails more often than `retries` is given up.
    The others go on.

    Attributes:
        steps_done: What jobs really did, in the order in which rounds end.
        given_up: Why each job that is given up failed last.
        stopped_at: Steps of each job that a Ctrl-C stopped.

    Args:
        trace: The jobs; their steps are those that are left.
        cluster: The GPUs.
        throughputs: By which a lease is a number of steps.
        policy: Decides.
        options: How rounds are made.
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
        timeout_s: float = float("inf"),
    ) -> None:
        """Begin at time 0, with nothing running."""
        super().__init__(trace, cluster, throughputs, policy, replace(options, records_rounds=True))
        self._starts, self._engine, self._tell = starts, engine, tell
        self._retries, self._timeout_s = retries, timeout_s
        self._totals = {job.name: starts[job.name].done + round(job.steps) for job in trace}
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
        number = len(self.recorded)
        names = [job.name for job in self.jobs]
        planned = steps_of_rounds(self.recorded[-1:], names, self.cluster)
        self._go_over_to([each._replace(round=number) for each in planned])

    def _go_over_to(self, planned: Sequence[LeasedSteps]) -> None:
        """Tell all that run what comes, wait for the end of their leases, and start those that do not run."""
        plan_of = {each.job: each for each in planned}
        renewals: dict[str, Lease] = {}
        for name, running in self._running.items():
            plan = plan_of.get(name)
            if plan is not None and (plan.gpu_type, plan.gpu_ids) == running.lease.place:
                renewals[name] = self._lease(plan)
            self._starts[name].folder.answer(running.lease.round, renewals.get(name))
        for name in [*self._running]:
            self._await(name, renewals.get(name), plan_of.get(name))
        for name, plan in plan_of.items():
            if name not in self._running and name not in self.given_up:
                self._start(plan)

    def _lease(self, plan: LeasedSteps) -> Lease:
        first = self._reached[plan.job]
        until, total = first + plan.steps, self._totals[plan.job]
        return Lease(plan.round, first, until, total, plan.gpu_type, plan.gpu_ids, os.getpid())

    def _start(self, plan: LeasedSteps) -> None:
        start, lease, job = self._starts[plan.job], self._lease(plan), self._job(plan.job)
        start.folder.start(lease)
        environment = {
            LEASES: str(start.folder.path.resolve()),
            "SCHEDSEARCH_JOB": plan.job,
            "SCHEDSEARCH_JOB_TYPE": job.type,
            "SCHEDSEARCH_GPU_TYPE": plan.gpu_type,
            "SCHEDSEARCH_GPUS": ",".join(map(str, plan.gpu_ids)),
        }
        try:
            task = self._engine.start(lease, start.command, environment, start.folder.path / LOG)
        except OSError as error:
            self._failed(plan.job, lease, f"cannot be started ({error.strerror})", lost=plan.steps)
        else:
            self._running[plan.job] = _Running(task, lease, plan.duration_s, time.monotonic())
            self._reached[plan.job] = lease.until

    def _await(self, name: str, renewal: Lease | None, plan: LeasedSteps | None) -> None:
        """Wait until a job is at the end of its lease, and has left if it is not renewed."""
        running, folder = self._running[name], self._starts[name].folder
        lease, why = running.lease, ""
        while (code := running.task.poll()) is None and not why:
            INTERRUPTS.raise_if_seen()
            if renewal is not None and folder.is_reported(lease.round):
                self._note(name, lease.until - lease.first)
                self._running[name] = _Running(
                    running.task, renewal, plan.duration_s if plan else 0.0, time.monotonic()
                )
                self._reached[name] = renewal.until
                return
            if time.monotonic() - running.since_s > self._timeout_s:
                running.task.kill()
                why = f"took longer than {self._timeout_s:g} s for its lease"
            time.sleep(_POLL_S)
        folder.leave()
        kept, _ = folder.newest_checkpoint()
        if not why and code:
            why = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        elif not why and (kept != lease.until or renewal is not None):
            why = f"ended after step {kept}, before its lease"
        self._note(name, kept - lease.first)
        del self._running[name]
        if why:
            self._reached[name] = kept
            self._failed(name, lease, why, lost=lease.until - kept)

    def _note(self, name: str, steps: int) -> None:
        """Note what a job did in the round that it was in."""
        running = self._running[name]
        lease = running.lease
        planned = max(lease.until - lease.first, 1)
        duration_s = running.duration_s * steps / planned
        self.steps_done.append(LeasedSteps(lease.round, name, *lease.place, steps, duration_s))

    def _failed(self, name: str, lease: Lease, why: str, lost: int) -> None:
        """Put a job back to its last checkpoint, or give it up."""
        self._failures[name] += 1
        line = f"job {name} on {_place(lease)} in round {lease.round} {why}{self._last_words(name)}"
        if self._failures[name] <= self._retries:
            self._tell(f"{line}; it goes on from step {self._reached[name]}")
            self._take_back(name, lost)
            return
        self._tell(f"{line}; it is given up, and the others go on")
        self.given_up[name] = line
        self.rows["finish_s"][self._number(name)] = np.nan
        self.index.pop(name, None)
        self.rounds.remove(name)
        self.is_stale = True

    def _take_back(self, name: str, steps: int) -> None:
        """Give a job steps that it has to do again, also where it seemed to be done."""
        number = self._number(name)
        self.rows["steps_left"][number] += steps
        self.rounds.end_lease(name)
        self.is_stale = True
        if name not in self.index and steps:
            self.index[name] = number
            self.rows["finish_s"][number] = np.nan
            self.done -= 1

    def _last_words(self, name: str) -> str:
        log = self._starts[name].folder.path / LOG
        lines = log.read_text(errors="replace").split("\n") if log.exists() else []
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f": {said[:160]}" if said else ""

    def _stop(self) -> None:
        """Let all jobs write a checkpoint at their next step, and wait until they have ended."""
        for name in self._running:
            self._starts[name].folder.stop()
        for name in [*self._running]:
            while self._running[name].task.poll() is None:
                time.sleep(_POLL_S)
            self._starts[name].folder.leave()
            self.stopped_at[name], _ = self._starts[name].folder.newest_checkpoint()
            self._note(name, self.stopped_at[name] - self._running[name].lease.first)
            del self._running[name]

    def _number(self, name: str) -> int:
        return next(number for number, job in enumerate(self.jobs) if job.name == name)

    def _job(self, name: str) -> Job:
        return self.jobs[self._number(name)]


def _place(lease: Lease) -> str:
    return f"{lease.gpu_type} {','.join(map(str, lease.gpu_ids))}"


def start_of(folder: Path, command: Sequence[str]) -> JobStart:
    """Return how a job is started whose files are in a folder, which is made; it goes on where it was."""
    files = JobFolder(folder)
    files.begin()
    return JobStart(files, command, files.newest_checkpoint()[0])
