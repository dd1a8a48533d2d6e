"""The problem of the options: a placement with its costs, read once for all steps."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from experiments.config.options import OptionError, require
from experiments.search.kinds.kind import Built, Measured, RunPlan
from experiments.search.options import ProfileOptions, SearchCommandOptions, read_gpu
from experiments.search.profile_reading import (
    CostSource,
    given_blocking_power,
    read_profile,
    said_blocking_power,
)
from placements import BlockingPower, Placement, Profile, ProfileError
from placements.block import COMPUTE
from placements.hardware import Gpu
from placements.placement_file import by_device
from placements.profiles.mode_costs import with_modes
from schedsearch.core.problem import Problem
from schedsearch.proof.memory_need import require_capacity
from schedsearch.unequal.micro_batches import read_micro_batches

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SearchProblem:
    """A placement with its costs.

    Attributes:
        placement: With its memory, and the block times of the profile.
        profile: Profile that was read from a file; None where there was none.
        costs: Where costs come from.
        gpu: The GPU that the options name.
        memory_unit: Unit of the placement's memory; empty where only the user knows it.
        planned: The plan that the placement is of, if a planner made it.
        model: Models what a placement of these blocks costs at each clock.
        blocking_power_w: Of a GPU that waits, as the options give it; None where they do not.
        is_memory_given: Whether its memory is that of the options, and not of its kind.
        batch: Its micro-batches, where these differ.
        tokens: The length of each; empty where it is not known.
    """

    placement: Placement
    profile: Profile | None
    costs: CostSource
    gpu: Gpu
    memory_unit: str
    planned: RunPlan | None
    model: Callable[[Placement], Profile]
    blocking_power_w: BlockingPower | None
    is_memory_given: bool
    batch: Problem | None = None
    tokens: tuple[int, ...] = ()

    @property
    def whole_profile(self) -> Profile:
        """Costs of every block in each of its modes at each clock.

        As read, or from the GPU's power model, which knows what computes.
        """
        return self.profile_of(self.placement, self.profile)

    def profile_of(self, placement: Placement, profile: Profile | None) -> Profile:
        """Return the same of another placement of these blocks.

        Args:
            placement: Such as another order of stages.
            profile: Profile that was read; None for the model's.
        """
        if profile is None:
            profile = self.model(placement)
            if self.blocking_power_w is not None:
                profile = replace(profile, blocking_power_w=self.blocking_power_w)
            computed = {
                name: profile.points[name]
                for name, block in placement.by_name.items()
                if block.stream == COMPUTE
            }
            profile = replace(profile, points=computed)
        return with_modes(profile, placement)


def read_problem(options: SearchCommandOptions) -> SearchProblem:
    """Return the problem of the options; a wrong option, or file, is a `ValueError` in a line."""
    kind, chosen = options.placement, options.profile
    gpu = read_gpu(chosen.gpu, kind)
    measured = kind.measured if chosen.path is None else None  # a profile that is given comes before
    given = given_blocking_power(chosen)
    profile, path = read_profile(chosen, gpu, measured)
    built = kind.build(gpu, options.search.num_micro_batches, profile)
    placement, unit = built.placement, unit_in_words(built.memory_unit_mib)
    if options.search.memory is not None:
        where = "search.memory", placement.num_devices
        capacity = by_device("memory", options.search.memory, *where, unit_mib=built.memory_unit_mib)
        placement = replace(placement, memory=capacity)
    if profile is not None:
        placement, profile = _timed(placement, profile, chosen, "" if built.placeholder else path)
    tokens: tuple[int, ...] = ()
    batch, rules = None, options.search.length_rules
    if options.search.micro_batches is not None:
        number, unit_mib = options.search.num_micro_batches, built.memory_unit_mib
        batch = read_micro_batches(options.search.micro_batches, placement, number, unit_mib, rules)
        tokens, placement, batch = batch.tokens, batch.placement, batch if batch.chosen else None
    else:
        require(
            rules is None, "search.length_rules", rules, "used", "give search.micro_batches, or leave it out"
        )
    require_capacity(replace(placement, memory_unit_mib=built.memory_unit_mib))
    if (options.search.memory is not None or not unit) and (hint := mixed_memory(placement)):
        log.warning("warning: %s", hint)
    if built.planned:
        log.info("%s", built.planned.describe())
    costs = _cost_source(options, built, gpu, path, measured)
    return SearchProblem(
        placement,
        profile,
        costs,
        gpu,
        unit,
        built.planned,
        built.model,
        given,
        is_memory_given=options.search.memory is not None,
        batch=batch,
        tokens=tokens,
    )


def _timed(
    placement: Placement, profile: Profile, chosen: ProfileOptions, path: str
) -> tuple[Placement, Profile]:
    """Return a placement with the times of a profile, and the profile with costs of its modes.

    Warn where the times are doubtful beside its own.

    Args:
        placement: With times of its own.
        profile: Profile of its blocks.
        chosen: The options of the profile.
        path: Path of its file; empty where the placement's times are placeholders, which say nothing.
    """
    try:
        profile = with_modes(profile, placement)
        timed = profile.times_for(placement)
    except ProfileError as error:
        raise OptionError(f"{chosen.path}: {error}") from None
    if path and (hint := profile.doubtful_times(placement, "profile.time_scale")):
        log.warning("warning: %s: %s", path, hint)
    return timed, profile


def unit_in_words(unit_mib: float | None) -> str:
    """Return a unit of memory in words; empty where only the user knows it."""
    return "" if unit_mib is None else "MiB" if unit_mib == 1 else f"units of {unit_mib:g} MiB"


MIXED_UNITS = 1000
"""A capacity of this many times what a micro-batch needs is likely given in another unit."""


def mixed_memory(placement: Placement) -> str:
    """Return a hint where capacity and blocks seem to have memory in different units; else nothing."""
    held = [
        (capacity, sum(max(block.memory_on(device), 0) for block in placement.on(device)), device)
        for device, capacity in enumerate(placement.free_memory or ())
    ]
    if not held or any(capacity < MIXED_UNITS * most or not most for capacity, most, _ in held):
        return ""
    capacity, most, device = held[0]
    return (
        f"memory[{device}]: {capacity} holds {capacity // most} micro-batches of {most}; if the "
        "capacity is in MiB and the blocks in GiB, or in bytes and MiB, give both in one unit"
    )


def _cost_source(
    options: SearchCommandOptions, built: Built, gpu: Gpu, path: str, measured: Measured | None
) -> CostSource:
    """Return where the costs come from.

    Args:
        options: Options of the command.
        built: The placement.
        gpu: The GPU that the options name.
        path: Path of the profile; empty for none.
        measured: What was measured of the blocks, if that is what the profile is.
    """
    kind, chosen = options.placement, options.profile
    times, placeholder = built.times, built.placeholder
    planned = sum(kind.device_gpus or [], Counter[Gpu]())
    gpus = list(planned if gpu in planned else [gpu])
    energies = " and ".join(f"power model of {each.name}, {each.power_source}" for each in gpus)
    if path:
        scales = (("times", chosen.time_scale), ("energies", chosen.energy_scale))
        factors = "".join(f", {name} times {scale:g}" for name, scale in scales if scale != 1)
        times, energies, placeholder = f"profile {path}{factors}", f"profile {path}", False
    return CostSource(times, energies, said_blocking_power(chosen, gpus, measured), placeholder)
