"""The jobs of a trace in processes of this machine, beside their simulation (dissertation, Sec. 5.6)."""

from __future__ import annotations

import logging
import math
import re
import shlex
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from experiments.cluster.chosen_policies import chosen_policy
from experiments.cluster.running import Setting, SimulationPoint
from experiments.cluster.workload import simulation_options, work_of
from experiments.config.options import OptionError, require
from experiments.report.result import Result, Table
from placements.forms.texts import text_columns
from runtime.leases.engine import LocalProcesses
from runtime.leases.leased_run import JobStart, LeasedRun, LeasedSteps, start_of, steps_of_rounds
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.simulator.options import SimulationOptions
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


def run_jobs(points: Sequence[SimulationPoint], setting: Setting, directory: Callable[[], Path]) -> Result:
    """Run the jobs of a simulation as well.

    Args:
        points: The one simulation.
        setting: Cluster, trace, throughputs and options of the simulation.
        directory: Makes the folder of the files and jobs; jobs go on from the checkpoints there.

    Raises:
        OptionError: An option does not fit a real run.
    """
    jobs, options = _jobs(points, setting)
    command = _command(str(setting.options.run.command))
    folder = directory()
    starts = {
        job.name: start_of(folder / "jobs" / _folder_name(number, job.name), _of_job(command, job))
        for number, job in enumerate(jobs)
    }
    left = [
        replace(job, steps=job.steps - starts[job.name].done)
        for job in jobs
        if job.steps > starts[job.name].done
    ]
    if not left:
        raise OptionError(f"hydra.run.dir: all jobs of {folder} are done; give another folder")
    simulated = _simulated(points[0], setting, left, options)
    run = _run(points[0], setting, left, options, starts)
    shares = _shares(simulated, run.steps_done)
    found = Result(
        figures={
            "policy": points[0].policy,
            "jobs": len(left),
            "rounds": len(run.recorded),
            "moves": _moves(run.steps_done),
        },
        tables={
            "rounds": Table(LeaseRow, _leases(simulated, run.steps_done)),
            "shares": Table(ShareRow, shares),
        },
        sentences=[_as_table(shares), _agreement(simulated, run.steps_done)],
    )
    if run.stopped_at:
        at = ", ".join(f"{name} at step {steps}" for name, steps in run.stopped_at.items())
        return replace(found, interrupted=f"each job has a checkpoint ({at}); go on with hydra.run.dir =")
    if run.given_up:
        names, logs = ", ".join(run.given_up), f"see log.txt in {folder / 'jobs'}"
        failed = f"{len(run.given_up)} of {len(left)} jobs are given up: {names}; {logs}"
        return replace(found, failed=failed)
    return replace(found, failed=run.reason)


def _jobs(points: Sequence[SimulationPoint], setting: Setting) -> tuple[list[Job], SimulationOptions]:
    """Return the jobs and how their rounds are made.

    Raises:
        OptionError: An option is not of a real run, or a job has no whole steps in a round.
    """
    given = setting.options
    require(len(points) == 1, "run.command", len(points), "for one simulation", "give one policy and seed")
    require(given.window is None, "window", given.window, "null for a real run", "leave it out")
    timeout_s = given.run.timeout_s
    require(timeout_s is None or timeout_s > 0, "run.timeout_s", timeout_s, "above 0", "give seconds")
    work = work_of(setting.trace, setting.data, setting.cluster, given)
    if work.skipped_in_words:
        log.warning("%s", work.skipped_in_words)
    jobs = [replace(job, steps=float(math.ceil(job.steps))) for job in work.jobs]
    options = simulation_options(given, setting.trace, points[0].policy)
    shortest_s = options.round_s - options.checkpoint_s - options.restart_s
    for job in jobs:
        rate = setting.data.throughputs.slowest(job.type, job.scale_factor)
        wanted = f"as long as a step of job {job.name}, {1 / rate:.4g} s and its start"
        require(rate * shortest_s >= 1, "round_s", options.round_s, wanted, "give more")
    return jobs, options


def _command(given: str) -> list[str]:
    try:
        command = shlex.split(given)
    except ValueError as cause:
        raise OptionError(f"run.command: {given!r} cannot be read ({cause}); close it") from None
    wanted = "a program that is there"
    require(
        bool(command) and shutil.which(command[0]) is not None, "run.command", given, wanted, "correct it"
    )
    return command


def _of_job(command: Iterable[str], job: Job) -> list[str]:
    return [part.replace("{job}", job.name).replace("{type}", job.type) for part in command]


def _folder_name(number: int, name: str) -> str:
    return f"{number}_{re.sub('[^A-Za-z0-9_.-]', '_', name)}"


def _simulated(
    point: SimulationPoint, setting: Setting, jobs: Sequence[Job], options: SimulationOptions
) -> list[LeasedSteps]:
    found = simulate_cluster(
        jobs,
        setting.cluster,
        setting.data.throughputs,
        chosen_policy(point.policy, setting.options.policy_options),
        replace(options, records_rounds=True),
    )
    return steps_of_rounds(found.recorded, [one.job.name for one in found.jobs], setting.cluster)


def _run(
    point: SimulationPoint,
    setting: Setting,
    jobs: Sequence[Job],
    options: SimulationOptions,
    starts: Mapping[str, JobStart],
) -> LeasedRun:
    asked = setting.options.run
    run = LeasedRun(
        jobs,
        setting.cluster,
        setting.data.throughputs,
        chosen_policy(point.policy, setting.options.policy_options),
        options,
        starts,
        LocalProcesses(setting.cluster),
        log.warning,
        retries=asked.retries,
        timeout_s=math.inf if asked.timeout_s is None else asked.timeout_s,
    )
    with INTERRUPTS.answered():
        run.run(None)
    return run


_Key = tuple[int, str, str, tuple[int, ...]]


def _by_key(steps: Iterable[LeasedSteps]) -> dict[_Key, LeasedSteps]:
    return {each[:4]: each for each in steps}


def _leases(simulated: Sequence[LeasedSteps], real: Sequence[LeasedSteps]) -> list[LeaseRow]:
    """Return a row for each lease, simulated or run."""
    planned, done = _by_key(simulated), _by_key(real)
    return [
        LeaseRow(
            *key[:3],
            " ".join(map(str, key[3])),
            *(side[key].steps if key in side else None for side in (planned, done)),
        )
        for key in sorted({**planned, **done})
    ]


def _shares(simulated: Sequence[LeasedSteps], real: Sequence[LeasedSteps]) -> list[ShareRow]:
    """Return the share of the time of each job that it spends on each type."""
    sides = []
    for steps in (simulated, real):
        by_type: dict[tuple[str, str], float] = defaultdict(float)
        by_job: dict[str, float] = defaultdict(float)
        for each in steps:
            by_type[each.job, each.gpu_type] += each.duration_s
            by_job[each.job] += each.duration_s
        sides.append({key: s / by_job[key[0]] if by_job[key[0]] else 0.0 for key, s in by_type.items()})
    keys = sorted({**sides[0], **sides[1]})
    return [ShareRow(*key, *(round(side.get(key, 0.0), 6) for side in sides)) for key in keys]


def _moves(steps: Iterable[LeasedSteps]) -> int:
    """Return how often a job went on in another place than before."""
    last: dict[str, tuple[str, tuple[int, ...]]] = {}
    moves = 0
    for each in sorted(steps):
        place = each.gpu_type, each.gpu_ids
        moves += last.get(each.job, place) != place
        last[each.job] = place
    return moves


def _as_table(shares: Sequence[ShareRow]) -> str:
    """Return for a terminal the share of its time of each job by GPU type."""
    rows = [[row.job, row.gpu_type, f"{row.simulated_share:.2%}", f"{row.share:.2%}"] for row in shares]
    return "\n".join(text_columns([["job", "GPU type", "simulated", "run"], *rows]))


def _agreement(simulated: Sequence[LeasedSteps], real: Sequence[LeasedSteps]) -> str:
    planned, done = _by_key(simulated), _by_key(real)
    same = sum(key in done and done[key].steps == each.steps for key, each in planned.items())
    total = sum(each.steps for each in real)
    return f"{same} of {len(planned)} leases as simulated, {total} steps, {_moves(real)} moves"
