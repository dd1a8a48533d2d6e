"""PipeDream's dynamic programme as it is printed, cell by cell, for a chain on workers of one level.

It gives the least time only: no plan, no memory, one level (dissertation, Sec. 2.4.1).
"""

from __future__ import annotations

import itertools
from functools import cache

from placements.planners.pipedream.plan import Level
from placements.planners.pipedream.profile_graph import ProfileGraph


def min_time_ms(graph: ProfileGraph, level: Level) -> float:
    """Return the least time of the slowest stage for an input; ``A(1, N, m)`` of the dissertation.

    Args:
        graph: A chain, in its order.
        level: All workers, each of which exchanges its own share of gradients.

    >>> from placements.planners.pipedream.profile_graph import ProfiledNode, chain_graph
    >>> layers = [(6, 8e6, 0), (6, 1e6, 1e5), (4, 0, 8e7)]
    >>> graph = chain_graph(ProfiledNode(f"{i}", "", 1, t - 1, a, w) for i, (t, a, w) in enumerate(layers))
    >>> min_time_ms(graph, Level(4, gb_per_s=1.0))
    4.0
    """
    nodes = graph.nodes
    time_ms = list(itertools.accumulate((node.time_ms for node in nodes), initial=0.0))
    parameter_bytes = list(itertools.accumulate((node.parameter_bytes for node in nodes), initial=0.0))

    @cache
    def stage_ms(first: int, end: int, workers: int) -> float:
        exchanged = 2 * (workers - 1) / workers * (parameter_bytes[end] - parameter_bytes[first])
        return max(time_ms[end] - time_ms[first], level.ms(exchanged)) / workers

    @cache
    def pipeline_ms(end: int, workers: int) -> float:
        least = stage_ms(0, end, workers)
        for cut in range(1, end):
            handed_on = 2 * level.ms(nodes[cut - 1].activation_bytes)
            for last in range(1, workers):
                slowest = max(pipeline_ms(cut, workers - last), handed_on, stage_ms(cut, end, last))
                least = min(least, slowest)
        return least

    for end in range(1, len(nodes)):  # from short to long, so that calls do not nest deeply
        for workers in range(1, level.count):
            pipeline_ms(end, workers)
    return pipeline_ms(len(nodes), level.count)
