"""The rules of a schedule, one function per rule (Tessel, Sec. III-A, Eq. 1).

Optimizer blocks need no rule of their own: each runs once, for the last micro-batch, and waits for its
inputs, which run the micro-batches in order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from schedsearch.model.memory_precedence import checked_rooms, precedence_is_enough, precedences
from schedsearch.model.variables import PeriodicVariables, Units, Variables
from schedsearch.proof.timeline import Timeline
from schedsearch.schedule import Instance


def fit_into_period(v: PeriodicVariables) -> None:
    """No block is in a mode in which it takes longer than the period."""
    for instance in v.start:
        for literal, block in v.modes(instance):
            if block.time > v.period:
                v.model.forbid(literal)


def wait_for_inputs(v: Variables) -> None:
    """A block starts after its inputs of the same micro-batch have ended, plus their transfer times."""
    for name, micro_batch in v.start:
        for before in v.placement.by_name[name].after:
            source = before, micro_batch
            if source in v.start:
                v.wait_for_end(source, (name, micro_batch), v.placement.transfer_time(before, name))


RULES: tuple[Callable[[Variables], None], ...] = (wait_for_inputs,)
"""Rules for all orders of blocks, of repetends and of whole schedules; a new rule of this kind is added
here."""


def run_one_at_a_time(v: Variables, lane: int, *, by_pairs: bool = True) -> None:
    """Let one of two blocks on a lane come first, and end before the other starts.

    CP-SAT also reasons about all blocks of a lane together, and can do without the pairs.
    """
    here = [(name, n) for name, n in v.start if lane in v.placement.lanes_of(v.placement.by_name[name])]
    for a, b in itertools.combinations(here, 2) if by_pairs else ():
        v.before(a, b)
    v.model.add_no_overlap(
        v.interval(start, instance, f"{instance} on {lane}")
        for instance in here
        for start in v.runs(instance)
    )


def keep_order(v: Variables, order: Sequence[Instance]) -> None:
    """A device runs one block at a time, in a given order."""
    for a, b in itertools.pairwise(order):
        v.wait_for_end(a, b)


def order_micro_batches(v: Variables) -> None:
    """Each block runs the micro-batches in their order; others are renamings (Tessel, Property IV.1).

    Give the k-th start of every block to micro-batch k. The starts on each device are the same as before and
    so is its memory, and if every start of b comes after the end of a of its micro-batch, the k-th start of b
    comes after k ends of a.

    Where micro-batches differ in their modes, that would give a block's start to one with another mode; then
    micro-batches are named by the order of one block, which is renaming alone.
    """
    first = v.placement.topological_order[0].name
    for name, micro_batch in v.start:
        if not v.keeps_order and name != first:
            continue
        following = v.instance(name, micro_batch + 1)
        if following is not None and following[0] != (name, micro_batch):
            v.wait_for_end((name, micro_batch), following[0], 0, following[1])


def respect_memory(v: Variables, device: int) -> None:
    """A device never holds more than its capacity.

    Where one block allocates what one other releases, it is enough that they take turns. Of a finite schedule
    it also helps to say which turns others take at least.
    """
    placement = v.placement
    modes = [n for name, n in v.start if placement.decision_of.get(name) is not None]
    is_simple = v.keeps_order and not modes and len(placement.memory_streams[device]) < 2
    for name, room in checked_rooms(placement, device).items() if is_simple else ():
        enough = precedence_is_enough(placement, device, name)
        if enough or not isinstance(v, PeriodicVariables):
            _take_turns(v, device, name, room)
        if not enough:
            _count_memory(v, device, lambda block: block.memory_on(device), room, name)
    if placement.free_memory is not None and not is_simple:
        room = placement.free_memory[device]
        _count_memory(v, device, lambda block: block.memory_on(device), room, transient=True)
    if placement.host_memory is not None:
        _count_memory(v, device, lambda block: block.host_memory, placement.host_memory[device])


def _take_turns(v: Variables, device: int, name: str, room: int) -> None:
    """A block that allocates memory waits for the blocks that must have released memory before it.

    In a finite schedule the first micro-batch has no such wait, as it fits on its own.
    """
    starting = [i for i in v.start if i[0] == name and (i[1] or isinstance(v, PeriodicVariables))]
    for precedence in precedences(v.placement, device, name, room) if starting else ():
        for instance in starting:
            releasing = v.instance(precedence.releasing, precedence.waits_for(instance[1]))
            if releasing is not None:
                v.wait_for_end(releasing[0], instance, 0, -releasing[1])


def _count_memory(
    v: Variables, device: int, units: Units, room: int, at: str | None = None, *, transient: bool = False
) -> None:
    """At each start of a block, the memory in use on the device is at most the room.

    Args:
        v: The blocks.
        device: Device whose memory, or host memory, is counted.
        units: Returns the memory that a block adds.
        room: Most units in use, with transient memory if that counts.
        at: Name of the block at whose starts memory is checked; None for all blocks that add or need some.
        transient: Whether the memory that blocks need only while they run counts.
    """
    here = v.on(device)
    needs = {i: [(literal, block.transient) for literal, block in v.modes(i)] for i in here if transient}
    for instance in here:
        adds = [(literal, units(block)) for literal, block in v.modes(instance)]
        both = itertools.zip_longest(adds, needs.get(instance, ()), fillvalue=(1, 0))
        takes = any(one + other > 0 for (_, one), (_, other) in both)
        if not takes if at is None else instance[0] != at:
            continue
        terms = [(literal, amount) for literal, amount in (*adds, *needs.get(instance, ())) if amount]
        for other in here:
            if other == instance:
                continue
            held = [(literal, amount) for literal, block in v.modes(other) if (amount := units(block))]
            if held:
                started = v.started(other, instance)
                terms += [(v.model.both(started, literal), amount) for literal, amount in held]
            if any(need for _, need in needs.get(other, ())) and not v.shares_lane(other, instance):
                running = v.running(other, instance)
                terms += [(v.model.both(running, literal), need) for literal, need in needs[other] if need]
        in_use = v.model.weighted_sum([term for term, _ in terms], [amount for _, amount in terms])
        v.add(v.held_before(device, units) + in_use <= room, *v.present(instance))


def start_at_heads(v: PeriodicVariables) -> None:
    """No block starts before its longest chain of inputs can end; a single first block is in round 0.

    This follows from the other rules, but without it CP-SAT has to propagate along long chains.
    """
    heads = Timeline(v.placement.at_best, frozenset()).heads
    for name, micro_batch in v.start:
        if head := heads.get(name, 0):
            v.model.add(v.round[name, micro_batch] * v.period + v.start[name, micro_batch] >= head)
    sources = [block.name for block in v.placement.blocks if not block.after]
    if len(sources) == 1:
        v.model.add(v.round[sources[0], 0] == 0)


def limit_span(v: PeriodicVariables, span: int | None) -> None:
    """The first source of round 0 starts at tick 0, and round 0 ends by the span.

    Without a limit the first block starts its round: any repetend can be turned until it does.
    """
    if span is None:
        v.model.add(v.start[v.placement.topological_order[0].name, 0] == 0)
        return
    sources = [(block.name, 0) for block in v.placement.blocks if not block.after]
    v.model.add_min_equality(0, [v.round[source] + v.start[source] for source in sources])
    for instance in v.start:
        for literal, block in v.modes(instance):
            where = [] if isinstance(literal, int) else [literal]
            rounds, rest = divmod(span - block.time, v.period)
            v.add(v.round[instance] <= rounds, *where)
            v.add(v.start[instance] <= rest, v.model.at_least(v.round[instance], rounds), *where)


def limit_latency(v: PeriodicVariables, latency: int) -> None:
    """Each last block of a micro-batch ends at most `latency` ticks after the start of each first block."""
    sources = [block.name for block in v.placement.blocks if not block.after]
    sinks = [block for block in v.placement.blocks if not v.placement.successors[block.name]]
    for block in sinks:
        for name in sources:
            for n in range(v.micro_batches):
                v.wait_for_end((block.name, n), (name, n), -latency)
