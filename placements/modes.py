"""Modes: ways to run linked blocks, of which a search chooses one for each micro-batch.

A forward and its backward may keep activations, compute them again, or send them to the host: each is a
choice of one decision, and says what differs from the blocks as they are written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
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
        where = f"modes[{i}]"
        if not decision.choices:
            raise PlacementError(f"{where}.choices: is empty; give at least one")
        if len(set(decision.names)) < len(decision.names):
            raise PlacementError(f"{where}.choices: a name is used twice; rename one of the choices")
        for choice, block in _changes(decision):
            place = f"{where}.choices.{choice}.{block.name}"
            written = blocks.get(block.name)
            if written is None:
                raise PlacementError(f"{place}: there is no such block; name one of the placement's")
            if owner.setdefault(block.name, i) != i:
                raise PlacementError(
                    f"{place}: modes[{owner[block.name]}] decides on it too; make one decision of both"
                )
            _check_change(place, written, block)
        _check_memory(where, blocks, decision)


def _changes(decision: Decision) -> Iterator[tuple[str, Block]]:
    """Yield each block that a choice changes, with the name of the choice."""
    for choice in decision.choices:
        for block in choice.blocks:
            yield choice.name, block


def _check_change(place: str, written: Block, block: Block) -> None:
    if written.kind.value == "O":
        raise PlacementError(f"{place}: is an optimizer block, which runs once; give modes of others only")
    same = replace(
        written,
        time=block.time,
        memory=block.memory,
        transient=block.transient,
        host_memory=block.host_memory,
    )
    assert same == block, "a choice changes times and memory alone"
    for name, value in (("time", block.time), ("transient", block.transient)):
        if value < 0:
            raise PlacementError(f"{place}.{name}: {value} is negative; give 0 or more")
    if not block.time and (block.memory or block.transient or block.host_memory):
        raise PlacementError(
            f"{place}: does not run, its time being 0, and cannot hold memory; give 0 for it"
        )


def _check_memory(where: str, blocks: Mapping[str, Block], decision: Decision) -> None:
    """Check that a decision's blocks release what they allocate, in each of its choices."""
    for choice in decision.choices:
        held: dict[int, int] = {}
        on_hosts: dict[int, int] = {}
        for name in decision.blocks:
            block = choice.by_name.get(name, blocks[name])
            for device in block.devices:
                held[device] = held.get(device, 0) + block.memory_on(device)
                on_hosts[device] = on_hosts.get(device, 0) + block.host_memory
        for what, units in (("memory", held), ("host_memory", on_hosts)):
            for device, left in units.items():
                if left:
                    raise PlacementError(
                        f"{where}.choices.{choice.name}: the {what} of its blocks sums to {left} on device "
                        f"{device}; let them release what they allocate"
                    )
