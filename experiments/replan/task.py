"""The task of `experiments.replan`: the ways to go on, their table and their schedules."""

from __future__ import annotations

from experiments.config.options import OptionError, require_known, require_path
from experiments.replan.options import ReplanCommandOptions
from experiments.report.result import Result, Table
from experiments.search.problem import read_problem
from schedsearch.baselines import HAND_MADE
from schedsearch.core.answer import Answer
from schedsearch.replanning.replan import Replan, ReplanRow, replan
from schedsearch.replanning.replicated_job import ReplanError, ReplicatedJob, copies_of, slow_of
from schedsearch.schedule_file import read_found, schedule_to_dict


def task(options: ReplanCommandOptions) -> Result:
    """Try the ways; there is the schedule of each that keeps the stages, and the best of these."""
    require_known("schedule", options.schedule, ["searched", *HAND_MADE])
    search = options.search
    if search.micro_batches is not None:
        raise OptionError("search.micro_batches: replan does not support unequal micro-batches; leave it out")
    before = None
    if search.begin_with is not None:
        read = read_found(require_path("search.begin_with", search.begin_with))
        before = read.schedule if isinstance(read, Answer) else read
    placement, lost, slow = read_problem(options).placement, copies_of(options.lost), slow_of(options.slow)
    job = ReplicatedJob(placement, options.replicas, search.num_micro_batches, lost, *slow)
    if not (job.lost or job.slowdown or job.slow_links):
        raise ReplanError("lost: names no device, and slow neither; give one of them, as lost=[1@0]")
    ways = replan(
        job,
        options.objective,
        schedule=options.schedule,
        parts=options.parts,
        work_limit=search.work_limit,
        time_limit_s=search.time_limit_s,
        seed=search.seed,
        before=before,
    )
    figures: dict[str, float | str] = {}
    if not ways.interrupted:
        best = ways.best
        assert best.iteration_ms is not None and best.throughput is not None, "it is possible"
        figures = {"way": best.way, "iteration_ms": best.iteration_ms, "throughput": best.throughput}
        figures["bound_ms"] = ways.bound_ms
    return Result(
        figures=figures,
        tables={"replan": Table(ReplanRow, ways.rows)},
        files={f"{way}.json": schedule_to_dict(schedule) for way, schedule in ways.schedules.items()},
        sentences=_shown(ways),
        interrupted="the best ways found so far are in" * ways.interrupted,
    )


def _shown(ways: Replan) -> list[str]:
    """Return a line for each way: time of an iteration, and status."""
    lines = []
    for row in ways.rows:
        if row.iteration_ms is None or row.throughput is None:
            lines.append(f"{row.way}: not possible; {row.status}")
            continue
        share = f"{100 * row.throughput:.1f} % of the throughput before"
        lines.append(f"{row.way}: {row.iteration_ms:,.6g} ms, {share}; {row.status}")
    return [*lines, f"with these stages nothing takes less than {ways.bound_ms:,.6g} ms"]
