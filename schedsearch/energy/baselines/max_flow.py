"""Maximum flow where arcs also have lower bounds, and its minimum cut (Perseus, App. D.2, Algorithm 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedsearch.energy.graph import Ints

NO_LIMIT = 2**30 - 1
"""Upper bound of an arc that may carry any flow; scipy's flow is of 32 bits."""

MOST_FLOW = 2**28
"""Most that all other bounds may sum up to, so that no sum of flows is mistaken for no limit."""


@dataclass(frozen=True, eq=False)
class FlowNetwork:
    """A directed graph whose arcs carry at least and at most some flow, at most one arc between two nodes.

    Attributes:
        tail: Node that each arc leaves; shape ``(arcs,)``.
        head: Node that each arc enters.
        lower: Least flow.
        upper: Most flow; `NO_LIMIT` for any.
        num_nodes: Nodes are ``0 .. num_nodes - 1``.
        source: Where the flow comes from.
        sink: Where it goes.
    """

    tail: Ints
    head: Ints
    lower: Ints
    upper: Ints
    num_nodes: int
    source: int
    sink: int


def minimum_cut(network: FlowNetwork) -> NDArray[np.bool_] | None:
    """Return which nodes are on the source's side of a minimum cut, or None if every cut is without limit.

    The capacity of a cut is the upper bounds from the source's side to the other less the lower bounds back.
    """
    from scipy.sparse import csr_array  # which only this baseline waits for
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    n, origin = network.num_nodes, network.num_nodes
    flow = _feasible_flow(network)
    residual = _capacities(
        n + 1,
        np.concatenate([network.tail, network.head, [origin]]),
        np.concatenate([network.head, network.tail, [network.source]]),
        np.concatenate([network.upper - flow, flow - network.lower, [NO_LIMIT]]),
    )
    more = maximum_flow(residual, origin, network.sink)
    if more.flow_value > MOST_FLOW:
        return None
    left = csr_array(residual - more.flow)
    left.eliminate_zeros()
    on_source_side = np.zeros(n + 1, dtype=np.bool_)
    on_source_side[breadth_first_order(left, network.source, return_predecessors=False)] = True
    return on_source_side[:n]


def _feasible_flow(network: FlowNetwork) -> Ints:
    """Return a flow within all bounds, from a maximum flow of a network whose arcs have no lower bounds.

    There, two new nodes supply and take what the lower bounds demand, and sink and source are joined.
    """
    from scipy.sparse.csgraph import maximum_flow

    n, lower = network.num_nodes, network.lower
    supply, demand = n, n + 1
    nodes = np.arange(n)
    needed_in = np.bincount(network.head, weights=lower, minlength=n).astype(np.int64)
    needed_out = np.bincount(network.tail, weights=lower, minlength=n).astype(np.int64)
    capacities = _capacities(
        n + 2,
        np.concatenate([network.tail, np.full(n, supply), nodes, [network.sink]]),
        np.concatenate([network.head, nodes, np.full(n, demand), [network.source]]),
        np.concatenate([network.upper - lower, needed_in, needed_out, [NO_LIMIT]]),
    )
    result = maximum_flow(capacities, supply, demand)
    assert result.flow_value == lower.sum(), "the times before were a best choice, so that a flow exists"
    return lower + _entries(result.flow, network.tail, network.head)


def _capacities(num_nodes: int, tail: Ints, head: Ints, capacity: Ints) -> Any:
    from scipy.sparse import csr_array

    some = capacity > 0
    entries = (capacity[some].astype(np.int32), (tail[some].astype(np.int32), head[some].astype(np.int32)))
    return csr_array(entries, shape=(num_nodes, num_nodes))


def _entries(matrix: Any, rows: Ints, columns: Ints) -> Ints:
    """Return entries of a sparse matrix; 0 where there is none."""
    table = matrix.tocoo()
    size = matrix.shape[1]
    key, wanted = table.row.astype(np.int64) * size + table.col, rows * size + columns
    order = np.argsort(key)
    at = np.minimum(np.searchsorted(key[order], wanted), len(key) - 1)
    found: Ints = np.where(key[order][at] == wanted, table.data[order][at], 0).astype(np.int64)
    return found
