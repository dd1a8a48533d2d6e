"""What a GPU is: what it can do, its network and clocks, and a model of time and power at a clock.

The model stands in for a profile where none was measured. It knows one kind of work, the matrix products
of transformer layers; it does not know temperature, or how one GPU differs from the next. The GPUs by name
are in `placements.gpus`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from placements.profiles.operating_point import OperatingPoint, ProfileError
from placements.profiles.profile import Profile, interpolated
from placements.spec import Placement


@dataclass(frozen=True)
class PowerModel:
    """How time and power depend on the clock.

    With x the share of the sustained clock, at most 1, time grows by ``compute_share * (1 / x - 1)`` and
    power is ``static_w + dynamic_w * x ** exponent``.

    Attributes:
        sustained_clock_mhz: Clock above which the power limit keeps the GPU from being any faster.
        compute_share: Share of the time at the highest clock that depends on the clock; 0 to 1.
        static_w: Power that does not depend on the clock.
        dynamic_w: Power that does, at the sustained clock.
        exponent: Above 1, because the voltage rises with the clock.
    """

    sustained_clock_mhz: int
    compute_share: float
    static_w: float
    dynamic_w: float
    exponent: float

    def power_w(self, clock_mhz: int) -> float:
        """Return the power of a GPU that computes at a clock."""
        return self.static_w + self.dynamic_w * math.pow(self._share_of_sustained(clock_mhz), self.exponent)

    def slowdown(self, clock_mhz: int, compute_share: float) -> float:
        """Return the time at a clock as a multiple of the time at the highest clock."""
        return compute_share / self._share_of_sustained(clock_mhz) + 1 - compute_share

    def _share_of_sustained(self, clock_mhz: int) -> float:
        return min(clock_mhz / self.sustained_clock_mhz, 1.0)


@dataclass(frozen=True)
class ClockLatency:
    """How long a change of clock takes, and how long a clock should last.

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
        """Return how long a change to a clock takes: linear between the known clocks, constant outside.

        >>> ClockLatency(10.0, 20.0, "made up", {600: 20.0, 1000: 10.0}).to_ms(900)
        12.5
        """
        if not self.by_target_ms:
            return self.typical_ms
        return interpolated(tuple(sorted(self.by_target_ms.items())), clock_mhz)

    def between_ms(self, before_mhz: int, after_mhz: int) -> float:
        """Return how long a change between two clocks takes: as measured, or else as to the clock after.

        >>> latency = ClockLatency(10.0, 20.0, "made up", {600: 20.0}, {(900, 600): 15.0})
        >>> latency.between_ms(900, 600), latency.between_ms(800, 600), latency.between_ms(600, 600)
        (15.0, 20.0, 0.0)
        """
        if before_mhz == after_mhz:
            return 0.0
        return self.by_pair_ms.get((before_mhz, after_mhz), self.to_ms(after_mhz))

    @property
    def longest_ms(self) -> float:
        """Return how long a change takes to the clock for which it takes longest."""
        return max(self.by_target_ms.values(), default=self.typical_ms)


_PEAKS = ("peak_tflops", "peak_fp32_tflops", "peak_tf32_tflops", "peak_fp8_tflops", "peak_fp4_tflops")
_BANDWIDTHS = ("memory_bandwidth_gb_s", "link_bandwidth_gb_s", "node_bandwidth_gb_s")


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU.

    Attributes:
        name: Name as its vendor writes it.
        peak_tflops: Dense half-precision matrix products, 1e12 operations per second.
        peak_fp32_tflops: Products of 32-bit numbers outside the matrix units, in the same unit.
        memory_gib: Size of its memory.
        memory_bandwidth_gb_s: Bandwidth from and to its memory together, 1e9 bytes per second.
        link_bandwidth_gb_s: Bandwidth to other GPUs of the same machine, in one direction, of all links.
        clocks_mhz: The clocks it can be set to, ascending.
        blocking_power_w: Power while it waits for a transfer (Perseus, Sec. 4.1).
        power: Time and power at a clock.
        clock_latency: What a change of clock takes.
        power_source: Where the figures of `power` are from.
        peak_tf32_tflops: Dense products of 32-bit numbers that the matrix units round to 19 bits; None where
            they cannot.
        peak_fp8_tflops: Dense products of 8-bit numbers; None where it has none.
        peak_fp4_tflops: Dense products of 4-bit numbers; None where it has none.
        gpus_per_node: GPUs in the vendor's usual machine, or in the rack where all are linked as in one.
        node_bandwidth_gb_s: Bandwidth between two such machines, in one direction, all adapters together;
            None where it is not known.
        network_source: Where `node_bandwidth_gb_s` is from.
        has_direct_links: Each two GPUs of a machine have a link of their own, and no switch, so that a pair
            has but a share of `link_bandwidth_gb_s`.

    Raises:
        ProfileError: A figure is not above 0, or the clocks do not ascend.
    """

    name: str
    peak_tflops: float
    peak_fp32_tflops: float
    memory_gib: float
    memory_bandwidth_gb_s: float
    link_bandwidth_gb_s: float
    clocks_mhz: tuple[int, ...]
    blocking_power_w: float
    power: PowerModel
    clock_latency: ClockLatency
    power_source: str = "source not stated"
    peak_tf32_tflops: float | None = None
    peak_fp8_tflops: float | None = None
    peak_fp4_tflops: float | None = None
    gpus_per_node: int = 8
    node_bandwidth_gb_s: float | None = None
    network_source: str = "source not stated"
    has_direct_links: bool = False

    def __post_init__(self) -> None:
        """Check the figures of a user's file."""
        for name in (*_PEAKS, "memory_gib", *_BANDWIDTHS, "blocking_power_w"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ProfileError(f"{name}: {value!r} is not a number above 0; give one")
        if not self.clocks_mhz or list(self.clocks_mhz) != sorted({*self.clocks_mhz} - {0}):
            raise ProfileError("clocks_mhz: is not a list of ascending clocks above 0; give at least one")

    def link_gb_s(self, num_others: int) -> float:
        """Return the bandwidth to so many other GPUs of a machine together, in one direction.

        >>> from placements.gpus import GPUS
        >>> [GPUS[name].link_gb_s(1) for name in ("h100", "mi300x")]
        [450.0, 64.0]
        """
        links = self.gpus_per_node - 1
        if not self.has_direct_links or links < 2:
            return self.link_bandwidth_gb_s
        return self.link_bandwidth_gb_s * min(max(num_others, 1), links) / links

    def operating_points(
        self, time_ms: float, compute_share: float | None = None
    ) -> tuple[OperatingPoint, ...]:
        """Return the modelled cost, at each clock, of a block that takes some time at the highest clock.

        Args:
            time_ms: Above 0.
            compute_share: Share of that time that depends on the clock, 0 to 1; by default the model's.
                The power is the same for every share.

        Returns:
            By increasing clock.

        Raises:
            ProfileError: The time or the share is out of range.
        """
        share = self.power.compute_share if compute_share is None else compute_share
        if not 0 < time_ms < float("inf"):
            raise ProfileError(f"time_ms: {time_ms} is not a time above 0")
        if not 0 <= share <= 1:
            raise ProfileError(f"compute_share: {share} is not between 0 and 1")
        times = [(clock, time_ms * self.power.slowdown(clock, share)) for clock in self.clocks_mhz]
        return tuple(OperatingPoint(clock, time, time * self.power.power_w(clock)) for clock, time in times)


def modelled_profile(
    placement: Placement, gpu: Gpu, compute_share: float | Mapping[str, float] | None = None
) -> Profile:
    """Return the profile of a placement on a GPU, from the model instead of a measurement.

    Args:
        placement: Its block times are those at the highest clock.
        gpu: What every device is.
        compute_share: Share of the time that depends on the clock: one for all blocks, or for some by
            name; by default the model's.

    Raises:
        ProfileError: A share is not between 0 and 1, or is of a block that the placement lacks.
    """
    shares = compute_share if isinstance(compute_share, Mapping) else {}
    for name in shares:
        if name not in placement.by_name:
            raise ProfileError(f"compute_share: {placement.name} has no block {name!r}; remove it")
    default = None if isinstance(compute_share, Mapping) else compute_share
    points = {
        block.name: gpu.operating_points(block.time * placement.tick_ms, shares.get(block.name, default))
        for block in placement.blocks
    }
    return Profile(gpu.name, points, gpu.blocking_power_w)


DWELL_PER_LATENCY = 2.0
"""How many latencies a clock should last; assumed."""

ASSUMED_LATENCY = ClockLatency(10.0, DWELL_PER_LATENCY * 10.0, "assumed, as of the A100")
"""Time of a change of clock on a GPU that is not known."""
