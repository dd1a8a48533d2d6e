"""Dependency graphs with rounds: longest paths, the least period, and the critical cycle.

- `kernel`: the algorithm, as plain functions of numbered nodes and edges.
- `compiled`: the same functions compiled by numba, for large graphs and for loops that are compiled too.
- `difference_system`: what the others ask: the least period, the earliest starts, what forbids a period.

Independent of it on purpose are the checkers (`schedsearch.validate`, `schedsearch.proof.check`) and Tessel's
own encoding, so that an error here does not confirm itself.
"""

from schedsearch.graph.difference_system import DifferenceSystem, Edge, numbered

__all__ = ["DifferenceSystem", "Edge", "numbered"]
