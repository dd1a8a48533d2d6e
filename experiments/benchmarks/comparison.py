"""Ours beside a peer: CPU seconds of both on the same task, measured in pairs, and their answers."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_FRACTION = 0.1
"""Below this a ratio is written as 1/n."""

ALMOST = 1e-9
"""Share by which rounding errors may make a time or an energy larger."""


def missing_file(path: Path) -> str:
    """Return that a file is not there; empty where it is."""
    return "" if path.is_file() else f"{path.name} is not there"


def missing(package: str, version: str = "") -> str:
    """Return why an optional package cannot be used, in this version if one is named; empty where it can."""
    remedy = f"pip install {package}" + (f"=={version}" if version else "")
    if importlib.util.find_spec(package) is None:
        return f"{package} is not installed; {remedy}"
    installed = importlib.metadata.version(package) if version else ""
    return "" if installed == version else f"{package} is {installed}; {remedy}"


@dataclass(frozen=True)
class Ratio:
    """How many times as much one thing takes as another: the median, least and largest ratio of pairs.

    >>> print(Ratio.of([1.0, 1.2, 1.1], [1.0, 1.0, 1.0]))
    1.10 (1.00 to 1.20)
    >>> print(Ratio.of([1.0, 1.0], [50.0, 60.0]))
    1/55 (1/60 to 1/50)
    """

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, times: Sequence[float], others: Sequence[float]) -> Ratio:
        """Return the ratio of times that were measured in pairs."""
        ratios = [time / other for time, other in zip(times, others, strict=True)]
        return cls(statistics.median(ratios), min(ratios), max(ratios))

    def __str__(self) -> str:
        """Return the median and the range."""
        return f"{_text(self.median)} ({_text(self.least)} to {_text(self.most)})"


@dataclass(frozen=True)
class MedianRatio:
    """A median of ratios that were measured in pairs, with its 95 % interval by the sign test.

    However the ratios are distributed, an interval from the k-th least to the k-th largest of n misses their
    median only if fewer than k of them are on one side of it: a matter of n tosses of a coin. The interval of
    less than six pairs is that of all ratios, and says less.
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

    def __str__(self) -> str:
        """Return the median and the interval."""
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f})"


def _text(ratio: float) -> str:
    return f"1/{1 / ratio:.0f}" if ratio < _FRACTION else f"{ratio:.2f}"


@dataclass(frozen=True)
class PeerComparison:
    """Ours beside a peer on one task, run in turn.

    Attributes:
        task: What both do, in a few words; the same for all sizes of it.
        size_name: What its size counts, as ``"devices"``.
        size: How many.
        ours_s: CPU seconds of each of our runs.
        peer_s: Those of the peer, each right after one of ours.
        answer: What of the answers is compared; less of it is better.
        ours: Of our answer.
        peer: Of the peer's.
    """

    task: str
    size_name: str
    size: int
    ours_s: tuple[float, ...]
    peer_s: tuple[float, ...]
    answer: str
    ours: float
    peer: float

    @property
    def cost(self) -> Ratio:
        """CPU seconds, ours over the peer's."""
        return Ratio.of(self.ours_s, self.peer_s)

    @property
    def answer_ratio(self) -> float:
        """Our answer over the peer's."""
        return self.ours / self.peer
