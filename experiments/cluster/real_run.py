"""The jobs of a trace in processes of this machine, beside their simulation (dissertation, Sec. 5.6)."""

from __future__ import annotations

import logging
import math
import re
import shlex
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from experiments.cluster.options import ClusterCommandOptions
from experiments.cluster.workload import Workload, chosen_policy, read_workload
from experiments.config.options import OptionError, require
from experiments.report.result import Result, Table
from placements.forms.texts import text_columns
from runtime.leases.engine import LocalProcesses
from runtime.leases.leased_run import JobStart, LeasedRun, LeasedSteps, start_of, steps_of_rounds
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.simulator.simulation import simulate_cluster
from schedsearch.solver.interrupts import INTERRUPTS

log = logging.getLogger(__name__)


class LeaseRow(NamedTuple):
    """Steps of a job in one lease, simulated and run; None where there was no lease."""

    round: int
    job: str
    gpu_type: str
    gpus: str
    simulated_steps: int | None
    steps: int | None


class ShareRow(NamedTuple):
    """Share of its time that a job spent on a GPU type, simulated and run."""

    job: str
    gpu_type: str
    simulated_share: float
    share: float


def run_jobs(options: ClusterCommandOptions, directory: Callable[[], Path]) -> Result:
    """Simulate the jobs of a trace, and run them as well.

    Args:
        options: Options of the command.
        directory: Makes the folder of the files and jobs; jobs go on from the checkpoints there.

    Raises:
        OptionError: An option does not fit a real run.
    """
    for_simulation, for_run = (chosen_policy(options.policy, options.policy_options) for _ in range(2))
    work = read_workload(options)
    jobs, command = _jobs(work, options), _command(str(options.run.command))
    folder = directory()
    starts = {job.name: _start_of(folder, number, job, command) for number, job in enumerate(jobs)}
    unfinished = (job for job in jobs if job.steps > starts[job.name].done)
    left = [replace(job, steps=job.steps - starts[job.name].done) for job in unfinished]
    if not left:
        raise OptionError(f"hydra.run.dir: all jobs of {folder} are done; give another folder")
    recorded = replace(work.rules, records_rounds=True)
    simulated = simulate_cluster(left, work.cluster, work.throughputs, for_simulation, recorded)
    planned = steps_of_rounds(simulated.recorded, [one.job.name for one in simulated.jobs], work.cluster)
    run = LeasedRun(
        left,
        work.cluster,
        work.throughputs,
        for_run,
        work.rules,
        starts,
        LocalProcesses(work.cluster),
        log.warning,
        retries=options.run.retries,
        timeout_s=math.inf if options.run.timeout_s is None else options.run.timeout_s,
    )
    with INTERRUPTS.answered():
        run.run(None)
    done, moves = run.steps_done, _moves(run.steps_done)
    leases, shares = _leases(planned, done), _share_rows(planned, done)
    same = sum(row.steps == row.simulated_steps for row in leases)
    agreement = f"{same} of {len(planned)} leases as simulated"
    total = sum(each.steps for each in done)
    shown = [[row.job, row.gpu_type, f"{row.simulated_share:.2%}", f"{row.share:.2%}"] for row in shares]
    interrupted, failed = "", run.reason
    if run.stopped_at:
        at = ", ".join(f"{name} at step {steps}" for name, steps in run.stopped_at.items())
        interrupted = f"each job has a checkpoint ({at}); go on with hydra.run.dir ="
    elif run.given_up:
        names, logs = ", ".join(run.given_up), f"see log.txt in {folder / 'jobs'}"
        failed = f"{len(run.given_up)} of {len(left)} jobs are given up: {names}; {logs}"
    return Result(
        figures={"policy": options.policy, "jobs": len(left), "rounds": len(run.recorded), "moves": moves},
        tables={"rounds": Table(LeaseRow, leases), "shares": Table(ShareRow, shares)},
        sentences=[
            *text_columns([["job", "GPU type", "simulated", "run"], *shown]),
            f"{agreement}, {total} steps, {moves} moves",
        ],
        interrupted=interrupted,
        failed=failed,
    )


def _jobs(work: Workload, options: ClusterCommandOptions) -> list[Job]:
    """Return the jobs with whole numbers of steps.

    Raises:
        OptionError: An option is not of a real run, or a job has no whole step in a round.
    """
    if options.window is not None:
        raise OptionError(f"window: {[*options.window]} is not null for a real run; leave it out")
    timeout_s = options.run.timeout_s
    require(timeout_s is None or timeout_s > 0, "run.timeout_s", timeout_s, "above 0", "give seconds")
    if work.skipped_in_words:
        log.warning("%s", work.skipped_in_words)
    jobs = [replace(job, steps=float(math.ceil(job.steps))) for job in work.jobs]
    shortest_s = options.round_s - options.checkpoint_s - options.restart_s
    for job in jobs:
        rate = work.throughputs.slowest(job.type, job.scale_factor)
        wanted = f"as long as a step of job {job.name}, {1 / rate:.4g} s and its start"
        require(rate * shortest_s >= 1, "round_s", options.round_s, wanted, "give more")
    return jobs


def _command(given: str) -> list[str]:
    try:
        command = shlex.split(given)
    except ValueError as cause:
        raise OptionError(f"run.command: {given!r} cannot be read ({cause}); close it") from None
    is_there = bool(command) and shutil.which(command[0]) is not None
    require(is_there, "run.command", given, "a program that is there", "correct it")
    return command


def _start_of(folder: Path, number: int, job: Job, command: Iterable[str]) -> JobStart:
    """Return how a job is started in its own folder."""
    name = f"{number}_{re.sub('[^A-Za-z0-9_.-]', '_', job.name)}"
    words = [word.replace("{job}", job.name).replace("{type}", job.type) for word in command]
    return start_of(folder / "jobs" / name, words)


def _leases(simulated: Iterable[LeasedSteps], done: Iterable[LeasedSteps]) -> list[LeaseRow]:
    """Return a row for each lease, simulated or run."""
    planned, real = ({each[:4]: each.steps for each in steps} for steps in (simulated, done))
    return [
        LeaseRow(*key[:3], " ".join(map(str, key[3])), planned.get(key), real.get(key))
        for key in sorted({**planned, **real})
    ]


def _share_rows(simulated: Iterable[LeasedSteps], done: Iterable[LeasedSteps]) -> list[ShareRow]:
    planned, real = _shares(simulated), _shares(done)
    return [
        ShareRow(*key, round(planned.get(key, 0.0), 6), round(real.get(key, 0.0), 6))
        for key in sorted({**planned, **real})
    ]


def _shares(steps: Iterable[LeasedSteps]) -> dict[tuple[str, str], float]:
    """Return the share of the time of each job that it spends on each type."""
    by_type: dict[tuple[str, str], float] = defaultdict(float)
    by_job: dict[str, float] = defaultdict(float)
    for each in steps:
        by_type[each.job, each.gpu_type] += each.duration_s
        by_job[each.job] += each.duration_s
    return {(job, name): s / by_job[job] if by_job[job] else 0.0 for (job, name), s in by_type.items()}


def _moves(steps: Iterable[LeasedSteps]) -> int:
    """Return how often a job went on in another place than before."""
    last: dict[str, tuple[str, tuple[int, ...]]] = {}
    moves = 0
    for each in sorted(steps):
        place = each.gpu_type, each.gpu_ids
        moves += last.get(each.job, place) != place
        last[each.job] = place
    return moves
