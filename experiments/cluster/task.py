"""The task of `experiments.cluster`: a simulation of a cluster, or one decision of a policy."""

from __future__ import annotations

import logging
import math
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from experiments.cluster import outcome_tables
from experiments.cluster.options import ClusterCommandOptions, PolicyOptions
from experiments.cluster.workload import chosen_policy, read_workload, rounds_of
from experiments.config.options import OptionError
from experiments.config.run_record import given_names, given_words, output_directory
from experiments.report.result import Result
from placements.forms.texts import text_columns
from schedsearch.cluster.allocation import Allocation, check_allocation
from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.inputs.decision_file import read_decision
from schedsearch.cluster.policies.registry import policy_entry
from schedsearch.cluster.simulator.simulation import FROM_KEYBOARD, ClusterProgress, simulate_cluster
from schedsearch.core.progress import StepBar

log = logging.getLogger(__name__)

_OF_DECISIONS = ("allocate", "policy", "policy_options")
"""The options of one decision, whose file says all else."""

FILE = "allocation.json"

SMALLEST = 1e-12
"""Shares up to this are the solver's rounding, and are written as none."""

_MOST_ROWS = 40
"""Jobs of the printed table."""


def task(options: ClusterCommandOptions) -> Result:
    """Simulate, run the jobs too, or decide.

    Raises:
        OptionError: An option is wrong.
        ClusterError: A file is wrong, or the policy cannot do what is asked.
    """
    if options.run.command is not None and options.allocate is None:
        from experiments.cluster.real_run import run_jobs  # loads pandas

        return run_jobs(options, output_directory)
    if options.allocate is None:
        return _simulate(options)
    for name in given_names():
        if name.partition(".")[0] not in _OF_DECISIONS:
            raise OptionError(f"{name}: is not of a decision, for which allocate names a file; leave it out")
    return decide(options.allocate, options.policy, options.policy_options)


def _simulate(options: ClusterCommandOptions) -> Result:
    """Return the outcome of a simulation; a Ctrl-C ends it between two rounds."""
    policy, work = chosen_policy(options.policy, options.policy_options), read_workload(options)
    cluster, rounds = work.cluster, rounds_of(options)
    if free := [gpu_type for gpu_type in cluster.gpu_types if gpu_type not in cluster.dollars_per_hour]:
        log.info("no price is known for %s; costs in dollars leave them out", ", ".join(free))
    with StepBar(options.policy) as bar:

        def show(progress: ClusterProgress) -> None:
            text = f"{progress.simulated_h:,.0f} h simulated, {progress.active_jobs} jobs there"
            bar(text, progress.jobs_done, max(progress.jobs_wanted, 1))

        outcome = simulate_cluster(work.jobs, cluster, work.throughputs, policy, work.rules, show)
    from experiments.cluster.pictures import pictures_of  # loads matplotlib

    if work.skipped_in_words:
        log.warning("%s", work.skipped_in_words)
    gpus = ", ".join(f"{count} {gpu_type}" for gpu_type, count in cluster.workers.items())
    log.info("%s on %s, rounds=%s", outcome.policy, gpus, rounds)
    figures = {name: value for name, value in outcome.figures.items() if math.isfinite(value)}
    command = shlex.join(["schedsearch", "cluster", *given_words()])
    about = {"seed": work.trace_seed, "rounds": rounds, "options": asdict(options), "command": command}
    return Result(
        figures={"policy": outcome.policy, **figures},
        tables={"jobs": outcome_tables.jobs_table(outcome), "series": outcome_tables.series_table(outcome)},
        files={"cluster.json": outcome_tables.outcome_to_dict(outcome, work.skipped) | about},
        pictures=pictures_of(outcome),
        facts=[*outcome_tables.outcome_facts(outcome)],
        interrupted=f"figures until {outcome.end_s / 3600:,.1f} h of the trace are in"
        * (outcome.reason == FROM_KEYBOARD),
    )


def decide(path: str, name: str, options: PolicyOptions) -> Result:
    """Ask a policy the question of a file, and check the answer.

    Raises:
        ClusterError: The file is wrong, or the policy is not known or has no such option.
        InfeasibleError: No allocation does what the policy asks for.
    """
    asked, policy, entry = read_decision(path), chosen_policy(name, options), policy_entry(name)
    if entry.needs_steps and not asked.has_steps:
        raise ClusterError(f"{path}: a job has no steps, which policy {name} looks at; give each its steps")
    allocation = policy.allocate(asked.demand)
    check_allocation(allocation)
    shares = allocation_to_dict(allocation)
    head = {"schema_version": 1, "policy": policy.name, "objective_is": entry.description}
    for note in allocation.notes:
        log.warning("%s", note)
    lines = [decision_table(shares), f"objective {allocation.objective:.8g}: {entry.description}"]
    if allocation.dollars_per_hour:
        lines.append(f"{allocation.dollars_per_hour:.5g} dollars per hour for the GPUs in use")
    figures: dict[str, float | str] = {"policy": policy.name}
    if math.isfinite(allocation.objective):
        figures["objective"] = allocation.objective
    return Result(figures=figures, files={FILE: head | shares}, sentences=lines)


def allocation_to_dict(allocation: Allocation) -> dict[str, Any]:
    """Return an allocation by the names of jobs and GPU types, with all types of the cluster, 0 for none.

    Shares are of jobs alone; those of two jobs on the same GPUs come on top, each once.
    """
    names = [active.name for active in allocation.demand.jobs]
    used = allocation.used(SMALLEST)
    shares = {name: dict.fromkeys(allocation.demand.cluster.gpu_types, 0.0) for name in names}
    for one in used:
        if len(one.jobs) == 1:
            shares[one.jobs[0]][one.gpu_type] += one.share
    return {
        "objective": allocation.objective if math.isfinite(allocation.objective) else None,
        "shares": shares,
        "pairs": [asdict(one) for one in used if len(one.jobs) == 2],
        "steps_per_s": dict(zip(names, allocation.rates.tolist(), strict=True)),
        "dollars_per_hour": allocation.dollars_per_hour,
        "power_w": allocation.power_w,
        "configurations": [asdict(one) for one in used],
        "notes": [*allocation.notes],
    }


def decision_table(decided: Mapping[str, Any]) -> str:
    """Return the shares and the effective throughput of each job, for a terminal."""
    types = list(next(iter(decided["shares"].values())))
    rates, pairs = decided["steps_per_s"], decided["pairs"]
    known = [([job], shares, [rates[job]]) for job, shares in decided["shares"].items()]
    known += [(pair["jobs"], {pair["gpu_type"]: pair["share"]}, pair["steps_per_s"]) for pair in pairs]
    rows = [["job", *types, "steps/s"]]
    for jobs, shares, steps_per_s in known[:_MOST_ROWS]:
        percents = (f"{shares[name]:.2%}" if shares.get(name) else "" for name in types)
        rows.append([" + ".join(jobs), *percents, " + ".join(f"{rate:.5g}" for rate in steps_per_s)])
    more = len(known) - _MOST_ROWS
    return "\n".join([*text_columns(rows), *([f"and {more} more in {FILE}"] if more > 0 else [])])
