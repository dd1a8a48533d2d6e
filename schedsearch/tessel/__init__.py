"""Tessel's own search, as a baseline beside ours: Algorithm 1, and the time-optimal search.

Knows nothing of our search but the form of its answers. Read `candidates` (which micro-batch each block of a
repetend belongs to), `queries` (the Z3 encodings), `phases` (warmup and cooldown), `algorithm` (Algorithm 1)
and `time_optimal`; `arguments` is what both check and say.
"""

from schedsearch.tessel.algorithm import tessel
from schedsearch.tessel.time_optimal import time_optimal

__all__ = ["tessel", "time_optimal"]
