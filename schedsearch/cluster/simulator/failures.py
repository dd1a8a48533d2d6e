"""GPUs that fail and come back, drawn ahead of time: the draws follow from the seed alone."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from random import Random

from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.simulator.options import FailureOptions


@dataclass(eq=False)
class GpuFailures:
    """Which GPUs are away, and when each other one fails next.

    Attributes:
        options: How often and for how long; None where GPUs never fail.
        random: Generator of the draws.
        events: A heap of (time in s, index of the type, GPU, whether it comes back then), one for each GPU.
        away: GPUs that failed and are not back, by type.
    """

    options: FailureOptions | None
    random: Random
    events: list[tuple[float, int, int, bool]]
    away: dict[int, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Index the next failure of each GPU."""
        self._fails_s = {(number, gpu): time for time, number, gpu, is_back in self.events if not is_back}

    @classmethod
    def of(cls, cluster: GpuCluster, options: FailureOptions | None, seed: int) -> GpuFailures:
        """Return the first failure of each GPU of a cluster."""
        random = Random(seed + 7)
        if options is None:
            return cls(None, random, [])
        events = [
            (random.expovariate(1.0 / options.mean_time_s), number, gpu, False)
            for number, workers in enumerate(cluster.workers.values())
            for gpu in range(workers)
        ]
        heapq.heapify(events)
        return cls(options, random, events)

    def advance(self, now_s: float) -> bool:
        """Go on to a time; return whether a GPU failed or came back until then."""
        if self.options is None:
            return False
        changed = False
        while self.events and self.events[0][0] <= now_s:
            time_s, number, gpu, is_back = heapq.heappop(self.events)
            if is_back:
                self.away[number].discard(gpu)
                next_s = time_s + self.random.expovariate(1.0 / self.options.mean_time_s)
                self._fails_s[number, gpu] = next_s
            else:
                self.away.setdefault(number, set()).add(gpu)
                next_s = time_s + self.options.repair_s
                del self._fails_s[number, gpu]
            heapq.heappush(self.events, (next_s, number, gpu, not is_back))
            changed = True
        return changed

    def first_s(self, number: int, gpu_ids: tuple[int, ...]) -> float:
        """Return when the first of these GPUs fails; infinite where none does."""
        if self.options is None:
            return math.inf
        return min(self._fails_s[number, gpu] for gpu in gpu_ids)

    def next_repair_s(self) -> float:
        """Return when the next GPU comes back; infinite where none is away."""
        return min((time_s for time_s, _, _, is_back in self.events if is_back), default=math.inf)
