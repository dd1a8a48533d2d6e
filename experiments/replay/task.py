"""The task of `experiments.replay`: where a measured job's time goes, and the best orders for it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from statistics import fmean

from experiments.config.options import OptionError, require, require_path
from experiments.config.run_record import output_directory
from experiments.replay.options import ReplayCommandOptions
from experiments.report.result import Result, Table
from placements import Profile
from placements.forms.texts import text_columns
from placements.placement_file import placement_to_yaml
from runtime.torch_pipelining.csv import torch_order
from schedsearch.core.progress import StepBar
from schedsearch.figures.canvas import save_widths
from schedsearch.figures.causes import draw_causes
from schedsearch.figures.comparison import save_timelines
from schedsearch.figures.perfetto import write_perfetto
from schedsearch.replay.causes import CauseRow, causes_of
from schedsearch.replay.job import Job, job_of
from schedsearch.replay.pipeline import (
    TICK_MS,
    JobPipeline,
    Variant,
    block_times,
    job_pipeline,
    measured_orders,
)
from schedsearch.replay.replay import (
    EQUAL,
    HALVES,
    ORDER,
    ChangeRow,
    ReplayedIteration,
    as_measured,
    as_replayed,
    best_orders,
    changes,
    orders_in,
    replay,
    variants,
)
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import schedule_to_dict
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.traces.reading import read_folder

log = logging.getLogger(__name__)

_SHARE_OF_ORDERS = 0.6
"""Share of the work for one order of all iterations and for equal stages."""

_FILES = {ORDER: "schedule", HALVES: "split_backward", EQUAL: "equal_stages"}
"""Begins of the names of schedules' files."""

_CLOSE = 0.015
"""Difference of simulated and measured time from which on a line says so."""

_OTHER_TIMES = 0.1
"""Difference of a profile's times from the trace's from which on a line says so."""

_J_PER_KWH = 3.6e6


@dataclass
class _Replayed:
    """One job and its results so far; `best` is empty before its orders are searched."""

    job: Job
    made: Mapping[str, Variant]
    causes: list[CauseRow]
    best: Mapping[str, Schedule] = field(default_factory=dict)
    iterations: list[ReplayedIteration] = field(default_factory=list)

    @property
    def pipeline(self) -> JobPipeline:
        """The job's pipeline as it is."""
        return self.made[ORDER][1]


@dataclass(frozen=True)
class ReplayRow:
    """A row of ``replay.csv``: the pipeline's time of a job with a change, and its energy.

    Attributes:
        job: As in `ChangeRow`, like the next three.
        saved: Share of the simulated time that is saved.
        energy_j: Energy of all GPUs in the pipeline's time; None without a profile.
        tokens_per_kwh: Tokens for a kWh; None without a profile or their number.
        schedule: File of the order; empty where there is none.
    """

    job: str
    change: str
    pipeline_ms: float
    bound_ms: float | None
    saved: float
    energy_j: float | None
    tokens_per_kwh: float | None
    schedule: str


def task(options: ReplayCommandOptions) -> Result:
    """Replay the jobs; the tables have each iteration as soon as it is done."""
    profile = _profile(options)
    with StepBar("replay") as bar, INTERRUPTS.answered() as ending:
        tables = read_folder(require_path("data", options.data), options.pattern, bar)
        jobs = [job_of(table, options.tensor_parallel) for table in tables]
        total, done = sum(len(job.steps) for job in jobs), list[_Replayed]()

        def write() -> None:
            result = result_so_far(done, profile, options.tokens)
            replace(result, pictures={}).write(output_directory())

        def keep(iteration: ReplayedIteration) -> None:
            done[-1].iterations.append(iteration)
            write()
            number = sum(len(replayed.iterations) for replayed in done)
            bar(f"{iteration.job}, iteration {iteration.step}", number, total)

        for job in jobs:
            for line in job.lines:
                log.info("%s", line)
            pipeline, share = job_pipeline(job), options.work_limit * len(job.steps) / total
            if profile is not None:
                _check_times(profile, pipeline)
            done.append(_Replayed(job, variants(job, pipeline), causes_of(job, pipeline)))
            write()
            done[-1].best = best_orders(done[-1].made, share * _SHARE_OF_ORDERS, options.seed)
            limit = share * (1 - _SHARE_OF_ORDERS)
            replay(done[-1].made, done[-1].best, limit, options.seed, keep)
    number = sum(len(replayed.iterations) for replayed in done)
    return result_so_far(
        done, profile, options.tokens, f"{number} of {total} iterations are in" * ending.interrupted
    )


def _profile(options: ReplayCommandOptions) -> Profile | None:
    """Return the profile that gives the energies; None where there is none."""
    if options.profile is None:
        for name in ("blocking_power_w", "tokens"):
            require(getattr(options, name) is None, name, getattr(options, name), "of use without profile")
        return None
    if options.blocking_power_w is None:
        raise OptionError(
            "blocking_power_w: is missing beside profile; give the power of a GPU that waits, in W"
        )
    path = require_path("profile", options.profile)
    return Profile.from_csv(path, blocking_power_w=options.blocking_power_w)


def _check_times(profile: Profile, pipeline: JobPipeline) -> None:
    """Check that a profile has all blocks, and warn where its times are not the trace's."""
    profile.require(pipeline.placement)
    own_ms = sum(profile.fastest(name).time_ms for name in pipeline.time_ms)
    trace_ms = sum(pipeline.time_ms.values())
    if abs(own_ms / trace_ms - 1) > _OTHER_TIMES:
        log.warning(
            f"warning: profile: its blocks take {own_ms:,.4g} ms for a micro-batch, in the trace "
            f"{trace_ms:,.4g} ms; energies are the profile's, waiting is by the trace"
        )


def result_so_far(
    done: Sequence[_Replayed], profile: Profile | None, tokens: int | None, interrupted: str = ""
) -> Result:
    """Return the results of each job so far; the figures are means over all iterations."""
    rows = [row for replayed in done for row in _rows(replayed, profile, tokens)]
    files: dict[str, object] = {}
    pictures = {}
    for replayed in done:
        name = replayed.job.name
        files[f"placement-{name}.yaml"] = placement_to_yaml(replayed.pipeline.placement)
        scenario = {"name": f"as measured in {name}", "measured_ms": block_times(replayed.job)}
        files[f"scenarios-{name}.yaml"] = [scenario]
        for change, schedule in replayed.best.items():
            files[f"{_FILES[change]}-{name}.json"] = schedule_to_dict(schedule)
        if replayed.iterations:
            files[f"schedule-{name}.csv"] = str(torch_order(replayed.best[ORDER]))
            files[f"trace-{name}.json"] = partial(_write_trace, replayed)
            pictures[f"timelines-{name}"] = partial(_draw_timelines, replayed)
        parts = [(row.cause, row.time_ms) for row in _shown(replayed.causes)]
        title = f"{name}: an iteration of {replayed.causes[-1].time_ms:,.5g} ms"
        pictures[f"causes-{name}"] = partial(_draw_causes, title, parts)
    columns = ("measured_ms", "simulated_ms", "reordered_ms", "reordered_bound_ms", "equal_ms")
    iterations = [iteration for replayed in done for iteration in replayed.iterations]
    return Result(
        figures={name: fmean(map(attrgetter(name), iterations)) for name in columns if iterations},
        tables={
            "replay": Table(ReplayRow, rows),
            "causes": Table(CauseRow, [row for replayed in done for row in replayed.causes]),
            "iterations": Table(ReplayedIteration, iterations),
        },
        files=files,
        pictures=pictures,
        sentences=[line for replayed in done for line in _in_words(replayed, rows)],
        interrupted=interrupted,
    )


def _rows(replayed: _Replayed, profile: Profile | None, tokens: int | None) -> Iterator[ReplayRow]:
    """Yield the rows of a job; none before its first iteration is replayed."""
    if not replayed.iterations:
        return
    rows, name = changes(replayed.iterations), replayed.job.name
    number = fmean(iteration.micro_batches for iteration in replayed.iterations)
    replicas = replayed.iterations[0].replicas
    for row in rows:
        energy_j = None if profile is None else _energy_j(replayed.pipeline, profile, row, number, replicas)
        per_kwh = None
        if energy_j is not None and tokens is not None:
            per_kwh = round(number * tokens * _J_PER_KWH / energy_j)
        saved = round(1 - row.pipeline_ms / rows[1].pipeline_ms, 6)
        file = f"{_FILES[row.change]}-{name}.json" if row.change in _FILES else ""
        yield ReplayRow(name, row.change, row.pipeline_ms, row.bound_ms, saved, energy_j, per_kwh, file)


def _energy_j(
    pipeline: JobPipeline, profile: Profile, row: ChangeRow, micro_batches: float, replicas: int
) -> float:
    """Return the energy of all devices: blocks at their highest clocks, and waiting in the other time."""
    points = [profile.fastest(name) for name in pipeline.time_ms]
    gpu_ms = pipeline.placement.num_devices * replicas * row.pipeline_ms
    waiting_ms = gpu_ms - micro_batches * sum(pipeline.time_ms.values())
    waits_w = profile.blocking_w(points[0].clock_mhz)
    return round((micro_batches * sum(p.energy_mj for p in points) + waiting_ms * waits_w) / 1e3, 3)


def _shown(causes: Sequence[CauseRow]) -> list[CauseRow]:
    """Return the parts of an iteration that are not negligible."""
    return [row for row in causes[:-1] if abs(row.time_ms) >= 5e-5 * causes[-1].time_ms]


def _in_words(replayed: _Replayed, rows: Sequence[ReplayRow]) -> Iterator[str]:
    """Yield the causes and the changes of a job as two tables for a terminal."""
    name, iteration_ms = replayed.job.name, replayed.causes[-1].time_ms
    job_rows = [row for row in rows if row.job == name]
    yield f"{name}: an iteration takes {iteration_ms:,.6g} ms (mean of {len(replayed.job.steps)})"
    parts = [["part of the iteration", "ms", "share", "saved if only this is removed"]]
    for cause in _shown(replayed.causes):
        alone = "" if cause.alone_ms is None else f"{cause.alone_ms:,.4g} ms"
        parts.append([cause.cause, f"{cause.time_ms:,.4g}", f"{cause.time_ms / iteration_ms:.1%}", alone])
    yield "\n".join(text_columns(parts))
    if not job_rows:
        return
    measured_ms, simulated_ms = job_rows[0].pipeline_ms, job_rows[1].pipeline_ms
    off = simulated_ms / measured_ms - 1
    yield f"{name}: its pipeline takes {measured_ms:,.6g} ms, simulated {simulated_ms:,.6g} ms ({off:+.2%})"
    if abs(off) > _CLOSE:
        yield f"{name}: delays vary, so that usual ones are {abs(off):.1%} off; trust savings above that"
    has_energy = job_rows[0].energy_j is not None
    better = [
        ["what may change", "pipeline", "saved over simulated", "bound", *["energy"] * has_energy, "file"]
    ]
    for row in job_rows[2:]:
        bound = "" if row.bound_ms is None else f"{row.bound_ms:,.6g} ms"
        texts = [f"{row.pipeline_ms:,.6g} ms", f"{row.saved:.2%}", bound]
        energy = [] if row.energy_j is None else [f"{row.energy_j:,.6g} J"]
        better.append([row.change, *texts, *energy, row.schedule])
    yield "\n".join(text_columns(better))


def _timelines(replayed: _Replayed) -> dict[str, Schedule]:
    """Return the iteration of median time, as measured, simulated and in better orders, by their titles."""
    iteration = sorted(replayed.iterations, key=attrgetter("measured_ms"))[len(replayed.iterations) // 2]
    run = max(replayed.job.steps[iteration.step], key=attrgetter("measured_ms"))
    orders = measured_orders(run, replayed.job.device)
    rows = {
        "measured": as_measured(replayed.pipeline, run),
        "simulated": as_replayed(*replayed.made[ORDER], run, orders),
    }
    replica = replayed.job.steps[iteration.step].index(run)
    for change, (job, pipeline) in replayed.made.items():
        better, changed = orders_in(replayed.best[change]), job.steps[iteration.step][replica]
        if change != ORDER or tuple(better) != orders:
            rows[change] = as_replayed(job, pipeline, changed, better)
    title = "{}: iteration {}, {:,.6g} ms"
    return {title.format(name, iteration.step, row.makespan * TICK_MS): row for name, row in rows.items()}


def _draw_causes(title: str, parts: Sequence[tuple[str, float]], path: Path) -> None:
    """Draw the parts of an iteration, wide and for a column."""
    save_widths(draw_causes(title, parts, 8.0), draw_causes(title, parts), path)


def _write_trace(replayed: _Replayed, path: Path) -> None:
    """Write a typical iteration for ui.perfetto.dev."""
    write_perfetto(path, {title.partition(":")[0]: row for title, row in _timelines(replayed).items()})


def _draw_timelines(replayed: _Replayed, path: Path) -> None:
    """Draw a typical iteration, wide and for a column."""
    save_timelines(_timelines(replayed), path)
