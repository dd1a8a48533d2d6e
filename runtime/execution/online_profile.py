"""The first iterations measure the blocks, for the server whose plans are followed from then on.

So begins the life of a job with Perseus (Sec. 3.2 and 5). Training goes on all the while: measured are blocks
in their places in the schedule, at one clock an iteration, from the highest down.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from placements import OperatingPoint, Profile
from runtime.plans.plan_client import ServerError, upload_from_environment
from runtime.profiling.device_profiler import DeviceProfiler
from runtime.profiling.profiler import DeviceProfile, blocking_by_clock, merged
from runtime.program.calls import ScriptError
from runtime.transport.protocol import Transport

_LOG = logging.getLogger(__name__)


class OnlineProfile:
    """The profile of a device until all devices are done; then the GPU's clock is for plans.

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
        self._profiler, self._take_clock = profiler, take_clock
        self._transport, self._device = transport, device

    def is_over(self) -> bool:
        """Tell whether plans are followed from the next iteration on; every device must call it before each.

        The profile is uploaded once all have measured enough.
        """
        if self._profiler.is_closed:
            return True
        if not self._profiler.all_done():
            return False
        profiles = self._transport.collect(self._profiler.result())
        self._profiler.close()
        self._take_clock()
        if self._device == 0:
            try:
                upload_from_environment(_profile_of(profiles))
            except ServerError as error:
                _LOG.warning("training goes on without plans, the profile could not be uploaded: %s", error)
        return True


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
