"""Simulations of the options, one for each policy, load and seed, each with its files in a folder."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice, product
from pathlib import Path

from experiments.cluster.chosen_policies import chosen_policy, names_of
from experiments.cluster.options import ClusterCommandOptions, FileTraceOptions
from experiments.cluster.outcome_files import CLUSTER, JOBS, save_outcome
from experiments.cluster.workload import JobTypeData, Trace, at_load, rounds_of, simulation_options, work_of
from experiments.config.options import OptionError, require, require_once
from placements.forms.tables import csv_rows
from placements.forms.texts import read_json
from schedsearch.cluster.allocation import InfeasibleError
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import ActiveJob, Job
from schedsearch.cluster.simulator.outcome import Outcome
from schedsearch.cluster.simulator.simulation import FROM_KEYBOARD, ClusterProgress, simulate_cluster
from schedsearch.core.progress import StepBar
from schedsearch.solver.interrupts import INTERRUPTS

_CHECKED_JOBS = 1000
"""Of a trace whose jobs are generated without end."""


@dataclass(frozen=True)
class Setting:
    """Setting of all simulations of a command.

    Attributes:
        options: Options of the command.
        cluster: The GPUs.
        data: What is known of types of jobs.
        trace: Of the jobs, but for load and seed.
        told: What is written into each file of figures.
    """

    options: ClusterCommandOptions
    cluster: GpuCluster
    data: JobTypeData
    trace: Trace
    told: dict[str, object]


@dataclass(frozen=True)
class SimulationPoint:
    """One simulation.

    Attributes:
        policy: Its name.
        jobs_per_hour: The load; None for that of the trace.
        seed: Seed of the trace; None for its own.
    """

    policy: str
    jobs_per_hour: float | None = None
    seed: int | None = None

    def __str__(self) -> str:
        load = "" if self.jobs_per_hour is None else f", {self.jobs_per_hour:g} jobs per hour"
        return self.policy + load + ("" if self.seed is None else f", seed {self.seed}")

    @property
    def folder(self) -> str:
        """Return the folder of its files, below the command's folder."""
        parts = [self.policy]
        parts += [] if self.jobs_per_hour is None else [f"{self.jobs_per_hour:g}_per_hour"]
        return "/".join(parts + ([] if self.seed is None else [f"seed_{self.seed}"]))


def points_of(options: ClusterCommandOptions) -> list[SimulationPoint]:
    """Return the simulations of the options, all seeds of one load and policy in a row.

    Raises:
        OptionError: A policy, load or seed is wrong, or there twice.
    """
    for name, values in (("loads", options.loads), ("seeds", options.seeds)):
        require(values is None or bool(values), name, values, "a list with a number", "give one, or null")
        require_once(name, values or ())
    every = product(names_of(options.policy), options.loads or [None], options.seeds or [None])
    return [SimulationPoint(*each) for each in every]


def check_points(points: list[SimulationPoint], setting: Setting) -> None:
    """Check the inputs of each simulation, before the first one begins.

    Raises:
        ValueError: An option or a file is wrong.
    """
    kinds: dict[tuple[int, str], Job] = {}
    for point in points:
        chosen_policy(point.policy, setting.options.policy_options)
        trace = at_load(setting.trace, point.jobs_per_hour, point.seed)
        if point.policy == points[0].policy:
            work = work_of(trace, setting.data, setting.cluster, setting.options)
            for job in islice(work.jobs, _CHECKED_JOBS):
                kinds.setdefault((job.scale_factor, job.entity), job)
            simulation_options(setting.options, trace, point.policy)
    for name in dict.fromkeys(point.policy for point in points):
        for job in kinds.values():
            _check_decision(name, job, setting)


def _check_decision(name: str, job: Job, setting: Setting) -> None:
    """Let a policy decide about one job alone, that is nearly done and has no SLO.

    Raises:
        ClusterError: The policy is not for such jobs, or lacks a price or an entity.
    """
    policy = chosen_policy(name, setting.options.policy_options)
    nearly_done = ActiveJob(replace(job, slo_s=math.inf), 1e-9 * job.steps)
    try:
        policy.allocate(setting.data.throughputs.demand(setting.cluster, [nearly_done]))
    except InfeasibleError:  # which the simulation tells with the jobs that are there then
        return


def run_point(point: SimulationPoint, setting: Setting, directory: Path) -> tuple[Outcome, str]:
    """Simulate, and write the files; return the outcome, and in words which jobs were left out.

    Raises:
        ClusterError: A job cannot run, or the policy gives time to nobody.
        KeyboardInterrupt: From the keyboard; the files are there or not, but never some of them alone.
    """
    options, trace = setting.options, at_load(setting.trace, point.jobs_per_hour, point.seed)
    work = work_of(trace, setting.data, setting.cluster, options)
    directory.mkdir(parents=True, exist_ok=True)
    seed = None if isinstance(trace, FileTraceOptions) else trace.seed
    told: dict[str, object] = {
        "seed": seed,
        "jobs_per_hour": point.jobs_per_hour,
        "rounds": rounds_of(options, point.policy),
    }
    with StepBar(str(point)) as bar:

        def show(progress: ClusterProgress) -> None:
            text = f"{progress.simulated_h:,.0f} h simulated, {progress.active_jobs} jobs there"
            bar(text, progress.jobs_done, max(progress.jobs_wanted, 1))

        found = simulate_cluster(
            work.jobs,
            setting.cluster,
            setting.data.throughputs,
            chosen_policy(point.policy, setting.options.policy_options),
            simulation_options(options, trace, point.policy),
            show,
        )
    if found.reason != FROM_KEYBOARD:
        told["inputs"] = _hash_of(point, setting)  # so that the point is not simulated once more
    with INTERRUPTS.watched():
        save_outcome(found, work.skipped, told | setting.told, directory)
    return found, work.skipped_in_words


def jcts_before(point: SimulationPoint, setting: Setting, directory: Path) -> list[float] | None:
    """Return the completion times of a simulation that was done before, in s; None where it was not."""
    if not (directory / CLUSTER).exists():
        return None
    data = read_json(directory / CLUSTER, "what a simulation found", OptionError)
    if not isinstance(data, dict) or data.get("inputs") != _hash_of(point, setting):
        return None
    return list(_measured_jcts(directory / JOBS))


def _measured_jcts(path: Path) -> Iterator[float]:
    for row in csv_rows(path, "job", OptionError, ("is_measured", "jct_s")):
        if row.text("is_measured") == "1" and "jct_s" in row:
            yield row["jct_s"].number()


def _hash_of(point: SimulationPoint, setting: Setting) -> str:
    """Return a hash of all that a simulation depends on."""
    options = replace(setting.options, policy=point.policy, loads=None, seeds=None)
    trace = at_load(setting.trace, point.jobs_per_hour, point.seed)
    found = hashlib.sha256(repr((options, trace)).encode())
    paths = [Path(str(options.data)), *([Path(trace.path)] if isinstance(trace, FileTraceOptions) else [])]
    for path in paths:
        for file in sorted(path.glob("*.*")) if path.is_dir() else [path]:
            if file.is_file():
                found.update(file.read_bytes())
    return found.hexdigest()
