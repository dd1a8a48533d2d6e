"""Modes: ways to run linked blocks, of which a search chooses one for each micro-batch.

A forward and its backward may keep activations, compute them again, or send them to the host: each is a
choice of one decision, and holds the differences from the blocks as written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from placements.block import Block, Kind

OF_MICRO_BATCH = "as micro-batch"
"""How names of choices begin that are no modes, but how micro-batches that differ run."""

Chosen = tuple[int, ...]
"""For each decision of a placement the number of its choice, of one micro-batch."""


@dataclass(frozen=True)
class Choice:
    """One way to run the blocks of a decision.

    Attributes:
        name: Such as ``keep`` or ``recompute``; unique in its decision.
        blocks: Blocks that run otherwise than written, as they then run. A block of time 0 does not run: the
            blocks after it wait for the blocks before it.
    """

    name: str
    blocks: tuple[Block, ...] = ()

    @cached_property
    def by_name(self) -> Mapping[str, Block]:
        """Map the name of each block that differs to the block."""
        return {block.name: block for block in self.blocks}


@dataclass(frozen=True)
class Decision:
    """Linked blocks with modes, at least one, of which one is chosen for each micro-batch."""

    choices: tuple[Choice, ...]

    @cached_property
    def blocks(self) -> tuple[str, ...]:
        """The names of all blocks of which some choice changes something."""
        return tuple(dict.fromkeys(block.name for choice in self.choices for block in choice.blocks))

    def mapped(self, change: Callable[[Block], Block]) -> Decision:
        """Return the decision with each block changed by a function."""
        return Decision(tuple(replace(mode, blocks=tuple(map(change, mode.blocks))) for mode in self.choices))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the choices."""
        return tuple(choice.name for choice in self.choices)

    @property
    def is_of_micro_batches(self) -> bool:
        """Whether the choices are runs of different micro-batches, and so nothing to choose."""
        return self.names[0].startswith(OF_MICRO_BATCH)


def as_chosen(
    blocks: tuple[Block, ...],
    transfer: tuple[tuple[str, str, int], ...],
    decisions: tuple[Decision, ...],
    chosen: Chosen,
) -> tuple[tuple[Block, ...], tuple[tuple[str, str, int], ...]]:
    """Return the blocks that run once each decision is taken, and the times of transfer between them.

    A block that does not run hands on what it waits for; transfers to it and from it add up. It hands on
    nothing where another block of its decision runs in its place and comes as late after the same. Blocks are
    given as written, each after those that it waits for.
    """
    chosen_of = zip(decisions, chosen, strict=True)
    changed = {block.name: block for decision, i in chosen_of for block in decision.choices[i].blocks}
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
            known = since.get(other, {}) if name in inputs else {}
            for source, before in inputs.get(name, {name: 0}).items():
                if source not in known or known[source] + after[other] < before + delay:
                    waits[source] = max(waits.get(source, 0), before + delay)
        if not block.time:
            inputs[block.name] = waits
            continue
        distances = since.setdefault(block.name, {})
        for source, delay in waits.items():
            for earlier, ticks_before in ({source: 0} | since[source]).items():
                distances[earlier] = max(distances.get(earlier, 0), ticks_before + delay + block.time)
        kept.append(replace(block, after=tuple(waits)))
        delays += [(source, block.name, time) for source, time in waits.items() if time]
    return tuple(kept), tuple(delays)


def left_over(blocks: Iterable[Block]) -> Iterator[tuple[str, int, int]]:
    """Yield the memory held after all blocks: ``memory`` or ``host_memory``, the device, and the units."""
    sums = Counter[tuple[str, int]]()
    for block in blocks:
        for device, units in block.units.items():
            sums["memory", device] += units
            if block.host_memory:
                sums["host_memory", device] += block.host_memory
    return ((name, device, units) for (name, device), units in sorted(sums.items()) if units)


def mistakes_of_modes(blocks: Mapping[str, Block], decisions: tuple[Decision, ...]) -> Iterator[str]:
    """Yield the mistakes in modes; each names the decision, the choice and the block."""
    owner: dict[str, int] = {}
    for i, decision in enumerate(decisions):
        where = f"modes[{i}].choices"
        if not decision.choices:
            yield f"{where}: is empty; give at least one"
        for name in decision.blocks:
            if owner.setdefault(name, i) != i:
                yield f"{where}: modes[{owner[name]}] decides on {name} too; make one decision of both"
        for choice in decision.choices:
            for block in choice.blocks:
                place = f"{where}.{choice.name}.{block.name}"
                if block.kind is Kind.O:
                    yield f"{place}: is an optimizer block, which runs once; give modes of others only"
                if not block.time and (block.memory or block.transient or block.host_memory):
                    yield f"{place}: does not run, its time being 0, and cannot hold memory; give 0 for it"
            for name, device, units in left_over(choice.by_name.get(n, blocks[n]) for n in decision.blocks):
                what = f"the {name} of its blocks sums to {units} on device {device}"
                yield f"{where}.{choice.name}: {what}; let them release what they allocate"
