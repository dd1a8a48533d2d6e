"""Latency of a change of clock, for plans and simulated GPUs: numbers of the options, or the table's."""

from __future__ import annotations

import logging
import math

from experiments.config.options import require
from experiments.frontier.options import FrontierCommandOptions
from experiments.search.options import read_gpu
from placements.hardware import ClockLatency
from runtime.clocks.latency_file import read_clock_latency
from schedsearch.energy import SwitchingLimits

log = logging.getLogger(__name__)

AUTO = "auto"
"""Stands for the table's figure in ``energy.dwell_ms`` and ``energy.switch_ms``."""


def check_switching(options: FrontierCommandOptions) -> None:
    """Reject wrong limits, or a wrong table, before any work starts.

    Raises:
        OptionError: One is neither a time nor ``auto``.
        ProfileError: The file of the table is wrong.
    """
    for name in ("dwell_ms", "switch_ms"):
        _ms(getattr(options.energy, name), f"energy.{name}", 0.0)
    clock_latency_of_options(options)


def say_switching(options: FrontierCommandOptions) -> None:
    """Log the limits of the table, and their source."""
    if AUTO in (options.energy.dwell_ms, options.energy.switch_ms):
        limits, latency = switching_limits(options), clock_latency_of_options(options)
        log.info(
            "a clock stays for at least %g ms, and a change takes %g ms: %s",
            limits.dwell_ms,
            limits.latency_ms,
            latency.source,
        )


def switching_limits(options: FrontierCommandOptions) -> SwitchingLimits:
    """Return how often and how fast a device changes its clock.

    With a measured table a change takes what it took there, by its two clocks; where the two were not tried,
    as long as to the clock after.
    """
    energy, latency = options.energy, clock_latency_of_options(options)
    return SwitchingLimits(
        _ms(energy.dwell_ms, "energy.dwell_ms", latency.dwell_ms),
        _ms(energy.switch_ms, "energy.switch_ms", latency.longest_ms),
        energy.back_to_back,
        latency if energy.switch_ms == AUTO and latency.by_target_ms else None,
    )


def clock_latency_of_options(options: FrontierCommandOptions) -> ClockLatency:
    """Return the table of the file that the options name, or where they name none, of their GPU.

    Raises:
        OptionError: There is no such GPU.
        ProfileError: The file is wrong.
    """
    if options.profile.clock_latency is not None:
        return read_clock_latency(options.profile.clock_latency)
    return read_gpu(options.profile.gpu, options.placement).clock_latency


def _ms(value: float | str, where: str, of_table_ms: float) -> float:
    if isinstance(value, str):
        require(value == AUTO, where, value, "a time", f"give milliseconds, or {AUTO}")
        return of_table_ms
    require(0 <= value < math.inf, where, value, "a time", f"give 0 ms or more, or {AUTO}")
    return value
