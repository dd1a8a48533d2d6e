"""The rules of the modes of weight versions, checked without knowing how the versions were found.

Shares no code with what finds them: it counts the updates of every stage again, block by block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placements import Kind, Placement
from schedsearch.schedule import Instance
from schedsearch.semantics.versions import Orders, StageWeights, WeightMode, WeightVersions

Newest = Mapping[Instance, int]
"""For each (forward block, micro-batch) how many updates its stage has made before."""


class WrongVersionError(ValueError):
    """Versions break a rule of their mode; the message says which block, micro-batch and version."""


def check_versions(placement: Placement, orders: Orders, versions: WeightVersions) -> WeightVersions:
    """Return the versions if they keep every rule of their mode.

    - A backward block, or each half of it, reads what its forward block read on the stage.
    - Nothing is read before it is made.
    - An update is made of as many gradients as the mode has, and each gradient goes into the next update.
    - With a flush, all read version 0. With weight stashing, a forward block reads the newest of its stage.
      With vertical sync, all stages read the same for a micro-batch: the newest of an input stage. With
      double buffering, every gradient but those of the first update is one update old.

    Args:
        placement: What runs where.
        orders: Order of each of its devices.
        versions: Versions to be checked.

    Raises:
        WrongVersionError: They do not.
    """
    newest: dict[Instance, int] = {}
    for stage in versions.stages:
        for order in stage.orders(placement, orders):
            newest |= _check_copy(placement, order, versions, stage)
        of_update: dict[tuple[str, int], list[int]] = {}
        for (name, n), made in sorted(versions.makes.items()):
            if stage.teams and name in stage.forward:
                of_update.setdefault((name, made), []).append(n)
        for (name, made), numbers in of_update.items():
            if numbers[-1] - numbers[0] >= len(numbers):
                raise WrongVersionError(
                    f"version {made} of {name} is made of the micro-batches {numbers}, not all in a row"
                )
    if versions.updates.mode is WeightMode.VERTICAL_SYNC:
        _check_same_on_all_stages(placement, versions, newest)
    return versions


def _check_copy(
    placement: Placement, order: Sequence[Instance], versions: WeightVersions, stage: StageWeights
) -> Newest:
    """Hold the rules of one copy of a stage; return the newest version at each of its forward blocks."""
    mode, each = versions.updates.mode, versions.updates.micro_batches_per_update
    if mode is WeightMode.FLUSH:
        each = sum(name in stage.forward for name, _ in order)
    forward_read: dict[Instance, int] = {}
    newest_at_forward: dict[Instance, int] = {}
    gradients = 0
    for name, n in order:
        pair = versions.pairs.get(name, name)
        if pair not in stage.forward:
            continue
        newest, read = gradients // each, versions.reads[name, n]
        where = f"{name} of micro-batch {n} reads version {read}"
        if read > newest:
            raise WrongVersionError(f"{where}, which is made later: the newest is {newest}")
        if name in stage.forward:
            forward_read[name, n] = read
            if mode is WeightMode.FLUSH and read != 0:
                raise WrongVersionError(f"{where}, but with a flush there is 0 alone")
            if mode is WeightMode.WEIGHT_STASHING and read != newest:
                raise WrongVersionError(f"{where}, but the newest of its stage is {newest}")
            newest_at_forward[name, n] = newest
            continue
        if read != forward_read[pair, n]:
            raise WrongVersionError(f"{where}, but {pair} read {forward_read[pair, n]}")
        if placement.by_name[name].kind is Kind.I:
            continue
        if versions.makes[pair, n] != newest + 1:
            raise WrongVersionError(
                f"the gradient of {pair} of micro-batch {n} goes into version {versions.makes[pair, n]}, but "
                f"the next is {newest + 1}"
            )
        if mode is WeightMode.DOUBLE_BUFFERING and read != max(newest - 1, 0):
            raise WrongVersionError(f"{where}, but the one before the newest is {max(newest - 1, 0)}")
        gradients += 1
    return newest_at_forward


def _check_same_on_all_stages(placement: Placement, versions: WeightVersions, newest: Newest) -> None:
    """Ensure one version for each micro-batch of each forward graph: the newest that all its inputs have."""
    graph_of = {block.name: {block.name} for block in placement.blocks if block.kind is Kind.F}
    for block in placement.blocks:
        for name in block.after:
            if block.kind is placement.by_name[name].kind is Kind.F:
                joined = graph_of[name] | graph_of[block.name]
                graph_of |= dict.fromkeys(joined, joined)
    inputs = {
        name
        for name in graph_of
        if not any(placement.by_name[each].kind is Kind.F for each in placement.by_name[name].after)
    }
    for name, n in newest:
        wanted = min(newest[source, n] for source in graph_of[name] & inputs)
        if versions.reads[name, n] != wanted:
            raise WrongVersionError(
                f"{name} of micro-batch {n} reads version {versions.reads[name, n]}, but the newest of the "
                f"input stage is {wanted}"
            )
