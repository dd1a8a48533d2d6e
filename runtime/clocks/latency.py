"""How long changes of clock take on a GPU, measured for pairs of clocks; ``python -m runtime.clock latency``.

A clock is asked for in the way of scripts, through the controller. Then a probe says again and again how fast
the GPU is; the clock is in force from the first of several answers in a row that are near those at the end.
Perseus (footnote 2) has one figure for all; the clock that is asked for is known to matter most. A probe is a
kernel that spins, or the clock of NVML. A change that needs more than the window is an error, not a figure.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple

import numpy as np

from placements import ProfileError
from placements.forms.meaning import Meaning
from placements.forms.reading import json_file
from placements.forms.texts import write_json
from placements.hardware import DWELL_PER_LATENCY, ClockLatency
from runtime.clocks.clock import ClockBackend, ClockError, NvmlClock
from runtime.clocks.nvml import NvmlError, NvmlGpu

LATENCY_SCHEMA_VERSION = 1
"""Version of the form of ``clock_latency.json``."""

WANTED = "the file that python -m runtime.clock latency writes"


class Change(NamedTuple):
    """A change of clock, measured several times."""

    from_mhz: Annotated[int, Meaning("clock before", "MHz", min=1)]
    to_mhz: Annotated[int, Meaning("clock asked for", "MHz", min=1)]
    latency_ms: Annotated[
        tuple[float, ...], Meaning("times from each request until the clock was in force", "ms", min=0)
    ]


def write_clock_latency(path: str | Path, gpu: str, measured: str, changes: Sequence[Change]) -> Path:
    """Write the changes of every pair of a GPU's clocks; `measured` is the method, in one line."""
    facts = {"gpu": gpu, "measured": measured, "changes": changes}
    return write_json(path, {"schema_version": LATENCY_SCHEMA_VERSION, **facts})


def read_clock_latency(path: str | Path) -> ClockLatency:
    """Return the table that plans and scripts use, from a file that `write_clock_latency` wrote.

    A change takes its median; to a clock from one that was not tried, as long as from the clock from
    which it takes longest. The dwell is assumed, as for the other tables.

    Raises:
        ProfileError: It cannot be read, or is not of that form.
    """
    with json_file(path, WANTED, ProfileError) as top:
        top.version(LATENCY_SCHEMA_VERSION, LATENCY_SCHEMA_VERSION)
        changes = top.get("changes").typed(tuple[Change, ...])
        if not changes or not all(change.latency_ms for change in changes):
            raise top["changes"].wrong("a list of measured changes", f"give {WANTED}")
    by_pair = {(change.from_mhz, change.to_mhz): median(change.latency_ms) for change in changes}
    by_target: dict[int, float] = {}
    for (_, to_mhz), ms in sorted(by_pair.items(), key=lambda row: row[0][1]):
        by_target[to_mhz] = max(ms, by_target.get(to_mhz, 0.0))
    return ClockLatency(
        median(by_pair.values()),
        DWELL_PER_LATENCY * max(by_target.values()),
        f"{path}, {top.get('gpu').value}: {top.get('measured').value}; dwell assumed",
        by_target,
        by_pair,
    )


IN_A_ROW = 5
"""So many answers near the last ones say that the clock is in force."""

_NEAR = 0.25
"""Relative tolerance of an answer, as a share of the difference."""

_MIN_ANSWERS = 4 * IN_A_ROW
"""In a window, however slowly they come."""


BLOCK_MS = 0.25
"""How long a probe computes at the slower of two clocks: so exact is a latency."""


class ProbeAnswer(NamedTuple):
    """Speed of a GPU, in proportion to its clock, and when the probe began to look, from any start."""

    begin_ms: float
    speed: float


class Probe(NamedTuple):
    """Says how fast a GPU is.

    Attributes:
        look: Does a little work, which takes `BLOCK_MS` at a clock in MHz, and says how fast.
        description: How it finds the speed.
    """

    now_ms: Callable[[], float]
    look: Callable[[int], ProbeAnswer]
    description: str


class LatencyError(RuntimeError):
    """A latency cannot be measured; the message gives the reason and a remedy."""


def measure(
    clock: ClockBackend,
    probe: Probe,
    clocks_mhz: Sequence[int],
    progress: Callable[[str], None],
    repeats: int = 5,
    window_ms: float = 200.0,
) -> list[Change]:
    """Return how long each change takes, of every pair of clocks, both ways.

    Args:
        clock: Takes the requests.
        probe: Looks at the same GPU.
        clocks_mhz: Clocks to change between.
        progress: Called with a line for each pair.
        repeats: How often each change is measured.
        window_ms: Time in which a change must have come into force; else it is a `LatencyError`.
    """

    def answers(to_mhz: int, slower_mhz: int) -> tuple[float, list[ProbeAnswer]]:
        """Ask for a clock; return when, and the probe's answers in the window after it."""
        begin_ms, taken = probe.now_ms(), list[ProbeAnswer]()
        clock.set(to_mhz)
        while len(taken) < _MIN_ANSWERS or probe.now_ms() - begin_ms < window_ms:
            taken.append(probe.look(slower_mhz))
        return begin_ms, taken

    changes: list[Change] = []
    for low, high in combinations(sorted(clocks_mhz), 2):
        _, after = answers(low, low)
        measured_ms: dict[tuple[int, int], list[float]] = {(low, high): [], (high, low): []}
        for _ in range(repeats):
            for (from_mhz, to_mhz), latencies_ms in measured_ms.items():
                before = after
                begin_ms, after = answers(to_mhz, low)
                latencies_ms.append(in_force_ms(from_mhz, to_mhz, before, after) - begin_ms)
        changes += [Change(*pair, tuple(latencies_ms)) for pair, latencies_ms in measured_ms.items()]
        up_ms, down_ms = map(median, measured_ms.values())
        progress(f"{low} to {high} MHz: {up_ms:.2f} ms; back: {down_ms:.2f} ms")
    return changes


def in_force_ms(
    from_mhz: int, to_mhz: int, before: Sequence[ProbeAnswer], after: Sequence[ProbeAnswer]
) -> float:
    """Return when a clock came into force, by answers before, at their end, and after the request.

    Raises:
        LatencyError: The GPU is not faster or slower by half as much as the clocks are apart.
    """
    old, new = (median(answer.speed for answer in answers[-IN_A_ROW:]) for answers in (before, after))
    if math.log(new / old) / math.log(to_mhz / from_mhz) < 0.5:
        raise LatencyError(
            f"{to_mhz} MHz is not in force at the end of the window after {from_mhz} MHz: the speed goes "
            f"from {old:.4g} to {new:.4g}; use a longer --window-ms, or fewer --num-clocks, if no limit of "
            "power or heat holds the GPU back"
        )
    near = [abs(answer.speed - new) <= _NEAR * abs(new - old) for answer in after]
    for first in range(len(near) - IN_A_ROW + 1):
        if all(near[first : first + IN_A_ROW]):
            return after[first].begin_ms
    raise LatencyError(
        f"the GPU's speed is not steady after {from_mhz} to {to_mhz} MHz; let nothing else run on it, or "
        "use a longer --window-ms"
    )


def spread(clocks_mhz: Sequence[int], number: int) -> list[int]:
    """Return some of the clocks, the least and the highest among them, by about equal ratios.

    >>> spread(range(300, 2400 + 1, 100), 4)
    [300, 600, 1200, 2400]
    """
    wanted = np.geomspace(min(clocks_mhz), max(clocks_mhz), number).tolist()
    return sorted({min(clocks_mhz, key=lambda clock: abs(clock - mhz)) for mhz in wanted})


def probe_of(gpu: NvmlGpu) -> Probe:
    """Return the probe of a GPU: by work if torch sees it, else by the clock that the driver shows."""
    if importlib.util.find_spec("torch") is not None and (by_work := _cycle_probe(gpu.uuid)) is not None:
        return by_work

    def look(slower_mhz: int) -> ProbeAnswer:
        time.sleep(BLOCK_MS / 1000)
        return ProbeAnswer(_now_ms(), gpu.clock_mhz())

    return Probe(_now_ms, look, "the SM clock that NVML shows, since torch does not see this GPU")


def _cycle_probe(uuid: str) -> Probe | None:
    """Return a probe that times a kernel which counts an SM's cycles; None if torch does not see the GPU."""
    import torch

    from runtime.clocks.gpu_clock import gpu_uuid

    devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    device = next((device for device in devices if uuid.endswith(gpu_uuid(device))), None)
    if device is None:
        return None
    torch.cuda.set_device(device)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

    def look(slower_mhz: int) -> ProbeAnswer:
        begin_ms, cycles = _now_ms(), int(BLOCK_MS * slower_mhz * 1000)
        begin.record()
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        end.record()
        end.synchronize()
        return ProbeAnswer(begin_ms, cycles / begin.elapsed_time(end) / 1000)

    return Probe(_now_ms, look, "the time of a kernel that spins for a number of cycles")


def _now_ms() -> float:
    return time.perf_counter() * 1000


def run(parsed: argparse.Namespace) -> int:
    """Measure a GPU, write the file, and say so; return the exit code."""
    try:
        gpu = NvmlGpu(parsed.gpu)
        clocks_mhz = spread(gpu.clocks_mhz(), parsed.num_clocks)
        clock, probe = NvmlClock(gpu.uuid), probe_of(gpu)
        try:
            tell = partial(print, flush=True)
            changes = measure(clock, probe, clocks_mhz, tell, parsed.repeats, parsed.window_ms)
        finally:
            clock.reset()
    except (NvmlError, ClockError, LatencyError) as error:
        sys.stderr.write(f"runtime.clock latency: {error}\n")
        return 1
    how = f"median of {parsed.repeats} changes for each pair of {len(clocks_mhz)} clocks"
    path = write_clock_latency(parsed.output, gpu.name, f"{how}, by {probe.description}", changes)
    print(f"{path}; use it with: profile.clock_latency={path} energy.dwell_ms=auto energy.switch_ms=auto")  # noqa: T201
    return 0
