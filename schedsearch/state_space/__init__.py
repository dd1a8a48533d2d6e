"""Exact answers by dynamic programming over states: starts of each block, and ticks that each still runs.

Micro-batches are all alike, so it does not matter which of them a block runs, only how often it has run.
Tight memory keeps the blocks close together; then there are few such states, and some of what solvers could
not prove in a minute takes seconds. Knows no solver. In the order in which to read:

- `model`: a placement as arrays.
- `transitions`: states, which follows which, and which are dominated.
- `makespan`: the least makespan of some micro-batches.
- `min_cycle_ratio`: the least period per micro-batch of any repetend.
"""

from schedsearch.state_space.makespan import MinMakespan, min_makespan
from schedsearch.state_space.min_cycle_ratio import MinPeriod, min_period

__all__ = ["MinMakespan", "MinPeriod", "min_makespan", "min_period"]
