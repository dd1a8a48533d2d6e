"""The weights of a placement's stages, and the versions of a schedule of it.

Chains of stages with mirrored backward blocks are known; see `schedsearch.baselines.structure.pipelines`. For
other placements `versions_of` is told which block is whose backward.
"""

from __future__ import annotations

from collections.abc import Mapping

from schedsearch.baselines.structure import pipelines
from schedsearch.schedule import Schedule
from schedsearch.semantics.versions import (
    Orders,
    StageWeights,
    Updates,
    WeightMode,
    WeightVersionError,
    WeightVersions,
    find_versions,
)


def orders_of(schedule: Schedule) -> Orders:
    """Return the order of each device, optimizer blocks aside."""
    schedule = schedule.per_micro_batch
    return [schedule.order(device) for device in range(schedule.placement.num_devices)]


def versions_of(
    schedule: Schedule,
    mode: WeightMode | str,
    micro_batches_per_update: int = 1,
    *,
    replicated: bool = False,
    pairs: Mapping[str, str] | None = None,
) -> WeightVersions:
    """Return which version of the weights every block of a schedule reads and makes.

    Args:
        schedule: Schedule of one or several chains of stages, from the first update on without a flush.
        mode: Which version is read.
        micro_batches_per_update: See `Updates`.
        replicated: Whether the chains are inputs of one pipeline whose stages are replicated, as in
            `placements.planners.replicated`: the stages at one place on one device then share their weights.
        pairs: For each backward block, and each half of one, its forward block, which has its own weights; by
            default those of the chains.

    Raises:
        WeightVersionError: See `find_versions`; or the placement has no such chains, or the mode is not
            known.
    """
    placement = schedule.placement.per_micro_batch
    found, own = pipelines(placement) if pairs is None else [], dict(pairs or {})
    if pairs is None and not found:
        raise WeightVersionError(
            f"{placement.name} is no chain of stages with mirrored backward blocks; use a placement that is, "
            "or give the pairs"
        )
    if mode not in list(WeightMode):
        raise WeightVersionError(f"{mode!r} is not known; use {', '.join(WeightMode)}")
    weights: dict[object, list[str]] = {}  # replicas of one place on the same devices share them
    for number, chain in enumerate(found):
        for place, stage in enumerate(chain):
            key = (place, stage.devices) if replicated else (number, place)
            weights.setdefault(key, []).append(stage.forward)
            own |= {name: stage.forward for name in (stage.backward, stage.weight) if name is not None}
    return find_versions(
        placement,
        orders_of(schedule),
        schedule.num_micro_batches,
        Updates(WeightMode(mode), micro_batches_per_update),
        own,
        [StageWeights(tuple(names)) for names in weights.values()],
    )
