"""The task of `experiments.cluster`: a simulation of a cluster, or one decision of a policy."""

from __future__ import annotations

import logging
import shlex
from dataclasses import asdict

from experiments.cluster.decision import decide
from experiments.cluster.options import ClusterCommandOptions
from experiments.cluster.outcome_tables import (
    figures_of,
    jobs_table,
    outcome_facts,
    outcome_to_dict,
    series_table,
)
from experiments.cluster.real_run import run_jobs
from experiments.cluster.workload import chosen_policy, read_workload, rounds_of
from experiments.config.options import OptionError
from experiments.config.run_record import given_names, given_words, output_directory
from experiments.report.result import Result
from schedsearch.cluster.simulator.simulation import FROM_KEYBOARD, ClusterProgress, simulate_cluster
from schedsearch.core.progress import StepBar

log = logging.getLogger(__name__)

_OF_DECISIONS = ("allocate", "policy", "policy_options")
"""The options of one decision, whose file says all else."""


def task(options: ClusterCommandOptions) -> Result:
    """Simulate, run the jobs too, or decide.

    Raises:
        OptionError: An option is wrong.
        ClusterError: A file is wrong, or the policy cannot do what is asked.
    """
    if options.allocate is None:
        return _simulate(options) if options.run.command is None else run_jobs(options, output_directory)
    for name in given_names():
        if name.partition(".")[0] not in _OF_DECISIONS:
            raise OptionError(f"{name}: is not of a decision, for which allocate names a file; leave it out")
    return decide(options.allocate, options.policy, options.policy_options)


def _simulate(options: ClusterCommandOptions) -> Result:
    """Return the outcome of a simulation; a Ctrl-C ends it between two rounds."""
    from experiments.cluster.pictures import pictures_of  # loads matplotlib

    policy, work = chosen_policy(options.policy, options.policy_options), read_workload(options)
    cluster, rounds = work.cluster, rounds_of(options)
    free = [gpu_type for gpu_type in cluster.gpu_types if gpu_type not in cluster.dollars_per_hour]
    if free:
        log.info("no price is known for %s; costs in dollars leave them out", ", ".join(free))
    with StepBar(options.policy) as bar:

        def show(progress: ClusterProgress) -> None:
            text = f"{progress.simulated_h:,.0f} h simulated, {progress.active_jobs} jobs there"
            bar(text, progress.jobs_done, max(progress.jobs_wanted, 1))

        found = simulate_cluster(work.jobs, cluster, work.throughputs, policy, work.rules, show)
    if work.skipped_in_words:
        log.warning("%s", work.skipped_in_words)
    gpus = ", ".join(f"{count} {gpu_type}" for gpu_type, count in cluster.workers.items())
    log.info("%s on %s, rounds=%s", found.policy, gpus, rounds)
    command = shlex.join(["schedsearch", "cluster", *given_words()])
    about = {"seed": work.trace_seed, "rounds": rounds, "options": asdict(options), "command": command}
    return Result(
        figures={"policy": found.policy, **figures_of(found)},
        tables={"jobs": jobs_table(found), "series": series_table(found)},
        files={"cluster.json": outcome_to_dict(found, work.skipped) | about},
        pictures=pictures_of(found),
        facts=[*outcome_facts(found)],
        interrupted=f"figures until {found.end_s / 3600:,.1f} h of the trace are in"
        * (found.reason == FROM_KEYBOARD),
    )
