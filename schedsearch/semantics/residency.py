"""Versions of weights that a device holds: of each moment, at the most, and in memory.

A version is held from when it is made until no micro-batch is to read it any more; the newest always is. An
update makes a new version beside the old one only where the old one is still to be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from placements import Kind, Placement
from placements.modes import Chosen
from schedsearch.schedule import Instance
from schedsearch.semantics.versions import Orders, StageWeights, WeightVersions

OnDevice = Sequence[tuple[Instance, Mapping[str, int]]]
"""After each (block, micro-batch) of a device, in its order, how many versions it holds of each stage."""


def held_versions(placement: Placement, orders: Orders, versions: WeightVersions, device: int) -> OnDevice:
    """Return how many versions of the weights of each of its stages a device holds, block after block.

    Args:
        placement: What runs where.
        orders: Orders from which the versions were found.
        versions: Those.
        device: Which one.

    Returns:
        By the name of the stage; before the first block it holds one of each.
    """
    here = [stage for stage in versions.stages if device in placement.by_name[stage.name].devices]
    counts = {stage.name: _held(placement, orders[device], versions, stage) for stage in here}
    return [
        (instance, {name: of_stage[i] for name, of_stage in counts.items()})
        for i, instance in enumerate(orders[device])
    ]


def peak_versions(placement: Placement, orders: Orders, versions: WeightVersions) -> dict[str, int]:
    """Return the most versions of its weights that each stage holds at any one time, by the stage's name.

    Weight stashing in 1F1B holds p - s + 1 on stage s of p (from 1 on), vertical sync p on each, and 2BW
    two (dissertation, Sec. 2.4.3 and 3.2.1).
    """
    peaks = {}
    for stage in versions.stages:
        on_copies = [_held(placement, order, versions, stage) for order in stage.orders(placement, orders)]
        peaks[stage.name] = max((max(held, default=1) for held in on_copies), default=1)
    return peaks


def peak_memory_with_versions(
    placement: Placement,
    orders: Orders,
    versions: WeightVersions,
    weight_memory: Mapping[str, int],
    chosen: Sequence[Chosen] = (),
) -> NDArray[np.int64]:
    """Return the most memory that each device holds at any one time, more versions of weights included.

    A placement's static memory is the weights once, with all that goes with them but is not kept for every
    version, such as gradients and optimizer states. What one more version of a stage takes it does not say.

    Args:
        placement: What runs where.
        orders: Orders from which the versions were found.
        versions: Those.
        weight_memory: For each stage, by name, one version of its weights on each of its devices.
        chosen: The choices of each micro-batch, as of `schedsearch.schedule.Schedule`.

    Returns:
        Units of `placements.Block.memory`; shape ``(num_devices,)``.
    """
    peaks = []
    for device in range(placement.num_devices):
        activations = peak = placement.static[device]
        more = 0
        for (name, n), held in held_versions(placement, orders, versions, device):
            block = (placement.as_run(chosen[n]) if chosen else placement).by_name[name]
            activations += block.memory_on(device)
            peak = max(peak, activations + block.transient + more)  # while it runs, what was held before
            more = sum((count - 1) * weight_memory[stage] for stage, count in held.items())
            peak = max(peak, activations + more)
        peaks.append(peak)
    return np.array(peaks, dtype=np.int64)


def _held(
    placement: Placement, order: Sequence[Instance], versions: WeightVersions, stage: StageWeights
) -> list[int]:
    """Return after each block of a device how many versions of a stage's weights it holds."""
    own = [instance for instance in order if instance[0] in stage.forward]
    reads_left = Counter(versions.reads[instance] for instance in own)
    gradients_left = Counter(versions.makes[instance] for instance in own)
    newest, counts = 0, []
    for name, n in order:
        if versions.pairs.get(name) in stage.forward and placement.by_name[name].kind is not Kind.I:
            reads_left[versions.reads[name, n]] -= 1
            gradients_left[newest + 1] -= 1
            newest += not gradients_left[newest + 1]
        counts.append(len({newest} | {each for each, left in reads_left.items() if left and each <= newest}))
    return counts
