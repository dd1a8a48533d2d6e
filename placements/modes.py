"""Modes: ways to run linked blocks, of which a search chooses one for each micro-batch.

A forward and its backward may keep activations, compute them again, or send them to the host: each is a
choice of one decision, and says what differs from the blocks as they are written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from placements.block import Block, PlacementError

OF_MICRO_BATCH = "as micro-batch"
"""How names of choices begin that are no modes, but how micro-batches that differ run."""

Chosen = tuple[int, ...]
"""For each decision of a placement the number of its choice, of one micro-batch."""


@dataclass(frozen=True)
class Choice:
    """One way to run the blocks of a decision.

    Attributes:
        name: Such as ``keep`` or ``recompute``; unique in its decision.
        blocks: Those that differ from what is written, as they then run. A time of 0 is a block that does not
            run: what is after it waits for what it was after.
    """

    name: str
    blocks: tuple[Block, ...] = ()

    @cached_property
    def by_name(self) -> Mapping[str, Block]:
        """Map the name of each block that differs to the block."""
        return {block.name: block for block in self.blocks}


@dataclass(frozen=True)
class Decision:
    """Linked blocks with modes, one of which is chosen for each micro-batch.

    Attributes:
        choices: The modes, at least one.
    """

    choices: tuple[Choice, ...]

    @cached_property
    def blocks(self) -> tuple[str, ...]:
        """The names of all blocks of which some choice changes something."""
        return tuple(dict.fromkeys(block.name for choice in self.choices for block in choice.blocks))

    def mapped(self, change: Callable[[Block], Block]) -> Decision:
        """Return the decision with each block changed by a function."""
        return Decision(tuple(replace(each, blocks=tuple(map(change, each.blocks))) for each in self.choices))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the choices."""
        return tuple(choice.name for choice in self.choices)

    @property
    def is_of_micro_batches(self) -> bool:
        """Whether its choices are how micro-batches that differ run, and so nothing to choose."""
        return self.names[0].startswith(OF_MICRO_BATCH)


def as_chosen(
    blocks: tuple[Block, ...],
    transfer: tuple[tuple[str, str, int], ...],
    decisions: tuple[Decision, ...],
    chosen: Chosen,
) -> tuple[tuple[Block, ...], tuple[tuple[str, str, int], ...]]:
    """Return the blocks that run once each decision is taken, and the times of transfer between them.

    A block that does not run hands on what it waits for; transfers to it and from it add up. It hands on
    nothing where another block of its decision runs in its place and comes as late after the same.

    Args:
        blocks: As written, each after those that it waits for.
        transfer: As written.
        decisions: What may be chosen.
        chosen: What is.
    """
    changed: dict[str, Block] = {}
    for decision, number in zip(decisions, chosen, strict=True):
        changed |= decision.choices[number].by_name
    ticks = {(source, target): time for source, target, time in transfer}
    # for each block that does not run: what stands for it, and the ticks from there
    inputs: dict[str, dict[str, int]] = {}
    # for each block that runs: the ticks to its end from the ends of all that come before
    since: dict[str, dict[str, int]] = {}
    owner = {name: i for i, decision in enumerate(decisions) for name in decision.blocks}
    kept, delays = [], []
    for written in blocks:
        block = changed.get(written.name, written)
        waits: dict[str, int] = {}
        after = {name: ticks.get((name, written.name), 0) for name in written.after}
        instead = {owner[name]: name for name in after if name in owner and name not in inputs}
        for name, delay in after.items():
            other = instead.get(owner.get(name, -1), name)
            for source, before in inputs.get(name, {name: 0}).items():
                if (
                    name in inputs
                    and since.get(other, {}).get(source, -math.inf) + after[other] >= before + delay
                ):
                    continue
                waits[source] = max(waits.get(source, 0), before + delay)
        if not block.time:
            inputs[block.name] = waits
            continue
        own = since.setdefault(block.name, {})
        for source, delay in waits.items():
            for earlier, ticks_before in ({source: 0} | since[source]).items():
                own[earlier] = max(own.get(earlier, 0), ticks_before + delay + block.time)
        kept.append(replace(block, after=tuple(waits)))
        delays += [(source, block.name, time) for source, time in waits.items() if time]
    return tuple(kept), tuple(delays)


def check_decisions(blocks: Mapping[str, Block], decisions: tuple[Decision, ...]) -> None:
    """Check the rules of modes.

    Raises:
        PlacementError: One is broken; the message names the decision, the choice and the block.
    """
    owner: dict[str, int] = {}
    for i, decision in enumerate(decisions):
        where = f"modes[{i}].choices"
        if not decision.choices:
            raise PlacementError(f"{where}: is empty; give at least one")
        if len(set(decision.names)) < len(decision.names):
            raise PlacementError(f"{where}: a name is used twice; rename one of the choices")
        for choice in decision.choices:
            for block in choice.blocks:
                place = f"{where}.{choice.name}.{block.name}"
                if block.name not in blocks:
                    raise PlacementError(f"{place}: there is no such block; name one of the placement's")
                if owner.setdefault(block.name, i) != i:
                    other = f"modes[{owner[block.name]}]"
                    raise PlacementError(f"{place}: {other} decides on it too; make one decision of both")
                _check_change(place, blocks[block.name], block)
        for choice in decision.choices:
            _check_released(
                f"{where}.{choice.name}", [choice.by_name.get(n, blocks[n]) for n in decision.blocks]
            )


def _check_change(place: str, written: Block, block: Block) -> None:
    if written.kind == "O":
        raise PlacementError(f"{place}: is an optimizer block, which runs once; give modes of others only")
    names = ("time", "memory", "transient", "host_memory")
    changed = {name: getattr(block, name) for name in names}
    assert replace(written, **changed) == block, "a choice changes times and memory alone"
    for name in ("time", "transient"):
        if changed[name] < 0:
            raise PlacementError(f"{place}.{name}: {changed[name]} is negative; give 0 or more")
    if not block.time and any(changed.values()):
        raise PlacementError(
            f"{place}: does not run, its time being 0, and cannot hold memory; give 0 for it"
        )


def _check_released(where: str, blocks: list[Block]) -> None:
    """Check that the blocks of a decision release what they allocate."""
    for device in sorted({device for block in blocks for device in block.devices}):
        here = [block for block in blocks if device in block.devices]
        sums = {
            "memory": sum(block.memory_on(device) for block in here),
            "host_memory": sum(block.host_memory for block in here),
        }
        for what, left in sums.items():
            if left:
                raise PlacementError(
                    f"{where}: the {what} of its blocks sums to {left} on device {device}; let them release "
                    "what they allocate"
                )
