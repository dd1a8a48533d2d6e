"""A placement that was written: by hand or by a command, or with measured costs of its blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from experiments.config.options import OptionError, require_path
from experiments.search.kinds.kind import Built, Measured, PlacementKind, power_model, with_data_parallel
from placements import BlockingPower, Profile
from placements.copies.replicas import as_copies
from placements.forms.meaning import REQUIRED, Verbatim, option
from placements.forms.reading import json_file
from placements.hardware import Gpu
from placements.placement_file import read_placement, read_times_source
from placements.profiles.profile import checked_blocking_power

PROFILE_CSV = "profile.csv"
PROFILE_FACTS = "profile.json"
PLACEMENT = "placement.yaml"
"""Files of `experiments.profile` in its output directory: costs, how they were measured, and the blocks."""


@dataclass(frozen=True, kw_only=True)
class FilePlacement(PlacementKind):
    """The `placement` group of a file, or of the output of `experiments.profile`."""

    kind: str = option("file", "set by placement=")
    path: Verbatim | None = option(
        REQUIRED, "a placement.yaml, as schedsearch search writes one beside each schedule"
    )
    data_parallel: int | None = option(
        None, "groups of each block's GPUs that share the samples; null: the file's", min=1
    )

    @property
    def given(self) -> Path:
        """The path that was given."""
        return Path(require_path("placement.path", self.path))

    def source(self, gpu: Gpu) -> tuple[Path, str, bool]:
        """Return the file of the placement, and the source of its times and whether that is a placeholder."""
        if self.given.is_dir():
            raise OptionError(
                f"placement.path: {self.given} is a directory; give a file, or choose placement=profiled for "
                "what schedsearch profile has measured, placement=planned for what schedsearch plan has "
                "planned"
            )
        return self.given, *read_times_source(self.given)

    def build(self, gpu: Gpu, num_micro_batches: int, profile: Profile | None) -> Built:
        """Return the placement of the file, with the data-parallel groups of the options."""
        path, times, placeholder = self.source(gpu)
        placement = with_data_parallel(as_copies(read_placement(path)), self.data_parallel)
        return Built(placement, times, power_model(gpu), placeholder)


@dataclass(frozen=True, kw_only=True)
class ProfiledPlacement(FilePlacement):
    """The `placement` group of the output of `experiments.profile`."""

    kind: str = option("profiled", "set by placement=")
    path: str | None = option(
        REQUIRED, "the output directory of experiments.profile: its times, and its energies if measured"
    )

    @property
    def measured(self) -> Measured | None:
        """Times and energies of the blocks; None where no energies were measured."""
        path = self.given / PROFILE_FACTS
        wanted = "placement.path as the output directory of schedsearch profile"
        with json_file(path, wanted, OptionError) as facts:
            power: BlockingPower | Mapping[int, float] | None
            power = facts["blocking_power_w"].typed(float | Mapping[int, float] | None)
            has_energy = facts["energy"].typed(bool)
        if isinstance(power, Mapping):
            power = tuple(power.items())
        power = None if power is None else checked_blocking_power(power)
        return Measured(self.given / PROFILE_CSV, path, power) if has_energy else None

    def source(self, gpu: Gpu) -> tuple[Path, str, bool]:
        """Return the file of the placement and the source of its times."""
        return self.given / PLACEMENT, f"measured by schedsearch profile, {self.path}", False
