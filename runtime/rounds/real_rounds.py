"""The rounds of a simulation with real jobs behind them (dissertation, Sec. 5.5 and 5.6), on Ray.

The policy, the priorities of rounds and their clock are the simulator's, so time is counted in steps by the
throughputs that the policy knows. A GPU of Ray's nodes is also a custom resource, its type, as in
``ray start --resources='{"v100": 4}'``. It does not know what jobs compute.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from placements.forms.texts import write_json
from runtime.rounds.iterator import CHECKPOINTS, FOLDER, LEASE, REPORT, STARTER, Lease, remove, saved_steps
from schedsearch.cluster.demand import FloatArray
from schedsearch.cluster.rounds import Assignment
from schedsearch.cluster.simulator.simulation import ClusterProgress, ClusterSimulation
from schedsearch.solver.interrupts import INTERRUPTS

_POLL_S = 0.02
_NEWS_S = 30.0
"""Time after which Ray knows that a node is gone."""

_PLACE_S = 10.0
"""Time in which Ray finds a node with room, also where other jobs have just left it."""


class JobError(RuntimeError):
    """A job failed; the message says how."""


class LostPlaceError(JobError):
    """A job lost its node, or no node has room for it."""


class RealJob(NamedTuple):
    """Command of a job, started in the folder of this process, and a folder of its own that all nodes see.

    A lease fails that takes longer than `timeout_s`.
    """

    name: str
    command: Sequence[str]
    folder: Path
    timeout_s: float = math.inf

    @property
    def steps_done(self) -> int:
        """Return the steps of the newest whole checkpoint; 0 for none."""
        return max(saved_steps(self.folder), default=0)


class Move(NamedTuple):
    """A start of a job that ran before, and its cost in s; the last where it came to a step."""

    round: int
    job: str
    source: str
    target: str
    save_s: float
    start_s: float


class RayJob:
    """A job on a node that Ray chooses.

    Attributes:
        place: Its GPUs, for people.
        start_at: When it was to start, in s since 1970.
    """

    def __init__(self, job: RealJob, lease: Lease, *, has_devices: bool) -> None:
        """Reserve the GPUs of a lease, and start the command as soon as a node has room.

        With `has_devices` they are also GPUs that Ray knows, which it puts into CUDA_VISIBLE_DEVICES.
        """
        self._job, self.place, self.start_at = job, place_of(lease), time.time()
        (job.folder / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        for torn in job.folder.glob(f"{CHECKPOINTS}/torn_*"):
            remove(torn)
        self.run(lease)
        gpus = len(lease.gpu_ids)
        devices = gpus if has_devices else 0
        self._group = placement_group([{lease.gpu_type: gpus, "GPU": devices}])
        place: Any = PlacementGroupSchedulingStrategy(self._group)
        command: Any = ray.remote(num_cpus=0, num_gpus=devices, max_retries=0)(_run_command)
        self._command = command.options(scheduling_strategy=place).remote(job, Path.cwd())

    def has_place(self) -> bool:
        """Wait for a node with room, and return whether there is one."""
        return bool(self._group.wait(_PLACE_S))

    def run(self, lease: Lease) -> None:
        """Hand the job a lease."""
        write_json(self._job.folder / LEASE, lease)
        self._lease, self._end_s = lease, time.monotonic() + self._job.timeout_s

    def wait(self, on_look: Callable[[], object] = lambda: None) -> tuple[float, float]:
        """Wait for the end of the lease, or of the command if it has no steps; a `JobError` if it fails.

        Args:
            on_look: Called while it waits.

        Returns:
            Seconds to write the last checkpoint, and when the first step began, in s since 1970.
        """
        is_last = self._lease.first == self._lease.last
        try:
            if not self.has_place():
                raise LostPlaceError("found no node with room")
            while is_last or self._lease.last not in saved_steps(self._job.folder):
                if ray.wait([self._command], timeout=_POLL_S)[0]:
                    code = ray.get(self._command)
                    if is_last and not code:
                        break
                    raise JobError(f"ended with exit code {code}" if code else "ended before its lease")
                on_look()
                if time.monotonic() > self._end_s:
                    raise JobError(f"took longer than {self._job.timeout_s:g} s for its lease")
        except RayTaskError as error:
            raise JobError(f"cannot be started ({error.cause})") from None
        except RayError:
            raise LostPlaceError("lost its node") from None
        save_s, first_step_at = json.loads((self._job.folder / REPORT).read_text())
        return save_s, first_step_at

    def end(self) -> None:
        """End the command where it still runs, and give the GPUs back."""
        if not ray.wait([self._command], timeout=0)[0]:
            ray.cancel(self._command)
            ray.wait([self._command], timeout=_PLACE_S)
        remove_placement_group(self._group)


def _run_command(job: RealJob, folder: Path) -> int:
    """Return the exit code of a command, which has a session of its own, so that a Ctrl-C is not for it."""
    variables = {FOLDER: str(job.folder), STARTER: str(os.getpid()), "SCHEDSEARCH_JOB": job.name}
    with (job.folder / "log.txt").open("ab") as output:
        streams: Any = {"stdout": output, "stderr": output, "start_new_session": True}
        process = subprocess.Popen(job.command, cwd=folder, env=os.environ | variables, **streams)
    try:
        return process.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with all that it started


def place_of(lease: Lease) -> str:
    """Return the GPUs of a lease, for people."""
    return f"{lease.gpu_type} {','.join(map(str, lease.gpu_ids))}"


def gpus_of_nodes(gpu_types: Iterable[str]) -> dict[str, list[int]]:
    """Return the number of GPUs of each type on each node that Ray has now."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return {name: [int(node.get(name, 0)) for node in nodes] for name in gpu_types}


class RealRounds(ClusterSimulation):
    """Runs the jobs of a simulation on Ray, which is connected, round by round.

    A job that fails goes on from the last checkpoint; one that fails more often than `retries` is given up.
    The others go on. So do all jobs where a node dies: policy and rounds take the GPUs that are there.

    Attributes:
        reached: Steps of the last checkpoint of each job.
        moves: Starts of jobs that ran before.
        given_up: Names of the jobs that are given up.

    Args:
        given: Arguments of `ClusterSimulation`; its jobs have the steps that are left.
        real_jobs: Commands and folders of the jobs.
        tell: Is given a line where something goes wrong.
        retries: How often a job may fail and start again.
    """

    def __init__(
        self, *given: Any, real_jobs: Iterable[RealJob], tell: Callable[[str], object], retries: int = 1
    ) -> None:
        """Begin at time 0, with nothing running."""
        super().__init__(*given)
        self._real_jobs, self._tell, self._retries = {job.name: job for job in real_jobs}, tell, retries
        self.reached = {name: job.steps_done for name, job in self._real_jobs.items()}
        self.moves: list[Move] = []
        self.given_up: list[str] = []
        self._running: dict[str, RayJob] = {}
        self._saved: dict[str, tuple[str, float]] = {}  # where each job was last, and its time to save there
        self._failures: Counter[str] = Counter()
        self._whole = self.cluster.workers
        resources = ray.cluster_resources()
        self._is_interrupted = False
        self._has_devices = resources.get("GPU", 0) >= sum(resources.get(name, 0) for name in self._whole)
        self._look()

    def run(self, on_progress: Callable[[ClusterProgress], None] | None = None) -> None:
        """Go on until all jobs are done or given up.

        Raises:
            KeyboardInterrupt: A Ctrl-C ended the jobs after their round, or a second one ended them at once.
        """
        try:
            super().run(on_progress)
            self._leave(self._running)
        finally:
            for job in self._running.values():
                job.end()

    def _carry_out(self, assignments: Sequence[Assignment], steps: FloatArray) -> FloatArray:
        """Run a round; after a Ctrl-C all jobs end with it."""
        leases, number = dict[str, Lease](), len(self.recorded) + 1
        for assignment, count in zip(assignments, steps.tolist(), strict=True):
            (name,) = assignment.jobs
            first, gpu_type = self.reached[name], self.cluster.gpu_types[assignment.gpu_type]
            leases[name] = Lease(first, first + round(count), gpu_type, assignment.gpu_ids)
        places = {name: place_of(lease) for name, lease in leases.items()}
        self._leave(name for name, job in self._running.items() if job.place != places.get(name))
        new = self._started(leases)
        if not all(job.has_place() for job in new.values()):
            # GPUs are free, but on several nodes: all jobs begin anew, larger ones first.
            for job in new.values():
                job.end()
            self._leave(self._running)
            new = self._started(leases)
        for name, job in self._running.items():
            job.run(leases[name])
        self._running |= new
        failed = dict[str, JobError]()
        for name, job in [*self._running.items()]:
            try:
                save_s, first_step_at = job.wait(self._tell_of_ctrl_c)
                if name in new and name in self._saved:
                    cost_s = self._saved[name][1], first_step_at - job.start_at
                    self.moves.append(Move(number, name, self._saved[name][0], job.place, *cost_s))
                self._saved[name] = job.place, save_s
            except JobError as error:
                failed[name] = error
                self._running.pop(name).end()
                self.rounds.end_lease(name)
            self.reached[name] = self._real_jobs[name].steps_done
        has_lost = any(isinstance(cause, LostPlaceError) for cause in failed.values())
        are_other_gpus = self._look(_NEWS_S if has_lost else 0.0)
        for name, cause in failed.items():
            is_excused = are_other_gpus and isinstance(cause, LostPlaceError)
            self._fail(name, f"job {name} on {places[name]} in round {number} {cause}", is_excused)
        if INTERRUPTS.seen:
            self._leave(self._running)
        return np.array([self.reached[name] - lease.first for name, lease in leases.items()], float)

    def _tell_of_ctrl_c(self) -> None:
        if INTERRUPTS.seen and not self._is_interrupted:
            self._is_interrupted = True
            self._tell("interrupted: jobs end with this round; Ctrl-C again ends them now, and loses it")

    def _started(self, leases: Mapping[str, Lease]) -> dict[str, RayJob]:
        new = (name for name in leases if name not in self._running)
        devices = self._has_devices
        return {name: RayJob(self._real_jobs[name], leases[name], has_devices=devices) for name in new}

    def _leave(self, names: Iterable[str]) -> None:
        """Let jobs end, which have their checkpoints, and wait until they have ended."""
        leaving = {name: self._running[name] for name in names}
        for name, job in leaving.items():
            job.run(Lease(self.reached[name], self.reached[name], "", ()))
        for name, job in leaving.items():
            try:
                job.wait()
            except JobError as error:
                self._tell(f"job {name} {error} after its checkpoint of step {self.reached[name]}")
            self._running.pop(name).end()

    def _fail(self, name: str, why: str, is_excused: bool) -> None:
        """Let a job start again from its last checkpoint, or give it up."""
        log = self._real_jobs[name].folder / "log.txt"
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        said = f"{why}: {lines[-1].strip()[:160]}" if lines and not is_excused else why
        self._failures[name] += not is_excused
        if self._failures[name] <= self._retries:
            self._tell(f"{said}; it goes on from step {self.reached[name]}")
            return
        self._tell(f"{said}; it is given up, and the others go on")
        self.given_up.append(name)
        del self.index[name]
        self.rounds.remove(name)
        self.is_stale = True

    def _look(self, wait_s: float = 0.0) -> bool:
        """Look for other GPUs than before, for some time; tell if there are, and return whether."""
        end_s, there = time.monotonic() + wait_s, self.cluster.workers
        while there == self.cluster.workers:
            nodes = gpus_of_nodes(self._whole)
            there = {name: min(count, sum(nodes[name])) for name, count in self._whole.items()}
            if there == self.cluster.workers and time.monotonic() > end_s:
                return False
            time.sleep(_POLL_S)
        self.cluster = self.rounds.cluster = replace(self.cluster, workers=there)
        self.rounds.gpu_ids = [[*range(count)] for count in there.values()]
        self.is_stale = True
        counts = ", ".join(f"{count} of {self._whole[name]} {name}" for name, count in there.items())
        self._tell(f"GPUs that are there: {counts}")
        return True

    def _decide(self) -> None:
        """Decide on the jobs that can run on the GPUs that are there; the others wait."""
        everyone = self.index
        fits = [self.throughputs.can_run(self.cluster, job.type, job.scale_factor) for job in self.jobs]
        self.index = {name: number for name, number in everyone.items() if fits[number]}
        super()._decide()
        self.index = everyone
