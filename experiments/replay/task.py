"""The task of `experiments.replay`: every job's iterations, their table, and the means of each job."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from statistics import fmean

from experiments.config.options import require_path
from experiments.config.run_record import output_directory
from experiments.replay.options import ReplayCommandOptions
from experiments.report.result import Result, Table
from placements.placement_file import placement_to_yaml
from schedsearch.core.progress import StepBar
from schedsearch.replay.pipeline import measured_placement
from schedsearch.replay.replay import ReplayedIteration, ReplayedJob, mean_of, replay
from schedsearch.replay.trace import read_job_trace, read_job_traces
from schedsearch.solver.interrupts import INTERRUPTS

log = logging.getLogger(__name__)


def task(options: ReplayCommandOptions) -> Result:
    """Replay the jobs; the tables have each iteration as soon as it is done."""
    traces = [read_job_trace(path) for path in read_job_traces(require_path("data", options.data))]
    total, files = sum(len(each.steps) for each in traces), dict[str, object]()
    done: list[ReplayedIteration] = []
    with StepBar("replay") as bar, INTERRUPTS.answered() as ending:

        def keep(iteration: ReplayedIteration) -> None:
            done.append(iteration)
            found_until_now(done, files).write(output_directory())
            bar(f"{iteration.job}, step {iteration.step}", len(done), total)

        for trace in traces:
            for line in trace.lines:
                log.info("%s", line)
            placement, times = measured_placement(trace)
            scenario = {"name": f"as measured in {trace.job}", "measured_ms": times}
            files[f"placement-{trace.job}.yaml"] = placement_to_yaml(placement)
            files[f"scenarios-{trace.job}.yaml"] = [scenario]
            replay(trace, options.work_limit * len(trace.steps) / total, options.seed, keep)
    return found_until_now(done, files, f"{len(done)} of {total} iterations are in" * ending.interrupted)


def found_until_now(
    done: Sequence[ReplayedIteration], files: Mapping[str, object], interrupted: str = ""
) -> Result:
    """Return the iterations with the means of each job, and as figures the means over all iterations."""
    jobs = {each.job: [other for other in done if other.job == each.job] for each in done}
    means = [mean_of(iterations) for iterations in jobs.values()]
    columns = ("measured_ms", "simulated_ms", "reordered_ms", "reassigned_ms", "bound_ms")
    return Result(
        figures={name: fmean(getattr(each, name) for each in done) for name in columns if done},
        tables={"replay": Table(ReplayedJob, means), "iterations": Table(ReplayedIteration, done)},
        files=files,
        sentences=[_in_words(job, jobs[job.job]) for job in means],
        interrupted=interrupted,
    )


def _in_words(job: ReplayedJob, iterations: Sequence[ReplayedIteration]) -> str:
    """Return the means of a job in a line."""

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
