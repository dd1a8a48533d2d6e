"""The first iterations measure the blocks, for the server whose plans are followed from then on.

So begins the life of a job with Perseus (Sec. 3.2 and 5). Training goes on all the while: measured are blocks
in their places in the schedule, at one clock an iteration, from the highest down.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from torch import Tensor

from placements import OperatingPoint, Profile
from runtime.plans.plan_client import ServerError, upload_from_environment
from runtime.profiling.device_profiler import DeviceProfiler
from runtime.profiling.observer import DeviceObserver
from runtime.profiling.profiler import DeviceProfile, blocking_by_clock, merged
from runtime.program.calls import BlockCall, ScriptError
from runtime.transport.protocol import Transport

_LOG = logging.getLogger(__name__)


class OnlineProfile(DeviceObserver):
    """Profiles a device until all devices are done, and then gives the GPU's clock to plans.

    Attributes:
        is_over: Whether plans are followed now.

    Args:
        profiler: Measures the device.
        take_clock: Opens the clock for plans, after the profile.
        transport: Reaches the other devices.
        device: This one; 0 uploads.

    Raises:
        ScriptError: The device has no energies, or no clock that may be set.
    """

    def __init__(
        self, profiler: DeviceProfiler, take_clock: Callable[[], None], transport: Transport, device: int
    ) -> None:
        if not profiler.profiler.measures_energy or profiler.profiler.clock is None:
            raise ScriptError(
                f"profile_online: device {device} cannot measure energies by clock ({profiler.description}); "
                "upload a profile instead"
            )
        self.is_over = False
        self._profiler, self._take_clock = profiler, take_clock
        self._transport, self._device = transport, device

    def between_iterations(self) -> None:
        """Upload and go over to plans, once all have measured enough; every device must call it."""
        if self.is_over or not self._profiler.all_done():
            return
        found = self._transport.collect(self._profiler.result().to_plain())
        self.close()
        self._take_clock()
        self.is_over = True
        if self._device == 0:
            try:
                upload_from_environment(_profile_of([DeviceProfile.from_plain(each) for each in found]))
            except ServerError as error:
                _LOG.warning("training goes on without plans, the profile could not be uploaded: %s", error)

    def close(self) -> None:
        """Give the clock back."""
        if not self.is_over:
            self._profiler.close()

    def begin(self, iteration: int) -> None:
        """Go to the clock of an iteration."""
        if not self.is_over:
            self._profiler.begin(iteration)

    def start(self, run: BlockCall, arrived: Sequence[Tensor]) -> None:
        """Begin to measure a block."""
        if not self.is_over:
            self._profiler.start(run, arrived)

    def stop(self, run: BlockCall, made: Iterable[Tensor]) -> None:
        """Add the measurement."""
        if not self.is_over:
            self._profiler.stop(run, made)

    def end(self) -> None:
        """Choose the clock of the next iteration."""
        if not self.is_over:
            self._profiler.end()


def _profile_of(devices: Sequence[DeviceProfile]) -> Profile:
    """Return the profile of all devices; the power of waiting is the mean, 0 where none has measured it."""
    points = {
        block: tuple(
            OperatingPoint(cost.clock_mhz, cost.time_ms, cost.energy_mj)
            for cost in costs
            if cost.clock_mhz is not None and cost.energy_mj is not None
        )
        for block, costs in merged(devices).items()
    }
    return Profile("measured online", points, next(iter(blocking_by_clock(devices).values()), 0.0))
