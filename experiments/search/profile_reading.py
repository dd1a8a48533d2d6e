"""Profiles of a command: read from the file that the options name, or modelled; and where costs come from."""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from experiments.config.options import OptionError, read_fields, require, require_path
from experiments.search.options import Options
from experiments.search.placement_options import GptPlacementOptions
from experiments.search.planned_options import kind_of, planned_by, planned_gpus, read_gpu
from experiments.search.plans import PLAN_FILES, rates_of
from placements import BlockingPower, Placement, Profile
from placements.hardware import Gpu, modelled_profile
from placements.models.gpt.gpt_placement import GptConfig, gpt_compute_shares
from placements.placement_file import read_times_source
from placements.planners.galvatron import plan_compute_shares
from placements.planners.hybrid.plan_file import read_plan_file
from placements.profiles.profile import checked_blocking_power
from placements.shapes import SHAPES
from placements.stages.stage_chain import DevicePower
from schedsearch.planning.power import mixed_profile

log = logging.getLogger(__name__)


class _ProfileFiles(NamedTuple):
    """What `experiments.profile` leaves in its output directory."""

    csv: str = "profile.csv"
    facts: str = "profile.json"
    placement: str = "placement.yaml"


PROFILE_FILES = _ProfileFiles()
"""Names of the files of `experiments.profile`."""


@dataclass(frozen=True)
class CostSource:
    """Where costs come from.

    Attributes:
        times: Of the blocks.
        energies: Of the blocks at each clock.
        blocking_power: Of a GPU that waits.
        placeholder: Nobody gave the times: they are ticks of a shape, and what follows from them is of no
            model.
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
        """The sources for a report, and what to do where they are placeholders."""
        text = f"Times: {self.times}. Energies: {self.energies}. Blocking power: {self.blocking_power}."
        return f"{text} These are placeholders: give times of your own." if self.placeholder else text

    def __str__(self) -> str:
        return f"times: {self.times}\nenergies: {self.energies}\nblocking power: {self.blocking_power}"


def read_profile(options: Options) -> Profile | None:
    """Read the profile CSV that the options name; None where they name none."""
    chosen = options.profile
    gpu = read_gpu(chosen.gpu, options.placement)
    power, path = blocking_power(options), profile_path(options)
    for watts in [each for _, each in power] if isinstance(power, tuple) else [power or 0.0]:
        if problem := no_power(watts):
            log.warning("warning: a GPU that waits uses %s; give profile.blocking_power_w in W", problem)
    if path is None:
        return None
    profile = Profile.from_csv(
        path,
        device=chosen.gpu,
        blocking_power_w=gpu.blocking_power_w if power is None else power,
        time_scale=chosen.time_scale,
        energy_scale=chosen.energy_scale,
    )
    for hint in doubtful_units(profile):
        log.warning("warning: %s: %s", path, hint)
    return profile


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
    points = [(name, point) for name, points in profile.points.items() for point in points]
    for name, point in points:
        if not (problem := no_power(watts := point.energy_mj / point.time_ms)):
            continue
        likely = "energies are millijoules, set profile.energy_scale=0.001"
        if watts < POWERS_W[0]:
            likely = "energies are kilojoules, set profile.energy_scale=1000"
            likely = "times are milliseconds, set profile.time_scale=0.001" if is_long else likely
        yield f"{name} at {point.clock_mhz} MHz uses {problem}; if {likely}"
        return


def no_power(watts: float) -> str:
    """Return what is wrong with a power, 0 for nothing aside; empty where it is of a GPU."""
    if watts == 0 or POWERS_W[0] <= watts <= POWERS_W[1]:
        return ""
    return f"{watts:.6g} W, where GPUs use {POWERS_W[0]:g} to {POWERS_W[1]:g} W"


def profile_path(options: Options) -> str | None:
    """Return the profile CSV that the options name, or that `experiments.profile` left; None for none."""
    if options.profile.path is not None:
        return require_path("profile.path", options.profile.path)
    measured = _measured(options)
    return None if measured is None else str(measured / PROFILE_FILES.csv)


def blocking_power(options: Options) -> BlockingPower | None:
    """Return the blocking power that the options give, or that was measured; None for the GPU's default."""
    given = _given_blocking_power(options)
    if given is not None or options.profile.path is not None or (measured := _measured(options)) is None:
        return given
    power: BlockingPower | None = _facts(measured)["blocking_power_w"]
    return power


def cost_source(options: Options) -> CostSource:
    """Return where the costs that the options name come from."""
    chosen, gpu = options.profile, read_gpu(options.profile.gpu, options.placement)
    path, power = profile_path(options), blocking_power(options)
    times, placeholder = times_source(options)
    planned = sum(planned_gpus(options.placement) or [], Counter())
    kinds = planned if gpu in planned else [gpu]
    energies = " and ".join(f"power model of {each.name}, {each.power_source}" for each in kinds)
    if path is not None:
        scales = (("times", chosen.time_scale), ("energies", chosen.energy_scale))
        factors = "".join(f", {name} times {scale:g}" for name, scale in scales if scale != 1)
        times, energies, placeholder = f"profile {path}{factors}", f"profile {path}", False
    if chosen.transfer_power_w:
        energies += f", and transfers with profile.transfer_power_w, {chosen.transfer_power_w:g} W"
    if power is None:
        waiting = " and ".join(f"default of {each.name}, {each.blocking_power_w:g} W" for each in kinds)
    elif chosen.blocking_power_w is not None:
        waiting = "profile.blocking_power_w"
    else:
        waiting = f"measured, {Path(options.placement['path']) / PROFILE_FILES.facts}"
    return CostSource(times, energies, waiting, placeholder)


def stages_cost_source(path: str, power_w: DevicePower | None) -> CostSource:
    """Return where the costs of a stages file come from; warn of a power that is likely none of a GPU."""
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


def complete_profile(options: Options, placement: Placement, profile: Profile | None) -> Profile:
    """Return the measured profile, or where there is none, one from the GPU's power model; with transfers."""
    blocks = _modelled(options, placement) if profile is None else profile
    return blocks.with_transfers(placement, options.profile.transfer_power_w)


def _modelled(options: Options, placement: Placement) -> Profile:
    gpu, gpus = read_gpu(options.profile.gpu, options.placement), planned_gpus(options.placement)
    if gpus is not None and gpu in sum(gpus, Counter()):
        modelled = mixed_profile(placement, gpus)
    elif planned := planned_by(options):
        modelled = modelled_profile(placement, gpu, plan_compute_shares(planned.plan, planned.work))
    elif kind_of(options.placement) != "gpt":
        modelled = modelled_profile(placement, gpu)
    else:
        chosen = read_fields(options.placement, GptPlacementOptions, "placement")
        config = GptConfig(**{field.name: getattr(chosen, field.name) for field in fields(GptConfig)})
        shares = gpt_compute_shares(placement, config, rates_of(chosen, gpu))
        modelled = modelled_profile(placement, gpu, shares)
    power = _given_blocking_power(options)
    return modelled if power is None else replace(modelled, blocking_power_w=power)


def times_source(options: Options) -> tuple[str, bool]:
    """Return where times come from if not from a profile, and whether they are placeholders."""
    placement, gpu = options.placement, read_gpu(options.profile.gpu, options.placement)
    match kind_of(placement):
        case "gpt":
            return f"cost model of placement=gpt on {gpu.name}", False
        case "stages":
            return f"stages of {placement['path']}", False
        case "file":
            return read_times_source(Path(placement["path"]))
        case "profiled":
            return f"measured by schedsearch profile, {placement['path']}", False
        case "planned":
            return _times_of_plan(Path(placement["path"]), gpu), False
        case shape if shape in SHAPES:
            return f"placeholders, the ticks of {shape}", True
    return f"cost model of a GPT on {gpu.name}, for the plan {placement['path']}", False


def _times_of_plan(path: Path, gpu: Gpu) -> str:
    """Return of which model and GPUs a plan's times are; warn where another GPU is asked for."""
    plan = read_plan_file(path / PLAN_FILES.plan)
    kinds = sum(plan.stage_gpus, Counter[Gpu]())
    if gpu not in kinds:
        log.warning("warning: profile.gpu is %s, but the plan in %s is for another GPU", gpu.name, path)
    names = " and ".join(f"{number} {each.name}" for each, number in kinds.items())
    return f"cost model of schedsearch plan, {plan.model.name} on {names}, for the plan in {path}"


def _measured(options: Options) -> Path | None:
    """Return the output directory of `experiments.profile` that the options name, if it has energies."""
    if kind_of(options.placement) != "profiled":
        return None
    directory = Path(require_path("placement.path", options.placement.get("path")))
    return directory if _facts(directory)["energy"] else None


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
        f"placement.path: {directory} has no {path.name} of schedsearch profile; give its output directory"
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


def _given_blocking_power(options: Options) -> BlockingPower | None:
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
