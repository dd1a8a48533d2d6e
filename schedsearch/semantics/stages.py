"""The versions of a schedule of chains of stages; see `schedsearch.baselines.structure.pipelines`."""

from __future__ import annotations

from schedsearch.baselines.structure import pipelines
from schedsearch.schedule import Schedule
from schedsearch.semantics.versions import (
    Orders,
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
    schedule: Schedule, mode: WeightMode | str, micro_batches_per_update: int = 1
) -> WeightVersions:
    """Return which version of the weights every block of a schedule reads and makes.

    The schedule is of one or several chains of stages with mirrored backward blocks, from the first update on
    without a flush.

    Raises:
        WeightVersionError: See `find_versions`; or the placement has no such chains, or the mode is not
            known.
    """
    placement = schedule.placement.per_micro_batch
    stages = [stage for chain in pipelines(placement) for stage in chain]
    if not stages:
        raise WeightVersionError(
            f"{placement.name} is no chain of stages with mirrored backward blocks; use a placement that is, "
            "or find_versions with the pairs"
        )
    if mode not in list(WeightMode):
        raise WeightVersionError(f"{mode!r} is not known; use {', '.join(WeightMode)}")
    halves = [(name, each.forward) for each in stages for name in (each.backward, each.weight)]
    return find_versions(
        placement,
        orders_of(schedule),
        schedule.num_micro_batches,
        Updates(WeightMode(mode), micro_batches_per_update),
        {name: forward for name, forward in halves if name is not None},
    )
