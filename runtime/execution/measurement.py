"""What a run returned: times, losses, and how far it is from the unpipelined model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from runtime.profiling.profiler import DeviceProfile
from runtime.profiling.records import Record

SCHEMA_VERSION = 1
"""Version of the plain-data form."""

TOLERANCE = 1e-12
"""Relative error up to which a float64 run equals the unsharded reference: only the order of sums differs."""

INEXACT_DIGITS = 0.5
"""Share of the digits of a type within which a run that is not exact equals the unpipelined model: its sums
over devices are made in any order, or its blocks are compiled."""


class ReferenceComparison(NamedTuple):
    """How far a run is from the unpipelined model.

    Attributes:
        reference_losses: Of the unpipelined model; per iteration, of each micro-batch.
        max_loss_error: Largest relative difference of two losses.
        max_gradient_error: Largest difference between a gradient and that of the unsharded model, over
            the largest absolute value of that gradient tensor; the worst tensor of all iterations, and 0
            for placements without backward blocks. Infinite where only one of the two has a gradient. Both
            add up micro-batches in the order of the devices.
        max_parameter_error: The same for the parameters, and buffers, after the last step.
        bitwise_equal: Whether every loss, gradient and final parameter equals, bit for bit, a replay of
            the devices' orders in one process.
        tolerance: Relative error up to which they count as equal.
    """

    reference_losses: tuple[tuple[float, ...], ...]
    max_loss_error: float
    max_gradient_error: float
    max_parameter_error: float
    bitwise_equal: bool
    tolerance: float = TOLERANCE

    @property
    def is_equal(self) -> bool:
        """Whether losses, gradients and parameters are within the tolerance."""
        return max(self.max_loss_error, self.max_gradient_error, self.max_parameter_error) <= self.tolerance


@dataclass(frozen=True)
class Measurement:
    """The outcome of running one plan's scripts.

    Attributes:
        backend: ``gloo`` or ``nccl``; in one process ``rendezvous`` or ``buffered``.
        time_ms: Per iteration, from the common start to the end of the slowest device's last block and
            transfer; the gradient step is not in it.
        losses: Per iteration, of each micro-batch.
        comparison: With the unpipelined model, or None if the run was not compared.
        clock_requests: For each device the clocks asked for in one run of all iterations, in order; MHz.
        clock_backend: One line: what became of the requests, and why.
        device_names: What each device is.
        profiles: What each device measured of its blocks, if the run profiled them.
        blocking: Whether every transfer waited for its other end.
        num_micro_batches: Number of micro-batches of one iteration.
        first_iteration: The first that was run; above 0 where the run went on from a checkpoint.
        peak_posted_bytes: The most memory of receives that were posted and not yet taken, by device.
        peak_host_bytes: The most that the host kept of offloaded blocks, by device.
        peak_gathered_bytes: The most of sharded weights that was gathered at one time, by device.
        records: For each device what it did in the last iterations, if the run was recorded.
        verify: Which iterations were compared: one of `runtime.execution.run_options.VERIFY`.
        verify_reason: Why, in words.
        exact: Whether sums over devices were made in the order of the devices.
        peak_rss_mib: The most memory of each device's process, in MiB; threads of one process share it.
        rss_after_import_mib: What the process had before its model was made, in MiB.
        plans: Plans of a server that were followed: (first iteration, version, planned ms).
    """

    backend: str
    time_ms: tuple[float, ...]
    losses: tuple[tuple[float, ...], ...]
    comparison: ReferenceComparison | None
    clock_requests: Mapping[int, tuple[int, ...]]
    clock_backend: str
    device_names: tuple[str, ...]
    profiles: tuple[DeviceProfile, ...] = ()
    blocking: bool = False
    num_micro_batches: int = 0
    first_iteration: int = 0
    peak_posted_bytes: tuple[int, ...] = ()
    peak_host_bytes: tuple[int, ...] = ()
    peak_gathered_bytes: tuple[int, ...] = ()
    records: tuple[tuple[Record, ...], ...] = ()
    verify: str = "none"
    verify_reason: str = ""
    exact: bool = False
    peak_rss_mib: tuple[float, ...] = ()
    rss_after_import_mib: tuple[float, ...] = ()
    plans: tuple[tuple[int, int, float], ...] = ()

    @property
    def iterations(self) -> int:
        """How often the iteration ran, those before a checkpoint aside."""
        return len(self.time_ms)

    def to_dict(self) -> dict[str, Any]:
        """Return the measurement as plain data; devices are text, as JSON wants of keys."""
        comparison = self.comparison
        return {
            "schema_version": SCHEMA_VERSION,
            "backend": self.backend,
            "blocking": self.blocking,
            "num_micro_batches": self.num_micro_batches,
            "first_iteration": self.first_iteration,
            "peak_posted_bytes": list(self.peak_posted_bytes),
            "peak_host_bytes": list(self.peak_host_bytes),
            "peak_gathered_bytes": list(self.peak_gathered_bytes),
            "iterations": self.iterations,
            "time_ms": list(self.time_ms),
            "losses": [list(row) for row in self.losses],
            "reference_losses": [list(row) for row in comparison.reference_losses] if comparison else [],
            "max_loss_error": comparison and comparison.max_loss_error,
            "max_gradient_error": comparison and comparison.max_gradient_error,
            "max_parameter_error": comparison and comparison.max_parameter_error,
            "bitwise_equal": comparison and comparison.bitwise_equal,
            "clock_requests": {str(device): list(clocks) for device, clocks in self.clock_requests.items()},
            "clock_backend": self.clock_backend,
            "device_names": list(self.device_names),
            "verify": self.verify,
            "verify_reason": self.verify_reason,
            "exact": self.exact,
            "tolerance": comparison and comparison.tolerance,
            "peak_rss_mib": list(self.peak_rss_mib),
            "rss_after_import_mib": list(self.rss_after_import_mib),
            "plans": [list(each) for each in self.plans],
        }
