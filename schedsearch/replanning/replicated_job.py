"""A data-parallel job: equal pipelines side by side, with devices that are lost or slow.

Micro-batch n belongs to pipeline ``n % num_replicas``. On a device that its pipeline lost it takes another
copy of the device. Knows no search.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from placements import Block, Kind, Placement
from placements.copies.replicas import replicated
from placements.modes import Chosen
from schedsearch.core.objective import Objective
from schedsearch.core.problem import Problem
from schedsearch.proof.timeline import Timeline
from schedsearch.schedule import Instance, Schedule, require_plain

Copy = tuple[int, int]
"""A copy of a device: (device of the pipeline, number of the replica)."""


class ReplanError(ValueError):
    """A job's description is contradictory; the message names the field and the remedy in one line."""


@dataclass(frozen=True)
class ReplicatedJob:
    """Data-parallel pipelines side by side, with lost and slow devices.

    Attributes:
        pipeline: One pipeline, each block on one device. Optimizer blocks wait for all copies; without any,
            each device gets one of a tick, so that copies of a device end an iteration together.
        num_replicas: Number of pipelines.
        num_micro_batches: Micro-batches of each pipeline in an iteration.
        lost: Copies that are lost.
        slowdown: Factor on the times of a copy's blocks; 1 if absent.
        slow_links: Factor on the transfers between two copies, in both directions; 1 if absent.

    Raises:
        ReplanError: A copy is not there, or all of a device are lost.
        PlacementError: The pipeline cannot have copies.
    """

    pipeline: Placement
    num_replicas: int
    num_micro_batches: int
    lost: frozenset[Copy] = frozenset()
    slowdown: Mapping[Copy, float] = field(default_factory=dict)
    slow_links: Mapping[tuple[Copy, Copy], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the copies."""
        linked = (copy for link in self.slow_links for copy in link)
        for what, copies in (("lost", self.lost), ("slow", [*self.slowdown, *linked])):
            for device, copy in copies:
                if not (0 <= device < self.pipeline.num_devices and 0 <= copy < self.num_replicas):
                    raise ReplanError(
                        f"{what}: {device}@{copy} is not there; devices are 0 to "
                        f"{self.pipeline.num_devices - 1}, copies 0 to {self.num_replicas - 1}"
                    )
        for where, factor in (*self.slowdown.items(), *self.slow_links.items()):
            if factor < 1:
                raise ReplanError(
                    f"slow: {factor:g} for {where} is less than 1, its time before; give 1 or more"
                )
        for device in range(self.pipeline.num_devices):
            if not self.left(device):
                raise ReplanError(f"lost: no copy of device {device} is left; leave at least one")

    def left(self, device: int) -> list[int]:
        """Return the copies of a device that are not lost."""
        return [copy for copy in range(self.num_replicas) if (device, copy) not in self.lost]

    @property
    def total(self) -> int:
        """Micro-batches of an iteration, of all pipelines."""
        return self.num_replicas * self.num_micro_batches

    @cached_property
    def updated(self) -> Placement:
        """The pipeline with an optimizer block on each device."""
        plain = self.pipeline
        if plain.optimizer_blocks:
            return plain
        last = {block.devices[0]: block.name for block in plain.topological_order}
        added = [Block(f"O{device}", Kind.O, (device,), 1, after=(name,)) for device, name in last.items()]
        return replace(plain, blocks=(*plain.blocks, *added))

    @cached_property
    def placement(self) -> Placement:
        """All pipelines as one placement, slow blocks and transfers included."""
        require_plain(self.pipeline, "replan", "use a placement without them")
        whole = replicated(self.updated, [self.num_replicas] * self.pipeline.num_devices)
        place = {block.name: divmod(block.devices[0], self.num_replicas) for block in whole.blocks}
        links = {frozenset(link): factor for link, factor in self.slow_links.items()}
        times = {block.name: block.time * self.slowdown.get(place[block.name], 1) for block in whole.blocks}
        return replace(
            whole,
            blocks=tuple(replace(block, time=round(times[block.name])) for block in whole.blocks),
            transfer=tuple(
                (a, b, round(ticks * links.get(frozenset((place[a], place[b])), 1)))
                for a, b, ticks in whole.transfer
            ),
        )

    def alone(self, replica: int) -> Placement:
        """Return one pipeline with its slow devices and links; lost devices keep their original times."""
        whole, copy = self.placement.as_run((replica,) * self.pipeline.num_devices), f"@{replica}"
        blocks = [replace(block, time=whole.by_name[block.name + copy].time) for block in self.updated.blocks]
        transfer = [(a.rpartition("@")[0], b.rpartition("@")[0], ticks) for a, b, ticks in whole.transfer]
        return replace(self.updated, blocks=tuple(blocks), transfer=tuple(transfer))

    def work(self, device: int, copy: int) -> int:
        """Return a micro-batch's ticks of work on a copy of a device."""
        where = (device * self.num_replicas + copy,)
        return sum(
            block.time
            for block in self.placement.blocks
            if block.devices == where and block.kind is not Kind.O
        )

    @property
    def unmoved(self) -> tuple[Chosen, ...]:
        """The choices of copies in which every micro-batch stays in its own pipeline."""
        return tuple((n % self.num_replicas,) * self.pipeline.num_devices for n in range(self.total))

    def rerouted(self, seed: int = 0) -> tuple[Chosen, ...]:
        """Assign micro-batches to copies so that all copies of a device end at about the same time.

        Micro-batches of a lost copy go to the others in turn. So do some of a slow copy, spread evenly.

        Args:
            seed: 0 for copies in the order of their numbers; other seeds shuffle them.
        """
        rng = random.Random(seed)
        taken: list[list[int]] = []
        for device in range(self.pipeline.num_devices):
            share = dealt({copy: self.work(device, copy) for copy in self.left(device)}, self.total)
            stay = {copy: min(share[copy], self.num_micro_batches) for copy in share}
            turns = sorted((turn, copy) for copy in share for turn in range(share[copy] - stay[copy]))
            room = [copy for _, copy in turns]
            if seed:
                rng.shuffle(room)
            copies = []
            for n in range(self.total):
                i, copy = divmod(n, self.num_replicas)
                kept, every = stay.get(copy, 0), self.num_micro_batches
                stays = (i + 1) * kept // every > i * kept // every
                copies.append(copy if stays else room.pop(0))
            taken.append(copies)
        return tuple(zip(*taken, strict=True))

    def batch(self, chosen: tuple[Chosen, ...]) -> Problem:
        """Return the micro-batches with their choices, for a search."""
        return Problem(self.placement, self.total, chosen)

    def orders(self, before: Schedule, chosen: Sequence[Chosen]) -> list[list[Instance]]:
        """Return the orders of all copies, with blocks ordered by their starts in one pipeline's schedule.

        Args:
            before: Schedule of one pipeline, with the micro-batches that a pipeline had.
            chosen: The copies that each micro-batch takes.
        """
        orders: list[list[Instance]] = [[] for _ in range(self.placement.num_devices)]
        for _, i, name in before.per_micro_batch.blocks:
            (device,) = before.placement.by_name[name].devices
            for n in range(i * self.num_replicas, (i + 1) * self.num_replicas):
                copy = chosen[n][device]
                orders[device * self.num_replicas + copy].append((f"{name}@{copy}", n))
        return orders

    def bound(self, objective: Objective) -> int:
        """Return a lower bound in ticks over all choices of copies and all orders of blocks."""
        plain = self.updated.per_micro_batch
        line, best = Timeline(plain, frozenset()), 0
        update = {block.devices[0]: block.time for block in self.updated.optimizer_blocks}
        for device in range(plain.num_devices):
            works = {copy: self.work(device, copy) for copy in self.left(device)}
            shares, names = dealt(works, self.total), [block.name for block in plain.on(device)]
            head = tail = 0
            if objective is not Objective.DEVICE_SPAN:
                head, tail = min(map(line.heads.__getitem__, names)), min(map(line.tails.__getitem__, names))
            load = max(shares[copy] * works[copy] for copy in works)
            best = max(best, head + load + max(update.get(device, 0), tail))
        return best


def dealt(works: Mapping[int, int], number: int) -> dict[int, int]:
    """Return the number of equal pieces of work for each worker, so that the last one ends earliest.

    Args:
        works: Time of a piece for each worker.
        number: Number of pieces.

    >>> dealt({0: 2, 1: 3}, 5)
    {0: 3, 1: 2}
    """
    shares = dict.fromkeys(works, 0)
    for _ in range(number):
        first = min(works, key=lambda worker: ((shares[worker] + 1) * works[worker], worker))
        shares[first] += 1
    return shares


def copies_of(names: Iterable[object]) -> frozenset[Copy]:
    """Return copies by their names: ``1@2`` is device 1 of pipeline 2.

    Raises:
        ReplanError: A name is another.
    """
    return frozenset(_copy_of("lost", str(name)) for name in names)


Slow = tuple[dict[Copy, float], dict[tuple[Copy, Copy], float]]
"""Slowdown factors of copies of devices, and of links between two copies."""


def slow_of(words: Iterable[object]) -> Slow:
    """Read slow devices and links, as ``1@2:1.5`` and ``0@2-1@2:3``.

    Raises:
        ReplanError: A word has another form.
    """
    copies, links = {}, {}
    for word in words:
        names, _, factor = str(word).rpartition(":")
        one, dash, other = names.partition("-")
        try:
            value = float(factor)
        except ValueError:
            raise ReplanError(
                f"slow: {word!r} does not say how slow; write 1@2:1.5 for device 1 of pipeline 2 at 1.5 times"
            ) from None
        if dash:
            links[_copy_of("slow", one), _copy_of("slow", other)] = value
        else:
            copies[_copy_of("slow", one)] = value
    return copies, links


def _copy_of(field: str, name: str) -> Copy:
    device, _, copy = name.partition("@")
    if not (device.isdecimal() and copy.isdecimal()):
        raise ReplanError(
            f"{field}: {name!r} is not a copy of a device; write 1@2 for device 1 of pipeline 2"
        )
    return int(device), int(copy)
