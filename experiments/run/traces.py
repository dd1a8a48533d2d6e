"""A recorded run, beside its plan if that is known: a file for ui.perfetto.dev, a table, and a line."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from experiments.search.profile_reading import CostSource
from placements import Placement, Profile
from runtime.clocks.periodic_clocks import ScriptClocks, unrolled_clocks
from runtime.plans.planned import PlannedIteration
from runtime.profiling.records import Record, of_copies
from runtime.profiling.trace import write_trace
from runtime.profiling.utilisation import UtilisationTable, utilisation_table
from schedsearch.schedule import Schedule

log = logging.getLogger(__name__)


def planned_run(
    schedule: Schedule, profile: Profile, clocks: ScriptClocks, memory_unit: str = ""
) -> PlannedIteration:
    """Return the planned iteration of a schedule's scripts.

    Optimizer blocks are not in it, for the scripts have none.

    Args:
        schedule: What the scripts do; where a device stands for several GPUs, the plan is told by GPU.
        profile: What the blocks cost.
        clocks: Those planned for the scripts.
        memory_unit: Unit of the placement's memory, where it is known.
    """
    schedule = script_schedule(schedule)
    return PlannedIteration.of(
        schedule, profile, unrolled_clocks(clocks, schedule.num_micro_batches), memory_unit
    )


def script_schedule(schedule: Schedule) -> Schedule:
    """Return a schedule as scripts run it: its micro-batches, a device for each GPU."""
    schedule = schedule.per_micro_batch
    return replace(schedule, placement=schedule.placement.by_gpu)


def save_trace(
    records: Sequence[Sequence[Record]],
    placement: Placement,
    directory: Path,
    planned: PlannedIteration | None = None,
    costs: CostSource | None = None,
) -> UtilisationTable:
    """Write ``trace.json`` and ``trace.csv`` of a run, and a line; return the table.

    Args:
        records: Of each device, those of the same iterations.
        placement: What the scripts are of.
        directory: Directory of the output.
        planned: What the last iteration is compared with; None if that is not known.
        costs: Where the plan's come from.
    """
    records = [of_copies(of_device, placement) for of_device in records]
    write_trace(directory / "trace.json", placement, records, planned, costs.to_dict() if costs else None)
    table = utilisation_table(placement, [of_device[-1] for of_device in records], planned)
    table.write_csv(directory / "trace.csv")
    log.info("%s", table.describe())
    return table
