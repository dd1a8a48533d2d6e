"""The task of `experiments.cluster`: simulations of a cluster, or one decision of a policy."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from experiments.cluster.chosen_policies import names_of
from experiments.cluster.decision import decide
from experiments.cluster.gpu_numbers import gpu_cluster
from experiments.cluster.loads import LoadRow, load_rows
from experiments.cluster.options import ClusterCommandOptions
from experiments.cluster.outcome_files import figures_of
from experiments.cluster.real_run import run_jobs
from experiments.cluster.report import (
    cluster_in_words,
    cluster_page,
    load_fact,
    loads_page,
    outcome_facts,
)
from experiments.cluster.running import (
    Setting,
    SimulationPoint,
    check_points,
    jcts_before,
    points_of,
    run_point,
)
from experiments.cluster.workload import read_data, rounds_of, trace_options
from experiments.config.options import OptionError, require
from experiments.config.run_record import given_names, given_words, output_directory
from experiments.report.result import Result, Table
from schedsearch.cluster.simulator.simulation import FROM_KEYBOARD

log = logging.getLogger(__name__)

_OF_DECISIONS = ("allocate", "policy", "policy_options")
"""The options of one decision, whose file says all else."""


def task(options: ClusterCommandOptions) -> Result:
    """Simulate or decide; after a Ctrl-C the same command goes on in the same folder.

    Raises:
        OptionError: An option is wrong.
        ClusterError: A file is wrong, or a policy cannot do what is asked.
    """
    if options.allocate is not None:
        return _decide(options)
    trace = trace_options(options.trace)
    cluster = gpu_cluster(options.cluster)
    is_sensitive = options.placement_sensitive
    data = read_data(options.data, unconsolidated=is_sensitive)
    if is_sensitive:
        is_known = options.cluster.gpus_per_server is not None
        require(is_known, "cluster.gpus_per_server", None, "known", "give it, as in 4:4:8")
    told: dict[str, object] = {"options": asdict(options), "command": _command_line()}
    setting, points = Setting(options, cluster, data, trace, told), points_of(options)
    check_points(points, setting)
    if options.run.command is not None:
        return run_jobs(points, setting, output_directory)
    free = [gpu_type for gpu_type in cluster.gpu_types if gpu_type not in cluster.dollars_per_hour]
    if free:
        log.info("no price is known for %s; costs in dollars leave them out", ", ".join(free))
    return _simulate_all(points, setting) if len(points) > 1 else _simulate(points[0], setting)


def _decide(options: ClusterCommandOptions) -> Result:
    for name in given_names():
        if name.partition(".")[0] not in _OF_DECISIONS:
            raise OptionError(f"{name}: is not of a decision, for which allocate names a file; leave it out")
    names = names_of(options.policy)
    require(len(names) == 1, "policy", options.policy, "one policy", "give one for each decision")
    return decide(str(options.allocate), names[0], options.policy_options)


def _simulate(point: SimulationPoint, setting: Setting) -> Result:
    directory = output_directory()
    found, skipped = run_point(point, setting, directory)
    from experiments.cluster.pictures import save_pictures  # loads matplotlib

    pictures = save_pictures(found, directory)
    if skipped:
        log.warning("%s", skipped)
    rounds = rounds_of(setting.options, point.policy)
    log.info("%s on %s, rounds=%s", found.policy, cluster_in_words(found.cluster), rounds)
    return Result(
        figures={"policy": found.policy, **figures_of(found)},
        files={"report.html": cluster_page(found, skipped, _command_line(), pictures)},
        facts=outcome_facts(found),
        interrupted=f"figures until {found.end_s / 3600:,.1f} h of the trace are in"
        * (found.reason == FROM_KEYBOARD),
    )


def _simulate_all(points: list[SimulationPoint], setting: Setting) -> Result:
    directory = output_directory()
    jcts: dict[SimulationPoint, list[float]] = {}
    for number, point in enumerate(points, 1):
        folder = directory / point.folder
        before = jcts_before(point, setting, folder)
        log.info("%d of %d: %s%s", number, len(points), point, ": done before" if before else "")
        if before is not None:
            jcts[point] = before
            continue
        try:
            found, skipped = run_point(point, setting, folder)
            is_cut = found.reason == FROM_KEYBOARD
        except KeyboardInterrupt:  # while files were written
            is_cut = True
        if is_cut:
            return replace(
                _comparison(jcts, setting, directory),
                interrupted="the same command goes on in hydra.run.dir =",
            )
        if skipped and number == 1:
            log.warning("%s", skipped)
        jcts[point] = found.jcts_s.tolist()
    return _comparison(jcts, setting, directory)


def _comparison(
    jcts_s: Mapping[SimulationPoint, Sequence[float]], setting: Setting, directory: Path
) -> Result:
    """Return the table, figures and page of the simulations that are done; the figures are the averages."""
    rows = load_rows(jcts_s)
    from experiments.cluster.pictures import save_load_pictures  # loads matplotlib

    pictures = save_load_pictures(rows, jcts_s, directory)
    return Result(
        figures={
            f"{row.name}_average_jct_s": row.average_jct_s for row in rows if row.average_jct_s is not None
        },
        tables={"loads": Table(LoadRow, rows)},
        files={"report.html": loads_page(rows, setting.cluster, _command_line(), pictures)},
        facts=[load_fact(row) for row in rows],
    )


def _command_line() -> str:
    return shlex.join(["schedsearch", "cluster", *given_words()])
