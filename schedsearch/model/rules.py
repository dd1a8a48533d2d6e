"""The rules of a schedule, a function for each (Tessel, Sec. III-A, Eq. 1).

That optimizer blocks come last is none of its own: there is one of each, of the last micro-batch, which waits
for its inputs, and these run the micro-batches in order.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from schedsearch.model.memory_precedence import MemoryCheck, checks, precedence_is_enough, precedences
from schedsearch.model.variables import PeriodicVariables, Variables
from schedsearch.schedule import Instance


def wait_for_inputs(v: Variables) -> None:
    """A block starts after the blocks of its micro-batch that it waits for."""
    for name, micro_batch in v.start:
        for before in v.placement.by_name[name].after:
            source = before, micro_batch
            if source in v.start:
                v.wait(source, (name, micro_batch), v.time[source] + v.placement.transfer_time(before, name))


def run_one_at_a_time(v: Variables, device: int, *, by_pairs: bool = True) -> None:
    """Let one of two blocks on a device come first, and end before the other starts.

    CP-SAT also reasons about all blocks of a device together, and can do without the pairs.
    """
    here = v.on(device)
    for a, b in itertools.combinations(here, 2) if by_pairs else ():
        v.before(a, b)
    v.model.add_no_overlap(
        v.interval(start, instance, f"{instance} on {device}")
        for instance in here
        for start in v.runs(instance)
    )


def keep_order(v: Variables, order: Sequence[Instance]) -> None:
    """A device runs one block at a time, in an order that is given."""
    for a, b in itertools.pairwise(order):
        v.wait(a, b, v.time[a])


def order_micro_batches(v: Variables) -> None:
    """Each block runs the micro-batches in their order; others are renamings (Tessel, Property IV.1).

    Give the k-th start of every block to micro-batch k. The starts on each device are the same as before and
    so is its memory, and if every start of b comes after the end of a of its micro-batch, the k-th start of b
    comes after k ends of a.
    """
    for name, micro_batch in v.start:
        following = v.instance(name, micro_batch + 1)
        if following is not None and following[0] != (name, micro_batch):
            v.wait((name, micro_batch), following[0], v.time[name, micro_batch], following[1])


def respect_memory(v: Variables, device: int) -> None:
    """A device never holds more than its capacity.

    Where one block allocates what one other releases, it is enough that they take turns. Of a finite schedule
    it also helps to say which turns others take at least.
    """
    for check in checks(v.placement, device):
        enough = precedence_is_enough(v.placement, check)
        if enough or not isinstance(v, PeriodicVariables):
            take_turns(v, check)
        if not enough:
            count_memory(v, check)


def take_turns(v: Variables, check: MemoryCheck) -> None:
    """A block that allocates waits for those that release before it."""
    starting = [i for i in v.start if i[0] == check.block]
    for precedence in precedences(v.placement, check):
        for instance in starting:
            releasing = v.instance(precedence.releasing, precedence.waits_for(instance[1]))
            if releasing is not None:
                v.wait(releasing[0], instance, v.time[releasing[0]], -releasing[1])


def count_memory(v: Variables, check: MemoryCheck) -> None:
    """Once a block has started, what it and those before it hold is at most the room for it."""
    memory = {i: v.placement.by_name[i[0]].memory_on(check.device) for i in v.on(check.device)}
    for instance in (i for i in memory if i[0] == check.block):
        others = [i for i, units in memory.items() if units and i != instance]
        earlier = v.model.weighted_sum([v.before(i, instance) for i in others], [memory[i] for i in others])
        v.model.add(v.held_before(check.device) + earlier + check.memory <= check.room)
