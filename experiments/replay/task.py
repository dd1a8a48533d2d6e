"""The task of `experiments.replay`: every job's iterations, their table, and the means of each job."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import astuple, fields
from pathlib import Path
from statistics import fmean

from experiments.config.command import Interrupted
from experiments.config.options import require_path
from experiments.config.run_record import output_directory
from experiments.replay.options import ReplayCommandOptions
from placements.forms.texts import csv_text, write_json, write_text
from placements.placement_file import placement_to_yaml
from schedsearch.core.progress import StepBar
from schedsearch.replay.pipeline import measured_placement
from schedsearch.replay.replay import ReplayedIteration, ReplayedJob, mean_of, replay
from schedsearch.replay.trace import read_job_trace, read_job_traces
from schedsearch.solver.interrupts import INTERRUPTS

log = logging.getLogger(__name__)


def task(options: ReplayCommandOptions) -> dict[str, float | str]:
    """Replay the jobs, print and write what was found; return the mean times over all iterations.

    Raises:
        Interrupted: From the keyboard; the tables have what is done.
    """
    traces = [read_job_trace(path) for path in read_job_traces(require_path("data", options.data))]
    directory, total = output_directory(), sum(len(each.steps) for each in traces)
    done: list[ReplayedIteration] = []
    with StepBar("replay") as bar, INTERRUPTS.answered() as ending:

        def keep(iteration: ReplayedIteration) -> None:
            done.append(iteration)
            save(done, directory)
            bar(f"{iteration.job}, step {iteration.step}", len(done), total)

        for trace in traces:
            for line in trace.lines:
                log.info("%s", line)
            placement, times = measured_placement(trace)
            write_text(directory / f"placement-{trace.job}.yaml", placement_to_yaml(placement))
            scenario = {"name": f"as measured in {trace.job}", "measured_ms": times}
            write_json(directory / f"scenarios-{trace.job}.yaml", [scenario])
            replay(trace, options.work_limit * len(trace.steps) / total, options.seed, keep)
    for job in jobs_of(done):
        log.info("%s", _in_words(job, [each for each in done if each.job == job.job]))
    log.info("means and iterations: %s and iterations.csv in %s", "replay.csv", directory)
    if ending.interrupted:
        raise Interrupted(f"interrupted; {len(done)} of {total} iterations are in {directory}")
    columns = ("measured_ms", "simulated_ms", "reordered_ms", "reassigned_ms", "bound_ms")
    return {name: fmean(getattr(each, name) for each in done) for name in columns}


def jobs_of(done: Sequence[ReplayedIteration]) -> list[ReplayedJob]:
    """Return the means of each job."""
    names = dict.fromkeys(each.job for each in done)
    return [mean_of([each for each in done if each.job == name]) for name in names]


def save(done: Sequence[ReplayedIteration], directory: Path) -> None:
    """Write the means of each job, and all iterations."""
    for name, kind, rows in (
        ("replay.csv", ReplayedJob, jobs_of(done)),
        ("iterations.csv", ReplayedIteration, done),
    ):
        columns = [field.name for field in fields(kind)]
        write_text(directory / name, csv_text(columns, map(astuple, rows)))


def _in_words(job: ReplayedJob, iterations: Sequence[ReplayedIteration]) -> str:
    """Return what was found in a line."""

    def beside(ms: float) -> str:
        return f"{ms:,.6g} ms ({ms / job.measured_ms - 1:+.2%})"

    slowest = fmean(each.measured_ms / each.measured_mean_ms for each in iterations)
    then = fmean(each.reassigned_ms / each.reassigned_mean_ms for each in iterations)
    return (
        f"{job.job}, {job.iterations} iterations: measured {job.measured_ms:,.6g} ms; simulated "
        f"{beside(job.simulated_ms)}, reordered {beside(job.reordered_ms)}, reassigned "
        f"{beside(job.reassigned_ms)}, bound {beside(job.bound_ms)}; slowest replica over the mean "
        f"{slowest:.3f}, reassigned {then:.3f}"
    )
