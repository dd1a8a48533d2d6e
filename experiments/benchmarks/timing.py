"""CPU seconds of measured functions, ours over a peer's as ratios of pairs, and solvers loaded before."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from placements.shapes import v_shape
from schedsearch.searches.search import search

Answer = TypeVar("Answer")
Ours = TypeVar("Ours")
Theirs = TypeVar("Theirs")


def cpu_s() -> float:
    """Return the CPU seconds of this process, its threads and the children that have ended."""
    children = os.times()
    return time.process_time() + children.children_user + children.children_system


def timed(work: Callable[[], Answer]) -> tuple[Answer, float]:
    """Return the result of a function, and its CPU seconds."""
    began_s = cpu_s()
    return work(), cpu_s() - began_s


@dataclass(frozen=True)
class MedianRatio:
    """A median of ratios that were measured in pairs, with its 95 % interval by the sign test.

    However the ratios are distributed, an interval from the k-th least to the k-th largest of n misses their
    median only if fewer than k of them are on one side of it: a matter of n tosses of a coin. The interval of
    less than six pairs is that of all ratios, and says less.

    >>> MedianRatio.of([3.0, 6.0, 3.3], [2.0, 4.0, 2.0])
    MedianRatio(median=1.5, low=1.5, high=1.65)
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], others: Sequence[float]) -> MedianRatio:
        """Return the median ratio of values that were measured in pairs."""
        ratios = sorted(value / other for value, other in zip(values, others, strict=True))
        number, outside, ways = len(ratios), 0, 1
        while outside < number // 2 and 2 * ways / 2**number <= 0.05:
            outside += 1
            ways += math.comb(number, outside)
        last = max(outside - 1, 0)
        return cls(statistics.median(ratios), ratios[last], ratios[-1 - last])

    def figures(self, name: str) -> dict[str, float]:
        """Return the ratio and its interval as figures."""
        return {name: self.median, f"{name}_low": self.low, f"{name}_high": self.high}


def in_turn(
    rounds: int, ours: Callable[[], Ours], theirs: Callable[[], Theirs]
) -> tuple[Ours, Theirs, dict[str, Any]]:
    """Return the last answers of ours and of a peer, and figures of the CPU seconds of both.

    The ratio ``cpu`` is ours over the peer's, of neighbours: other work on the machine disturbs both.
    """
    pairs = [(timed(ours), timed(theirs)) for _ in range(rounds)]
    our_s, peer_s = ([one[1] for one in side] for side in zip(*pairs, strict=True))
    return pairs[-1][0][0], pairs[-1][1][0], beside_peer(our_s, peer_s)


def beside_peer(our_s: Sequence[float], peer_s: Sequence[float]) -> dict[str, Any]:
    """Return figures of CPU seconds that were measured in pairs: ours over the peer's, and both medians."""
    seconds = {"cpu_s": statistics.median(our_s), "peer_cpu_s": statistics.median(peer_s)}
    return MedianRatio.of(our_s, peer_s).figures("cpu") | seconds


def load_solvers() -> None:
    """Load each solver and put a question to it, and compile annealing, so that no case pays for it."""
    placement = v_shape(2).with_memory(1)
    for solver in ("z3", "cpsat"):
        search(placement, 2, solver=solver, time_limit_s=0.2)
    search(v_shape(4).with_memory(3), 4, strategies=["annealing"], objectives=["period"], work_limit=1e-6)
