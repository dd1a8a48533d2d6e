"""Tessel's own search, as a baseline beside ours: Algorithm 1, and the time-optimal search.

Knows nothing of our search but the form of its answers. In the order in which to read:

- `candidates`: the micro-batch of each block of a repetend.
- `queries`: the Z3 encodings.
- `answering`: arguments and answers of both searches.
- `algorithm`: Algorithm 1, with warmup and cooldown.
- `time_optimal`: the least makespan, without a repetend.
"""

from schedsearch.tessel.algorithm import tessel
from schedsearch.tessel.time_optimal import time_optimal

__all__ = ["tessel", "time_optimal"]
