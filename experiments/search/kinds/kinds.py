"""All kinds of placements by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.config.declaring import Option, own_options
from experiments.config.options import OptionError, read_fields, require_known
from experiments.search.kinds.files import FilePlacement, ProfiledPlacement
from experiments.search.kinds.galvatron import GalvatronPlacement
from experiments.search.kinds.gpt import GptPlacement
from experiments.search.kinds.kind import PlacementKind
from experiments.search.kinds.layouts import MegatronPlacement, TorchtitanPlacement
from experiments.search.kinds.planned import PlannedPlacement
from experiments.search.kinds.shapes import record_of
from experiments.search.kinds.stages import StagesPlacement
from placements.shapes import SHAPES

_RECORDS: Mapping[str, type[PlacementKind]] = {
    "file": FilePlacement,
    "galvatron": GalvatronPlacement,
    "gpt": GptPlacement,
    "megatron": MegatronPlacement,
    "planned": PlannedPlacement,
    "profiled": ProfiledPlacement,
    "stages": StagesPlacement,
    "torchtitan": TorchtitanPlacement,
} | {name: record_of(name) for name in SHAPES}

PLACEMENTS: Mapping[str, tuple[Option, ...]] = {name: own_options(kind) for name, kind in _RECORDS.items()}
"""The options of each kind of the group `placement`."""


def read_placement_kind(data: Any) -> PlacementKind:
    """Return the record of a `placement` group.

    Raises:
        OptionError: It says no kind, or one that is not known; or an option is wrong.
    """
    if not isinstance(data, dict):
        raise OptionError(
            f"placement: {data!r} is not a group of options; give them as in placement.NAME=VALUE"
        )
    kind = data.get("kind")
    require_known("placement.kind", kind, _RECORDS)
    return read_fields(data, _RECORDS[str(kind)], "placement")
