"""Profiles of a command: read from the file that the options name, or modelled from the GPU's data sheet."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from experiments.config.options import OptionError, planned_by, read_fields, read_gpu, require, require_path
from experiments.config.plans import rates_of
from experiments.config.records import GptPlacementOptions, Options
from placements import BlockingPower, Placement, Profile
from placements.hardware import modelled_profile
from placements.models.gpt import GptConfig, gpt_compute_shares
from placements.planners.galvatron import plan_compute_shares
from placements.profile import checked_blocking_power


class _ProfileFiles(NamedTuple):
    """What `experiments.profile` leaves in its output directory."""

    csv: str = "profile.csv"
    facts: str = "profile.json"
    placement: str = "placement.yaml"


PROFILE_FILES = _ProfileFiles()
"""Names of the files of `experiments.profile`."""


def read_profile(options: Options) -> Profile | None:
    """Read the profile CSV that the options name; None where they name none."""
    chosen = options.profile
    gpu = read_gpu(chosen.gpu)
    for name in ("time_scale", "energy_scale"):
        factor = getattr(chosen, name)
        require(0 < factor < math.inf, f"profile.{name}", factor, "a factor above 0", "give one")
    power = _blocking_power(options)
    path = None if chosen.path is None else require_path("profile.path", chosen.path)
    if path is None and (measured := _measured(options)) is not None:
        path = str(measured / PROFILE_FILES.csv)
        power = _facts(measured)["blocking_power_w"] if power is None else power
    if path is None:
        return None
    return Profile.from_csv(
        path,
        device=chosen.gpu,
        blocking_power_w=gpu.blocking_power_w if power is None else power,
        time_scale=chosen.time_scale,
        energy_scale=chosen.energy_scale,
    )


def complete_profile(options: Options, placement: Placement, profile: Profile | None) -> Profile:
    """Return the measured profile, or where there is none, one from the GPU's power model."""
    if profile is not None:
        return profile
    gpu = read_gpu(options.profile.gpu)
    if planned := planned_by(options):
        modelled = modelled_profile(placement, gpu, plan_compute_shares(planned.plan, planned.work))
    elif "shape" in options.placement or "path" in options.placement:
        modelled = modelled_profile(placement, gpu)
    else:
        chosen = read_fields(options.placement, GptPlacementOptions, "placement")
        config = GptConfig(**{field.name: getattr(chosen, field.name) for field in fields(GptConfig)})
        shares = gpt_compute_shares(placement, config, rates_of(chosen, gpu))
        modelled = modelled_profile(placement, gpu, shares)
    power = _blocking_power(options)
    return modelled if power is None else replace(modelled, blocking_power_w=power)


def _measured(options: Options) -> Path | None:
    """Return the output directory of `experiments.profile` that the options name, if it has energies."""
    directory = options.placement.get("path")
    if not isinstance(directory, str) or not directory or not Path(directory).is_dir():
        return None
    return Path(directory) if _facts(Path(directory))["energy"] else None


def _facts(directory: Path) -> dict[str, Any]:
    """Return what `experiments.profile` says of its measurement.

    Raises:
        OptionError: The directory is not its output.
    """
    path = directory / PROFILE_FILES.facts
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(facts["energy"], bool):
            return {"energy": facts["energy"], "blocking_power_w": _power_of(facts["blocking_power_w"])}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise OptionError(
        f"placement.path: {directory} has no {path.name} of experiments.profile; give its output directory"
    )


def _power_of(plain: Any) -> BlockingPower | None:
    """Return the blocking power of ``profile.json``: a number, or W by MHz.

    Raises:
        ValueError: It is neither.
    """
    if plain is None:
        return None
    if isinstance(plain, dict):
        return checked_blocking_power(tuple((int(clock), float(watts)) for clock, watts in plain.items()))
    return checked_blocking_power(float(plain))


def _blocking_power(options: Options) -> BlockingPower | None:
    """Return the blocking power that the options give: a number, or points by clock; None where they do not.

    Raises:
        OptionError: It is no power, or a clock of it is none.
    """
    chosen, where = options.profile.blocking_power_w, "profile.blocking_power_w"
    if not isinstance(chosen, dict):
        require(chosen is None or 0 <= chosen < math.inf, where, chosen, "a power", "give 0 W or more")
        return chosen
    if not chosen:
        raise OptionError(f"{where}: is an empty mapping; give W by MHz as in {{705: 60.0, 1410: 84.0}}")
    for clock, watts in chosen.items():
        is_clock = type(clock) is int and clock > 0
        require(is_clock, where, clock, "a clock", "give whole MHz above 0, without quotes")
        if isinstance(watts, bool) or not isinstance(watts, (int, float)) or not 0 <= watts < math.inf:
            raise OptionError(f"{where}: {watts!r} at {clock} MHz is not a power; give 0 W or more")
    return tuple(sorted((clock, float(watts)) for clock, watts in chosen.items()))
