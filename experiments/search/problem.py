"""The problem of the options: a placement with its costs, read once for all steps."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, replace

from experiments.config.options import OptionError, require
from experiments.search.kinds.kind import Built
from experiments.search.options import SearchCommandOptions, read_gpu
from experiments.search.profile_reading import CostSource, blocking_power_in_words, read_profile
from placements import BlockingPower, Placement, Profile, ProfileError
from placements.block import COMPUTE
from placements.hardware import Gpu
from placements.models.training_figures import UNKNOWN_WORK
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
        placement: Blocks with the capacity of the options, and with the block times of the profile.
        profile: Profile that was read from a file; None where there was none.
        costs: Sources of the costs.
        gpu: GPU that the options name.
        built: Placement, plan and work of its kind, before profile, memory and micro-batches of the options.
        blocking_power_w: Power of a GPU that waits, as the options give it; None where they do not.
        is_memory_given: Whether its memory is the options' and not its kind's.
        batch: Micro-batches, where these differ.
    """

    placement: Placement
    profile: Profile | None
    costs: CostSource
    gpu: Gpu
    built: Built
    blocking_power_w: BlockingPower | None
    is_memory_given: bool
    batch: Problem | None = None

    @property
    def memory_unit(self) -> str:
        """Unit of the placement's memory in words; empty where only the user knows it."""
        return unit_in_words(self.placement.memory_unit_mib)

    @property
    def whole_profile(self) -> Profile:
        """Costs of every block in each of its modes at each clock."""
        return self.profile_for(self.placement, self.profile)

    def profile_for(self, placement: Placement, profile: Profile | None) -> Profile:
        """Return the costs of another placement of these blocks, for instance in another order of stages.

        Args:
            placement: Blocks on their devices.
            profile: Profile that was read; None for the GPU's power model, which knows computing alone.
        """
        if profile is None:
            profile = self.built.model(placement)
            if self.blocking_power_w is not None:
                profile = replace(profile, blocking_power_w=self.blocking_power_w)
            computing = [name for name, block in placement.by_name.items() if block.stream == COMPUTE]
            profile = replace(profile, points={name: profile.points[name] for name in computing})
        return with_modes(profile, placement)


def read_problem(options: SearchCommandOptions) -> SearchProblem:
    """Return the problem of the options; a wrong option, or file, is a `ValueError` in a line."""
    kind, chosen, search = options.placement, options.profile, options.search
    gpu = read_gpu(chosen.gpu, kind)
    measured = kind.measured if chosen.path is None else None  # a profile that is given comes before
    profile, path = read_profile(chosen, gpu, measured)
    built = kind.build(gpu, search.num_micro_batches, profile)
    placement, unit_mib = built.placement, built.placement.memory_unit_mib
    if search.memory is not None:
        capacity = by_device("memory", search.memory, "search.memory", placement.num_devices, unit_mib)
        placement = replace(placement, memory=capacity)
    planned = sum(kind.device_gpus or [], Counter[Gpu]())
    gpus = list(planned if gpu in planned else [gpu])
    costs = CostSource(
        built.times,
        " and ".join(f"power model of {gpu_type.name}, {gpu_type.power_source}" for gpu_type in gpus),
        blocking_power_in_words(chosen, gpus, measured),
        built.placeholder,
    )
    if profile is not None:
        try:
            profile = with_modes(profile, placement)
            timed = profile.times_for(placement)
        except ProfileError as error:
            raise OptionError(f"{chosen.path}: {error}") from None
        if not built.placeholder and (hint := profile.doubtful_times(placement, "profile.time_scale")):
            log.warning("warning: %s: %s", path, hint)
        scales = {"times": chosen.time_scale, "energies": chosen.energy_scale}
        factors = "".join(f", {name} times {scale:g}" for name, scale in scales.items() if scale != 1)
        costs = replace(
            costs, times=f"profile {path}{factors}", energies=f"profile {path}", placeholder=False
        )
        placement = timed
    batch = None
    if search.micro_batches is not None:
        number, rules = search.num_micro_batches, search.length_rules
        batch = read_micro_batches(search.micro_batches, placement, number, unit_mib, rules)
        placement, built = batch.placement, replace(built, work=UNKNOWN_WORK)
    else:
        remedy = "give search.micro_batches, or leave it out"
        require(search.length_rules is None, "search.length_rules", search.length_rules, "used", remedy)
    require_capacity(placement)
    if built.in_words:
        log.info("%s", built.in_words)
    return SearchProblem(
        placement,
        profile,
        costs,
        gpu,
        built,
        chosen.blocking_power,
        is_memory_given=search.memory is not None,
        batch=batch if batch is not None and batch.chosen else None,
    )


def unit_in_words(unit_mib: float | None) -> str:
    """Return a unit of memory in words; empty where only the user knows it."""
    return "" if unit_mib is None else "MiB" if unit_mib == 1 else f"units of {unit_mib:g} MiB"
