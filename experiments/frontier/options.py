"""Options of clocks."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.config.declaring import Command
from experiments.search.options import OF_ONE_PIPELINE, PRESETS, SearchCommandOptions, read_options
from placements.forms.meaning import group, option


@dataclass(frozen=True)
class EnergyOptions:
    """The `energy` group; see `schedsearch.energy`."""

    deadline_ms: float | None = option(
        None, "longest iteration, in ms (a straggler's T'); null: no slowdown", above=0
    )
    slowdown: float | None = option(
        None, "instead of deadline_ms: deadline over the iteration time at the highest clocks", min=1
    )
    num_plans: int = option(
        100, "deadlines at which the frontier is rounded to real clocks", min=1, max=10_000
    )
    method: str = option(
        "exact",
        "exact | perseus: the frontier of Perseus's own algorithm",
        choices=("exact", "perseus"),
    )
    unit_ms: float = option(
        1.0, "time by which each step of perseus shortens the iteration, in ms; larger is quicker", above=0
    )
    work_limit: float = option(1, "work to improve plans with, in units of about a second; 0: none", min=0)
    baselines: tuple[str, ...] = option(
        ("envpipe", "zeus_global", "zeus_per_stage"),
        "baselines to compare with; also all_maximum and perseus",
    )
    orders: int = option(
        16,
        "schedules of a search that are compared by their energy at the deadline; 1: only the one found",
        min=1,
        max=10_000,
    )
    orders_work_limit: float = option(5, "work to compare them with, in units of about a second", above=0)
    export: str | None = option(
        None, "zeus: also writes a file for each plan, as Zeus's server reads it", choices=("zeus",)
    )
    periodic: int = option(
        0, "also a plan whose clocks repeat, after so many rounds of the repetend; 0: none", min=0
    )
    dwell_ms: float | str = option(
        0, "also a plan in which each device keeps a clock for at least this time, in ms"
    )
    switch_ms: float | str = option(
        0, "also a plan in which a device waits this long for each change, in ms; both options may be auto"
    )
    back_to_back: bool = option(True, "true: the change of clock from one iteration to the next counts too")
    power_cap_w: float | None = option(
        None, "also the shortest iteration with at most this average power of the job, in W", above=0
    )
    device_power_cap_w: float | None = option(
        None, "also the shortest iteration with at most this average power of each device, in W", above=0
    )
    confidence: float | None = option(
        None,
        "also the plan whose iterations keep the deadline in this share, though their times vary",
        above=0,
        below=1,
    )
    time_spread: float = option(
        0.02, "standard deviation of a block's time for it, as a share of its profiled time", min=0
    )
    peak_w: float | None = option(
        None,
        "also the plan of least energy whose power, over 0.1 s and of all copies, is at most this, in W",
        above=0,
    )
    ramp_w_per_s: float | None = option(None, "and changes by at most this, in W per s", above=0)
    band_w: float | None = option(
        None, "and whose part between 0.1 and 20 Hz is at most this (root mean square), in W", above=0
    )
    copies: int = option(1, "data-parallel copies of the job, which may start one after the other", min=1)


@dataclass(frozen=True, kw_only=True)
class FrontierCommandOptions(SearchCommandOptions):
    """The config of `experiments.frontier`."""

    energy: EnergyOptions = group(headline="Clocks and energy")


COMMAND = Command(
    "frontier",
    FrontierCommandOptions,
    task="experiments.frontier.task",
    read=read_options,
    first="placement placement.path schedule search.num_micro_batches profile.path profile.gpu "
    "energy.slowdown",
    presets=PRESETS,
    objective="energy_j",
    refused=OF_ONE_PIPELINE,
)
