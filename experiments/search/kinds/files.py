"""A placement that was written: by hand or by a command, or with measured costs of its blocks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from experiments.config.options import OptionError, require_path
from experiments.search.kinds.data_parallel import with_data_parallel
from experiments.search.kinds.kind import Built, Measured, PlacementKind, power_model
from placements import BlockingPower, Profile
from placements.copies.replicas import as_copies
from placements.forms.meaning import REQUIRED, Verbatim, option
from placements.hardware import Gpu
from placements.placement_file import read_placement, read_times_source
from placements.profiles.profile import checked_blocking_power


class _ProfileFiles(NamedTuple):
    """Files of `experiments.profile` in its output directory."""

    csv: str = "profile.csv"
    facts: str = "profile.json"
    placement: str = "placement.yaml"


PROFILE_FILES = _ProfileFiles()
"""Names of the files of `experiments.profile`."""


@dataclass(frozen=True, kw_only=True)
class FilePlacement(PlacementKind):
    """The `placement` group of a file, or of the output of `experiments.profile`."""

    kind: str = option("file", "set by placement=")
    path: Verbatim | None = option(
        REQUIRED, "a placement.yaml, as schedsearch search writes one beside each schedule"
    )
    data_parallel: int | Mapping[Any, Any] | None = option(
        None,
        "groups of a block's GPUs that share the samples: one number, or as in {F0: 2}; null: the file's",
    )

    @property
    def given(self) -> Path:
        """The path that was given."""
        return Path(require_path("placement.path", self.path))

    @property
    def placement_file(self) -> Path:
        """The file of the placement."""
        if self.given.is_dir():
            raise OptionError(
                f"placement.path: {self.given} is a directory; give a file, or choose placement=profiled for "
                "what schedsearch profile has measured, placement=planned for what schedsearch plan has "
                "planned"
            )
        return self.given

    def times_from(self, gpu: Gpu) -> tuple[str, bool]:
        """Return where the times come from, and whether they are placeholders."""
        return read_times_source(self.given)

    def build(self, gpu: Gpu, num_micro_batches: int, profile: Profile | None) -> Built:
        """Return the placement of the file, with the data-parallel groups of the options."""
        written = as_copies(read_placement(self.placement_file))
        placement = with_data_parallel(written, self.data_parallel)
        times, placeholder = self.times_from(gpu)
        return Built(placement, times, power_model(gpu), placeholder, placement.memory_unit_mib)


@dataclass(frozen=True, kw_only=True)
class ProfiledPlacement(FilePlacement):
    """The `placement` group of the output of `experiments.profile`."""

    kind: str = option("profiled", "set by placement=")
    path: str | None = option(
        REQUIRED, "the output directory of experiments.profile: its times, and its energies if measured"
    )

    @property
    def placement_file(self) -> Path:
        """The file of the placement."""
        return self.given / PROFILE_FILES.placement

    @property
    def measured(self) -> Measured | None:
        """Times and energies of the blocks; None where no energies were measured."""
        path = self.given / PROFILE_FILES.facts
        facts = _facts(self.given)
        if not facts["energy"]:
            return None
        return Measured(self.given / PROFILE_FILES.csv, path, facts["blocking_power_w"])

    def times_from(self, gpu: Gpu) -> tuple[str, bool]:
        """Return where the times come from."""
        return f"measured by schedsearch profile, {self.path}", False


def _facts(directory: Path) -> dict[str, Any]:
    """Return the facts of `experiments.profile` about its measurement.

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
    """Return the blocking power of ``profile.json``: a number, or W by MHz."""
    if plain is None:
        return None
    if isinstance(plain, dict):
        return checked_blocking_power(tuple((int(clock), float(watts)) for clock, watts in plain.items()))
    return checked_blocking_power(float(plain))
