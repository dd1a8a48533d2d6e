"""Options of clocks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from experiments.config.declaring import Command
from experiments.config.options import OptionError, require, require_known
from experiments.search.options import OF_ONE_PIPELINE, PRESETS, SearchCommandOptions, read_options
from placements.forms.meaning import group, option

AUTO = "auto"
"""Value of ``energy.dwell_ms`` and ``energy.switch_ms``: the figure of the table of clocks."""

BASELINE_TITLES = {
    "all_maximum": "All clocks at maximum",
    "envpipe": "EnvPipe",
    "zeus_global": "ZeusGlobal",
    "zeus_per_stage": "ZeusPerStage",
    "perseus": "Perseus",
}
"""Title of each baseline in reports."""


@dataclass(frozen=True)
class EnergyOptions:
    """The `energy` group; see `schedsearch.energy`."""

    deadline_ms: float | None = option(
        None, "longest iteration, in ms (a straggler's T'); null: no slowdown", above=0
    )
    slowdown: float | None = option(
        None, "instead of deadline_ms: deadline as a multiple of the time at the highest clocks", min=1
    )
    num_plans: int = option(
        100, "deadlines at which the frontier is rounded to real clocks", min=1, max=10_000
    )
    method: str = option(
        "exact", "exact | perseus: the frontier of Perseus's own algorithm", choices=("exact", "perseus")
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
    periodic: int = option(
        0, "also a plan whose clocks repeat after this number of rounds of the repetend; 0: none", min=0
    )
    dwell_ms: float | str = option(
        0, "also a plan in which each device keeps a clock for at least this time, in ms"
    )
    switch_ms: float | str = option(
        0, "also a plan in which a device waits this long for each change, in ms; both options may be auto"
    )
    back_to_back: bool = option(True, "true: the change of clock from one iteration to the next counts too")
    tokens_per_iteration: int | None = option(
        None, "tokens of an iteration, for J/token; null: the model's, where the placement has one", min=1
    )
    power_cap_w: float | None = option(
        None, "also the shortest iteration with at most this average power of the job, in W", above=0
    )

    def __post_init__(self) -> None:
        if self.deadline_ms is not None and self.slowdown is not None:
            raise OptionError("energy.deadline_ms: is given beside energy.slowdown; give one of the two")
        for name in self.baselines:
            require_known("energy.baselines", name, BASELINE_TITLES)
        for name in ("dwell_ms", "switch_ms"):
            value = getattr(self, name)
            is_time = value == AUTO if isinstance(value, str) else 0 <= value < math.inf
            require(is_time, f"energy.{name}", value, "a time", f"give 0 ms or more, or {AUTO}")


@dataclass(frozen=True, kw_only=True)
class FrontierCommandOptions(SearchCommandOptions):
    """The config of `experiments.frontier`."""

    energy: EnergyOptions = group(headline="Clocks and energy")

    def __post_init__(self) -> None:
        if self.energy.periodic and self.schedule == "searched" and self.search.method == "time_optimal":
            wrong, remedy = "finds nothing that repeats", "use search.method=modulo or energy.periodic=0"
            raise OptionError(f"energy.periodic: search.method=time_optimal {wrong}; {remedy}")


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
