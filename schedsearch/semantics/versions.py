"""Versions of weights: the version that each instance of a block reads, and the one its gradient makes.

Training starts with version 0, and update t makes version t of version t - 1. A stage is updated as soon as
the gradients of the update's micro-batches are complete on it: with a flush once, for all micro-batches;
without one after every few, while others are in flight (dissertation, Sec. 2.4.3 and 3.2.1). A version is
held from its update until its last read; the newest version is always held. Only the order of the blocks on
each device counts, not their times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from placements import Kind, Placement
from schedsearch.schedule import Instance

Orders = Sequence[Sequence[Instance]]
"""For each device its (block, micro-batch) pairs in the order in which they run."""


class WeightVersionError(ValueError):
    """A schedule cannot run in a mode of weight versions; the message has the reason and a remedy.

    Attributes:
        field: The option that is at fault; the message begins with it.
        reason: The rest of the message.
    """

    def __init__(self, reason: str, field: str = "weight_versions") -> None:
        super().__init__(field, reason)
        self.field, self.reason = field, reason

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"


class WeightMode(StrEnum):
    """Mode of weight versions: the version that a forward block reads; its backward reads the same one.

    - ``flush``: the only version; all micro-batches make one update.
    - ``weight_stashing``: the stage's newest version at the forward (dissertation, Sec. 2.4.3).
    - ``vertical_sync``: on every stage the input stage's version at the forward (Sec. 2.4.3).
    - ``double_buffering``: the version before the newest that earlier micro-batches make, 2BW (Sec. 3.2.1).
    """

    FLUSH = "flush"
    WEIGHT_STASHING = "weight_stashing"
    VERTICAL_SYNC = "vertical_sync"
    DOUBLE_BUFFERING = "double_buffering"


@dataclass(frozen=True)
class StageWeights:
    """The weights of a stage.

    Attributes:
        forward: Name of the forward block that reads them.
        teams: Devices of each of its copies that take micro-batches in turn, and make each update together;
            empty where all of its devices run each micro-batch.
    """

    forward: str
    teams: tuple[tuple[int, ...], ...] = ()

    @property
    def num_takers(self) -> int:
        """Number of copies that take micro-batches in turn."""
        return len(self.teams) or 1

    def orders(self, placement: Placement, orders: Orders) -> Orders:
        """Return the order of blocks on each copy's first device."""
        return [orders[team[0]] for team in self.teams or (placement.by_name[self.forward].devices,)]


@dataclass(frozen=True)
class Updates:
    """The mode of weight versions, and the number of micro-batches per update.

    Attributes:
        mode: Mode that determines the version read.
        micro_batches_per_update: Inputs whose gradients make one update of each stage, so many of each of its
            copies that take turns; without effect with a flush.
    """

    mode: WeightMode
    micro_batches_per_update: int = 1


@dataclass(frozen=True)
class WeightVersions:
    """The versions of all blocks of a schedule.

    Attributes:
        updates: Mode, and micro-batches per update.
        stages: The weights of each stage.
        reads: For each (block, micro-batch), forward and backward, the version that it reads.
        makes: For each (forward block, micro-batch) the version that its gradient helps to make; from 1 on.
        pairs: For each backward block, and each half of one, the forward block whose gradient it computes.
    """

    updates: Updates
    stages: tuple[StageWeights, ...]
    reads: Mapping[Instance, int]
    makes: Mapping[Instance, int]
    pairs: Mapping[str, str]

    def held(self, placement: Placement, order: Sequence[Instance], stage: StageWeights) -> list[int]:
        """Return the number of versions of a stage's weights held after each block of a device's order.

        Before the first block the device holds one version.
        """
        forwards = [instance for instance in order if instance[0] == stage.forward]
        reads_left = Counter(self.reads[instance] for instance in forwards)
        gradients_left = Counter(self.makes[instance] for instance in forwards)
        newest, counts = 0, []
        for name, n in order:
            if self.pairs.get(name) == stage.forward and placement.by_name[name].kind is not Kind.I:
                reads_left[self.reads[name, n]] -= 1
                gradients_left[newest + 1] -= 1
                newest += not gradients_left[newest + 1]
            counts.append(len({newest, *(v for v, left in reads_left.items() if left and v <= newest)}))
        return counts

    def peak_held(self, placement: Placement, orders: Orders) -> dict[str, int]:
        """Return the most versions of its weights that each stage holds at any one time, by the stage's name.

        Weight stashing in 1F1B holds p - s + 1 on stage s of p (from 1 on), vertical sync p on each, and 2BW
        two (dissertation, Sec. 2.4.3 and 3.2.1).
        """
        return {
            stage.forward: max(
                max([1, *self.held(placement, o, stage)]) for o in stage.orders(placement, orders)
            )
            for stage in self.stages
        }


def find_versions(
    placement: Placement,
    orders: Orders,
    num_micro_batches: int,
    updates: Updates,
    pairs: Mapping[str, str],
) -> WeightVersions:
    """Return which version every block reads and makes, where each forward block has its own weights.

    Args:
        placement: What runs where.
        orders: Order of each of its devices.
        num_micro_batches: Micro-batches that the orders run without a flush in between.
        updates: Mode of the versions, and micro-batches of an update.
        pairs: For each backward block, and each half of one, the forward block whose gradient it computes.

    Raises:
        WeightVersionError: The number is no multiple of those of an update, gradients are not complete update
            by update, or a version is not there when it is to be read; or copies that take turns do not take
            as many micro-batches of each update, or stages with different numbers of them are to read one
            version.
    """
    forward = [block for block in placement.topological_order if block.kind is Kind.F]
    stages = tuple(StageWeights(block.name, block.groups if block.in_turns else ()) for block in forward)
    mode = updates.mode
    if mode is WeightMode.VERTICAL_SYNC and len({stage.num_takers for stage in stages}) > 1:
        raise WeightVersionError(
            "vertical_sync needs as many copies of every stage, else these make different numbers of "
            f"versions; use {WeightMode.WEIGHT_STASHING}"
        )
    halves = {name for name in pairs if placement.by_name[name].kind is Kind.I}
    at_hand: dict[Instance, int] = {}
    makes: dict[Instance, int] = {}
    reads: dict[Instance, int] = {}
    for stage in stages:
        per_update = _gradients_per_update(stage, num_micro_batches, updates)
        of_all = per_update * stage.num_takers
        for order in stage.orders(placement, orders):
            done = 0
            for name, n in order:
                pair = None if name in halves else pairs.get(name)
                if name == stage.forward:
                    at_hand[name, n] = reads[name, n] = done // per_update
                    if mode is WeightMode.DOUBLE_BUFFERING:
                        reads[name, n] = max(n // of_all - 1, 0)
                elif pair == stage.forward:
                    if n // of_all != done // per_update:
                        raise WeightVersionError(
                            f"the gradient of {pair} of micro-batch {n} is complete before or after those of "
                            f"its update; use {WeightMode.FLUSH}, or a schedule that runs backward blocks in "
                            "the order of the micro-batches"
                        )
                    makes[pair, n] = done // per_update + 1
                    done += 1
    if at_hand.keys() != makes.keys():
        raise WeightVersionError(
            "not every forward block has a backward block, so there is nothing to update; "
            "use a placement that is trained"
        )
    if mode is WeightMode.VERTICAL_SYNC:
        sources = _input_stages(placement)
        reads = {(name, n): min(at_hand[source, n] for source in sources[name]) for name, n in at_hand}
    for (name, n), version in sorted(reads.items(), key=lambda item: item[0][::-1]):
        if version > at_hand[name, n]:
            remedy = "use weight_stashing"
            if mode is WeightMode.DOUBLE_BUFFERING:
                remedy = (
                    f"raise micro_batches_per_update (1F1B needs {placement.num_devices - 1} at least), or "
                    "use another schedule"
                )
            raise WeightVersionError(
                f"{mode} lets {name} of micro-batch {n} read version {version}, but its device has made only "
                f"{at_hand[name, n]}; {remedy}"
            )
    backward = {(name, n): reads[pair, n] for name, pair in pairs.items() for n in range(num_micro_batches)}
    return WeightVersions(updates, stages, reads | backward, makes, pairs)


def _gradients_per_update(stage: StageWeights, num_micro_batches: int, updates: Updates) -> int:
    inputs, per_update = num_micro_batches, updates.micro_batches_per_update
    if updates.mode is WeightMode.FLUSH:
        return inputs
    if per_update < 1 or inputs % (per_update * stage.num_takers):
        on_all = f" on each of its {stage.num_takers} copies" if stage.teams else ""
        raise WeightVersionError(
            f"{per_update}{on_all} is not a divisor of the {inputs} inputs of {stage.forward}; "
            "give a divisor, or another number of micro-batches",
            "micro_batches_per_update",
        )
    return per_update


def _input_stages(placement: Placement) -> dict[str, set[str]]:
    """Return for each forward block the blocks without inputs in its connected forward graph."""
    forward = {block.name for block in placement.blocks if block.kind is Kind.F}
    inputs = {name: forward.intersection(placement.by_name[name].after) for name in forward}
    graph_of = {name: {name} for name in forward}
    for name, before in inputs.items():
        for source in before:
            joined = graph_of[name] | graph_of[source]
            graph_of |= dict.fromkeys(joined, joined)
    return {name: {source for source in graph if not inputs[source]} for name, graph in graph_of.items()}
