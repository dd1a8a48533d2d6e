"""When blocks start if devices wait for changes of clock, and what limits are missed; compiled by numba."""

from __future__ import annotations

from typing import Any

from schedsearch.energy.graph import Floats, Ints
from schedsearch.graph.compiled import compiled

Arrays = Any
"""`schedsearch.energy.limits.switching.SwitchArrays`, whose problem asks for this."""


@compiled
def simulate(arrays: Arrays, column: Ints, start: Floats, end: Floats) -> tuple[float, float]:
    """Write when instances start and end.

    Returns:
        The length of the iteration, and the ms by which it and the stretches miss the limits.
    """
    length = 0.0
    for i in range(len(column)):
        ready = 0.0
        for edge in range(arrays.first[i], arrays.first[i + 1]):
            tail, delay = arrays.tail[edge], arrays.delay_ms[edge]
            if arrays.is_adjacent[edge]:
                delay = max(delay, arrays.latency_ms[column[tail], column[i]])
            ready = max(ready, end[tail] + delay)
        start[i] = ready
        end[i] = ready + arrays.time_ms[arrays.row[i], column[i]]
        length = max(length, end[i])
    for device in range(len(arrays.begins) - 1):
        low, high = arrays.begins[device], arrays.begins[device + 1]
        if arrays.back_to_back and low < high:
            first, last = arrays.order[low], arrays.order[high - 1]
            if column[first] != column[last]:
                length = max(
                    length, end[last] - start[first] + arrays.latency_ms[column[last], column[first]]
                )
    over = max(0.0, length - arrays.latest_ms)
    if arrays.dwell_ms > 0:
        for device in range(len(arrays.begins) - 1):
            over += _too_short(arrays, device, column, start, length)
    return length, over


@compiled
def _too_short(arrays: Arrays, device: int, column: Ints, start: Floats, length: float) -> float:
    """Return by how many ms the stretches of a device between two changes are shorter than the dwell."""
    low, high = arrays.begins[device], arrays.begins[device + 1]
    short, number, begin, first = 0.0, 0, 0.0, 0.0
    for k in range(low, high):
        i = arrays.order[k]
        is_first = k == low
        is_new = not is_first and column[arrays.order[k - 1]] != column[i]
        if is_first:
            is_new = not arrays.back_to_back or column[arrays.order[high - 1]] != column[i]
        if not is_new:
            continue
        # a first stretch that follows nothing, and a last one that nothing follows, may be short
        if number > (0 if arrays.back_to_back else 1):
            short += max(0.0, arrays.dwell_ms - (start[i] - begin))
        if number == 0:
            first = start[i]
        begin = start[i]
        number += 1
    if arrays.back_to_back and number > 1:
        short += max(0.0, arrays.dwell_ms - (first + length - begin))
    return short
