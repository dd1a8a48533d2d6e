"""The outcome of a run: times, losses, and how far it is from the unpipelined model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from placements.forms.reading import plain
from runtime.profiling.profiler import DeviceProfile
from runtime.profiling.records import Record

SCHEMA_VERSION = 1
"""Version of the plain-data form."""

TOLERANCE = 1e-12
"""Relative error up to which a float64 run equals the unsharded reference: only the order of sums differs."""

INEXACT_DIGITS = 0.5
"""Share of the digits of a type within which a run that is not exact equals the unpipelined model: its sums
over devices are made in any order."""


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
        bitwise_equal: Whether every loss, gradient and final parameter has the bits of a replay of the
            devices' orders in one process.
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
    """The outcome of running one plan's scripts; sequences by device unless they are per iteration.

    Attributes:
        backend: ``gloo`` or ``nccl``; in one process ``rendezvous`` or ``buffered``.
        time_ms: Per iteration, from the common start to the end of the slowest device's last block and
            transfer; the gradient step is not in it.
        losses: Per iteration, of each micro-batch.
        clock_requests: The clocks asked for in one run of all iterations, in order; MHz.
        clock_backend: One line: the fate of the requests, and why.
        blocking: Whether every transfer waited for its other end.
        first_iteration: The first that was run; above 0 where the run went on from a checkpoint.
        peak_posted_bytes: The most memory of receives that were posted and not yet taken.
        peak_host_bytes: The most that the host kept of offloaded blocks.
        records: The last iterations, if the run was recorded.
        verify: Which iterations were compared: one of `runtime.execution.run_options.VERIFY`.
        exact: Whether sums over devices were made in the order of the devices.
        peak_rss_mib: The most memory of the process, in MiB; threads of one process share it.
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
        """Return the measurement as plain data, as in ``measurement.json``."""
        compared = dict.fromkeys(ReferenceComparison._fields) | {"reference_losses": ()}
        if self.comparison is not None:
            compared = self.comparison._asdict()
        names = [field.name for field in fields(self) if field.name not in _NOT_PLAIN]
        facts = {"schema_version": SCHEMA_VERSION, "iterations": self.iterations}
        return dict(plain(facts | {name: getattr(self, name) for name in names} | compared))


_NOT_PLAIN = ("comparison", "profiles", "records")
