"""A run beside its plan: on simulated GPUs in virtual time, and as its devices recorded it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from experiments.search.profile_reading import CostSource
from placements import Placement
from placements.forms.texts import write_json
from runtime.plans.planned import PlannedIteration
from runtime.profiling.records import Record, of_copies
from runtime.profiling.trace import write_trace
from runtime.profiling.utilisation import UtilisationTable, utilisation_table
from runtime.virtual.virtual_gpu import VirtualGpu
from runtime.virtual.virtual_run import VirtualScripts, run_virtually

log = logging.getLogger(__name__)

SIMULATED_SCHEMA_VERSION = 1
"""Version of the form of ``simulated.json``."""


def simulate_scripts(
    planned: PlannedIteration, latency_ms: float, directory: Path, costs: CostSource
) -> None:
    """Run the scripts in virtual time; write ``simulated.json``, and a line beside the plan.

    Args:
        planned: Plan of the scripts, which counts no time for changes of clock.
        latency_ms: Time of each change of clock.
        directory: Directory of the output, with the scripts in it.
        costs: Source of the plan's costs.
    """
    profile = planned.profile
    highest = max(points[-1].clock_mhz for points in profile.points.values())
    gpus = [
        VirtualGpu(highest, profile.min_blocking_power_w, latency_ms)
        for _ in range(planned.schedule.placement.num_devices)
    ]
    run = run_virtually(VirtualScripts.read(directory / "scripts"), profile, gpus)
    facts = {
        "schema_version": SIMULATED_SCHEMA_VERSION,
        "clock_backend": gpus[0].description,
        "switch_ms": latency_ms,
        "time_ms": run.time_ms,
        "energy_mj": run.energy_mj,
        "planned_time_ms": planned.time_ms,
        "planned_energy_mj": planned.energy_mj,
        **costs.to_dict(),
    }
    write_json(directory / "simulated.json", facts)
    figures = (latency_ms, run.time_ms, run.energy_mj / 1e3, planned.time_ms, planned.energy_mj / 1e3)
    told = "on simulated GPUs, with %g ms per change of clock: %.6g ms, %.6g J; planned: %.6g ms, %.6g J"
    log.info(told, *figures)


def save_trace(
    records: Sequence[Sequence[Record]],
    placement: Placement,
    directory: Path,
    planned: PlannedIteration | None = None,
    costs: CostSource | None = None,
) -> UtilisationTable:
    """Write ``trace.json`` and ``trace.csv`` of a run, and a line; return the table.

    Args:
        records: Records of each device, of the same iterations.
        placement: Placement that the scripts are of.
        directory: Directory of the output.
        planned: Plan of the last iteration; None if it is not known.
        costs: Source of the plan's costs.
    """
    records = [of_copies(of_device, placement) for of_device in records]
    write_trace(directory / "trace.json", placement, records, planned, costs.to_dict() if costs else None)
    table = utilisation_table(placement, [of_device[-1] for of_device in records], planned)
    table.write_csv(directory / "trace.csv")
    log.info("%s", table.describe())
    return table
