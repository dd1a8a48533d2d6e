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
from collections.abc import Mapping, Sequence, Set
from contextlib import redirect_stderr, suppress
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus
from hydra_plugins.hydra_submitit_launcher import submitit_launcher  # type: ignore[import-untyped]
from omegaconf import open_dict
from submitit import SlurmExecutor

from experiments.config import run_record
from experiments.config.command import INTERRUPTED, on_ctrl_c
from experiments.config.declaring import command_of

log = logging.getLogger(__name__)

_MAX_WAIT_S = 30.0
"""Longest time between two calls of squeue, for the sake of a large cluster's controller."""

Point = tuple[int, Sequence[str]]
"""A point's number in the sweep and its options."""


class SlurmSweep(submitit_launcher.SlurmLauncher):  # type: ignore[misc]
    """Starts at most ``array_parallelism`` jobs; each runs its share of the points one after another."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the points that are not done, wait for the end of their jobs, and return all objectives.

        Raises:
            ValueError: There is no Slurm, or it refuses the jobs; the message is one line.
        """
        points = list(enumerate(map(list, job_overrides), initial_job_idx))
        begins = [(self._new_record(point), run_record.output_directory()) for point in points]
        is_done = [record.done_before(directory) is not None for record, directory in begins]
        missing = [point for point, done in zip(points, is_done, strict=True) if not done]
        job_of = self._submit(missing) if missing else {}
        self._wait(set(job_of.values()))
        both = zip(points, begins, strict=True)
        return [self._end(point, *begin, job_of.get(point[0])) for point, begin in both]

    def __call__(self, points: Sequence[Point], state: Mapping[type, Singleton]) -> None:
        """Run points inside a job; scancel ends it at once, where submitit would wait for SIGKILL."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for number, overrides in points:
            super().__call__(overrides, "hydra.sweep.dir", number, str(number), state)

    def _submit(self, points: Sequence[Point]) -> dict[int, str]:
        """Submit an array of jobs, and return the id of each point's job by the number of the point."""
        options = {name: value for name, value in self.params.items() if value is not None}
        count = min(len(points), options["array_parallelism"])
        ends = [len(points) * number // count for number in range(count + 1)]
        shares = [points[first:end] for first, end in pairwise(ends)]
        options["timeout_min"] *= max(map(len, shares))
        try:
            executor = SlurmExecutor(options.pop("submitit_folder"), options.pop("max_num_timeout"))
            executor.update_parameters(**options)
            with redirect_stderr(None):  # submitit prints there what its error says, too
                jobs = executor.map_array(self, shares, [Singleton.get_state()] * count)
        except RuntimeError as error:  # of submitit: there is no Slurm, or sbatch failed
            reason = str(error).strip().splitlines()[-1]
            raise ValueError(f"hydra.launcher: {reason}; change its options or choose joblib") from None
        first = jobs[0].job_id.partition("_")[0]
        log.info("jobs of Slurm: %d for %d points, array %s; Ctrl-C cancels them", count, len(points), first)
        return {number: job.job_id for job, share in zip(jobs, shares, strict=True) for number, _ in share}

    def _wait(self, jobs: Set[str]) -> None:
        """Wait until all jobs have ended; Ctrl-C cancels them and ends the command."""
        began_s = time.monotonic()
        try:
            with on_ctrl_c(signal.default_int_handler):
                while jobs & _unfinished(jobs):
                    time.sleep(min(_MAX_WAIT_S, 1 + (time.monotonic() - began_s) / 60))
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

    def _end(self, point: Point, record: run_record.RunRecord, directory: Path, job: str | None) -> JobReturn:
        """Return the objective of a point; where its job ended before it did, its record says so."""
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(directory.stat().st_mode)  # NFS looks anew into a folder whose mode was set
        written = record
        with suppress(run_record.RunRecordError):
            written = run_record.read_run_record(directory)
        is_done = written.status == run_record.DONE
        has_ended = written.started == record.started and written.message != record.message
        if job and not is_done and not has_ended:
            output = Path(self.params["submitit_folder"]).with_name(job)
            message = f"job {job} of Slurm was cancelled or lost; its output is in {output}"
            replace(self._new_record(point), message=message).save()
        objective = command_of(record.command).objective
        value = written.number(objective) if is_done else math.inf
        return JobReturn(status=JobStatus.COMPLETED, _return_value=value if objective else None)


def _unfinished(jobs: Set[str]) -> Set[str]:
    """Return the user's jobs that wait or run, requeued ones too; all while Slurm does not answer."""
    line = ["squeue", "--user", getpass.getuser(), "--noheader", "--array", "--format=%i"]
    answer = subprocess.run(line, capture_output=True, text=True, check=False)
    return jobs if answer.returncode else set(answer.stdout.split())
