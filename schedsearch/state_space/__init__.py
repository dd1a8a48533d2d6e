"""Exact answers by dynamic programming over states: how far each block has come, and what still runs.

Micro-batches are all alike, so it does not matter which of them a block runs, only how often it has run.
Tight memory keeps the blocks close together; then there are few such states, and some of what solvers could
not prove in a minute takes seconds.
"""

from schedsearch.state_space.makespan import LeastMakespan, least_makespan
from schedsearch.state_space.min_cycle_ratio import LeastPeriod, least_period

__all__ = ["LeastMakespan", "LeastPeriod", "least_makespan", "least_period"]
