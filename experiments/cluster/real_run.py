"""The jobs of a trace on Ray, beside their simulation (dissertation, Sec. 5.6)."""

from __future__ import annotations

import logging
import math
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pandas as pd

from experiments.cluster.options import ClusterCommandOptions
from experiments.cluster.workload import Workload, chosen_policy, read_workload
from experiments.config.options import OptionError, require
from experiments.report.result import Result, Table
from placements.forms.texts import text_columns
from runtime.rounds.iterator import newest
from runtime.rounds.ray_jobs import RealJob, connected
from runtime.rounds.real_rounds import Move, RealRounds
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.simulator.outcome import Outcome, Round
from schedsearch.cluster.simulator.simulation import simulate_cluster
from schedsearch.solver.interrupts import INTERRUPTS

log = logging.getLogger(__name__)

_LEASE, _SHARE = ["round", "job", "gpu_type", "gpus"], ["job", "gpu_type"]
"""Columns of a job's lease of GPUs in a round, from 1, and of its share of the time on a GPU type."""


def run_jobs(options: ClusterCommandOptions, directory: Callable[[], Path]) -> Result:
    """Simulate the jobs of a trace, and run them as well.

    Args:
        options: Options of the command.
        directory: Makes the folder of the files and jobs; jobs go on from the checkpoints there.

    Raises:
        OptionError: An option does not fit a real run.
        LeaseError: There is no Ray.
    """
    for_simulation, for_run = (chosen_policy(options.policy, options.policy_options) for _ in range(2))
    work = read_workload(options)
    jobs, command = _jobs(work, options), _command(str(options.run.command))
    rules = replace(work.rules, records_rounds=True)
    timeout_s = math.inf if options.run.timeout_s is None else options.run.timeout_s
    with INTERRUPTS.answered() as ending, connected(work.cluster.workers):
        folder = directory()
        real_jobs = {job.name: _real_job(folder, number, job, command) for number, job in enumerate(jobs)}
        done = {name: newest(real_job.checkpoints) for name, real_job in real_jobs.items()}
        left = [replace(job, steps=job.steps - done[job.name]) for job in jobs if job.steps > done[job.name]]
        if not left:
            raise OptionError(f"hydra.run.dir: all jobs of {folder} are done; give another folder")
        simulated = simulate_cluster(left, work.cluster, work.throughputs, for_simulation, rules)
        given = left, work.cluster, work.throughputs, for_run, rules, real_jobs, log.warning
        run = RealRounds(*given, retries=options.run.retries, timeout_s=timeout_s)
        run.run(None)
    return _result(options, work, run, simulated, ending.interrupted, folder)


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


def _real_job(folder: Path, number: int, job: Job, command: Iterable[str]) -> RealJob:
    """Return a job with a folder of its own, which is made."""
    name = f"{number}_{re.sub('[^A-Za-z0-9_.-]', '_', job.name)}"
    words = [word.replace("{job}", job.name).replace("{type}", job.type) for word in command]
    own = folder.resolve() / "jobs" / name
    (own / "checkpoints").mkdir(parents=True, exist_ok=True)
    return RealJob(job, words, own / "checkpoints", own / "log.txt")


def _result(
    options: ClusterCommandOptions,
    work: Workload,
    run: RealRounds,
    simulated: Outcome,
    is_interrupted: bool,
    folder: Path,
) -> Result:
    """Return the rounds of a real run beside those of its simulation."""
    names, moves = [one.job.name for one in simulated.jobs], run.moves
    planned = _leases(simulated.recorded, names, work.cluster, "simulated_")
    both = planned.merge(_leases(run.recorded, names, work.cluster), how="outer", on=_LEASE)
    steps, as_simulated = both["steps"].sum(), (both["steps"] == both["simulated_steps"]).sum()
    times_s = both.groupby(_SHARE)[["simulated_share", "share"]].sum()
    shares = (times_s / times_s.groupby("job").transform("sum")).fillna(0.0).round(6).reset_index()
    shown = [[*row[:2], f"{row[2]:.2%}", f"{row[3]:.2%}"] for row in shares.itertuples(index=False)]
    line = f"{as_simulated} of {len(planned)} leases as simulated, {steps:g} steps, {len(moves)} moves"
    if moves:
        save_s, start_s = mean(move.save_s for move in moves), mean(move.start_s for move in moves)
        line += f" of {save_s:.3g} s to save and {start_s:.3g} s to the first step, simulated "
        line += f"{options.checkpoint_s:g} s and {options.restart_s:g} s"
    interrupted, failed = "", run.reason
    if is_interrupted:
        at = ", ".join(f"{name} at step {steps}" for name, steps in run.reached.items() if steps)
        interrupted = f"each job has a checkpoint ({at}); go on with hydra.run.dir ="
    elif run.given_up:
        given_up, logs = ", ".join(run.given_up), f"see log.txt in {folder / 'jobs'}"
        failed = f"{len(run.given_up)} of {len(names)} jobs are given up: {given_up}; {logs}"
    counts = {"jobs": len(names), "rounds": len(run.recorded), "moves": len(moves)}
    leases = both[[*_LEASE, "simulated_steps", "steps"]]
    return Result(
        figures={"policy": options.policy, **counts},
        tables={"rounds": _table(leases), "shares": _table(shares), "moves": Table(Move, moves)},
        sentences=[*text_columns([["job", "GPU type", "simulated", "run"], *shown]), line],
        interrupted=interrupted,
        failed=failed,
    )


def _leases(
    rounds: Iterable[Round], names: Sequence[str], cluster: GpuCluster, prefix: str = ""
) -> pd.DataFrame:
    """Return the steps of each lease, and their time by the known throughputs in s, to be made a share."""
    rows = []
    for number, each in enumerate(rounds, 1):
        for run in each.runs:
            gpus = cluster.gpu_types[run.gpu_type], " ".join(map(str, run.gpu_ids))
            for job, steps, rate in zip(run.jobs, run.steps, run.steps_per_s, strict=True):
                rows.append((number, names[job], *gpus, steps, steps / rate))
    frame = pd.DataFrame(rows, columns=[*_LEASE, f"{prefix}steps", f"{prefix}share"])
    return frame.astype({f"{prefix}steps": "Int64"})


def _table(frame: pd.DataFrame) -> Table:
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return Table(dict, rows, tuple(frame.columns))
