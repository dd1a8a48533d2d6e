"""The rules of the modes of weight versions, checked without knowing how the versions were found.

Shares no code with `versions`, which finds them: it counts the updates of every stage again, block by block.
"""

from __future__ import annotations

from collections.abc import Sequence

from placements import Kind, Placement
from schedsearch.schedule import Instance
from schedsearch.semantics.versions import Orders, StageWeights, WeightMode, WeightVersions


class WrongVersionError(ValueError):
    """Versions break a rule of their mode; the message says which block, micro-batch and version."""


def check_versions(placement: Placement, orders: Orders, versions: WeightVersions) -> WeightVersions:
    """Check that versions keep every rule of their mode; return them.

    - A backward block, or each half of it, reads the version that its forward block read on the stage.
    - No version is read before it is made.
    - An update is made of as many gradients as the mode has, and each gradient goes into the next update.
    - With a flush, all read version 0. With weight stashing, a forward block reads the newest of its stage.
      With vertical sync, all stages read the same for a micro-batch: the newest of an input stage. With
      double buffering, every gradient but those of the first update is one update old.

    Raises:
        WrongVersionError: A rule is broken.
    """
    newest: dict[Instance, int] = {}
    for stage in versions.stages:
        for order in stage.orders(placement, orders):
            newest |= _check_copy(placement, order, versions, stage)
        of_update: dict[tuple[str, int], list[int]] = {}
        for (name, n), made in sorted(versions.makes.items()):
            if stage.teams and name == stage.forward:
                of_update.setdefault((name, made), []).append(n)
        for (name, made), numbers in of_update.items():
            if numbers[-1] - numbers[0] >= len(numbers):
                raise WrongVersionError(
                    f"version {made} of {name} is made of the micro-batches {numbers}, not all in a row"
                )
    if versions.updates.mode is WeightMode.VERTICAL_SYNC:
        sources = _sources(placement)
        for (name, n), read in versions.reads.items():
            if name in sources and read != (wanted := min(newest[source, n] for source in sources[name])):
                raise WrongVersionError(
                    f"{name} of micro-batch {n} reads version {read}, but the newest of the input stage is "
                    f"{wanted}"
                )
    return versions


def _check_copy(
    placement: Placement, order: Sequence[Instance], versions: WeightVersions, stage: StageWeights
) -> dict[Instance, int]:
    """Hold the rules of one copy of a stage; return the newest version at each of its forward blocks."""
    mode, per_update = versions.updates.mode, versions.updates.micro_batches_per_update
    if mode is WeightMode.FLUSH:
        per_update = sum(name == stage.forward for name, _ in order)
    newest_at: dict[Instance, int] = {}
    gradients = 0
    for name, n in order:
        pair = versions.pairs.get(name, name)
        if pair != stage.forward:
            continue
        newest, read = gradients // per_update, versions.reads[name, n]
        wrong = "" if read <= newest else f"which is made later: the newest is {newest}"
        if name == stage.forward:
            newest_at[name, n] = newest
            if mode is WeightMode.FLUSH and read != 0:
                wrong = "but with a flush there is 0 alone"
            elif mode is WeightMode.WEIGHT_STASHING and read != newest:
                wrong = wrong or f"but the newest of its stage is {newest}"
        elif read != versions.reads[pair, n]:
            wrong = wrong or f"but {pair} read {versions.reads[pair, n]}"
        elif placement.by_name[name].kind is not Kind.I:
            made, old = versions.makes[pair, n], max(newest - 1, 0)
            if made != newest + 1:
                raise WrongVersionError(
                    f"the gradient of {pair} of micro-batch {n} goes into version {made}, but the next is "
                    f"{newest + 1}"
                )
            if mode is WeightMode.DOUBLE_BUFFERING and read != old:
                wrong = f"but the one before the newest is {old}"
            gradients += 1
        if wrong:
            raise WrongVersionError(f"{name} of micro-batch {n} reads version {read}, {wrong}")
    return newest_at


def _sources(placement: Placement) -> dict[str, set[str]]:
    """Return for each forward block the blocks without inputs in its connected forward graph."""
    inputs = {block.name: block.after for block in placement.blocks if block.kind is Kind.F}
    part_of = {name: {name} for name in inputs}
    for name, after in inputs.items():
        for source in inputs.keys() & set(after):
            joined = part_of[name] | part_of[source]
            part_of |= dict.fromkeys(joined, joined)
    return {name: {a for a in part if not inputs.keys() & set(inputs[a])} for name, part in part_of.items()}
