"""The versions of weights of a schedule of chains of stages, and the orders that they follow from."""

from __future__ import annotations

from schedsearch.baselines.structure import pipelines
from schedsearch.schedule import Instance, Schedule
from schedsearch.semantics.versions import Updates, WeightMode, WeightVersions, find_versions


def device_orders(schedule: Schedule) -> list[tuple[Instance, ...]]:
    """Return the order of each device, optimizer blocks aside."""
    schedule = schedule.per_micro_batch
    return [schedule.order(device) for device in range(schedule.placement.num_devices)]


def versions_of(schedule: Schedule, mode: str, micro_batches_per_update: int = 1) -> WeightVersions:
    """Return the versions that every block reads and makes, without a flush."""
    placement = schedule.placement.per_micro_batch
    pairs = {
        half: stage.forward
        for chain in pipelines(placement)
        for stage in chain
        for half in (stage.backward, stage.weight)
        if half is not None
    }
    updates = Updates(WeightMode(mode), micro_batches_per_update)
    return find_versions(placement, device_orders(schedule), schedule.num_micro_batches, updates, pairs)
