"""Limits of a periodic schedule's span and latency, and what follows from its rules.

A span is the time from the first start to the last end of one round's micro-batches, a latency that of each
micro-batch.
"""

from __future__ import annotations

from schedsearch.model.variables import PeriodicVariables
from schedsearch.proof.timeline import Timeline


def start_at_heads(v: PeriodicVariables) -> None:
    """No block starts before the chain to it can end, and where one block comes first, it is in round 0.

    This follows from the rest, but CP-SAT sees it at once, where else it goes along long chains.
    """
    heads = Timeline(v.placement.at_best, frozenset()).heads
    for name, micro_batch in v.start:
        if head := heads.get(name, 0):
            v.model.add(v.round[name, micro_batch] * v.period + v.start[name, micro_batch] >= head)
    sources = [block.name for block in v.placement.blocks if not block.after]
    if len(sources) == 1:
        v.model.add(v.round[sources[0], 0] == 0)


def limit_span(v: PeriodicVariables, span: int | None) -> None:
    """Round 0 starts at tick 0, with whichever source comes first, and ends by the span.

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
    """No block of a micro-batch ends later than so long after another's start."""
    sources = [block.name for block in v.placement.blocks if not block.after]
    sinks = [block for block in v.placement.blocks if not v.placement.successors[block.name]]
    for block in sinks:
        for name in sources:
            for n in range(v.micro_batches):
                v.wait_for_end((block.name, n), (name, n), -latency)
