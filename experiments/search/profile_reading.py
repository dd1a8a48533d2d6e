"""Profiles of a command: read from the file that the options name; and the sources of its costs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from experiments.config.options import require_path
from experiments.search.kinds.kind import Measured
from experiments.search.options import ProfileOptions
from placements import Profile
from placements.hardware import Gpu
from placements.stages.stage_chain import DevicePower

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CostSource:
    """Sources of costs, in words.

    Attributes:
        times: Source of the times of blocks.
        energies: Source of their energies at each clock.
        blocking_power: Source of the power of a GPU that waits.
        placeholder: Whether nobody gave the times: they are ticks of a shape, and results from them
            are of no model.
    """

    times: str
    energies: str
    blocking_power: str
    placeholder: bool

    def to_dict(self) -> dict[str, object]:
        """Return the key ``cost_source`` of the files."""
        return {"cost_source": asdict(self)}

    def of_times(self) -> dict[str, object]:
        """Return the key of a ``placement.yaml``, which has no energies."""
        return {"cost_source": {"times": self.times, "placeholder": self.placeholder}}

    @property
    def in_sentences(self) -> str:
        """The sources for a report, and a remedy where they are placeholders."""
        text = f"Times: {self.times}. Energies: {self.energies}. Blocking power: {self.blocking_power}."
        return f"{text} These are placeholders: give times of your own." if self.placeholder else text

    def __str__(self) -> str:
        return f"times: {self.times}\nenergies: {self.energies}\nblocking power: {self.blocking_power}"


def stages_cost_source(path: str, power_w: DevicePower | None) -> CostSource:
    """Return the sources of the costs of a stages file; warn of a power that is likely none of a GPU."""
    if power_w is None:
        return CostSource(f"stages of {path}", "none", "none", placeholder=False)
    for name, watts in asdict(power_w).items():
        if problem := no_power(watts):
            log.warning("warning: %s: power_w.%s is %s; give W", path, name, problem)
    return CostSource(
        f"stages of {path}",
        f"power_w of {path}, {power_w.running:g} W while computing",
        f"power_w of {path}, {power_w.blocking:g} W",
        placeholder=False,
    )


def read_profile(chosen: ProfileOptions, gpu: Gpu, measured: Measured | None) -> tuple[Profile | None, str]:
    """Read the profile that the options name, or that `experiments.profile` left.

    Args:
        chosen: Options of the profile.
        gpu: GPU that they name.
        measured: Measured costs of the placement's blocks, if there are some.

    Returns:
        The profile and the path of its file; None and empty where there is none.
    """
    path, power = "", chosen.blocking_power
    if chosen.path is not None:
        path = require_path("profile.path", chosen.path)
    elif measured is not None:
        path, power = str(measured.profile), measured.blocking_power_w if power is None else power
    for watts in [power_w for _, power_w in power] if isinstance(power, tuple) else [power or 0.0]:
        if problem := no_power(watts):
            log.warning("warning: a GPU that waits uses %s; give profile.blocking_power_w in W", problem)
    if not path:
        return None, ""
    profile = Profile.from_csv(
        path,
        device=chosen.gpu,
        blocking_power_w=gpu.blocking_power_w if power is None else power,
        time_scale=chosen.time_scale,
        energy_scale=chosen.energy_scale,
    )
    for hint in doubtful_units(profile):
        log.warning("warning: %s: %s", path, hint)
    return profile, path


def blocking_power_in_words(chosen: ProfileOptions, gpus: Sequence[Gpu], measured: Measured | None) -> str:
    """Return the source of the power of a GPU that waits, in words."""
    if chosen.blocking_power is not None:
        return "profile.blocking_power_w"
    if measured is not None and measured.blocking_power_w is not None:
        return f"measured, {measured.facts}"
    return " and ".join(f"default of {gpu.name}, {gpu.blocking_power_w:g} W" for gpu in gpus)


LONGEST_MS = 10_000.0
"""No block of a micro-batch is known to take longer."""

POWERS_W = (1.0, 2000.0)
"""No GPU is known to use less than the first, even while it waits, or more than the second."""


def doubtful_units(profile: Profile) -> Iterator[str]:
    """Yield a line for each unit of a profile that is likely not the one that was meant."""
    slowest = max(profile.points, key=lambda name: profile.fastest(name).time_ms)
    time_s = profile.fastest(slowest).time_ms / 1e3
    is_long = time_s > LONGEST_MS / 1e3
    if is_long:
        yield (
            f"{slowest} takes {time_s:g} s at its highest clock, as times are read as seconds; if they are "
            "milliseconds, set profile.time_scale=0.001"
        )
    for name, point in ((name, point) for name, points in profile.points.items() for point in points):
        if problem := no_power(watts := point.energy_mj / point.time_ms):
            likely = "energies are millijoules, set profile.energy_scale=0.001"
            if watts < POWERS_W[0]:
                likely = "energies are kilojoules, set profile.energy_scale=1000"
                likely = "times are milliseconds, set profile.time_scale=0.001" if is_long else likely
            yield f"{name} at {point.clock_mhz} MHz uses {problem}; if {likely}"
            return


def no_power(watts: float) -> str:
    """Return the fault of a power in words; empty for 0 and for the power of a GPU."""
    if watts == 0 or POWERS_W[0] <= watts <= POWERS_W[1]:
        return ""
    return f"{watts:.6g} W, where GPUs use {POWERS_W[0]:g} to {POWERS_W[1]:g} W"
