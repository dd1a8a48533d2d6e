"""The jobs of a trace on Ray, beside their simulation (dissertation, Sec. 5.6)."""

from __future__ import annotations

import logging
import math
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pandas as pd

from experiments.cluster.options import ClusterCommandOptions
from experiments.cluster.workload import Workload, chosen_policy, read_workload
from experiments.config.options import OptionError, require
from experiments.report.result import Result, Table
from placements.forms.texts import text_columns
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.simulator.simulation import ClusterSimulation
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.solver.side_by_side import ray_cluster

log = logging.getLogger(__name__)

_LEASE, _SHARE = ["round", "job", "gpu_type", "gpus"], ["job", "gpu_type"]
"""Columns of a job's lease of GPUs in a round, from 1, and of its share of the time on a GPU type."""


def run_jobs(options: ClusterCommandOptions, directory: Callable[[], Path]) -> Result:
    """Simulate the jobs of a trace, and run them as well.

    Args:
        options: Options of the command.
        directory: Makes the folder of the files and jobs; jobs go on from the checkpoints there.

    Raises:
        OptionError: An option does not fit a real run, or no node has room for a job.
        RayAddressError: There is no Ray.
    """
    policies = [chosen_policy(options.policy, options.policy_options) for _ in range(2)]
    work = read_workload(options)
    jobs, command = _checked(options, work, policies[0].shares_space), shlex.split(str(options.run.command))
    with INTERRUPTS.answered() as ending, ray_cluster(work.cluster.workers):
        from runtime.rounds.real_rounds import Move, RealJob, RealRounds, gpus_of_nodes  # load Ray

        for gpu_type, nodes in gpus_of_nodes(work.cluster.workers).items():
            for job in jobs:
                needs = job.scale_factor if work.throughputs.rate(job.type, job.scale_factor, gpu_type) else 0
                if 0 < max(nodes) < needs <= work.cluster.workers[gpu_type]:
                    there = f"needs {needs} {gpu_type} on one node, and the largest has {max(nodes)}"
                    raise OptionError(f"run.command: job {job.name} {there}; start a larger node of Ray")
        folder, real_jobs = directory().resolve(), []
        for number, job in enumerate(jobs):
            words = [word.replace("{job}", job.name).replace("{type}", job.type) for word in command]
            job_folder = folder / "jobs" / f"{number}_{re.sub('[^A-Za-z0-9_.-]', '_', job.name)}"
            real_jobs.append(RealJob(job.name, words, job_folder, options.run.timeout_s or math.inf))
        rest = [job.steps - one.steps_done for job, one in zip(jobs, real_jobs, strict=True)]
        left = [replace(job, steps=steps) for job, steps in zip(jobs, rest, strict=True) if steps > 0]
        if not left:
            raise OptionError(f"hydra.run.dir: all jobs of {folder} are done; give another folder")
        rules = replace(work.rules, records_rounds=True)
        simulated = ClusterSimulation(left, work.cluster, work.throughputs, policies[0], rules)
        simulated.run(None)
        given = left, work.cluster, work.throughputs, policies[1], rules
        run = RealRounds(*given, real_jobs=real_jobs, tell=log.warning, retries=options.run.retries)
        run.run(None)
    planned = _leases(simulated, "simulated_")
    both = planned.merge(_leases(run, ""), how="outer", on=_LEASE)
    times_s = both.groupby(_SHARE)[["simulated_share", "share"]].sum()
    shares = (times_s / times_s.groupby("job").transform("sum")).fillna(0.0).round(6).reset_index()
    shown = [[job, gpu_type, f"{one:.2%}", f"{other:.2%}"] for job, gpu_type, one, other in shares.to_numpy()]
    as_simulated = (both["steps"] == both["simulated_steps"]).sum()
    line = f"{as_simulated} of {len(planned)} leases as simulated, {both['steps'].sum():g} steps"
    line += f", {len(run.moves)} moves"
    if run.moves:
        save_s, start_s = (mean(times) for times in zip(*(move[-2:] for move in run.moves), strict=True))
        line += f" of {save_s:.3g} s to save and {start_s:.3g} s to the first step, simulated "
        line += f"{options.checkpoint_s:g} s and {options.restart_s:g} s"
    interrupted, failed = "", run.reason
    if ending.interrupted:
        at = ", ".join(f"{name} at step {steps}" for name, steps in run.reached.items() if steps)
        interrupted = f"each job has a checkpoint ({at}); go on with hydra.run.dir ="
    elif run.given_up:
        given_up = f"{len(run.given_up)} of {len(left)} jobs are given up: {', '.join(run.given_up)}"
        failed = f"{given_up}; see log.txt in {folder / 'jobs'}"
    counts = {"jobs": len(left), "rounds": len(run.recorded), "moves": len(run.moves)}
    leases = _table(both[[*_LEASE, "simulated_steps", "steps"]])
    return Result(
        figures={"policy": options.policy, **counts},
        tables={"rounds": leases, "shares": _table(shares), "moves": Table(Move, run.moves)},
        sentences=[*text_columns([["job", "GPU type", "simulated", "run"], *shown]), line],
        interrupted=interrupted,
        failed=failed,
    )


def _checked(options: ClusterCommandOptions, work: Workload, shares_space: bool) -> list[Job]:
    """Return the jobs with whole numbers of steps.

    Raises:
        OptionError: An option is not of a real run, or a job has no whole step in a round.
    """
    program = shlex.split(str(options.run.command))[:1]
    is_there = bool(program) and shutil.which(program[0]) is not None
    require(is_there, "run.command", options.run.command, "a program that is there", "correct it")
    require(
        options.window is None, "window", [*(options.window or ())], "null for a real run", "leave it out"
    )
    require(not shares_space, "policy", options.policy, "one that gives a GPU to one job", "take another")
    if work.skipped_in_words:
        log.warning("%s", work.skipped_in_words)
    jobs = [replace(job, steps=float(math.ceil(job.steps))) for job in work.jobs]
    shortest_s = options.round_s - options.checkpoint_s - options.restart_s
    for job in jobs:
        rate = work.throughputs.slowest(job.type, job.scale_factor)
        wanted = f"as long as a step of job {job.name}, {1 / rate:.4g} s and its start"
        require(rate * shortest_s >= 1, "round_s", options.round_s, wanted, "give more")
    return jobs


def _leases(simulation: ClusterSimulation, prefix: str) -> pd.DataFrame:
    """Return the steps of each lease, and their time by the known throughputs in s, to be made a share."""
    rows = []
    for number, lease_round in enumerate(simulation.recorded, 1):
        for (job,), gpu_type, gpu_ids, (rate,), *_, (steps,), _ in lease_round.runs:
            gpus = simulation.cluster.gpu_types[gpu_type], " ".join(map(str, gpu_ids))
            rows.append((number, simulation.jobs[job].name, *gpus, steps, steps / rate))
    frame = pd.DataFrame(rows, columns=[*_LEASE, f"{prefix}steps", f"{prefix}share"])
    return frame.astype({f"{prefix}steps": "Int64"})


def _table(frame: pd.DataFrame) -> Table:
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return Table(dict, rows, tuple(frame.columns))
