"""What is made least of a finite schedule: the time that it takes, by one clock or by each device's own."""

from __future__ import annotations

from collections.abc import Mapping

from schedsearch.model.variables import Term, Variables
from schedsearch.schedule import Instance


def last_end(v: Variables, makespan: Term, tail: Mapping[Instance, int]) -> None:
    """All ends by the makespan, with so many ticks after each instance."""
    for instance in v.start:
        v.model.add(makespan >= v.end(instance) + tail[instance])


def longest_device_span(v: Variables, makespan: Term, horizon: int) -> None:
    """All ends by the makespan, by the clock of each device, which begins with its first start."""
    for device in range(v.placement.num_devices):
        first = v.model.new_int_var(0, horizon, f"first {device}")
        for instance in v.on(device):
            v.model.add(first <= v.start[instance])
            v.model.add(makespan >= v.end(instance) - first)


def then_early_ends(v: Variables, makespan: Term, tail: Mapping[Instance, int], most: int) -> Term:
    """Return an objective in which the makespan comes first, then how late each device lets it end.

    Args:
        v: The blocks.
        makespan: Its variable.
        tail: Ticks after each instance.
        most: Largest makespan.
    """
    ends = []
    for device in range(v.placement.num_devices):
        end = v.model.new_int_var(0, most, f"end {device}")
        for instance in v.on(device):
            v.model.add(end >= v.end(instance) + tail[instance])
        ends.append(end)
    return (v.placement.num_devices * most + 1) * makespan + sum(ends)
