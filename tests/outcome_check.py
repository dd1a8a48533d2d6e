"""Checks an outcome by replaying its recorded rounds, without the simulator: capacity, steps, times, money.

It knows the rules of rounds, and not how a round's jobs were chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.outcome import JobOutcome, JobRun, Outcome, Round
from schedsearch.cluster.throughputs import Throughputs

_CLOSE = 1e-9
"""Of numbers that two ways of adding make."""


@dataclass
class _Replayed:
    """A job's figures, computed anew from the rounds."""

    done: float = 0.0
    first_start_s: float = math.nan
    finish_s: float = math.nan
    gpu_s: list[float] = field(default_factory=list)
    dollars: list[float] = field(default_factory=list)
    kwh: list[float] = field(default_factory=list)
    starts: int = 0
    renewals: int = 0
    gpus: tuple[int, tuple[int, ...]] | None = None
    """Type and GPUs in the last round."""


def plain(value: Any) -> Any:
    """Return an outcome as data that can be compared: numbers that are not finite are None."""
    if is_dataclass(value):
        return {attribute.name: plain(getattr(value, attribute.name)) for attribute in fields(value)}
    if isinstance(value, Mapping):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_outcome(outcome: Outcome, throughputs: Throughputs, options: SimulationOptions) -> None:
    """Check that the recorded rounds keep all rules, and that every number of the outcome follows from them.

    Raises:
        ClusterError: A rule is broken or a number is another; the message says where. Or no rounds were
            recorded.
    """
    if not outcome.recorded and any(job.starts for job in outcome.jobs):
        raise ClusterError("no rounds were recorded; simulate with records_rounds=True")
    replayed = [_Replayed() for _ in outcome.jobs]
    busy_s = dict.fromkeys(outcome.cluster.workers, 0.0)
    free_s = 0.0
    for number, turn in enumerate(outcome.recorded):
        where = f"round {number} at {turn.start_s} s"
        _demand(turn.start_s >= free_s, where, "begins before the one before has ended")
        _check_gpus(turn, outcome.cluster, where)
        ran = [job for run in turn.runs for job in run.jobs]
        _demand(len({*ran}) == len(ran), where, "runs a job twice")
        for run in turn.runs:
            _check_run(run, turn.start_s, outcome, throughputs, options, where)
            _replay(run, turn.start_s, outcome, replayed, options, where)
            busy_s[outcome.cluster.gpu_types[run.gpu_type]] += (run.end_s - turn.start_s) * len(run.gpu_ids)
        _end_leases(replayed, {*ran})
        free_s = max((run.end_s for run in turn.runs), default=free_s)
    _demand(outcome.end_s >= free_s, "the end", "is before the last round's")
    for index, (job, replay) in enumerate(zip(outcome.jobs, replayed, strict=True)):
        _compare(job, replay, f"job {index} ({job.job.name})")
    for gpu_type, seconds in busy_s.items():
        _same(outcome.busy_s[gpu_type], seconds, gpu_type, "busy_s")
    _check_metrics(outcome, replayed, sum(busy_s.values()))


def _check_gpus(turn: Round, cluster: GpuCluster, where: str) -> None:
    """Check that GPUs exist, that no two runs share one, and the power of all."""
    taken = [(run.gpu_type, gpu) for run in turn.runs for gpu in run.gpu_ids]
    _demand(len({*taken}) == len(taken), where, "gives a GPU to two runs")
    for number, gpu in taken:
        workers = cluster.workers[cluster.gpu_types[number]]
        _demand(0 <= gpu < workers, where, f"uses GPU {gpu} of {workers} {cluster.gpu_types[number]}")
    power_w = sum(run.power_w for run in turn.runs)
    _demand(power_w <= cluster.power_cap_w * (1 + _CLOSE), where, f"draws {power_w} W")


def _check_run(
    run: JobRun,
    start_s: float,
    outcome: Outcome,
    throughputs: Throughputs,
    options: SimulationOptions,
    where: str,
) -> None:
    """Check a run's throughputs, power and GPUs against its jobs' types, and its end against the round."""
    gpu_type = outcome.cluster.gpu_types[run.gpu_type]
    jobs = [outcome.jobs[index].job for index in run.jobs]
    gpus = {job.scale_factor for job in jobs}
    _demand(gpus == {len(run.gpu_ids)}, where, f"gives {len(run.gpu_ids)} GPUs to jobs of {gpus}")
    if len(jobs) == 1:
        points = throughputs.alone[jobs[0].type, jobs[0].scale_factor][gpu_type]
        known: set[tuple[tuple[float, ...], float]] = {
            ((point.steps_per_s,), point.power_w) for point in points
        }
    else:
        known = {(throughputs.pair(jobs[0].type, jobs[1].type, jobs[0].scale_factor)[gpu_type], 0.0)}
    _demand((run.steps_per_s, run.power_w) in known, where, f"runs {run.jobs} at {run.steps_per_s} steps/s")
    _demand(
        start_s <= run.end_s <= start_s + options.round_s + _CLOSE * (start_s + options.round_s),
        where,
        f"runs {run.jobs} until {run.end_s}",
    )


def _replay(
    run: JobRun,
    start_s: float,
    outcome: Outcome,
    replayed: Sequence[_Replayed],
    options: SimulationOptions,
    where: str,
) -> None:
    """Do the steps of a run, and add its costs to its jobs."""
    cost_s = max(
        0.0 if renewed else options.restart_s + (options.checkpoint_s if replayed[index].starts else 0.0)
        for index, renewed in zip(run.jobs, run.renewed, strict=True)
    )
    _same(run.first_step_s, start_s + cost_s, where, f"the first step of {run.jobs}")
    ends_s = []
    gpu_s = (run.end_s - start_s) * len(run.gpu_ids)
    gpu_type = outcome.cluster.gpu_types[run.gpu_type]
    for index, rate, steps, renewed in zip(run.jobs, run.steps_per_s, run.steps, run.renewed, strict=True):
        job, replay = outcome.jobs[index].job, replayed[index]
        what = f"{where}, job {job.name}"
        _demand(job.arrival_s <= start_s, what, "runs before it arrives")
        _demand(math.isnan(replay.finish_s), what, "runs although it is done")
        _demand(renewed == (replay.gpus == (run.gpu_type, run.gpu_ids)), what, f"renewed is {renewed}")
        replay.gpus = (run.gpu_type, run.gpu_ids)
        if renewed:
            replay.renewals += 1
        else:
            replay.first_start_s = start_s if not replay.starts else replay.first_start_s
            replay.starts += 1
        whole = math.floor(rate * (options.round_s - cost_s))
        wanted = min(whole or rate * (options.round_s - cost_s), job.steps - replay.done)
        end_s = start_s + cost_s + wanted / rate
        _same(steps, wanted, what, "steps")
        ends_s.append(end_s)
        replay.done += wanted
        if replay.done >= job.steps * (1 - _CLOSE) and wanted > 0:
            replay.finish_s, replay.gpus = end_s, None
        replay.gpu_s.append(gpu_s)
        price = outcome.cluster.price_of(gpu_type)
        replay.dollars.append(gpu_s * price / 3600 / len(run.jobs))
        replay.kwh.append(run.power_w * (run.end_s - start_s) / 3.6e6 / len(run.jobs))
    _same(run.end_s, max(ends_s), where, f"the end of {run.jobs}")


def _end_leases(replayed: Sequence[_Replayed], ran: set[int]) -> None:
    for index, replay in enumerate(replayed):
        if index not in ran:
            replay.gpus = None


def _compare(job: JobOutcome, replay: _Replayed, where: str) -> None:
    for name, value in (
        ("steps_done", replay.done),
        ("first_start_s", replay.first_start_s),
        ("finish_s", replay.finish_s),
        ("gpu_s", math.fsum(replay.gpu_s)),
        ("dollars", math.fsum(replay.dollars)),
        ("kwh", math.fsum(replay.kwh)),
        ("starts", replay.starts),
        ("renewals", replay.renewals),
    ):
        _same(getattr(job, name), value, where, name)


def _check_metrics(outcome: Outcome, replayed: Sequence[_Replayed], busy_s: float) -> None:
    pairs = [*zip(outcome.jobs, replayed, strict=True)]
    jcts = [replay.finish_s - job.job.arrival_s for job, replay in _done(pairs, outcome.window)]
    if jcts:
        _same(outcome.figures["average_jct_s"], math.fsum(jcts) / len(jcts), "outcome", "average_jct_s")
    _same(outcome.figures["dollars"], math.fsum(sum(job.dollars) for job in replayed), "outcome", "dollars")
    if outcome.end_s > 0:
        whole_s = outcome.end_s * sum(outcome.cluster.workers.values())
        _same(outcome.figures["utilisation"], busy_s / whole_s, "outcome", "utilisation")


def _done(
    pairs: Sequence[tuple[JobOutcome, _Replayed]], window: tuple[int, int]
) -> Iterator[tuple[JobOutcome, _Replayed]]:
    for job, replay in pairs[window[0] : window[1]]:
        if not math.isnan(replay.finish_s):
            yield job, replay


def _demand(is_kept: bool, where: str, broken: str) -> None:
    if not is_kept:
        raise ClusterError(f"{where}: {broken}")


def _same(said: float, computed: float, where: str, name: str) -> None:
    if math.isnan(said) and math.isnan(computed):
        return
    if not math.isclose(said, computed, rel_tol=_CLOSE, abs_tol=1e-7):
        raise ClusterError(f"{where}: {name} is {said}, and {computed} by its rounds")
