"""The utilisation of each device beside its plan, as a small table.

An iteration is also compared with itself under zero communication: with the block times that were measured,
and transfers that take no time. What it took longer than this is what messages and scripts cost; what this
takes longer than the busiest device computes is the order's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from placements import Placement
from placements.forms.texts import csv_text, write_text
from runtime.plans.planned import PlannedIteration
from runtime.profiling.records import Record, aligned
from runtime.program.tensor_flow import tensor_inputs
from schedsearch.schedule import Instance

_COLUMNS = ("device", "planned_ms", "free_transfers_ms", "measured_ms", "planned_busy", "free_transfers_busy")


@dataclass(frozen=True)
class DeviceShares:
    """Shares of an iteration's length on one device.

    Attributes:
        planned: Share of the time in which the device runs blocks by the plan; None without a plan.
        zero_comm: The same by the measured block times, with transfers that take no time.
        measured: Share of the time in which it ran blocks.
        waiting: Share of the time in which it waited for what a block takes; the rest is neither.
        peak_held_bytes: Its peak activation memory; None if that was not measured.
    """

    planned: float | None
    zero_comm: float
    measured: float
    waiting: float
    peak_held_bytes: int | None


@dataclass(frozen=True)
class UtilisationTable:
    """One iteration against its plan.

    Attributes:
        planned_ms: Length by the plan, in the times of the profile; None without a plan.
        zero_comm_ms: Length with the measured block times and transfers that take no time.
        measured_ms: Length to the end of the last block.
        devices: Shares by device.
    """

    planned_ms: float | None
    zero_comm_ms: float
    measured_ms: float
    devices: tuple[DeviceShares, ...]

    @property
    def ratio(self) -> float:
        """How much longer the iteration took than with zero communication."""
        return self.measured_ms / self.zero_comm_ms

    def describe(self) -> str:
        """Return the table in one line."""
        planned = [shares.planned for shares in self.devices if shares.planned is not None]
        beside = f" (planned: {fmean(planned):.1%})" if planned else ""
        return (
            f"last iteration: {self.measured_ms:.6g} ms, {self.ratio:.3f} times the "
            f"{self.zero_comm_ms:.6g} ms that its blocks take if transfers take no time; on average a device "
            f"computes for {fmean(shares.measured for shares in self.devices):.1%} of it{beside} and waits "
            f"for {fmean(shares.waiting for shares in self.devices):.1%}"
        )

    def write_csv(self, path: str | Path) -> Path:
        """Write a row for each device; return the path."""
        rows = []
        for device, shares in enumerate(self.devices):
            *busy, peak_bytes = astuple(shares)
            numbers = (self.planned_ms, self.zero_comm_ms, self.measured_ms, *busy)
            rows.append([device, *("" if cell is None else f"{cell:.6g}" for cell in numbers), peak_bytes])
        return write_text(path, csv_text([*_COLUMNS, "measured_busy", "waiting", "peak_held_bytes"], rows))


def utilisation_table(
    placement: Placement, records: Sequence[Record], planned: PlannedIteration | None = None
) -> UtilisationTable:
    """Return the table of one iteration, of which all devices have a record, beside its plan."""
    offset_ms = aligned(records)
    measured_ms = max(offset_ms[record.device] + row.end_ms for record in records for row in record.blocks)
    spans = zero_comm_spans(placement, records)
    zero_comm_ms = max(end_ms for _, end_ms in spans.values())
    devices = []
    for record in records:
        ran = [row.instance for row in record.blocks]
        devices.append(
            DeviceShares(
                sum(planned.points[run].time_ms for run in ran) / planned.time_ms if planned else None,
                sum(spans[run][1] - spans[run][0] for run in ran) / zero_comm_ms,
                sum(row.end_ms - row.begin_ms for row in record.blocks) / measured_ms,
                _waiting_ms(record) / measured_ms,
                max((sample.value for sample in record.held_bytes), default=None),
            )
        )
    planned_ms = planned.time_ms if planned else None
    return UtilisationTable(planned_ms, zero_comm_ms, measured_ms, tuple(devices))


def _waiting_ms(record: Record) -> float:
    """Return the time that a device waited for inputs: before a block, or long before, where it blocks."""
    reached_ms = {row.instance: row.reached_ms for row in record.blocks}
    before = (
        row.ended_ms - row.waited_ms
        for row in record.receives
        if row.waited_ms is not None
        and row.ended_ms is not None
        and row.ended_ms <= reached_ms[row.consumer, row.micro_batch]
    )
    return sum(row.ready_ms - row.reached_ms for row in record.blocks) + sum(before)


def zero_comm_spans(
    placement: Placement, records: Sequence[Record]
) -> Mapping[Instance, tuple[float, float]]:
    """Return when each block begins and ends if it starts as soon as its inputs and its devices are there.

    No block begins later than it did if all blocks are on one device each. A block of several devices takes
    as long as on that which was quickest: the others waited in it.

    Returns:
        Milliseconds from the begin of the iteration, for each (block, micro-batch).
    """
    time_ms: dict[Instance, float] = {}
    for row in (row for record in records for row in record.blocks):
        time_ms[row.instance] = min(row.end_ms - row.begin_ms, time_ms.get(row.instance, float("inf")))
    inputs = tensor_inputs(placement)
    before = {(block, n): {(name, n) for name in inputs[block]} & time_ms.keys() for block, n in time_ms}
    for record in records:
        for first, second in pairwise(record.blocks):
            before[second.instance].add(first.instance)
    spans: dict[Instance, tuple[float, float]] = {}
    for instance in TopologicalSorter(before).static_order():
        begin_ms = max((spans[earlier][1] for earlier in before[instance]), default=0.0)
        spans[instance] = begin_ms, begin_ms + time_ms[instance]
    return spans
