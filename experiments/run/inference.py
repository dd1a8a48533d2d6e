"""The requests of an inference: how long they take as planned, at measured times of blocks, as measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from experiments.config.options import OptionError
from experiments.frontier.results import EnergyResult
from experiments.run.options import RuntimeOptions
from experiments.run.scripts import planned_scripts, repetend_of_scripts, script_schedule
from experiments.search.results import SearchStepResult
from placements import Kind, Placement
from placements.forms.texts import text_columns
from runtime.profiling.records import Record, aligned
from schedsearch.schedule import Instance, Schedule
from schedsearch.simulation.iterations import PERCENTILES
from schedsearch.simulation.requests import (
    Arrivals,
    ServedRequests,
    check_inference,
    entries,
    max_rate_per_s,
    serve,
)

SCHEMA_VERSION = 1
"""Version of the form of ``requests.json``."""


class RequestsRow(NamedTuple):
    """One row of the table.

    Attributes:
        name: Source of the times of its blocks.
        served: The requests.
        max_rate_per_s: The largest rate that is kept up with; None where no repetend is known.
    """

    name: str
    served: ServedRequests
    max_rate_per_s: float | None = None


def arrivals_of(options: RuntimeOptions) -> Arrivals:
    """Return when the requests of a run come."""
    return Arrivals(options.arrival_rate, options.arrivals, options.arrival_seed)


def is_inference(placement: Placement) -> bool:
    """Tell whether micro-batches are requests, as all blocks are forward blocks."""
    return all(block.kind is Kind.F for block in placement.blocks)


def check_requests_on(options: RuntimeOptions, placement: Placement, num_micro_batches: int) -> None:
    """Reject requests that come one after the other where they cannot."""
    if options.arrival_rate is None:
        return
    check_inference(placement, "runtime.arrival_rate")
    if options.launcher == "in_process":
        wrong = "devices that take turns in one process cannot wait beside each other"
        raise OptionError(f"runtime.arrival_rate: {wrong}; use runtime.launcher=fork or torchrun")
    number = options.num_micro_batches or num_micro_batches
    arrivals = arrivals_of(options)
    last_s = max(arrivals.ms(number, each)[-1] for each in range(options.iterations)) / 1e3
    if last_s >= options.timeout_s:
        wrong = f"the last of {number} requests comes after {last_s:.3g} s, and runtime.timeout_s is"
        remedy = "give more requests per second, or a longer time"
        raise OptionError(f"runtime.arrival_rate: {wrong} {options.timeout_s:g} s; {remedy}")


def requests_of(
    options: RuntimeOptions,
    found: SearchStepResult,
    tuned: EnergyResult | None,
    records: Sequence[Sequence[Record]] = (),
) -> tuple[dict[str, object], list[str]]:
    """Return how long the requests of an inference take, as a file and in lines; nothing of a training."""
    if not is_inference(found.placement):
        return {}, []
    arrivals = arrivals_of(options)
    rows = request_rows(found, tuned, arrivals, records)
    return {"requests.json": requests_to_dict(rows, arrivals)}, requests_table(rows, arrivals)


def request_rows(
    found: SearchStepResult,
    tuned: EnergyResult | None,
    arrivals: Arrivals,
    records: Sequence[Sequence[Record]] = (),
) -> list[RequestsRow]:
    """Return the rows: as planned, and of a run at the measured times of its blocks, and as measured.

    The first iteration of a run, in which much is done for the first time, counts only if it is the only one.

    Without clocks the times are the placement's. The records of all devices are of the same iterations; they
    are empty where nothing was run.
    """
    iterations = [*zip(*records, strict=True)]
    iterations = iterations[1:] or iterations
    first, number = (iterations[0][0].iteration, _num_requests(iterations[0])) if iterations else (0, None)
    repetend = repetend_of_scripts(found, tuned)

    def row(name: str, on: Schedule, times_ms: Mapping[Instance, list[float]]) -> RequestsRow:
        served = serve(on, arrivals, iterations=len(iterations) or 1, first=first, times_ms=times_ms)
        if repetend is None:
            return RequestsRow(name, served)
        by_block = defaultdict[str, list[float]](list)
        for (block, _), given in times_ms.items():
            by_block[block] += given
        means_ms = {block: float(np.mean(given)) for block, given in by_block.items()}
        return RequestsRow(name, served, max_rate_per_s(repetend, means_ms))

    if tuned:
        planned = planned_scripts(found, tuned, number)
        schedule, plan_ms = planned.schedule, {each: [p.time_ms] for each, p in planned.points.items()}
    else:
        schedule = script_schedule(found.schedule)
        ms, time_of = schedule.placement.ms, schedule.block
        plan_ms = {(name, n): [ms(time_of(name, n).time)] for _, n, name in schedule.blocks}
    rows = [row("planned", schedule, plan_ms)]
    if iterations:
        measured = [_block_times(records_of) for records_of in iterations]
        measured_ms = {each: [ms_of[each] for ms_of in measured if each in ms_of] for each in plan_ms}
        bare = replace(schedule, placement=replace(schedule.placement, transfer=()))
        rows.append(row("planned, at measured times", bare, measured_ms))
        rows.append(RequestsRow("measured", _measured(schedule.placement, arrivals, iterations)))
    return rows


def _num_requests(records: Sequence[Record]) -> int:
    return 1 + max(row.micro_batch for record in records for row in record.blocks)


def requests_to_dict(rows: Sequence[RequestsRow], arrivals: Arrivals) -> dict[str, object]:
    """Return the content of ``requests.json``."""
    return {
        "schema_version": SCHEMA_VERSION,
        "arrival_rate_per_s": arrivals.rate_per_s,
        "arrivals": arrivals.spacing,
        "seed": arrivals.seed,
        "rows": [
            {"name": row.name, "max_rate_per_s": row.max_rate_per_s, **row.served.to_dict()} for row in rows
        ],
    }


def requests_table(rows: Sequence[RequestsRow], arrivals: Arrivals) -> list[str]:
    """Return the table as lines of text."""
    iterations, number = rows[0].served.arrived_ms.shape
    come = "all at once"
    if arrivals.rate_per_s is not None:
        seed = f", seed {arrivals.seed}" if arrivals.spacing == "poisson" else ""
        come = f"{arrivals.rate_per_s:g} per s ({arrivals.spacing}{seed})"
    each = "" if iterations == 1 else f" in each of {iterations} iterations"
    table = [["", *(f"latency p{each}" for each in PERCENTILES), "wait", "throughput", "keeps up with"]]
    for name, served, max_rate in rows:
        times = (f"{ms:,.4g} ms" for ms in (*served.percentiles_ms.values(), served.waited_ms))
        rate = "" if max_rate is None else f"{max_rate:,.4g} per s"
        table.append([name, *times, f"{served.throughput_per_s:,.4g} per s", rate])
    return [f"{'requests':<12}{number}{each}, {come}", *text_columns(table)]


def _block_times(records: Sequence[Record]) -> dict[Instance, float]:
    """Return the time of each block; of one on several devices on the quickest, as the others waited."""
    found: dict[Instance, float] = {}
    for row in (row for record in records for row in record.blocks):
        taken_ms = row.end_ms - row.begin_ms
        found[row.instance] = min(taken_ms, found.get(row.instance, taken_ms))
    return found


def _measured(
    placement: Placement, arrivals: Arrivals, iterations: Sequence[Sequence[Record]]
) -> ServedRequests:
    """Return the requests as they were: each comes by the clock of the device that begins it first."""
    begins = entries(placement)
    number = _num_requests(iterations[0])
    shape = len(iterations), number
    arrived, began, ended = np.full(shape, np.inf), np.full(shape, np.inf), np.zeros(shape)
    for i, records in enumerate(iterations):
        offset_ms, comes_ms = aligned(records), arrivals.ms(number, records[0].iteration)
        for record in records:
            at_ms = offset_ms[record.device]
            for row in record.blocks:
                n = row.micro_batch
                if row.block in begins:
                    arrived[i, n] = min(arrived[i, n], at_ms + comes_ms[n])
                    began[i, n] = min(began[i, n], at_ms + row.begin_ms)
                ended[i, n] = max(ended[i, n], at_ms + row.end_ms)
    return ServedRequests(arrived, began, ended)
