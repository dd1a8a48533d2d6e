"""The task of `experiments.cluster_study`: plans, frontiers, a trace, and its runs beside their baselines."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from experiments.cluster_study.options import ClusterStudyOptions
from experiments.config.command import Interrupted
from experiments.config.options import read_record, require, require_known, require_once
from experiments.config.run_record import output_directory
from placements.files import csv_text, write_json, write_text
from placements.gpus import GPUS
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.planned_jobs.drawn_jobs import DrawOptions, drawn_jobs
from schedsearch.cluster.planned_jobs.planned_frontier import PlanRequest, kept_frontier
from schedsearch.cluster.planned_jobs.planned_throughputs import PlannedThroughputs, planned_throughputs
from schedsearch.cluster.planned_jobs.study import StudyOptions, StudyResult, study
from schedsearch.figures.canvas import save as save_figure
from schedsearch.figures.cluster_study import draw_power_by_hour, draw_savings
from schedsearch.planning.explanation import table as text_table

log = logging.getLogger(__name__)

HEADS = ["run", "kWh", "$", "mean JCT", "SLOs missed", "peak", "above cap"]
"""Of the table that is shown."""


def task(config: DictConfig) -> dict[str, float | str]:
    """Plan, draw the jobs, run them, and write tables and figures."""
    options = read_record(config, ClusterStudyOptions)
    cluster = _cluster(options)
    draw = _draw_options(options)
    of_study = _study_options(options)
    directory = output_directory()
    table = _table(options, cluster, Path(options.cache_dir) if options.cache_dir else directory / "plans")
    jobs = drawn_jobs(table.throughputs, cluster, draw)
    log.info("%d jobs arrive in %g days", len(jobs), options.days)
    runs = directory / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    try:
        found = study(table, jobs, cluster, of_study, lambda name: log.info("run %s", name), runs)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; what was simulated is in {runs}, and the same command goes on there with "
            f"hydra.run.dir={directory}"
        ) from None
    _save(found, directory)
    log.info("%s", "\n".join(_shown(found)))
    log.info("table, figures and numbers in %s", directory)
    return {f"{row['run']}_kwh": float(row["kwh"]) for row in found.rows()}


def _cluster(options: ClusterStudyOptions) -> GpuCluster:
    types = options.gpu_types
    for gpu_type in types:
        require_known("gpu_types", gpu_type, GPUS)
    require_once("gpu_types", types)
    waiting_w = [GPUS[gpu_type].blocking_power_w for gpu_type in types]
    idle_w = waiting_w if options.idle_power_w is None else options.idle_power_w
    dollars = options.dollars_per_hour or [0.0] * len(types)
    return GpuCluster(
        _by_name("workers", options.workers, "gpu_types", types),
        _by_name("dollars_per_hour", dollars, "gpu_types", types),
        idle_power_w=_by_name("idle_power_w", idle_w, "gpu_types", types),
    )


def _by_name(name: str, values: list[Any], of: str, names: list[Any]) -> dict[str, Any]:
    """Return one value for each name."""
    is_right = len(values) == len(names) and all(type(one) in (int, float) for one in values)
    require(is_right, name, values, f"a number for each of {of}", f"give {len(names)}")
    return dict(zip(names, values, strict=True))


def _draw_options(options: ClusterStudyOptions) -> DrawOptions:
    return DrawOptions(
        options.seed,
        options.days,
        options.jobs_per_day,
        _pair("hours", options.hours),
        options.slo_share,
        _pair("slo_factors", options.slo_factors),
        options.gpu_types[0],
    )


def _pair(name: str, value: list[Any]) -> tuple[float, float]:
    is_right = len(value) == 2 and all(type(one) in (int, float) for one in value)
    require(is_right, name, value, "two numbers", "give the least and the most")
    return float(value[0]), float(value[1])


def _study_options(options: ClusterStudyOptions) -> StudyOptions:
    return StudyOptions(
        tuple(options.runs),
        options.power_cap_w,
        options.dollars_per_kwh,
        options.min_share,
        options.spare_s,
        options.round_s,
    )


def _table(options: ClusterStudyOptions, cluster: GpuCluster, directory: Path) -> PlannedThroughputs:
    found = []
    for model, batch in _by_name("batches", options.batches, "models", options.models).items():
        for gpu_type, workers in cluster.workers.items():
            for gpus in options.counts:
                if gpus <= workers:
                    asked = PlanRequest(
                        model, gpu_type, gpus, batch, options.num_plans, options.search_time_limit_s
                    )
                    found.append(kept_frontier(asked, directory))
                    log.info("%s on %d %s: %s", model, gpus, gpu_type, found[-1].plan or found[-1].reason)
    return planned_throughputs(found, options.max_points, cluster.idle_power_w)


def _save(found: StudyResult, directory: Path) -> None:
    rows = found.rows()
    write_json(directory / "cluster_study.json", {"end_h": found.end_s / 3600, "runs": rows})
    write_text(directory / "cluster_study.csv", csv_text(rows[0], (row.values() for row in rows)))
    write_text(directory / "cluster_study.md", "".join(f"{line}\n" for line in _shown(found)))
    save_figure(draw_savings(rows), directory / "savings")
    save_figure(draw_power_by_hour(found.kw_by_hour()), directory / "power_by_hour")


def _shown(found: StudyResult) -> list[str]:
    """Return the table, and each run in words with its savings."""
    rows = [HEADS, *(cells(row) for row in found.rows())]
    lines = [
        f"{row['run']}: {row['in_words']}; compared with {row['baseline']}, it saves {row['kwh_saved']:.1%} "
        f"of the energy and {row['dollars_saved']:.1%} of the dollars; "
        f"jobs take {1 - row['average_jct_h_saved']:.2f} times as long"
        for row in found.rows()
        if row["baseline"]
    ]
    return [*text_table(rows), "", *lines]


def cells(row: Mapping[str, Any]) -> list[str]:
    """Return the cells of a run under `HEADS`, from its row in `StudyResult.rows`."""
    above = row["share_above_cap"]
    return [
        row["run"],
        f"{row['kwh']:,.1f}",
        f"{row['dollars']:,.2f}",
        f"{row['average_jct_h']:.3g} h",
        f"{row['slo_misses']} of {row['jobs_with_slo']}",
        f"{row['peak_kw']:.3g} kW",
        "" if above is None else f"{above:.1%}",
    ]
