"""Sweeps as jobs of Slurm: points that are done make no job, a lost job is a line, Ctrl-C cancels the jobs.

The options are those of Hydra's launcher ``submitit_slurm``, and submitit writes and submits the batch
scripts. Which jobs are left is asked of squeue, which needs no accounting, and the record of each point says
how it ended.
"""

from __future__ import annotations

import getpass
import logging
import math
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, redirect_stderr, suppress
from copy import deepcopy
from dataclasses import fields, replace
from io import StringIO
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus
from hydra_plugins.hydra_submitit_launcher import submitit_launcher  # type: ignore[import-untyped]
from omegaconf import open_dict
from submitit import AutoExecutor, JobEnvironment

from experiments.config import run_record
from experiments.config.command import INTERRUPTED, on_ctrl_c
from experiments.config.declaring import command_of

log = logging.getLogger(__name__)

_MAX_WAIT_S = 30.0
"""Longest time between two calls of squeue, for the sake of a large cluster's controller."""

_TELL_S = 30.0
"""Time without a begun job after which its reason is told."""

Point = tuple[int, Sequence[str]]
"""A point's number in the sweep and its options."""


class SlurmSweep(submitit_launcher.SlurmLauncher):  # type: ignore[misc]
    """Starts at most ``array_parallelism`` jobs; if there are more points, each takes one after another."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the points that are not done, wait for the end of their jobs, and return all objectives.

        Raises:
            ValueError: There is no Slurm, or it refuses the jobs; the message is one line.
        """
        missing = points = list(enumerate(map(list, job_overrides), initial_job_idx))
        if any(Path(self.config.hydra.sweep.dir).rglob(run_record.FILE)):
            missing = [point for point in points if self._new_record(point).done_before() is None]
        # A link for each point that a job has begun, of the job's name; two jobs cannot make the same.
        self._claims = Path(self.params["submitit_folder"]).with_name(f"begun_{time.time_ns()}")
        jobs = self._submit(missing) if missing else set()
        with self._cancelled_by_ctrl_c(jobs):
            began_s, is_told = time.monotonic(), False
            begins = [(self._new_record(point), run_record.output_directory()) for point in points]
            while jobs & _unfinished(jobs):
                time.sleep(min(_MAX_WAIT_S, 1 + (time.monotonic() - began_s) / 60))
                is_late = time.monotonic() - began_s > _TELL_S and not any(self._claims.iterdir())
                if is_late and not is_told:
                    is_told, reasons = True, ", ".join(sorted(_unfinished(set(), "%r")))
                    log.info("no job has begun in %g s; Slurm's reason: %s", _TELL_S, reasons)
        return [self._end(point, *begin) for point, begin in zip(points, begins, strict=True)]

    def __call__(self, points: Sequence[Point], work_s: float, state: Mapping[type, Singleton]) -> None:
        """Run points inside a job that no other job has begun, for some seconds.

        The signal of scancel ends it at once, where submitit would wait for SIGKILL.
        """
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        began_s = time.monotonic()
        for number, overrides in points:
            if time.monotonic() - began_s <= work_s and self._claim(number, JobEnvironment().job_id):
                super().__call__(overrides, "hydra.sweep.dir", number, str(number), state)

    def _claim(self, number: int, job: str) -> bool:
        """Return whether a point is the job's own, as no other has begun it; a requeued job has its own."""
        path = self._claims / str(number)
        with suppress(FileExistsError):
            path.symlink_to(job)
        return str(path.readlink()) == job

    def _submit(self, points: Sequence[Point]) -> set[str]:
        """Submit an array of jobs and return their ids."""
        options = {name: value for name, value in self.params.items() if value is not None}
        if (count := min(len(points), options["array_parallelism"])) < 1:
            raise ValueError(f"hydra.launcher.array_parallelism: {count} is not at least 1; give more jobs")
        self._claims.mkdir(parents=True)
        shares = [[point] for point in points] if count == len(points) else [points] * count
        most, timeout_s = -(-len(points) // count), 60 * options["timeout_min"]
        options["timeout_min"] *= most
        work_s = (most - 1) * timeout_s if most > 1 else math.inf  # leaves each point its time
        folder, num_timeouts = options.pop("submitit_folder"), options.pop("max_num_timeout")
        general = {field.name for field in fields(submitit_launcher.BaseQueueConf)}
        named = {name if name in general else f"slurm_{name}": value for name, value in options.items()}
        try:
            executor = AutoExecutor(folder, cluster="slurm", slurm_max_num_timeout=num_timeouts)
            executor.update_parameters(**named)
            with redirect_stderr(StringIO()):  # submitit prints there what its error says, too
                jobs = executor.map_array(self, shares, [work_s] * count, [Singleton.get_state()] * count)
        except RuntimeError as error:  # of submitit: there is no Slurm, or sbatch failed
            reason = str(error).strip().splitlines()[-1]
            raise ValueError(f"hydra.launcher: {reason}; change its options or choose joblib") from None
        first = jobs[0].job_id.partition("_")[0]
        log.info("jobs of Slurm: %d for %d points, array %s; Ctrl-C cancels them", count, len(points), first)
        return {job.job_id for job in jobs}

    @contextmanager
    def _cancelled_by_ctrl_c(self, jobs: Set[str]) -> Iterator[None]:
        """Let Ctrl-C cancel jobs and end the command in one line."""
        try:
            with on_ctrl_c(signal.default_int_handler):
                yield
        except KeyboardInterrupt:
            subprocess.run(["scancel", *jobs], check=False)
            hydra = self.config.hydra
            remedy = run_record.how_to_resume(Path(hydra.sweep.dir))
            line = f"{hydra.job.name}: interrupted; its jobs of Slurm are cancelled; {remedy}"
            print(line, file=sys.stderr)  # noqa: T201
            sys.exit(INTERRUPTED)

    def _new_record(self, point: Point) -> run_record.RunRecord:
        """Return the record of a point before it runs; Hydra then takes the point for this process's run."""
        number, overrides = point
        config = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
        hydra = config.hydra
        with open_dict(config):
            hydra.job.id, hydra.job.num = str(number), number
            hydra.runtime.output_dir = str(Path(hydra.sweep.dir, str(hydra.sweep.subdir)))
            HydraConfig.instance().set_config(deepcopy(config))
            del config["hydra"]
        return run_record.RunRecord.of_this_run(self.config.hydra.job.name, config)

    def _end(self, point: Point, record: run_record.RunRecord, directory: Path) -> JobReturn:
        """Return the objective of a point; where its job ended before it did, its record says so."""
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(directory.stat().st_mode)  # NFS looks anew into a folder whose mode was set
        written = record
        with suppress(run_record.RunRecordError):
            written = run_record.read_run_record(directory)
        is_done = written.status == run_record.DONE
        has_ended = written.started == record.started and written.message != record.message
        if not is_done and not has_ended:
            message = "its job of Slurm was cancelled before it began"
            if (claim := self._claims / str(point[0])).is_symlink():
                output = self._claims.with_name(str(claim.readlink()))
                message = f"its job of Slurm was cancelled or lost; the job's output is in {output}"
            replace(self._new_record(point), message=message).save()
        objective = command_of(record.command).objective
        value = written.number(objective) if is_done else math.inf
        return JobReturn(status=JobStatus.COMPLETED, _return_value=value if objective else None)


def _unfinished(jobs: Set[str], form: str = "%i") -> Set[str]:
    """Return the user's jobs that wait or run, requeued ones too; all while Slurm does not answer.

    Their ids; or the columns of another `form` of squeue.
    """
    line = ["squeue", "--user", getpass.getuser(), "--noheader", "--array", f"--format={form}"]
    answer = subprocess.run(line, capture_output=True, text=True, check=False)
    return jobs if answer.returncode else set(answer.stdout.split())
