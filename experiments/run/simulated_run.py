"""The generated scripts on simulated GPUs, on request: the plan in virtual time."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from experiments.config.options import OptionError
from experiments.run.options import RunCommandOptions
from experiments.search.profile_reading import CostSource
from placements.forms.texts import write_json
from runtime.plans.planned import PlannedIteration
from runtime.virtual.virtual_gpu import VirtualGpu
from runtime.virtual.virtual_run import VirtualScripts, run_virtually

log = logging.getLogger(__name__)

SIMULATED_SCHEMA_VERSION = 1
"""Version of the form of ``simulated.json``."""


def check_simulated_on(options: RunCommandOptions) -> None:
    """Reject before the search options that simulated GPUs do not know.

    Raises:
        OptionError: The blocking power depends on the clock.
    """
    if not options.runtime.simulated_gpus:
        return
    if isinstance(options.profile.blocking_power_w, Mapping):
        raise OptionError(
            "runtime.simulated_gpus: is for one blocking power, but profile.blocking_power_w depends on the "
            "clock; give one number or use false"
        )


def simulate_scripts(
    planned: PlannedIteration,
    scripts: Path,
    latency_ms: float,
    directory: Path,
    costs: CostSource,
) -> None:
    """Run the scripts in virtual time; write ``simulated.json``, and a line beside the plan.

    Args:
        planned: What the scripts are to do.
        scripts: Their folder.
        latency_ms: What each change of clock takes; the plan reckons without.
        directory: Directory of the output.
        costs: Where those of the plan come from.
    """
    profile = planned.profile
    highest = max(points[-1].clock_mhz for points in profile.points.values())
    gpus = [
        VirtualGpu(highest, profile.min_blocking_power_w, latency_ms)
        for _ in range(planned.schedule.placement.num_devices)
    ]
    run = run_virtually(VirtualScripts.read(scripts), profile, gpus)
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
    log.info(
        "on simulated GPUs, with %g ms per change of clock: %.6g ms, %.6g J; planned: %.6g ms, %.6g J",
        latency_ms,
        run.time_ms,
        run.energy_mj / 1000,
        planned.time_ms,
        planned.energy_mj / 1000,
    )
