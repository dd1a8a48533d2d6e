"""How long changes of clock take on a GPU, measured for pairs of clocks; ``python -m runtime.clock latency``.

A clock is asked for in the way of scripts, through the controller. Then a probe says again and again how fast
the GPU is; the clock is in force from the first of several answers in a row that are near those at the end.
Perseus (footnote 2) has one figure for all; the clock that is asked for is known to matter most. The module
does not know what a probe does; a change that needs more than the window is an error, not a figure.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median

from runtime.clocks.clock import ClockBackend, ClockError, NvmlClock
from runtime.clocks.latency_file import Change, MeasuredLatency
from runtime.clocks.nvml import NvmlError, NvmlGpu
from runtime.clocks.probe import Probe, ProbeAnswer, clock_probe

IN_A_ROW = 5
"""So many answers near the last ones say that the clock is in force."""

_NEAR = 0.25
"""Relative tolerance of an answer, as a share of the difference."""

_LEAST_ANSWERS = 4 * IN_A_ROW
"""In a window, however slowly they come."""


class LatencyError(RuntimeError):
    """A latency cannot be measured; the message says why and what to do."""


@dataclass(frozen=True)
class Pairs:
    """Which changes are measured, and how often.

    Attributes:
        clocks_mhz: Every pair of these, both ways.
        repeats: How often each.
        window_ms: Time in which a change must have come into force.
    """

    clocks_mhz: Sequence[int]
    repeats: int = 5
    window_ms: float = 200.0


def measure(clock: ClockBackend, probe: Probe, pairs: Pairs, progress: Callable[[str], None]) -> list[Change]:
    """Return how long each change takes.

    Args:
        clock: Takes the requests.
        probe: Looks at the same GPU.
        pairs: What to measure.
        progress: Called with a line for each pair.

    Raises:
        LatencyError: A clock does not come into force.
    """
    changes: list[Change] = []
    for low, high in combinations(sorted(pairs.clocks_mhz), 2):
        answers = _answers(clock, probe, low, low, pairs.window_ms)
        up_ms: list[float] = []
        down_ms: list[float] = []
        for _ in range(pairs.repeats):
            for from_mhz, to_mhz, found_ms in ((low, high, up_ms), (high, low, down_ms)):
                before, begin_ms = answers, probe.now_ms()
                answers = _answers(clock, probe, to_mhz, low, pairs.window_ms)
                found_ms.append(in_force_ms(from_mhz, to_mhz, before, answers) - begin_ms)
        changes += [Change(low, high, tuple(up_ms)), Change(high, low, tuple(down_ms))]
        progress(f"{low} to {high} MHz: {median(up_ms):.2f} ms; back: {median(down_ms):.2f} ms")
    return changes


def in_force_ms(
    from_mhz: int, to_mhz: int, before: Sequence[ProbeAnswer], after: Sequence[ProbeAnswer]
) -> float:
    """Return when a clock came into force.

    Args:
        from_mhz: The clock before.
        to_mhz: The clock asked for.
        before: Answers that end at the clock before.
        after: Answers since the request.

    Raises:
        LatencyError: The GPU is not faster or slower by half as much as the clocks are apart.
    """
    old, new = (median(answer.speed for answer in found[-IN_A_ROW:]) for found in (before, after))
    wanted = math.log(to_mhz / from_mhz)
    if math.log(new / old) / wanted < 0.5:
        raise LatencyError(
            f"{to_mhz} MHz is not in force at the end of the window after {from_mhz} MHz: the speed goes "
            f"from {old:.4g} to {new:.4g}; use a longer --window-ms, or fewer --num-clocks, if no limit of "
            "power or heat holds the GPU back"
        )
    near = [abs(answer.speed - new) <= _NEAR * abs(new - old) for answer in after]
    found = next((i for i in range(len(near) - IN_A_ROW + 1) if all(near[i : i + IN_A_ROW])), None)
    if found is None:
        raise LatencyError(
            f"the GPU's speed is not steady after {from_mhz} to {to_mhz} MHz; let nothing else run on it, or "
            "use a longer --window-ms"
        )
    return after[found].begin_ms


def spread(clocks_mhz: Sequence[int], number: int) -> list[int]:
    """Return some of the clocks, the least and the highest among them, by about equal ratios.

    >>> spread(range(300, 2400 + 1, 100), 4)
    [300, 600, 1200, 2400]
    """
    low, high = min(clocks_mhz), max(clocks_mhz)
    wanted = (low * (high / low) ** (i / max(number - 1, 1)) for i in range(number))
    return sorted({min(clocks_mhz, key=lambda clock: abs(clock - each)) for each in wanted})


def _answers(
    clock: ClockBackend, probe: Probe, clock_mhz: int, slower_mhz: int, window_ms: float
) -> list[ProbeAnswer]:
    """Ask for a clock, and return what the probe says in the window after it."""
    begin_ms = probe.now_ms()
    clock.set(clock_mhz)

    def found() -> Iterator[ProbeAnswer]:
        number = 0
        while number < _LEAST_ANSWERS or probe.now_ms() - begin_ms < window_ms:
            number += 1
            yield probe.look(slower_mhz)

    return list(found())


def _probe(gpu: NvmlGpu) -> Probe:
    if importlib.util.find_spec("torch") is not None:
        from runtime.clocks.cycle_probe import cycle_probe_of

        if (probe := cycle_probe_of(gpu.uuid)) is not None:
            return probe
    return clock_probe(gpu)


def run(parsed: argparse.Namespace) -> int:
    """Measure a GPU, write the file, and say so; return the exit code."""
    try:
        gpu = NvmlGpu(parsed.gpu)
        pairs = Pairs(spread(gpu.clocks_mhz(), parsed.num_clocks), parsed.repeats, parsed.window_ms)
        clock, probe = NvmlClock(gpu.uuid), _probe(gpu)
        try:
            changes = measure(clock, probe, pairs, lambda line: print(line, flush=True))  # noqa: T201
        finally:
            clock.reset()
    except (NvmlError, ClockError, LatencyError) as error:
        sys.stderr.write(f"runtime.clock latency: {error}\n")
        return 1
    how = (
        f"median of {parsed.repeats} changes for each pair of {len(pairs.clocks_mhz)} clocks, by "
        f"{probe.description}"
    )
    path = MeasuredLatency(gpu.name, how, changes).save(Path(parsed.output))
    print(f"{path}; use it with: profile.clock_latency={path} energy.dwell_ms=auto energy.switch_ms=auto")  # noqa: T201
    return 0
