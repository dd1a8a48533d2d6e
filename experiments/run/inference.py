"""The requests of an inference: how long they take as planned, at measured times of blocks, as measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from experiments.config.options import OptionError
from experiments.frontier.results import EnergyResult
from experiments.run.options import RuntimeOptions
from experiments.run.scripts import planned_scripts
from experiments.run.traces import script_schedule
from experiments.search.results import SearchStepResult
from placements import Kind, Placement
from placements.forms.texts import text_columns, write_json
from runtime.profiling.records import Record, aligned
from schedsearch.schedule import Instance
from schedsearch.simulation.conditions import ConditionsError
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


@dataclass(frozen=True)
class RequestsRow:
    """One row of the table.

    Attributes:
        name: Whose times its blocks have.
        served: The requests.
        max_rate_per_s: The largest rate that is kept up with; None where no repetend is known.
    """

    name: str
    served: ServedRequests
    max_rate_per_s: float | None


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
    try:
        check_inference(placement, "runtime.arrival_rate")
    except ConditionsError as error:
        raise OptionError(str(error)) from None
    if options.launcher == "in_process":
        raise OptionError(
            "runtime.arrival_rate: devices that take turns in one process cannot wait beside each other; "
            "use runtime.launcher=fork or torchrun"
        )
    number = options.num_micro_batches or num_micro_batches
    arrivals = arrivals_of(options)
    last_s = max(arrivals.ms(number, each)[-1] for each in range(options.iterations)) / 1e3
    if last_s >= options.timeout_s:
        raise OptionError(
            f"runtime.arrival_rate: the last of {number} requests comes after {last_s:.3g} s, and "
            f"runtime.timeout_s is {options.timeout_s:g} s; give more requests per second, or a longer time"
        )


def request_rows(
    found: SearchStepResult,
    tuned: EnergyResult | None,
    arrivals: Arrivals,
    records: Sequence[Sequence[Record]] = (),
) -> list[RequestsRow]:
    """Return the rows: as planned, and of a run at the measured times of its blocks, and as measured.

    The first iteration of a run, in which much is done for the first time, counts only if it is the only one.

    Args:
        found: The schedule.
        tuned: Its clocks; None for the times of the placement.
        arrivals: When requests come.
        records: Of each device of the run, those of the same iterations; empty where nothing was run.
    """
    iterations = [*zip(*records, strict=True)]
    iterations = iterations[1:] or iterations
    number = 1 + max((row.micro_batch for row in iterations[0][0].blocks), default=0) if iterations else None
    planned = planned_scripts(found, tuned, number) if tuned else None
    schedule = planned.schedule if planned else script_schedule(found.schedule)
    repetend = found.result.repetend if found.result else None
    if tuned and tuned.periodic is not None:
        repetend = tuned.periodic.periodic.repetend
    first, count = (iterations[0][0].iteration, len(iterations)) if iterations else (0, 1)

    def row(
        name: str, served: ServedRequests, times_ms: Mapping[Instance, list[float]] | None
    ) -> RequestsRow:
        if repetend is None:
            return RequestsRow(name, served, None)
        by_block: dict[str, list[float]] = {}
        for (block, _), given in (times_ms or {}).items():
            by_block.setdefault(block, []).extend(given)
        means = {block: float(np.mean(each)) for block, each in by_block.items()}
        return RequestsRow(name, served, max_rate_per_s(repetend, means or None))

    own_ms = {(b, n): [schedule.placement.ms(schedule.block(b, n).time)] for _, n, b in schedule.blocks}
    plan_ms = {each: [point.time_ms] for each, point in planned.points.items()} if planned else own_ms
    served = serve(schedule, arrivals, iterations=count, first=first, times_ms=plan_ms)
    rows = [row("planned", served, None if plan_ms == own_ms else plan_ms)]
    if iterations:
        measured_ms: dict[Instance, list[float]] = {each: [] for each in plan_ms}
        for records_of in iterations:
            for instance, ms in _block_times(records_of).items():
                measured_ms[instance].append(ms)
        bare = replace(schedule, placement=replace(schedule.placement, transfer=()))
        served = serve(bare, arrivals, iterations=count, first=first, times_ms=measured_ms)
        rows.append(row("planned, at measured times", served, measured_ms))
        rows.append(RequestsRow("measured", _measured(schedule.placement, arrivals, iterations), None))
    return rows


def save_requests(rows: Sequence[RequestsRow], arrivals: Arrivals, directory: Path) -> list[str]:
    """Write ``requests.json`` and return the table as lines of text."""
    facts = {
        "schema_version": SCHEMA_VERSION,
        "arrival_rate_per_s": arrivals.rate_per_s,
        "arrivals": arrivals.spacing,
        "seed": arrivals.seed,
        "rows": [
            {"name": row.name, "max_rate_per_s": row.max_rate_per_s, **row.served.to_dict()} for row in rows
        ],
    }
    write_json(directory / "requests.json", facts)
    iterations, number = rows[0].served.arrived_ms.shape
    come = "all at once"
    if arrivals.rate_per_s is not None:
        seed = f", seed {arrivals.seed}" if arrivals.spacing == "poisson" else ""
        come = f"{arrivals.rate_per_s:g} per s ({arrivals.spacing}{seed})"
    each = "" if iterations == 1 else f" in each of {iterations} iterations"
    table = [
        ["", *(f"latency p{each}" for each in PERCENTILES), "wait", "throughput", "keeps up with"],
        *([row.name, *_cells(row)] for row in rows),
    ]
    return [f"{'requests':<12}{number}{each}, {come}", *text_columns(table)]


def _cells(row: RequestsRow) -> list[str]:
    served = row.served
    return [
        *(f"{ms:,.4g} ms" for ms in (*served.percentiles_ms.values(), served.waited_ms)),
        f"{served.throughput_per_s:,.4g} per s",
        "" if row.max_rate_per_s is None else f"{row.max_rate_per_s:,.4g} per s",
    ]


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
    number = 1 + max(row.micro_batch for record in iterations[0] for row in record.blocks)
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
