"""A kind of GPU: peaks, memory, links and clocks, and a model of time and power by clock.

The model stands in for a profile where none was measured. It knows one kind of work, the matrix products
of transformer layers; it does not know temperature, or how one GPU differs from the next. The GPUs by name
are in `placements.gpus`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from placements.forms.meaning import Meaning
from placements.profiles.operating_point import OperatingPoint, ProfileError
from placements.profiles.profile import Profile
from placements.spec import Placement


@dataclass(frozen=True)
class PowerModel:
    """How time and power depend on the clock.

    With x the share of the sustained clock, at most 1, time grows by ``compute_share * (1 / x - 1)`` and
    power is ``static_w + dynamic_w * x ** exponent``.
    """

    sustained_clock_mhz: Annotated[int, Meaning("clock that the power limit allows", "MHz", min=1)]
    compute_share: Annotated[float, Meaning("share of the time that depends on the clock", min=0, max=1)]
    static_w: Annotated[float, Meaning("power that does not depend on the clock", "W", min=0)]
    dynamic_w: Annotated[float, Meaning("power that does, at the sustained clock", "W", min=0)]
    exponent: Annotated[float, Meaning("above 1, because the voltage rises with the clock", above=0)]


@dataclass(frozen=True)
class ClockLatency:
    """Time of a change of clock, and the least time that a clock should last.

    Attributes:
        typical_ms: Time from the request until the clock is in force.
        dwell_ms: Least time from one lowering of the clock to the next that is worth its wait.
        source: Where the figures are from.
        by_target_ms: Times to clocks in MHz for which it is known; the clock asked for matters most.
        by_pair_ms: Times from one clock to another, for pairs that were measured.
    """

    typical_ms: float
    dwell_ms: float
    source: str
    by_target_ms: Mapping[int, float] = field(default_factory=dict, hash=False)
    by_pair_ms: Mapping[tuple[int, int], float] = field(default_factory=dict, hash=False)

    def to_ms(self, clock_mhz: int) -> float:
        """Return the time of a change to a clock in ms: linear between known clocks, constant outside."""
        if not self.by_target_ms:
            return self.typical_ms
        clocks_mhz, times_ms = zip(*sorted(self.by_target_ms.items()), strict=True)
        return float(np.interp(clock_mhz, clocks_mhz, times_ms))

    def between_ms(self, before_mhz: int, after_mhz: int) -> float:
        """Return the time of a change between two clocks: as measured, or else the time to the new clock."""
        if before_mhz == after_mhz:
            return 0.0
        return self.by_pair_ms.get((before_mhz, after_mhz), self.to_ms(after_mhz))

    @property
    def longest_ms(self) -> float:
        """Return the longest time of a clock change, over all target clocks, in ms."""
        return max(self.by_target_ms.values(), default=self.typical_ms)


RESERVE_GIB = 4.0
"""Memory kept for the CUDA context, communication buffers, temporaries and fragmentation: assumed."""

COPY_COMPUTE_SHARE = 0.2
"""Share of the time of copies and transfers that depends on the clock: assumed. They are bound by memory and
links, but at the lowest clocks even those slow down."""

DWELL_PER_LATENCY = 2.0
"""Least time at a clock, in latencies of a change; assumed."""

ASSUMED_LATENCY = ClockLatency(10.0, DWELL_PER_LATENCY * 10.0, "assumed, as of the A100")
"""Time of a change of clock on a GPU without measured latencies."""


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU. Bandwidths to others are in one direction, 1e9 bytes per second.

    Raises:
        ProfileError: The clocks do not ascend.
    """

    name: Annotated[str, Meaning("name as its vendor writes it")]
    peak_tflops: Annotated[float, Meaning("dense products in 16 bits", "TFLOP/s", above=0)]
    peak_fp32_tflops: Annotated[float, Meaning("in 32 bits, outside the matrix units", "TFLOP/s", above=0)]
    memory_gib: Annotated[float, Meaning("size of its memory", "GiB", above=0)]
    memory_bandwidth_gb_s: Annotated[float, Meaning("from and to its memory together", "GB/s", above=0)]
    link_bandwidth_gb_s: Annotated[float, Meaning("to others of its machine, all links", "GB/s", above=0)]
    clocks_mhz: Annotated[tuple[int, ...], Meaning("clocks that it can be set to, ascending", "MHz", min=1)]
    blocking_power_w: Annotated[float, Meaning("while it waits (Perseus, Sec. 4.1)", "W", above=0)]
    power: Annotated[PowerModel, Meaning("time and power at a clock")]
    clock_latency: Annotated[ClockLatency, Meaning("what a change of clock takes")] = ASSUMED_LATENCY
    power_source: Annotated[str, Meaning("where the figures of `power` are from")] = "source not stated"
    peak_tf32_tflops: Annotated[float | None, Meaning("in 32 bits, rounded to 19", "TFLOP/s", above=0)] = None
    peak_fp8_tflops: Annotated[float | None, Meaning("in 8 bits", "TFLOP/s", above=0)] = None
    peak_fp4_tflops: Annotated[float | None, Meaning("in 4 bits", "TFLOP/s", above=0)] = None
    gpus_per_node: Annotated[int, Meaning("in the usual machine, or a rack linked as one", min=1)] = 8
    node_bandwidth_gb_s: Annotated[
        float | None, Meaning("between two such machines, all adapters; without, not known", "GB/s", above=0)
    ] = None
    network_source: Annotated[str, Meaning("where that is from")] = "source not stated"
    has_direct_links: Annotated[bool, Meaning("pairs have a link of their own, and no switch")] = False
    rates: Annotated[str, Meaning("GPU whose measured operators it has; empty: none were measured")] = ""
    run_slowdown: Annotated[
        float, Meaning("time of a product in a run, over its time alone in a short test", min=1)
    ] = 1.0
    board_w: Annotated[float, Meaning("usual power limit of the board", "W", above=0)] = 400.0

    def __post_init__(self) -> None:
        if not self.clocks_mhz or list(self.clocks_mhz) != sorted({*self.clocks_mhz}):
            raise ProfileError("clocks_mhz: is not a list of ascending clocks; give at least one")

    def link_gb_s(self, num_others: int) -> float:
        """Return the bandwidth to `num_others` other GPUs of a machine together, in one direction."""
        links = self.gpus_per_node - 1
        if not self.has_direct_links or links < 2:
            return self.link_bandwidth_gb_s
        return self.link_bandwidth_gb_s * min(max(num_others, 1), links) / links

    def clock_share(self, power_w: float) -> float:
        """Return the clock at a power limit, as a share of the sustained clock at the board's usual limit.

        Raises:
            ProfileError: The limit is below the power that does not depend on the clock.
        """
        model = self.power
        dynamic_w = power_w / self.board_w * (model.static_w + model.dynamic_w) - model.static_w
        if dynamic_w <= 0:
            raise ProfileError(f"power_w: {power_w:g} W is too low for {self.name}; the clock is not known")
        return float(min(math.pow(dynamic_w / model.dynamic_w, 1 / model.exponent), 1.0))

    def operating_points(
        self, time_ms: float, compute_share: float | None = None
    ) -> tuple[OperatingPoint, ...]:
        """Return the modelled cost, by increasing clock, of a block that takes a time at the highest clock.

        The share of that time that depends on the clock, 0 to 1, is by default the model's; the power is the
        same for every share.

        Raises:
            ProfileError: The time or the share is out of range.
        """
        share = self.power.compute_share if compute_share is None else compute_share
        if not 0 < time_ms < float("inf"):
            raise ProfileError(f"time_ms: {time_ms} is not a time above 0")
        if not 0 <= share <= 1:
            raise ProfileError(f"compute_share: {share} is not between 0 and 1")
        points, model = [], self.power
        for clock in self.clocks_mhz:
            x = min(clock / model.sustained_clock_mhz, 1.0)
            time = time_ms * (share / x + 1 - share)
            power_w = model.static_w + model.dynamic_w * math.pow(x, model.exponent)
            points.append(OperatingPoint(clock, time, time * power_w))
        return tuple(points)


def modelled_profile(
    placement: Placement, gpu: Gpu, compute_share: float | Mapping[str, float] | None = None
) -> Profile:
    """Return the profile of a placement on a GPU, from the model instead of a measurement.

    Block times of the placement are those at the highest clock. The share of the time that depends on the
    clock is one for all blocks, or for some by name; by default the model's.

    Raises:
        ProfileError: A share is not between 0 and 1, or is of a block that the placement lacks.
    """
    shares, default = (compute_share, None) if isinstance(compute_share, Mapping) else ({}, compute_share)
    for name in shares:
        if name not in placement.by_name:
            raise ProfileError(f"compute_share: {placement.name} has no block {name!r}; remove it")
    points = {
        block.name: gpu.operating_points(block.time * placement.tick_ms, shares.get(block.name, default))
        for block in placement.blocks
    }
    return Profile(gpu.name, points, gpu.blocking_power_w)
