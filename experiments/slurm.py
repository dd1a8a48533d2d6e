"""Sweeps as jobs of Slurm: points that are done make no job, a lost job is a line, Ctrl-C cancels the jobs.

The options are those of Hydra's launcher ``submitit_slurm``, and submitit writes and submits the batch
scripts. How the jobs stand is asked of squeue, which needs no accounting, and the record of each point says
how it ended.
"""

from __future__ import annotations

import getpass
import logging
import math
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import fields, replace
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus
from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf  # type: ignore[import-untyped]
from hydra_plugins.hydra_submitit_launcher.submitit_launcher import (  # type: ignore[import-untyped]
    SlurmLauncher,
)
from omegaconf import open_dict
from submitit import AutoExecutor
from submitit.core.utils import FailedJobError

from experiments.config.command import INTERRUPTED, on_ctrl_c
from experiments.config.declaring import command_of
from experiments.config.run_record import (
    DONE,
    RunRecord,
    RunRecordError,
    how_to_resume,
    output_directory,
    read_run_record,
)

log = logging.getLogger(__name__)

_FORGOTTEN = "CANCELLED or forgotten"
"""State of a job that squeue does not list: it was cancelled before it began, or ended some minutes ago."""

_ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"),
    _FORGOTTEN,
}
"""States of a job that does not run again; one that Slurm requeues is pending instead."""

_MAX_WAIT_S = 30.0
"""Longest time between two calls of squeue, for the sake of a large cluster's controller."""

Point = tuple[int, Sequence[str]]
"""A point's number in the sweep and its options."""


class SlurmSweep(SlurmLauncher):  # type: ignore[misc]
    """Starts at most ``array_parallelism`` jobs; each runs its share of the points one after another."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the points that are not done, wait for the end of their jobs, and return all objectives.

        Raises:
            ValueError: There is no Slurm, or it refuses the jobs; the message is one line.
        """
        points = list(enumerate(map(list, job_overrides), initial_job_idx))
        missing = [point for point in points if self._new_record(point).done_before() is None]
        shares = self._submit(missing) if missing else {}
        states = self._wait(shares)
        job_of = {number: job for job, share in shares.items() for number, _ in share}
        return [self._end(point, job_of.get(point[0]), states) for point in points]

    def __call__(self, points: Sequence[Point], state: Mapping[type, Singleton]) -> None:
        """Run points inside a job; scancel ends it at once, where submitit would wait for SIGKILL."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for number, overrides in points:
            super().__call__(overrides, "hydra.sweep.dir", number, str(number), state)

    def _submit(self, points: Sequence[Point]) -> dict[str, Sequence[Point]]:
        """Submit an array of jobs, and return the points of each by its id."""
        if shutil.which("sbatch") is None:
            remedy = "start the sweep on a machine of the cluster, or choose hydra/launcher=joblib"
            raise ValueError(f"hydra/launcher=submitit_slurm: there is no sbatch here; {remedy}")
        options = dict(self.params)
        count = min(len(points), options["array_parallelism"])
        shares = [points[first::count] for first in range(count)]
        options["timeout_min"] *= len(shares[0])
        timeouts = options.pop("max_num_timeout")
        executor = AutoExecutor(options.pop("submitit_folder"), "slurm", slurm_max_num_timeout=timeouts)
        general = {field.name for field in fields(BaseQueueConf)}
        executor.update_parameters(
            **{name if name in general else f"slurm_{name}": value for name, value in options.items()}
        )
        try:
            jobs = executor.map_array(self, shares, [Singleton.get_state()] * count)
        except FailedJobError as error:
            reason = str(error).strip().splitlines()[-1]
            raise ValueError(f"hydra.launcher: {reason}; change its options") from None
        first = jobs[0].job_id.partition("_")[0]
        log.info("jobs of Slurm: %d for %d points, array %s; Ctrl-C cancels them", count, len(points), first)
        return {job.job_id: share for job, share in zip(jobs, shares, strict=True)}

    def _wait(self, jobs: Collection[str]) -> dict[str, str]:
        """Wait until all jobs have ended, and return their states."""
        began_s, ended = time.monotonic(), dict[str, str]()
        try:
            with on_ctrl_c(signal.default_int_handler):
                while len(ended) < len(jobs):
                    time.sleep(min(_MAX_WAIT_S, 1 + (time.monotonic() - began_s) / 60))
                    ended = _ended(jobs)
        except KeyboardInterrupt:
            subprocess.run(["scancel", *jobs], check=False)
            hydra = self.config.hydra
            line = f"interrupted; its jobs of Slurm are cancelled; {how_to_resume(Path(hydra.sweep.dir))}"
            print(f"{hydra.job.name}: {line}", file=sys.stderr)  # noqa: T201
            sys.exit(INTERRUPTED)
        return ended

    def _new_record(self, point: Point) -> RunRecord:
        """Return the record of a point before it runs; Hydra then takes the point for this process's run."""
        number, overrides = point
        config = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
        hydra = config.hydra
        with open_dict(hydra):
            hydra.job.id, hydra.job.num = str(number), number
            hydra.runtime.output_dir = str(Path(hydra.sweep.dir, str(hydra.sweep.subdir)))
        HydraConfig.instance().set_config(deepcopy(config))
        with open_dict(config):
            del config["hydra"]
        return RunRecord.of_this_run(self.config.hydra.job.name, config)

    def _end(self, point: Point, job: str | None, states: Mapping[str, str]) -> JobReturn:
        """Return the objective of a point; if its job was lost, its record says so.

        A point that is done has no job.
        """
        record, directory = self._new_record(point), output_directory()
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(directory.stat().st_mode)  # NFS looks anew into a folder whose mode was set
        written = record
        with suppress(RunRecordError):
            written = read_run_record(directory)
        if job and (written.started != record.started or written.status == record.status):
            log_folder = Path(self.params["submitit_folder"]).with_name(job)
            message = f"job {job} of Slurm ended before it, {states[job]}; its output is in {log_folder}"
            written = replace(record, message=message)
            written.save()
        objective = command_of(record.command).objective
        value = written.number(objective) if written.status == DONE else math.inf
        return JobReturn(status=JobStatus.COMPLETED, _return_value=value if objective else None)


def _ended(jobs: Collection[str]) -> dict[str, str]:
    """Return the states of those jobs that have ended; none while Slurm's controller does not answer."""
    line = ["squeue", "--user", getpass.getuser(), "--noheader", "--array", "--states=all", "--format=%i %T"]
    answer = subprocess.run(line, capture_output=True, text=True, check=False)
    if answer.returncode:
        return {}
    states = dict(row.split() for row in answer.stdout.splitlines())
    known = {job: states.get(job, _FORGOTTEN) for job in jobs}
    return {job: state for job, state in known.items() if state in _ENDED}
