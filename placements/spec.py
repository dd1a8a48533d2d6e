"""A placement: the blocks of one micro-batch, their devices, times and memory.

The module knows the rules of a placement. It does not know the order or clocks of blocks.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any

from placements.block import COMPUTE, LARGEST, Block, Kind, PlacementError, check_limits
from placements.forms.meaning import Meaning
from placements.modes import Choice, Chosen, Decision, as_chosen, left_over, mistakes_of_modes
from placements.streams import Lane, SharedStream, Slowdown, mistakes_of_streams

_NOTHING: dict[str, Any] = {"memory": 0, "transient": 0, "host_memory": 0}


@dataclass(frozen=True)
class Placement:
    """Blocks over devices, for every micro-batch the same; any directed acyclic graph.

    Times and memory are those of one GPU; energy is counted for all GPUs of a device. Devices are numbered
    from 0. One GPU each is kept as no `num_gpus`, a single node as no `nodes`. The fields' declarations also
    hold for files; there, one number may stand for a list with one number per device.

    Raises:
        PlacementError: A rule is broken; the message names the field.
    """

    name: Annotated[str, Meaning("name of the placement")]
    num_devices: Annotated[int, Meaning("number of devices", min=1, max=100_000)]
    blocks: Annotated[tuple[Block, ...], Meaning("blocks of one micro-batch, in any order")]
    tick_ms: Annotated[float, Meaning("length of one tick", "ms", above=0)] = 1.0
    transfer: Annotated[
        tuple[tuple[str, str, int], ...], Meaning("transfer times between dependent blocks")
    ] = ()
    memory: Annotated[
        tuple[int, ...] | None, Meaning("memory limit of each device; number or list", "units", min=0)
    ] = None
    static_memory: Annotated[
        tuple[int, ...], Meaning("memory that is always in use; number or list", "units", min=0)
    ] = ()
    num_gpus: Annotated[
        tuple[int, ...], Meaning("GPUs of each device; number or list", min=1, max=1_000_000)
    ] = ()
    memory_unit_mib: Annotated[float | None, Meaning("size of a memory unit", "MiB", above=0)] = None
    nodes: Annotated[
        tuple[int, ...] | None,
        Meaning("node of each GPU, numbered from 0; GPUs of a node are adjacent", min=0),
    ] = None
    decisions: Annotated[
        tuple[Decision, ...], Meaning("decisions between ways to run blocks", key="modes")
    ] = ()
    host_memory: Annotated[
        tuple[int, ...] | None, Meaning("host memory of each device; number or list", "units", min=0)
    ] = None
    slowdown: Annotated[tuple[Slowdown, ...], Meaning("pairs of streams that slow each other down")] = ()
    shared_streams: Annotated[tuple[SharedStream, ...], Meaning("streams that several devices share")] = ()

    def __post_init__(self) -> None:
        """Check every rule."""
        for mistake in _mistakes(self):
            raise PlacementError(mistake)
        if set(self.num_gpus) == {1}:
            object.__setattr__(self, "num_gpus", ())
        if self.nodes is not None and not any(self.nodes):
            object.__setattr__(self, "nodes", None)
        self.topological_order  # noqa: B018 - raises on a cycle

    @cached_property
    def by_name(self) -> Mapping[str, Block]:
        """Map each block's name to the block."""
        return {block.name: block for block in self.blocks}

    @cached_property
    def num_slices(self) -> int:
        """Number of slices of each micro-batch's sequence; 1 for whole sequences."""
        return 1 + max(block.sequence_slice for block in self.blocks)

    @cached_property
    def per_micro_batch(self) -> Placement:
        """The placement without its optimizer blocks, which do not repeat with every micro-batch."""
        kept = {block.name: block for block in self.blocks if block.kind is not Kind.O}
        if len(kept) == len(self.blocks):
            return self
        transfer = tuple(triple for triple in self.transfer if triple[1] in kept)
        return replace(self, blocks=tuple(kept.values()), transfer=transfer)

    @cached_property
    def optimizer_blocks(self) -> tuple[Block, ...]:
        """The blocks that run once, after the last micro-batch, in topological order."""
        return tuple(block for block in self.topological_order if block.kind is Kind.O)

    @cached_property
    def lanes(self) -> tuple[tuple[int, str], ...]:
        """The (device, stream) pairs that run one block at a time, ``compute`` of each device first.

        A stream that devices share is that of the first of them.
        """
        compute = [(device, COMPUTE) for device in range(self.num_devices)]
        used = {(device, block.stream) for block in self.blocks for device in block.devices}
        return (*compute, *sorted({self._owner.get(lane, lane) for lane in used} - set(compute)))

    @cached_property
    def _owner(self) -> Mapping[Lane, Lane]:
        """Map each shared stream of a device to the same stream of the first device that shares it."""
        return {
            (device, shared.stream): (min(shared.devices), shared.stream)
            for shared in self.shared_streams
            for device in shared.devices
        }

    @cached_property
    def _lane_numbers(self) -> Mapping[Lane, int]:
        numbers = {lane: number for number, lane in enumerate(self.lanes)}
        return numbers | {lane: numbers[first] for lane, first in self._owner.items() if first in numbers}

    def lanes_of(self, block: Block) -> tuple[int, ...]:
        """Return the numbers of the lanes of a block; for the stream ``compute`` these are its devices."""
        if block.stream == COMPUTE:
            return block.devices
        return tuple(dict.fromkeys(self._lane_numbers[device, block.stream] for device in block.devices))

    @cached_property
    def is_plain(self) -> bool:
        """Whether nothing is to be decided, and each device has one stream."""
        return not self.decisions and not self.has_streams

    @cached_property
    def has_streams(self) -> bool:
        """Whether some block runs beside others of its device, or holds memory of a host."""
        return any(block.stream != COMPUTE or block.host_memory for block in self.all_blocks)

    @cached_property
    def _slowdown(self) -> Mapping[tuple[str, str], Fraction]:
        return {
            pair: Fraction(str(factor))
            for entry in self.slowdown
            for pair, factor in zip((entry.streams, entry.streams[::-1]), entry.factors, strict=True)
        }

    def slowdown_of(self, stream: str, other: str) -> Fraction:
        """Return the factor by which a stream slows down while another stream of its device runs a block."""
        return self._slowdown.get((stream, other), Fraction(1))

    @cached_property
    def all_blocks(self) -> tuple[Block, ...]:
        """The blocks as written, and as each choice runs them."""
        changed = (block for modes in self.decisions for mode in modes.choices for block in mode.blocks)
        return (*self.blocks, *changed)

    @cached_property
    def decision_of(self) -> Mapping[str, int]:
        """Map each block that a decision is about to the number of the decision."""
        return {name: i for i, decision in enumerate(self.decisions) for name in decision.blocks}

    def _choices(self, name: str) -> tuple[Choice, ...]:
        """Return the choices of the decision on a block; one choice without changes if none is on it."""
        decision = self.decision_of.get(name)
        return (Choice(""),) if decision is None else self.decisions[decision].choices

    def alternatives(self, name: str) -> tuple[Block, ...]:
        """Return a block as run in each choice of its decision; alone if no decision is on the block."""
        return tuple(choice.by_name.get(name, self.by_name[name]) for choice in self._choices(name))

    def run_name(self, name: str, chosen: Chosen) -> str:
        """Return the name of a block in its mode, as a profile has its cost: ``B0@recompute``.

        It is the block's own where the mode changes nothing of it.
        """
        decision = self.decision_of.get(name)
        return name if decision is None else self.name_in(self._choices(name)[chosen[decision]], name)

    def name_in(self, choice: Choice, name: str) -> str:
        """Return the name of a block in a choice of its decision, as of `run_name`."""
        written = self.by_name[name]
        return name if choice.by_name.get(name, written) == written else f"{name}@{choice.name}"

    @cached_property
    def runs(self) -> Mapping[str, Block]:
        """Map the name of each block in each of its modes to the block as run in it; see `run_name`."""
        return {
            self.name_in(choice, name): run
            for name in self.by_name
            for choice, run in zip(self._choices(name), self.alternatives(name), strict=True)
            if run.time
        }

    @cached_property
    def memory_streams(self) -> tuple[frozenset[str], ...]:
        """The streams whose blocks move a device's memory, or its host's; for each device."""
        streams: list[set[str]] = [set() for _ in range(self.num_devices)]
        for block in self.all_blocks:
            for device in block.devices:
                if block.memory_on(device) or block.transient or block.host_memory:
                    streams[device].add(block.stream)
        return tuple(map(frozenset, streams))

    @cached_property
    def by_lane(self) -> Placement | None:
        """The placement with each lane as a device of its own, for placements without decisions.

        None where several streams move the memory of a device, or some move that of its host: what a device
        holds is then no matter of one lane.
        """
        assert not self.decisions
        if self.is_plain:
            return self
        share = any(len(streams) > 1 for streams in self.memory_streams)
        if share or any(block.host_memory for block in self.blocks):
            return None
        devices = [device for device, _ in self.lanes]
        holds = [
            stream in self.memory_streams[device] or (stream == COMPUTE and not self.memory_streams[device])
            for device, stream in self.lanes
        ]

        held = {
            name: tuple(values[device] * is_holder for device, is_holder in zip(devices, holds, strict=True))
            for name in ("memory", "static_memory")
            if (values := getattr(self, name))
        }
        blocks = (replace(block, devices=self.lanes_of(block), stream=COMPUTE) for block in self.blocks)
        return self.on_devices(devices, blocks, nodes=None, host_memory=None, shared_streams=(), **held)

    def on_devices(self, owners: Sequence[int], blocks: Iterable[Block], **changed: Any) -> Placement:
        """Return the placement on other devices, each with the memory and GPUs of its owner device."""
        numbers = {
            name: tuple(values[device] for device in owners)
            for name in ("memory", "static_memory", "num_gpus", "host_memory")
            if (values := getattr(self, name))
        }
        return replace(self, num_devices=len(owners), blocks=tuple(blocks), **numbers | changed)

    @cached_property
    def relaxed(self) -> Placement:
        """A relaxation for bounds, never worse: one stream for each device, no decisions, least times.

        Each block takes its least time. Memory is what blocks hold of which nothing is decided, and is free
        where streams share it.
        """
        if self.is_plain:
            return self
        best = replace(self, slowdown=()).at_best
        if best.by_lane is not None:
            return best.by_lane
        free = tuple(replace(block, **_NOTHING) for block in best.blocks)
        by_lane = replace(best, blocks=free, memory=None, static_memory=(), host_memory=None).by_lane
        assert by_lane is not None, "nothing holds memory"
        return by_lane

    def as_run(self, chosen: Chosen) -> Placement:
        """Return the placement of a micro-batch after its decisions, which has no decisions left."""
        if not self.decisions:
            return self
        if chosen not in self._as_run:
            blocks, transfer = as_chosen(self.topological_order, self.transfer, self.decisions, chosen)
            self._as_run[chosen] = replace(self, blocks=blocks, transfer=transfer, decisions=())
        return self._as_run[chosen]

    @cached_property
    def at_best(self) -> Placement:
        """A placement without decisions that is a bound for all modes: each block in its least time.

        Blocks that are decided on hold nothing, and are left out where a mode leaves them out.
        """
        return self.at_best_but(None, 0) if self.decisions else self

    def at_best_but(self, decision: int | None, choice: int) -> Placement:
        """Return the placement with one decision taken, and other blocks in their least times, for bounds."""
        best = [
            replace(self.by_name[name], time=min(run.time for run in self.alternatives(name)), **_NOTHING)
            for name, owner in self.decision_of.items()
            if owner != decision
        ]
        if decision is not None:
            best += self.decisions[decision].choices[choice].blocks
        decided = (Decision((Choice("best", tuple(best)),)),)
        blocks, transfer = as_chosen(self.topological_order, self.transfer, decided, (0,))
        if not blocks:
            what = "some mode leaves out all of its blocks, as where every stage has copies, and no bound"
            raise PlacementError(f"{self.name}: {what} is known; use schedule=pipedream")
        return replace(self, blocks=blocks, transfer=transfer, decisions=())

    @cached_property
    def _as_run(self) -> dict[Chosen, Placement]:
        return {}

    @cached_property
    def static(self) -> tuple[int, ...]:
        """Memory that each device holds all the time; shape ``(num_devices,)``."""
        return self.static_memory or (0,) * self.num_devices

    @cached_property
    def gpus(self) -> tuple[int, ...]:
        """GPUs that each device stands for; shape ``(num_devices,)``."""
        return self.num_gpus or (1,) * self.num_devices

    @cached_property
    def gpus_of_nodes(self) -> tuple[int, ...]:
        """Number of GPUs of each node; shape ``(number of nodes,)``."""
        return tuple(Counter(self.nodes or (0,) * sum(self.gpus)).values())

    @cached_property
    def by_gpu(self) -> Placement:
        """The placement with each GPU as a device of its own, as the processes of a run need."""
        if not self.num_gpus:
            return self
        owners = [device for device, count in enumerate(self.gpus) for _ in range(count)]
        firsts = [0, *itertools.accumulate(self.gpus)]

        def on_gpus(devices: Iterable[int]) -> tuple[int, ...]:
            return tuple(gpu for device in devices for gpu in range(firsts[device], firsts[device + 1]))

        def spread(block: Block) -> Block:
            devices = on_gpus(block.devices)
            memory = tuple(block.memory_on(owners[gpu]) for gpu in devices)
            return replace(block, devices=devices, memory=memory)

        return self.on_devices(
            owners,
            map(spread, self.blocks),
            num_gpus=(),
            decisions=tuple(decision.mapped(spread) for decision in self.decisions),
            shared_streams=tuple(
                replace(shared, devices=on_gpus(shared.devices)) for shared in self.shared_streams
            ),
        )

    def ms(self, ticks: int | Fraction) -> float:
        """Return ticks in milliseconds, as exact as decimals are."""
        return float(ticks * Fraction(str(self.tick_ms)))

    def mib(self, units: int) -> float:
        """Return units of memory in MiB, as exact as decimals are; nan if the unit is not known."""
        unit = self.memory_unit_mib
        return math.nan if unit is None else float(units * Fraction(str(unit)))

    def gpus_of(self, block: Block) -> int:
        """Return the number of GPUs that run a block, over all of its devices."""
        return sum(self.gpus[device] for device in block.devices)

    @cached_property
    def free_memory(self) -> tuple[int, ...] | None:
        """Capacity of each device less its static memory; None for no limit."""
        if self.memory is None:
            return None
        return tuple(capacity - held for capacity, held in zip(self.memory, self.static, strict=True))

    @cached_property
    def successors(self) -> Mapping[str, tuple[str, ...]]:
        """Map each block's name to the names of its direct successors."""
        after: dict[str, list[str]] = {block.name: [] for block in self.blocks}
        for block in self.blocks:
            for name in block.after:
                after[name].append(block.name)
        return {name: tuple(names) for name, names in after.items()}

    @cached_property
    def topological_order(self) -> tuple[Block, ...]:
        """The blocks in topological order: each after its predecessors; ties keep the given order.

        Raises:
            PlacementError: The blocks wait for each other in a cycle.
        """
        sorter = TopologicalSorter[str]({block.name: () for block in self.blocks})
        for block in self.blocks:
            sorter.add(block.name, *block.after)
        try:
            return tuple(self.by_name[name] for name in sorter.static_order())
        except CycleError as error:
            what = f"{', '.join(error.args[1][1:7])} wait for each other in a cycle"
            raise PlacementError(f"blocks: {what}; remove one of their 'after'") from None

    @cached_property
    def _transfer_time(self) -> Mapping[tuple[str, str], int]:
        return {(source, target): ticks for source, target, ticks in self.transfer}

    def transfer_time(self, source: str, target: str) -> int:
        """Return the ticks between the end of block `source` and the earliest start of `target`."""
        return self._transfer_time.get((source, target), 0)

    def on(self, device: int) -> tuple[Block, ...]:
        """Return the blocks that run on a device, in topological order."""
        return tuple(block for block in self.topological_order if device in block.devices)

    def load(self, lane: int) -> int:
        """Return the ticks of work that one micro-batch puts on a lane, optimizer blocks aside.

        The lane of a device's number is its stream ``compute``, and so the device where it has one stream.
        """
        return sum(block.time for block in self.per_micro_batch.blocks if lane in self.lanes_of(block))

    def with_memory(self, memory: int | Iterable[int] | None) -> Placement:
        """Return the placement with another capacity: one number for all devices, or one each."""
        by_device = (memory,) * self.num_devices if isinstance(memory, int) else memory
        return replace(self, memory=None if by_device is None else tuple(by_device))


def some(names: Iterable[str]) -> str:
    """Return the first of some names in a line."""
    names = sorted(names)
    return ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")


def _mistakes(placement: Placement) -> Iterator[str]:
    """Yield the mistakes in a placement, each with the place of its field."""
    check_limits(placement)
    if not placement.blocks:
        yield "blocks: is empty; give at least one block"
    count = placement.num_devices
    for name in ("static_memory", "num_gpus", "memory", "host_memory"):
        if (values := getattr(placement, name)) and len(values) != count:
            yield f"{name}: has {len(values)} entries for {count} devices; give one for each, or one number"
    if placement.nodes is not None and len(placement.nodes) != sum(placement.gpus):
        yield f"nodes: has {len(placement.nodes)} entries for {sum(placement.gpus)} GPUs; give one for each"
    for gpu, (before, node) in enumerate(itertools.pairwise((0, *(placement.nodes or ())))):
        if node not in (before, before + min(gpu, 1)):
            rule = "number the nodes from 0 on, and give the GPUs of each in a row"
            yield f"nodes[{gpu}]: {node} does not follow {before}; {rule}"
    names = Counter(block.name for block in placement.blocks)
    optimizer = {block.name for block in placement.blocks if block.kind is Kind.O}
    for i, block in enumerate(placement.blocks):
        where = f"blocks[{i}] ({block.name})"
        check_limits(block, f"{where}.")
        if names[block.name] > 1:
            yield f"{where}.name: is used twice; rename one of the blocks"
        yield from (f"{where}{what}" for what in _mistakes_of_block(placement, block, optimizer))
    times = Counter(triple[:2] for triple in placement.transfer)
    for i, (source, target, _) in enumerate(placement.transfer):
        if target not in placement.by_name or source not in placement.by_name[target].after:
            yield f"transfer[{i}]: {target!r} is not after {source!r}; add it to its 'after'"
        if times[source, target] > 1:
            yield f"transfer[{i}]: {source!r} to {target!r} is given twice"
    if len(optimizer) == len(placement.blocks):
        yield "blocks: are all optimizer blocks; give blocks that run in every micro-batch"
    for name, device, units in left_over(placement.blocks):
        what = f"one micro-batch holds {units} of {name} on device {device} in the end"
        yield f"blocks: {what}; make that of the device's blocks sum to 0"
    yield from mistakes_of_modes(placement.by_name, placement.decisions)
    yield from mistakes_of_streams(placement.slowdown, placement.shared_streams, count)


def _mistakes_of_block(placement: Placement, block: Block, optimizer: Collection[str]) -> Iterator[str]:
    devices, after, last = block.devices, block.after, placement.num_devices - 1
    if not devices:
        yield ".devices: is empty; name at least one device"
    if len(set(devices)) < len(devices):
        yield f".devices: {[*devices]} names a device twice; name each once"
    for device in devices:
        if not 0 <= device <= last:
            yield f".devices: {device} is out of range; use 0 to {last} or raise num_devices"
    if isinstance(block.memory, tuple) and len(block.memory) != len(devices):
        has = f"{[*block.memory]} has {len(block.memory)} entries for {len(devices)} devices"
        yield f".memory: {has}; give one for each, or one number"
    if max(block.time, block.transient, *map(abs, (block.host_memory, *block.units.values()))) > LARGEST:
        yield f": has a number above {LARGEST:g}; use a coarser unit"
    if (gpus := placement.gpus_of(block)) % block.data_parallel:
        yield f".data_parallel: {block.data_parallel} does not divide its {gpus} GPUs; give a divisor"
    for name in after:
        if name not in placement.by_name:
            yield f".after: there is no block {name!r}; the blocks are {some(placement.by_name)}"
        if name in optimizer and block.kind is not Kind.O:
            yield f".after: {name!r} is an optimizer block; only others can be after it, which run once, too"
    if len(set(after)) < len(after):
        yield f".after: {[*after]} names a block twice; name each once"
    if block.kind is Kind.O and block.memory:
        what = f"{block.memory} would be held by an optimizer block, which runs once"
        yield f".memory: {what}; give what it needs as 'transient'"
